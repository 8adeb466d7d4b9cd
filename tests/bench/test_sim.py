# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench sim`: what it counts, and what it makes of its samples."""

import pytest
from typer.testing import CliRunner

from softroce_lab.bench import sim
from softroce_lab.bench.sim import Case, Moved
from softroce_lab.cli.app import app


def moved(hosts, cpu_s, transport="rc"):
    return Moved(hosts, transport, "passed", 1000, cpu_s, 0.5, 1 << 20, 7)


def test_a_case_counts_every_packet_on_every_link_and_tells_setup_apart():
    found = sim.measure(128, "rc", "20kB")
    assert found.verdict == "passed"
    # Five requests and an acknowledgement at least, over two links at least.
    assert found.hops >= 128 * 6 * 2
    assert found.cpu_s > 0
    assert found.setup_cpu_s > 0
    assert found.peak_rss_bytes > 1 << 20
    assert sim.measure(128, "rc", "20kB").hops == found.hops


def test_the_document_has_medians_by_hosts_and_transport():
    small = Case(128, "rc", [moved(128, cpu_s) for cpu_s in (0.5, 0.25, 1.0)])
    large = Case(4096, "rc", [moved(4096, 1.0)] * 3)
    reported = sim.document([small, large])
    assert reported["hops_per_cpu_second"] == {"128": {"rc": 2000}, "4096": {"rc": 1000}}
    assert reported["peak_rss_bytes"] == 1 << 20
    assert reported["rounds"] == 3
    first, second = reported["cases"]
    assert first["hops_per_cpu_second"] == {"median": 2000, "low": 1000, "high": 4000}
    assert first["over_htsim"] == 2000 / sim.HTSIM[128]
    assert second["over_htsim"] is None


def test_csa_ud_is_compared_with_irn_round_by_round():
    samples = {
        "csa_ud": [moved(128, cpu_s, "csa_ud") for cpu_s in (0.5, 0.25, 2.0)],
        "irn": [moved(128, cpu_s, "irn") for cpu_s in (1.0, 0.25, 1.0)],
    }
    cases = [Case(128, transport, rounds) for transport, rounds in samples.items()]
    # csa_ud's and irn's median rates are 2000 and 1000; the ratios of the rounds are 2, 1 and 0.5.
    expected = {"median": 1, "low": 0.5, "high": 2}
    assert sim.document(cases)["csa_ud_over_irn"] == {"128": expected}
    assert sim.document(cases[:1])["csa_ud_over_irn"] == {}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--transport", "rc", "--transport", "tcp"), "unknown transport 'tcp'"),
        (("--hosts", "7"), "no fabric of 7 hosts"),
    ],
)
def test_what_there_is_not_is_refused_before_it_starts(arguments, complaint):
    result = CliRunner().invoke(app, ["bench", "sim", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"lab: {complaint}\n  hint: known")
