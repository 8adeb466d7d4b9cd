# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes the directory of a run of programs, without a lab: what they did is given."""

import contextlib
from unittest import mock

import numpy as np

from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.messages import MESSAGE
from softroce_lab.experiment.reporter import Silent
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.inputs import yaml_source

TEXT = """\
name: programs
topology: two-hosts
clock: real
workload:
  kind: program
  commands: {h2: {run: serve --all, listens: 1}, h1: {run: ask <h2>, after: h2, prints: answer}}
"""
ENDED = {
    "h2": {
        "run": "serve --all", "status": -9, "killed": "h1 failed", "tries": 1, "took_s": 6.633,
        "roce_packets": 5, "matched": None, "output": "",
    },
    "h1": {
        "run": "ask <h2>", "status": 0, "killed": None, "tries": 1, "took_s": 1.5,
        "roce_packets": 1234, "matched": "the answer & more",
        "output": "first\nthe answer & more\n",
    },
}  # fmt: skip
LINK = {
    "directed_link": 0, "name": "h1->s1", "sent": 100, "received": 93, "injected_drops": 7,
    "emulator_drops": 0, "records_lost": 0, "wire": None,
}  # fmt: skip


class Kept(Silent):
    """A reporter that keeps its lines."""

    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)

    def run(self, name, messages):
        self.lines.append(f"{name}: {messages} messages")
        return lambda _: None


def found(transport="rc", seed=1):
    """What a run came to."""
    return WorkloadRun(
        transport=transport, protocol="none", congestion_control="none", seed=seed, clock="real",
        hosts=("h1", "h2"), messages=np.zeros(0, MESSAGE), end_ns=10**9, links=[LINK],
        facts={"programs": ENDED, "idle_rules": []},
    )  # fmt: skip


def programs(under, reporter=None):
    """The outcome of an experiment of two programs."""

    @contextlib.contextmanager
    def runner(*_):
        yield lambda _experiment, transport, seed, _progress, _wanted: found(transport.label, seed)

    experiment = spec.of(yaml_source.parse(TEXT))
    with (
        mock.patch.object(experiment_run._Runs, "_on_clock", runner),
        mock.patch("os.geteuid", return_value=0),
    ):
        return experiment_run.run(experiment, reporter or Silent(), under=under)
