# SPDX-License-Identifier: GPL-2.0-or-later
"""A run directory from somebody else: nothing of it is executed, and nothing outside is written.

Verbs that read results never do. Verbs that run the experiment again need `--trust`, and say
what for.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from typing import get_args

import pytest
from typer.testing import CliRunner

from softroce_lab import paths
from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.experiment.kinds import programs, table
from softroce_lab.results import artifact, fabric
from tests.results import made
from tests.results.page.test_assemble import swept  # noqa: F401 - a fixture

EVIL = """
import pathlib
from softroce_lab.transports.policy import MessagePolicy
pathlib.Path({canary!r}).touch()
class Evil(MessagePolicy):
    pass
"""
JOBS = """workload={kind: jobs, jobs: [
    {name: one, workload: {kind: point-to-point, bytes: 512KiB, message: 8KiB, from: h1, to: h3}},
    {name: two, transport: rc, workload:
        {kind: point-to-point, bytes: 512KiB, message: 8KiB, from: h2, to: h4}}]}"""
RUN, OUTPUT = "RUN", "OUTPUT"
READING = (
    ("results", "report", RUN),
    ("results", "report", RUN, "-o", OUTPUT),
    ("results", "explain", RUN),
    ("results", "explain", RUN, "--step", "one:0"),
    ("results", "export", RUN, "-o", OUTPUT),
    ("results", "show", RUN),
    ("results", "show", RUN, "--json"),
    ("results", "ls", RUN),
    ("results", "compare", RUN, RUN),
    ("results", "plot", RUN, "-o", f"{OUTPUT}.svg"),
    ("verify", RUN),
    ("results", "pack", RUN, "-o", OUTPUT),
)
AGAIN = (
    ("results", "rerun", RUN, "-o", OUTPUT),
    ("results", "explain", RUN, "--cost", "--undo", "all"),
    ("results", "report", RUN, "--cost"),
)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Two jobs, one of which has its own transport; with a capture."""
    changes = (JOBS.replace("\n", " "), "seeds=1")
    directory = made.run("ring-all-reduce", tmp_path_factory.mktemp("jobs"), *changes,
                         transports=("csa_ud",))  # fmt: skip
    shutil.copy(paths.PROJECT_ROOT / "tests/captures/rxe_rc.pcap", directory)
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["runs"][0]["capture"] = {"file": "rxe_rc.pcap"}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


class Hostile:
    """Run directories that want to execute, read and write what lies in `outside`."""

    def __init__(self, top, jobs):
        self.top, self._jobs = top, jobs
        self.outside = top / "outside"
        self.outside.mkdir()
        self.evil = EVIL.format(canary=str(self.outside / "was executed"))
        (self.outside / "evil.py").write_text(self.evil)
        (self.outside / "secret").write_text("secret")
        (self.outside / "trace.goal").write_text("num_ranks 1\nrank 0 {\n}\n")
        self._before = self._state()

    def _state(self):
        return {path.name: path.read_bytes() for path in self.outside.iterdir()}

    def check_nothing_happened(self):
        assert self._state() == self._before

    def was_executed(self):
        return (self.outside / "was executed").exists()

    def _directory(self, name, change):
        """A copy of the run whose experiment a function has changed; with links to the outside."""
        directory = self.top / name / "run"
        shutil.copytree(self._jobs, directory)
        (directory / "inputs").mkdir(exist_ok=True)
        (directory / "inputs/evil.py").write_text(self.evil)
        (directory / "inputs/link.py").symlink_to(self.outside / "evil.py")
        (directory / "inputs/link.goal").symlink_to(self.outside / "trace.goal")
        for name in ("report.html", f".report.html.{os.getpid()}"):
            (directory / name).symlink_to(self.outside / "secret")
        experiment = json.loads((directory / "experiment.json").read_text())
        change(experiment)
        (directory / "experiment.json").write_text(json.dumps(experiment, indent=1))
        manifest = json.loads((directory / "manifest.json").read_text())
        manifest["experiment"]["workload"]["kind"] = experiment["workload"]["kind"]
        (directory / "manifest.json").write_text(json.dumps(manifest))
        return directory

    def policies(self):
        def change(experiment):
            experiment["transports"] = [
                {"policy": "./inputs/evil.py:Evil", "label": "csa_ud"},
                {"policy": "inputs/link.py:Evil", "label": "linked"},
            ]
            job = experiment["workload"]["jobs"][1]
            job["transport"] = {"policy": f"{self.outside}/evil.py:Evil", "label": "rc"}

        words = ["inputs/evil.py:Evil", "inputs/link.py:Evil", f"{self.outside}/evil.py:Evil"]
        return self._directory("policies", change), words

    def programs(self):
        def change(experiment):
            del experiment["transports"]
            run, loaded = f"touch '{self.outside}/was executed'", "evil.so"
            commands = {
                "h1": {"run": run, "environment": {"LD_PRELOAD": loaded}},
                "h2": {"run": run},
            }
            experiment["workload"] = {"kind": "program", "commands": commands}
            experiment["clock"] = "real"

        return self._directory("programs", change), ["LD_PRELOAD=evil.so touch", "touch"]

    def save(self):
        def change(experiment):
            path, save = f"{self.outside}/secret", f"{self.outside}/saved"
            experiment["workload"] = {"kind": "file", "path": path, "save": save}

        return self._directory("save", change), [f"reads the file '{self.outside}/secret'"]

    def paths(self):
        def change(experiment):
            experiment["topology"] = f"{self.outside}/secret"
            experiment["faults"] = ["../../outside/secret"]
            experiment["workload"] = {"kind": "goal", "file": "inputs/link.goal"}

        words = [f"'{self.outside}/secret'", "'../../outside/secret'", "'inputs/link.goal'"]
        return self._directory("paths", change), words

    def every(self):
        return [self.policies(), self.programs(), self.save(), self.paths()]

    def sweep(self, made):
        """A sweep with a policy in its last cell."""
        directory = shutil.copytree(made, self.top / "sweep" / "run")
        (directory / "inputs").mkdir(exist_ok=True)
        (directory / "inputs/evil.py").write_text(self.evil)
        sweep = json.loads((directory / "sweep.json").read_text())
        *_, cell = sweep["over"]["cell"].values()
        cell["transports"] = [{"policy": "inputs/evil.py:Evil", "label": "csa_ud"}]
        (directory / "sweep.json").write_text(json.dumps(sweep, indent=1))
        return directory


@pytest.fixture
def hostile(tmp_path, jobs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Hostile(tmp_path, jobs)


def lab(verb, directory, top, *more):
    places = {RUN: str(directory), OUTPUT: str(top / "output")}
    words = [places.get(word, word).replace(OUTPUT, places[OUTPUT]) for word in verb]
    return CliRunner().invoke(app, [*words, *more])


def test_what_reads_results_executes_nothing_and_writes_nothing_outside(hostile, swept):  # noqa: F811
    policies, *others = [directory for directory, _ in hostile.every()]
    for verb in READING:
        found = lab(verb, policies, hostile.top)
        refused = verb[1:2] == ("pack",)  # as the directory has links to the outside
        assert found.exit_code == (ExitCode.USAGE if refused else 0), found.output
        hostile.check_nothing_happened()
    for directory in (*others, hostile.sweep(swept)):
        for verb in READING[::2]:
            (hostile.top / "output").unlink(missing_ok=True)
            found = lab(verb, directory, hostile.top)
            assert found.exit_code in (0, ExitCode.USAGE), found.output
            hostile.check_nothing_happened()


def test_what_runs_it_again_lists_what_it_would_execute_and_read(hostile):
    for directory, words in hostile.every():
        for verb in AGAIN:
            found = lab(verb, directory, hostile.top)
            assert found.exit_code == ExitCode.USAGE, found.output
            assert [word for word in (*words, "--trust") if word not in found.stderr] == []
            hostile.check_nothing_happened()
            assert not (hostile.top / "output").exists()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"topology": "/etc/secret"}, "'/etc/secret' is not in the run directory"),
        ({"faults": ["../secret"]}, "'../secret' is not in the run directory"),
        (
            {"workload": {"kind": "jobs", "jobs": [
                {"name": "one", "workload": {"kind": "goal", "file": "inputs/../../secret"}},
            ]}},
            "'inputs/../../secret' is not in the run directory",
        ),
    ],
    ids=["topology", "faults", "goal"],
)  # fmt: skip
def test_no_file_outside_is_read_to_show_results(jobs, tmp_path, change, what):
    directory = shutil.copytree(jobs, tmp_path / "run")
    experiment = json.loads((directory / "experiment.json").read_text())
    (directory / "experiment.json").write_text(json.dumps(experiment | change))
    with pytest.raises(UserError, match=re.escape(what)):
        fabric.experiment(directory)


def test_reproduce_sh_of_an_archive_needs_trust_too(hostile):
    program = hostile.top / "lab"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m softroce_lab.cli "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"LAB_PROGRAM": str(program), "PYTHONPATH": str(paths.PROJECT_ROOT)}

    def reproduced(directory, *more):
        script = directory.parent / "reproduce.sh"
        script.write_text(artifact.REPRODUCE)
        return subprocess.run(["sh", script, "-q", *more], env=environment, capture_output=True,
                              text=True, timeout=120, check=False)  # fmt: skip

    directory, words = hostile.policies()
    done = reproduced(directory)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert [word for word in (*words, "--trust") if word not in done.stderr] == []
    hostile.check_nothing_happened()
    assert reproduced(directory, "--trust").returncode == ExitCode.FAILED  # another policy
    assert hostile.was_executed()


@pytest.mark.parametrize("verb", AGAIN, ids=" ".join)
def test_a_trusted_run_is_executed(hostile, verb):
    directory, _ = hostile.policies()
    lab(verb, directory, hostile.top, "--trust", "-q")
    assert hostile.was_executed()


def test_not_even_a_trusted_run_saves_a_file(hostile):
    directory, _ = hostile.save()
    found = lab(AGAIN[0], directory, hostile.top, "--trust", "-q")
    assert "passed" in (hostile.top / "output/latest/manifest.json").read_text(), found.output
    hostile.check_nothing_happened()


def test_what_needs_no_trust_runs_again_without(jobs, tmp_path):
    found = lab(AGAIN[0], jobs, tmp_path, "-q")
    assert found.exit_code == 0, found.output


def test_a_sweep_again_needs_trust(hostile, swept):  # noqa: F811
    directory = hostile.sweep(swept)
    found = lab(AGAIN[0], directory, hostile.top)
    assert found.exit_code == ExitCode.USAGE
    assert "inputs/evil.py:Evil" in found.stderr
    hostile.check_nothing_happened()
    lab(AGAIN[0], directory, hostile.top, "--trust", "-q")
    assert hostile.was_executed()


def test_a_link_in_the_folder_of_a_sweep_chooses_no_file(hostile, swept):  # noqa: F811
    """A sweep's directory may be there before, and is written over."""
    there = hostile.top / "output" / swept.name
    there.mkdir(parents=True)
    (there / ".manifest.json.tmp").symlink_to(hostile.outside / "secret")
    found = lab(AGAIN[0], swept, hostile.top, "-q")
    assert (found.exit_code, "is a link to" in found.stderr) == (ExitCode.USAGE, True)
    hostile.check_nothing_happened()


def test_no_key_of_the_directory_of_a_sweep_is_read_before_it_is_listed(hostile, swept):  # noqa: F811
    """`lab run` writes none of these keys there, and each could add a policy."""
    for change in (
        {"set": {"transports": [{"policy": "inputs/evil.py:Evil"}]}},
        {"transports": [{"policy": "inputs/evil.py:Evil"}]},
        {"experiment": str(hostile.policies()[0] / "experiment.json")},
    ):
        directory = hostile.sweep(swept)
        sweep = json.loads((directory / "sweep.json").read_text())
        (directory / "sweep.json").write_text(json.dumps(sweep | change))
        for more in ((), ("--trust",)):
            found = lab(AGAIN[0], directory, hostile.top, "-q", *more)
            assert (found.exit_code, "was edited" in found.stderr) == (ExitCode.USAGE, True)
            hostile.check_nothing_happened()
        shutil.rmtree(hostile.top / "sweep")
        shutil.rmtree(hostile.top / "policies", ignore_errors=True)


HARMLESS = {
    "algorithm", "backward", "every", "from_", "hosts", "kind", "placement", "sizes", "skew", "to",
}  # fmt: skip


def test_a_kind_of_workload_with_another_text_says_what_it_uses():
    """The text may be a command, or a path."""
    for kind in (*get_args(table.Single), programs.ProgramSpec):
        texts = {name for name, of in kind.model_fields.items() if "str" in str(of.annotation)}
        assert texts <= HARMLESS or "uses" in vars(kind), kind
