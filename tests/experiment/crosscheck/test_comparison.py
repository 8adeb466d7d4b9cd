# SPDX-License-Identifier: GPL-2.0-or-later
"""A crosscheck finds what differs: other fabrics, and messages that never arrive."""

import dataclasses
import json
import os
import xml.etree.ElementTree as ET

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import UserError
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.crosscheck import comparison
from softroce_lab.experiment.crosscheck.comparison import About, Outcome
from softroce_lab.experiment.reporter import Silent

FILE = """\
name: crossed
topology: {{generator: {{kind: star, hosts: 2, access: {{rate: 50Mbit, delay: {delay}}}}}}}
transports: [csa_ud]
workload: {{kind: point-to-point, bytes: 128KiB, message: 16KiB}}
faults: [{{name: loss, links: "h1->*", loss: {loss}}}]
seeds: {seeds}
deadline: 2s
clock: {clock}
"""
FEWEST = 8  # seeds that can show one of these four comparisons to differ


def experiment(folder, *, delay="2500us", loss="2%", seeds=FEWEST, clock="virtual", more=""):
    path = folder / f"{clock}.yaml"
    path.write_text(FILE.format(delay=delay, loss=loss, seeds=seeds, clock=clock) + more)
    return spec.load(path)


def runs_of(wanted, folder):
    return experiment_run.run(wanted, Silent(), under=folder / "runs").runs


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The experiment on the virtual clock, and its runs."""
    folder = tmp_path_factory.mktemp("base")
    wanted = experiment(folder)
    return wanted, runs_of(wanted, folder)


@pytest.fixture
def crossed(base, tmp_path):
    """What comes of it and of another one that stands for the real clock."""

    def comparisons(**other):
        others = runs_of(experiment(tmp_path, **other), tmp_path) if other else base[1]
        return comparison.compared(comparison.paired(*base, others))

    return comparisons


def verdicts(comparisons):
    return {each.quantity.name: each.agreement.verdict for each in comparisons}


def test_an_experiment_agrees_with_itself(crossed):
    found = crossed()
    assert set(verdicts(found).values()) == {"same"}
    assert {each.agreement.median for each in found} == {0}
    assert found[0].virtual == found[0].real > 10e6  # one round trip
    assert found[2].real > 0  # retransmitted


def test_a_longer_way_is_found_and_nothing_else(crossed):
    """Times twice as long are; packets are lost by what they are, not by when they come."""
    found = crossed(delay="6ms")
    assert verdicts(found) == {
        "p50 completion": "differs",
        "p99 completion": "differs",
        "retransmitted": "same",
        "injected drops": "same",
    }
    assert found[0].real - found[0].virtual > found[0].margin > 0
    assert found[0].agreement.low > 1


def test_a_way_that_is_a_little_longer_is_within_the_margin(crossed):
    """An eighth of the round trip; the margin has a tenth and the machine's share."""
    assert set(verdicts(crossed(delay="2800us")).values()) == {"same"}


def test_messages_that_never_arrive_are_no_missing_values(crossed):
    found = crossed(loss="100%")
    assert verdicts(found)["p50 completion"] == "differs"
    document = found[0].document()
    assert document["real"] is None
    assert document["difference_in_margins"]["median"] is None
    assert json.dumps(document, allow_nan=False)


def test_the_worst_verdict_counts_and_junit_has_them_all(base, crossed, tmp_path):
    about = About("csa_ud", comparison.Distance(0.25, 0.5), True, 7, FEWEST, ("a bad day",))
    same = Outcome(base[0], tmp_path, {}, crossed(), [about])
    assert same.verdict == "same"
    assert same.document()["transports"][0]["causes"] == ("a bad day",)
    differs = dataclasses.replace(same, comparisons=crossed(delay="6ms"))
    assert differs.verdict == "differs"
    comparison.write_junit(tmp_path / "x.xml", differs)
    suite = ET.parse(tmp_path / "x.xml").getroot().find("testsuite")  # noqa: S314 - our own
    assert suite.attrib == {
        "name": "csa_ud", "tests": "4", "failures": "2", "skipped": "0", "errors": "0",
    }  # fmt: skip
    assert suite.find("testcase/failure").text == "a bad day"
    with pytest.raises(UserError, match="cannot write"):
        comparison.write_junit(tmp_path / "no" / "x.xml", same)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ("rnic: lru-512\n", "rnic"),
        ("stalls: [{host: h1, at: 1ms, for: 1ms}]\n", "stalls"),
        ("message_slots: 4\n", "message_slots"),
        ("blackout: 1s\n", "blackout"),
    ],
)
def test_what_only_one_clock_has_is_refused(tmp_path, more, place):
    """Also where that clock runs alone."""
    real = experiment(tmp_path, clock="real", more=more)
    virtual = experiment(tmp_path, more=more)
    for attempt in (
        lambda: comparison.run(virtual, real, Silent(), under=tmp_path / "runs"),
        lambda: experiment_run.run(real, Silent(), under=tmp_path / "runs"),
    ):
        with pytest.raises(UserError, match=f"{place}: the virtual clock alone has that") as caught:
            attempt()
        assert caught.value.line == 9
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_both_clocks_lose_the_same_packets(tmp_path):
    """Two seeds decide nothing; what was lost when it was sent first is known all the same."""
    path = experiment(tmp_path, seeds=2).file
    result = CliRunner().invoke(
        app, ["run", path, "--clock", "both", "--json", "-o", str(tmp_path / "runs")]
    )
    assert result.exit_code == 1, result.stderr
    document = json.loads(result.stdout)
    assert document["transports"][0]["same_first_losses"] is True
    assert document["transports"][0]["runs"] == 2
    assert document["verdict"] == "undecided"
    manifest = json.loads((tmp_path / "runs/latest/manifest.json").read_text())
    assert manifest["state"] == "done"
    assert manifest["comparisons"] == document["comparisons"]
    tables = {
        clock: pq.read_table(f"{path}/messages.parquet")
        for clock, path in document["clocks"].items()
    }
    assert set(tables) == {"virtual", "real"}
    for table in tables.values():
        assert table.column("status").to_pylist() == [0] * 16
