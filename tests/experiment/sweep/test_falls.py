# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a figure falls along an axis, and the sweep of queue pairs that shows it."""

import json

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import UserError
from softroce_lab.experiment.sweep import spec as sweep_spec
from softroce_lab.experiment.sweep.falls import Falls

SWEEP = """\
name: many
experiment:
  topology: {generator: {kind: star, hosts: 5, access: {rate: 100Gbit, delay: 1us}}}
  mtu: 4200
  rnic: lru-512
  message_slots: 16
  transports: [rc]
  workload: {kind: scatter, from: h1, bytes: 400kB, message: 4000B}
over:
  peers:
    "32": {topology.generator.hosts: 33, workload.bytes: 64000B}
    "256": {topology.generator.hosts: 257, workload.bytes: 64000B}
    "600": {topology.generator.hosts: 601, workload.bytes: 64000B}
falls: {along: peers, figure: goodput_bps, share: 10%}
"""


def rows(*rates, transport="rc"):
    return [
        {"peers": str(64 << n), "state": "a", "transport": transport, "goodput_bps": rate}
        for n, rate in enumerate(rates)
    ]


def test_the_value_at_which_a_share_is_lost_lies_between_two():
    """Half of the way from 64 to 128, by their logarithms."""
    watched = Falls("peers", "goodput_bps", 0.05)
    assert watched.at([(64, 100), (128, 90)]) == pytest.approx(64 * 2**0.5)
    assert watched.at([(64, 100), (128, 95), (256, 94)]) == pytest.approx(128)
    assert watched.at([(64, 100), (128, 95.1)]) is None


def test_a_figure_falls_where_it_goes_below_what_the_share_leaves():
    """Not where it has exactly that, and then no less; 75 is exact."""
    watched = Falls("peers", "goodput_bps", 0.25)
    assert watched.at([(64, 100), (128, 75)]) is None
    assert watched.at([(64, 100), (128, 75), (256, 75), (512, 50)]) == pytest.approx(256)
    recovers = [(64, 100), (128, 75), (256, 100), (512, 50)]
    assert watched.at(recovers) == pytest.approx(256 * 2**0.5)


def test_each_transport_and_value_of_another_axis_has_a_curve_of_medians():
    watched = Falls("peers", "goodput_bps", 0.05)
    found = watched.document(["state", "peers"], rows(100, 60) + rows(90, 95, transport="csa_ud"))
    assert [each["curve"] for each in found] == ["rc, state a", "csa_ud, state a"]
    assert [each["at"] is None for each in found] == [False, True]
    first, second = watched.lines(["state", "peers"], rows(100, 100, 60) + rows(9, transport="x"))
    assert first == (
        "rc, state a: goodput_bps has lost 0.05 of what it is at 64 from 140 peers on; "
        "0.600 of it is left at 256"
    )
    assert second == "x, state a: 1.000 of it is left at 64"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("along: hosts", "'hosts' is not varied"),
        ("figure: goodput", "no column of numbers is called 'goodput'"),
        ("share: 105%", "above 100%"),
    ],
)
def test_what_cannot_be_watched_is_refused(tmp_path, change, complaint):
    key = change.partition(":")[0]
    known = {"along": "along: peers", "figure": "figure: goodput_bps", "share": "share: 10%"}
    (tmp_path / "many.yaml").write_text(SWEEP.replace(known[key], change))
    with pytest.raises(UserError, match=complaint):
        sweep_spec.load(tmp_path / "many.yaml")


def test_labels_that_are_no_ascending_numbers_are_refused(tmp_path):
    for old, new in (('"256"', "many"), ('"32"', '"700"')):
        (tmp_path / "many.yaml").write_text(SWEEP.replace(old, new))
        with pytest.raises(UserError, match=r"ascending|no number"):
            sweep_spec.load(tmp_path / "many.yaml")


def test_a_host_with_more_queue_pairs_than_its_rnic_keeps_loses_rate(tmp_path, monkeypatch):
    """The short form of the sweep `qp-scaling`: the same, with fewer peers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many.yaml").write_text(SWEEP)
    result = CliRunner().invoke(app, ["run", "many.yaml", "--json", "-q", "-j", "1"])
    [rc] = json.loads(result.stdout)["falls"]
    rates = dict(rc["points"])
    assert rates[600] < 0.8 * rates[32]
    assert 256 < rc["at"] < 600
