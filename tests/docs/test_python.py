# SPDX-License-Identifier: GPL-2.0-or-later
"""The Python programs of the site: how to run them is said beside each, and they run."""

import ast
import re
import shutil

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.transports import sdr
from tests.docs.pages import SITE, WRITTEN
from tests.native.frames import CAPTURES

BLOCK = re.compile(r"^```python\n((?:from|import) .*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = [
    pytest.param(page, match.start(), match[1], id=f"{page.stem}-{number}")
    for page in WRITTEN
    for number, match in enumerate(BLOCK.finditer(page.read_text()))
]


def programs(page):
    return [match[1] for match in BLOCK.finditer((SITE / page).read_text())]


def run(program):
    exec(compile(program, "program of a page", "exec"), {})  # noqa: S102 - our own words


@pytest.mark.parametrize(("page", "start", "program"), PROGRAMS)
def test_a_program_has_its_interpreter_beside_it(page, start, program):
    assert ".venv/bin/python" in page.read_text()[:start]


@pytest.mark.parametrize(("page", "start", "program"), PROGRAMS)
def test_names_are_right(page, start, program):
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(ast.unparse(node), {})  # noqa: S102


def test_the_sdk_moves_a_message_and_lists_its_calls():
    [program] = programs("explanation/sdr.md")
    run(program)
    text = (SITE / "explanation/sdr.md").read_text()
    calls = [name for name in sdr.__all__ if name[0].islower()]
    assert [name for name in calls if f"`{name}`" not in text] == []


def test_captures_are_read_with_scapy_and_numpy(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(CAPTURES / "rxe_ud.pcap", "trace.pcapng")
    scapy, numpy = programs("howto/capture.md")
    run(scapy)
    run(numpy)
    assert re.search(r"0 NAKs in [1-9]\d* packets", capsys.readouterr().out)


def test_the_table_of_a_sweep_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (SITE / "howto/experiments.md").read_text()
    [sweep] = re.findall(r"```yaml\n# sizes.yaml.*?```", text, re.DOTALL)
    (tmp_path / "sizes.yaml").write_text(sweep.removeprefix("```yaml\n").removesuffix("```"))
    chosen = ["--only", "workload.bytes=64KiB", "--only", "depth=1", "--only", "seed=1"]
    done = CliRunner().invoke(app, ["run", "sizes.yaml", "-q", "-j1", *chosen])
    assert done.exit_code == 0, done.output
    [program] = programs("howto/experiments.md")
    run(program)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    goodput = {(transport, loss): float(value) for transport, loss, _, value in rows}
    assert set(goodput) == {(name, loss) for name in ("csa_ud", "rc") for loss in ("none", "cores")}
    assert goodput["csa_ud", "none"] > goodput["csa_ud", "cores"]
