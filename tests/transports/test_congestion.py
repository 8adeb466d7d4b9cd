# SPDX-License-Identifier: GPL-2.0-or-later
"""Congestion control by name, and what a plan calls for."""

import pytest

from softroce_lab import topology
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.transports import congestion

FABRIC = """\
name: fabric
topology:
  generator: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2{link}}}
"""


def plan(tmp_path, link=""):
    path = tmp_path / "fabric.yaml"
    path.write_text(FABRIC.format(link=link))
    return topology.load(str(path))


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(UserError) as caught:
        congestion.check("timely")
    assert caught.value.exit_code == ExitCode.USAGE
    assert "timely" in str(caught.value)
    assert caught.value.hint == "known congestion controls: bdp, dcqcn, grants, nscc, swift"


@pytest.mark.parametrize(
    ("link", "name"),
    [
        ("", "bdp"),
        (", core: {rate: 1Gbit}", "bdp"),
        (", core: {rate: 1Gbit, limit: 256KiB, ecn: 64KiB}", "dcqcn"),
        (", access: {rate: 1Gbit, limit: 100, ecn: 20}", "dcqcn"),
    ],
)
def test_marks_call_for_dcqcn(tmp_path, link, name):
    assert congestion.for_plan(plan(tmp_path, link)) == name


@pytest.mark.parametrize(("rtt_ns", "interval_ns"), [(8_000, 50_000), (1_000_000, 1_000_000)])
def test_cnps_come_at_most_once_a_round_trip(rtt_ns, interval_ns):
    figures = congestion.FabricFigures.of(rtt_ns, 10**9)
    assert (figures.base_rtt_ns, figures.cnp_interval_ns) == (rtt_ns, interval_ns)
    assert figures.line_rate_bps == 10**9
    assert congestion.FabricFigures.of(rtt_ns).line_rate_bps is None
