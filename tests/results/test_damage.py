# SPDX-License-Identifier: GPL-2.0-or-later
"""Run directories that are damaged, old, or not whole: every verb that reads them has clear words.

None ends in a traceback; one that refuses names the file, or what is not whole.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from softroce_lab import paths
from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode

VERBS = {
    "show": ["results", "show", "DIR"],
    "rerun": ["results", "rerun", "DIR", "-q", "-o", "OUT"],
    "explain": ["results", "explain", "DIR"],
    "blame": ["results", "explain", "DIR", "--cost", "--run", "rc/1", "--runs", "4", "-q"],
    "report": ["results", "report", "DIR", "-o", "OUT/page.html"],
    "compare": ["results", "compare", "DIR", "WHOLE"],
    "plot": ["results", "plot", "DIR", "--kind", "cdf", "-o", "OUT/figure.svg"],
    "export": ["results", "export", "DIR", "-o", "OUT/trace.json"],
    "artifact": ["results", "pack", "DIR", "-o", "OUT/run.zip"],
    "list": ["results", "ls"],
}
WITHOUT_BYTECODE = {"PYTHONPATH": str(paths.PROJECT_ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
REFUSALS = (ExitCode.USAGE, ExitCode.FAILED)


@pytest.fixture
def damaged(ring_run, tmp_path):
    shutil.copytree(ring_run, tmp_path / "run")
    (tmp_path / "out").mkdir()
    return tmp_path / "run"


def lab(verb, directory, whole):
    places = {"DIR": str(directory), "WHOLE": str(whole)}
    out = str(directory.parent / "out")
    arguments = [places.get(each, each.replace("OUT", out)) for each in VERBS[verb]]
    return CliRunner().invoke(app, arguments)


def change(directory, **facts):
    path = directory / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def clear(done):
    """No traceback; words, if it is refused."""
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    if done.exit_code:
        assert done.exit_code in REFUSALS
        assert done.stderr or "DIFFERENT" in done.output
    return done.exit_code == 0


MISSING = {
    "messages.parquet": {"explain", "blame", "report", "plot", "export"},
    "events.parquet": {"explain", "blame", "report", "export"},
    "links.json": {"report"},
    "experiment.json": {"rerun", "blame", "artifact"},
    "recovery.parquet": set(),
    "repairs.parquet": set(),
    "samples.parquet": set(),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_file_is_missing(ring_run, damaged, name):
    (damaged / name).unlink()
    for verb in MISSING[name]:
        done = lab(verb, damaged, ring_run)
        assert not clear(done), verb
        assert f"{name} is missing" in done.stderr, verb
    for verb in VERBS.keys() - MISSING[name] - {"rerun", "blame"}:
        clear(lab(verb, damaged, ring_run))


@pytest.mark.parametrize("name", ["messages.parquet", "events.parquet", "links.json"])
def test_a_file_is_cut(ring_run, damaged, name):
    content = (damaged / name).read_bytes()
    (damaged / name).write_bytes(content[: len(content) // 2])
    is_table = name.endswith(".parquet")
    for verb in MISSING[name] | ({"compare"} if is_table else set()):
        done = lab(verb, damaged, ring_run)
        assert not clear(done), verb
        assert name in done.stderr, verb
        assert not is_table or "is cut or edited, and no whole table" in done.stderr, verb


@pytest.mark.parametrize(
    ("state", "words"),
    [("interrupted", "interrupted"), ("running", "not finished"), ("failed", "broken off: full")],
)
def test_it_is_not_whole(ring_run, damaged, state, words):
    change(damaged, state=state, error="full")
    for verb in ("show", "explain", "report"):
        done = lab(verb, damaged, ring_run)
        assert clear(done), done.stderr
        assert words in done.output, verb
    for verb in ("rerun", "artifact"):
        done = lab(verb, damaged, ring_run)
        assert not clear(done)
        assert "is no whole result" in done.stderr
        assert "runs it anew, then this command" in done.stderr


def test_no_run_was_done(ring_run, damaged):
    change(damaged, state="interrupted", runs=[])
    for verb in VERBS.keys() - {"list", "show", "rerun", "artifact"}:
        done = lab(verb, damaged, ring_run)
        assert not clear(done), verb
        assert "has no run that is over" in done.stderr, verb


@pytest.mark.parametrize("version", [0, 999])
def test_another_schema(ring_run, damaged, version):
    change(damaged, schema_version=version)
    for verb in VERBS.keys() - {"list", "rerun", "blame"}:
        refused = not clear(lab(verb, damaged, ring_run))
        assert refused == (version == 999), verb


def test_figures_of_an_older_schema(ring_run, damaged):
    """Figures that came later are not there."""
    path = damaged / "manifest.json"
    manifest = json.loads(path.read_text())
    for run in manifest["runs"]:
        for figure in ("queue_pairs", "framing", "contexts_missed", "held_back", "path_mtu"):
            run.pop(figure)
    path.write_text(json.dumps(manifest))
    for verb in VERBS.keys() - {"rerun"}:
        clear(lab(verb, damaged, ring_run))


@pytest.mark.parametrize("verb", ["report", "export", "artifact", "plot"])
def test_a_full_disk(ring_run, tmp_path, verb):
    """Nothing half-written is left under the name."""
    target = {"report": "page.html", "export": "trace.json", "artifact": "run.zip",
              "plot": "figure.pdf"}[verb]  # fmt: skip
    out = tmp_path / target
    arguments = [each.replace("DIR", str(ring_run)) for each in VERBS[verb][:-1]]

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))

    done = subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", *arguments, str(out)],
        cwd=tmp_path, env=os.environ | WITHOUT_BYTECODE,
        preexec_fn=limited, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in REFUSALS, done.stderr
    assert "Traceback" not in done.stderr
    assert f"cannot write {out}" in done.stderr
    assert list(tmp_path.iterdir()) == []
