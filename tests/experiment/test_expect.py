# SPDX-License-Identifier: GPL-2.0-or-later
"""Gates: what holds, what does not, and what makes no sense."""

import json
import xml.etree.ElementTree as ET

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.experiment import expect

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
        ("excess_p99", "< 1.3", False),
        ("rc.fct_p99", "< 1 s", False),
    ],
)
def test_conditions(name, condition, passed):
    assert one(name, condition).passed is passed


def test_what_does_not_hold_is_named():
    found = one("fct_p99", "< 1 ms")
    assert str(found) == (
        "expect fct_p99 < 1 ms: FAILED, 3 of 6 do not hold it; the first: irn/1 1.4 ms"
    )
    assert "has no such figure" in str(one("excess_p99", "< 1.3"))
    assert "no run is of such a transport" in str(one("rc.fct_p99", "< 1 s"))


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
    ],
)
def test_mistakes(name, condition, what):
    with pytest.raises(UserError, match=what):
        expect.gates({name: condition})


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


@pytest.mark.parametrize(("verb", "text"), [("run", FILE), ("sweep", SWEPT)])
def test_a_gate_decides_the_exit_code(verb, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for ratio, code in (("100", 0), ("0.01", ExitCode.FAILED)):
        (tmp_path / "file.yaml").write_text(text.replace("RATIO", ratio))
        arguments = [verb, "file.yaml", "-q", "--junit", "gates.xml"]
        found = CliRunner().invoke(app, arguments)
        assert found.exit_code == code, found.output
        word = "FAILED" if code else "passed"
        assert f"expect csa_ud.fct_p99 / irn.fct_p99 < {ratio}: {word}" in found.output
        suites = ET.parse(tmp_path / "gates.xml").getroot()  # noqa: S314 - our own
        assert [suite.get("name") for suite in suites] == ["runs", "expect"]
        assert suites[1].get("failures") == ("1" if code else "0")
        document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
        assert document["expect"][-1]["passed"] is (code == 0)


def test_a_wrong_gate_has_its_place(tmp_path):
    (tmp_path / "file.yaml").write_text(FILE.replace("fct_p99:", "speed:"))
    found = CliRunner().invoke(app, ["run", str(tmp_path / "file.yaml"), "--dry-run"])
    assert found.exit_code == ExitCode.USAGE
    assert "file.yaml:5:" in found.stderr
    assert "there is no figure 'speed'" in found.stderr
