# SPDX-License-Identifier: GPL-2.0-or-later
"""Gates: what holds, what does not, and what makes no sense."""

import json
import re
import xml.etree.ElementTree as ET

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.experiment.gates import expect

ROWS = [
    {"transport": name, "seed": seed, "verdict": "passed", "verified": True,
     "fct_p99_ns": base + seed, "goodput_bps": 10**9, "retransmitted": seed, "excess_p99": None}
    for name, base in (("csa_ud", 700_000), ("irn", 1_400_000))
    for seed in (1, 2, 3)
]  # fmt: skip


def one(name, condition, rows=ROWS, axes=()):
    (found,) = expect.judged(expect.gates({name: condition}), rows, axes)
    return found


@pytest.mark.parametrize(
    ("name", "condition", "passed"),
    [
        ("fct_p99", "< 2 ms", True),
        ("fct_p99", "< 1 ms", False),
        ("csa_ud.fct_p99", "< 1 ms", True),
        ("csa_ud.fct_p99", "<= 700003 ns", True),
        ("csa_ud.fct_p99", "< 700003 ns", False),
        ("goodput", ">= 1 Gbit", True),
        ("verified", True, True),
        ("verified", False, False),
        ("retransmitted", "== 0", False),
        ("csa_ud.fct_p99 / irn.fct_p99", "< 0.7", True),
        ("csa_ud.fct_p99 / irn.fct_p99", "< 0.5", False),
        ("fct_p99 / irn.fct_p99", "< 0.7", True),
        ("median csa_ud.fct_p99", "<= 700002 ns", True),
        ("median fct_p99", "<= 700002 ns", False),
        ("median csa_ud.retransmitted / irn.retransmitted", "== 1", True),
        ("median csa_ud.excess_p99", "< 1.3", False),
        ("excess_p99", "< 1.3", False),
        ("rc.fct_p99", "< 1 s", False),
    ],
)
def test_conditions(name, condition, passed):
    assert one(name, condition).passed is passed


PRINTED = [
    {"transport": name, "seed": seed, "verdict": "passed", "printed.bw_gbps": rate * seed}
    for name, rate in (("rc", 1.0), ("csa_ud+loss=0.1", 2.0))
    for seed in (1, 2)
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "condition", "passed"),
    [
        ("printed.bw_gbps", ">= 1 Gbit", True),
        ("rc.printed.bw_gbps", "<= 2 Gbit", True),
        ("csa_ud+loss=0.1.printed.bw_gbps", "<= 2 Gbit", False),
        ("csa_ud+loss=0.1.printed.bw_gbps / rc.printed.bw_gbps", "== 2", True),
        ("printed.bw_gbps / rc.printed.bw_gbps", ">= 2", True),
        ("median csa_ud+loss=0.1.printed.bw_gbps", "== 3 Gbit", True),
        ("irn.printed.bw_gbps", ">= 0 Gbit", False),
    ],
)
def test_printed_figures_of_a_transport(name, condition, passed):
    assert one(name, condition, PRINTED).passed is passed


def test_a_median_is_of_the_seeds_of_one_cell_without_those_that_are_not_judged():
    times = {"a": [1, 2, 900], "b": [5, 7, None]}
    rows = [
        ROWS[0] | {"seed": seed, "fct_p99_ns": ns, "cell": cell}
        for cell, values in times.items()
        for seed, ns in enumerate(values)
    ]
    assert one("median csa_ud.fct_p99", "<= 6 ns", rows, ["cell"]).passed
    found = one("median csa_ud.fct_p99", "<= 5 ns", rows, ["cell"])
    assert found.detail == (
        "1 of 2 do not hold it; the first: csa_ud, cell=b, median of 2 seeds 6 ns"
    )
    rows[0] |= {"verdict": "error"}
    assert not one("median csa_ud.fct_p99", "<= 1 s", rows, ["cell"]).passed


@pytest.mark.parametrize(
    "fidelity",
    [{"verdict": "not faithful", "reasons": ["h1 did not run for 1.5 s"]}, "not faithful"],
)
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("csa_ud.fct_p99", "1 of 3"),
        ("fct_p99", "1 of 6"),
        ("irn.fct_p99 / csa_ud.fct_p99", "1 of 6"),
        ("irn.fct_p99", None),
    ],
)
def test_runs_that_were_not_faithful_are_counted(name, count, fidelity):
    faithful = "faithful" if isinstance(fidelity, str) else fidelity | {"verdict": "faithful"}
    rows = [row | {"fidelity": faithful if index else fidelity} for index, row in enumerate(ROWS)]
    found = one(name, "> 0" if "/" in name else "> 1 ns", rows)
    assert found.passed
    said = f"; {count} runs were not faithful" if count else "held it"
    assert str(found).endswith(said)


def test_what_does_not_hold_is_named():
    found = one("fct_p99", "< 1 ms")
    assert str(found) == (
        "expect fct_p99 < 1 ms: FAILED, 3 of 6 do not hold it; the first: irn/1 1.4 ms"
    )
    assert "FAILED, judges no run: csa_ud/1 has no excess_p99" in str(one("excess_p99", "< 1.3"))
    assert "no run is of such a transport" in str(one("rc.fct_p99", "< 1 s"))


def of_excess(*values, verdict="passed"):
    return [{**ROWS[0], "seed": seed, "excess_p99": value, "verdict": verdict}
            for seed, value in enumerate(values, start=1)]  # fmt: skip


def test_cells_without_the_figure_are_not_judged_and_said_so():
    found = one("excess_p99", "< 1.3", of_excess("undefined", None, 1.2, 1.1))
    assert str(found) == (
        "expect excess_p99 < 1.3: passed, 2 held it; "
        "2 not judged: csa_ud/1 has excess_p99 undefined"
    )
    found = one("excess_p99", "< 1.15", of_excess(None, "undefined", 1.2, 1.1))
    assert "FAILED, 1 of 2 do not hold it; the first: csa_ud/3 1.2; 2 not judged" in str(found)
    assert not one("excess_p99", "< 1.3", of_excess("undefined", None)).passed


@pytest.mark.parametrize("verdict", ["failed", "error"])
def test_a_run_that_failed_without_the_figure_does_not_hold(verdict):
    rows = [*of_excess(1.0), *of_excess(None, verdict=verdict)]
    assert "1 of 2 do not hold it" in str(one("excess_p99", "< 1.3", rows))


def test_bytes_that_were_not_compared_are_said_to_be_so():
    rows = [{**row, "verified": None} for row in ROWS]
    assert "csa_ud/1 did not compare its bytes: payload: verify" in str(one("verified", True, rows))
    assert "the first: csa_ud/1 true" in str(one("verified", False))


def test_cells_of_a_sweep_are_compared_with_themselves():
    rows = [{**row, "loss": loss} for loss in (1, 2) for row in ROWS]
    rows[-1]["fct_p99_ns"] = 700_000  # irn, loss 2, seed 3: as fast as csa_ud
    found = one("csa_ud.fct_p99 / irn.fct_p99", "< 0.7", rows, ["loss"])
    assert "1 of 6 do not hold it; the first: csa_ud/3, loss=2 1.000" in found.detail


@pytest.mark.parametrize(
    ("name", "condition", "what"),
    [
        ("speed", "< 1", "there is no figure 'speed'"),
        ("fct_p99", "less", "is no condition"),
        ("fct_p99", "< 3", "has no unit"),
        ("retransmitted", "< many", "is no number"),
        ("fct_p99 / goodput", "< 1", "different units"),
        ("verified", "yes", "hint: verified: true"),
        ("fct_p99", True, "true is no condition\nhint: such as"),
        ("retransmitted", "< nan", "is no number that a figure can be compared with"),
        ("slowdown_p99", "< inf", "is no number that a figure can be compared with"),
        ("ftc_p99", "< 1 ms", "did you mean 'fct_p99'"),
        ("spurious", "< 1", "did you mean 'spurious_retransmissions'"),
        ("unrep", "< 1", "did you mean 'unrepaired'"),
        ("p99 message completion", "< 1 ms", "did you mean 'fct_p99'"),
    ],
)
def test_mistakes(name, condition, what):
    with pytest.raises(UserError) as found:
        expect.gates({name: condition})
    assert what in f"{found.value.what}\nhint: {found.value.hint}"


FILE = """\
name: gated
topology: {generator: {kind: star, hosts: 2, access: {rate: 10Gbit, delay: 1us}}}
transports: [csa_ud, irn]
workload: {kind: point-to-point, bytes: 64KiB}
expect: {fct_p99: "< 1 s", "csa_ud.fct_p99 / irn.fct_p99": "< RATIO"}
"""
SWEPT = """\
name: swept
experiment: point-to-point
set: {workload: {kind: point-to-point, bytes: 64KiB}}
transports: [csa_ud, irn]
seeds: 2
expect: {"csa_ud.fct_p99 / irn.fct_p99": "< RATIO"}
"""


@pytest.mark.parametrize("text", [FILE, SWEPT])
def test_a_gate_decides_the_exit_code(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for ratio, code in (("100", 0), ("0.01", ExitCode.FAILED)):
        (tmp_path / "file.yaml").write_text(text.replace("RATIO", ratio))
        arguments = ["run", "file.yaml", "-q", "--junit", "gates.xml"]
        found = CliRunner().invoke(app, arguments)
        assert found.exit_code == code, found.output
        word = "FAILED" if code else "passed"
        assert f"expect csa_ud.fct_p99 / irn.fct_p99 < {ratio}: {word}" in found.output
        suites = ET.parse(tmp_path / "gates.xml").getroot()  # noqa: S314 - our own
        assert [suite.get("name") for suite in suites] == ["runs", "expect"]
        assert suites[1].get("failures") == ("1" if code else "0")
        document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
        assert document["expect"][-1]["passed"] is (code == 0)


REFUSED = [
    ("csa_ud.fct_p99 / inr.fct_p99", "< 1", "no run is over 'inr'\n  hint: did you mean 'irn'?"),
    ("algbw", "> 1 Gbit/s", "point-to-point has no algbw: it is of collectives"),
    ("slowdown_p99", "< 2", "point-to-point has no slowdown_p99"),
    ("verified", True, "no bytes are compared"),
    ("excess_p99", "< 1.3", "excess_p99"),
    ("time_over_oracle", "< 2", "no run is of oracle"),
    ("time_over_lossless", "< 2", "no run is of lossless"),
]


@pytest.mark.parametrize(("figure", "condition", "what"), REFUSED)
@pytest.mark.parametrize("text", [FILE, SWEPT])
def test_a_gate_that_no_run_can_have_is_refused_before(figure, condition, what, text, tmp_path):
    text = text.partition("expect:")[0] + f"expect:\n  {json.dumps({figure: condition})[1:-1]}\n"
    (tmp_path / "file.yaml").write_text(text)
    found = CliRunner().invoke(app, ["run", str(tmp_path / "file.yaml"), "--dry-run"])
    assert found.exit_code == ExitCode.USAGE, found.output
    assert re.search(r"file.yaml:\d+:\d+: ", found.stderr)
    assert what in found.stderr


@pytest.mark.parametrize(
    "over",
    [
        "{workload.bytes: [64KiB, 128KiB]}",  # each with the losses of the base
        "{loss: {none: {faults: []}}}",
        "{loss: {one: {faults: [{name: l, links: '*<->*', loss: random 1%}]}, "
        "two: {faults: [{name: l, links: '*<->*', loss: random 2%}]}}}",
    ],
)
@pytest.mark.parametrize(
    "gate",
    ["excess_p99", "csa_ud.excess_p99 / oracle.excess_p99", "csa_ud.time_over_lossless"],
)
def test_a_gate_on_the_excess_needs_a_cell_that_is_another_without_loss(over, gate, tmp_path):
    base = "{name: x, topology: two-hosts, workload: {kind: point-to-point, bytes: 64KiB}}"
    text = f"name: excess\nexperiment: {base}\ntransports: [csa_ud, oracle]\nover: {over}\n"
    (tmp_path / "file.yaml").write_text(f"{text}expect:\n  {gate}: '< 2'\n")
    found = CliRunner().invoke(app, ["run", str(tmp_path / "file.yaml"), "--dry-run"])
    assert found.exit_code == ExitCode.USAGE, found.output
    line = text.count("\n") + 2
    assert f"file.yaml:{line}:3: {gate}: no combination differs from another one by its losses" in (
        found.stderr
    )
