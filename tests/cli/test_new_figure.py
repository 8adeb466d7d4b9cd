# SPDX-License-Identifier: GPL-2.0-or-later
"""A new figure is one entry of the table of figures: every verb then has it."""

import contextlib
import json

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.experiment.figure_table import FIGURES, RATIO, Figure
from softroce_lab.experiment.sweep import pool
from softroce_lab.results.recorded import MANIFEST

NEW = Figure(
    "sends_per_packet",
    RATIO,
    "sends per packet",
    about="transmissions of a packet",
    of=lambda run: run.count(("tx_data",)) / int(run.messages["packets"].sum()),
    better="less",
    sweep="sends / packet",
)
LOSSY = """\
name: mine
topology: {generator: {kind: star, hosts: 2, access: {rate: 10Gbit, delay: 1us}}}
transports: [csa_ud, irn]
workload: {kind: point-to-point, bytes: 256KiB, message: 64KiB}
faults: [{name: l, links: "*<->*", loss: random 2%}]
seeds: 2
expect: {sends_per_packet: "< 1.5", csa_ud.sends_per_packet: "> 9"}
"""
SWEPT = """\
name: swept
experiment: mine.yaml
over: {depth: [1, 4]}
expect: {sends_per_packet: "< 1.5"}
"""


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setitem(FIGURES, NEW.key, NEW)
    monkeypatch.setattr(  # processes of its own would not have the entry
        pool, "processes", lambda _: contextlib.nullcontext(pool.OneByOne())
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(LOSSY)
    (tmp_path / "swept.yaml").write_text(SWEPT)

    def lab(*arguments):
        found = CliRunner().invoke(app, arguments)
        assert found.exception is None or isinstance(found.exception, SystemExit)
        return found.stdout

    return lab


def test_a_run_has_it_in_its_table_gates_comparison_and_page(lab, tmp_path):
    printed = lab("run", "mine.yaml", "-q")
    assert "\nsends per packet  " in printed
    assert "expect sends_per_packet < 1.5: passed, 4 held it" in printed
    assert "expect csa_ud.sends_per_packet > 9: FAILED, 2 of 2 do not hold it" in printed
    runs = json.loads((tmp_path / "runs/latest" / MANIFEST).read_text())["runs"]
    assert all(1 < run["sends_per_packet"] < 1.5 for run in runs)
    assert "\nsends per packet  " in lab("results", "show")
    assert "  sends_per_packet  " in lab("results", "compare", "latest", "--baseline", "irn")
    lab("results", "report", "-o", "page.html")
    assert '<th scope="row">sends per packet</th><td>1.' in (tmp_path / "page.html").read_text()


def test_a_sweep_has_it_in_its_columns_table_gates_and_page(lab, tmp_path):
    printed = lab("run", "swept.yaml", "-q", "-j1", "--table", "table.md")
    assert "expect sends_per_packet < 1.5: passed, 8 held it" in printed
    assert "| sends / packet |" in (tmp_path / "table.md").read_text()
    column = pq.read_table("sweeps/swept/runs.parquet")["sends_per_packet"].to_pylist()
    assert len(column) == 8
    assert min(column) > 1
    lab("results", "report", "sweeps/swept", "-o", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert '<th scope="col">sends per packet</th>' in page
    assert "<strong>Sends per packet.</strong>" in page
