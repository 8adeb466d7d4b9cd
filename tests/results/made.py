# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes run directories for the tests of reports."""

from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec


class Silent:
    """A reporter."""

    def say(self, text):
        pass

    def run(self, name, messages):
        return lambda done: None


RING = (
    "workload={kind: ring-all-reduce, bytes: 256KiB, message: 32KiB, hosts: [h1, h2, h3, h4]}",
    "seeds=[1, 2]",
)


def run(name, under, *changes, transports=()):
    """The directory of a ready experiment's run."""
    experiment = spec.load(name, [spec.parse_override(each) for each in changes])
    if transports:
        experiment = spec.with_transports(experiment, list(transports))
    return experiment_run.run(experiment, Silent(), under=under).directory


def ring(under, *changes, transports=()):
    """A small ring all-reduce with 1 % loss."""
    return run("ring-all-reduce", under, *RING, *changes, transports=transports)
