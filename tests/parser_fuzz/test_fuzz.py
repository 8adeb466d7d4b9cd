# SPDX-License-Identifier: GPL-2.0-or-later
"""Every parser of something that somebody else wrote, told anything: docs/howto/fuzz.md.

The short form lets each have its corpus and the same few hundred changes of it every time. The long
one is libFuzzer's or atheris' for 30 minutes of processor time, or LAB_FUZZ_CPU_S seconds.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys

import pytest

from softroce_lab.paths import PROJECT_ROOT
from tests.parser_fuzz import campaign, native, run
from tests.parser_fuzz.catalogue import CORPUS, NATIVE, PYTHON
from tests.parser_fuzz.mutate import Mutator

SEED = 20261122
BLIND = {  # inputs of the short form: less than a second's
    "topology": 100, "faults": 200, "live": 1500, "control": 100, "cm": 200,
    "goal": 500, "captures": 40, "results": 1200, "codec": 2000, "datagrams": 1000,
    "capture-reader": 2000, "packet-transports": 150,
}  # fmt: skip
SHORT_S = 300


def params(targets):
    """A case a target, with a line of its own."""
    return [pytest.param(each, id=name, marks=pytest.mark.full(f"fuzz-{name}"))
            for name, each in targets.items()]  # fmt: skip


@pytest.mark.parametrize("target", params(PYTHON))
def test_no_input_is_too_much_for_a_python_parser(target, full, capsys):
    """Fuzz one Python parser with atheris for 30 CPU-minutes."""
    command = [sys.executable, "-m", "tests.parser_fuzz.run", target.name]
    if full:
        if importlib.util.find_spec("atheris") is None:
            pytest.fail(f"atheris is missing: {sys.executable} -m pip install atheris", False)
        go(target, [*command, "--atheris"], command, capsys)
        grown = campaign.WORK / target.name / "corpus"
        plain = os.environ.copy()
        plain.pop("GLIBC_TUNABLES", None)  # huge pages come and go by two MiB each
        done = subprocess.run(
            [*command, "--kept", grown],
            cwd=PROJECT_ROOT, env=plain, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return
    one, seeds = run.load(target), target.seeds()
    for data in (*seeds, *Mutator(seeds, target.words(), SEED).inputs(BLIND[target.name])):
        try:
            one(data)
        except Exception as error:
            raise AssertionError(saved(target, data, command)) from error


@pytest.mark.parametrize("target", params(NATIVE))
def test_no_input_is_too_much_for_a_native_parser(target, full, capsys, tmp_path):
    """Fuzz one native parser with libFuzzer under sanitizers for 30 CPU-minutes."""
    name = native.program_of(target.name)
    if full:
        if lacking := native.libfuzzer_lacks():
            pytest.fail(lacking, False)
        program = str(native.build(name, native.GUIDED))
        go(target, [program], [program], capsys)
        return
    program = str(native.build(name))
    corpus = target.write_corpus(tmp_path / "corpus")
    command = [program, str(BLIND[target.name]), str(SEED), corpus]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=SHORT_S, check=False
    )
    if done.returncode != 0:
        last = (tmp_path / "last-input").read_bytes()
        pytest.fail(done.stderr[-4000:] + saved(target, last, [program, "0", "0"]), False)


def go(target, command, replay, capsys):
    """The long form: no finding, and say what it came to."""
    report = campaign.run(target, command, campaign.wanted_cpu_s())
    with capsys.disabled():
        print(f"\nfuzz-{target.name}: {report}")
    found = sorted(campaign.findings(target))
    again = "\n".join(shlex.join([*replay, str(path)]) for path in found)
    assert report.code == 0, f"{report.output[-6000:]}\nagain:\n{again}"
    assert report.executions > 0


def saved(target, data, replay):
    """Keep an input that is a finding; how to see it again."""
    folder = campaign.WORK / target.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "crash-short-form"
    path.write_bytes(data)
    return f"again: cd {PROJECT_ROOT}; {shlex.join([*replay, str(path)])}"


def test_every_target_has_a_short_form_and_seeds():
    assert BLIND.keys() == (PYTHON | NATIVE).keys()
    assert {folder.name for folder in CORPUS.iterdir()} <= BLIND.keys()
