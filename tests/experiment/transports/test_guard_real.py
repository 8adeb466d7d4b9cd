# SPDX-License-Identifier: GPL-2.0-or-later
"""A bad policy on the real clock: every host has one, and the run ends with a verdict."""

import secrets
import time

import pytest

from softroce_lab.experiment import real, spec
from softroce_lab.fabric import lab as fabric
from tests import own_policy
from tests.experiment.transports.bad_policies import BAD, HEAD, names_line, states

EXPERIMENT = """
name: t{name}
topology:
  generator: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 1}}
transports: [./mine.py:Mine, ud_rto]
workload: {{kind: ring-all-reduce, bytes: 64KiB, message: 16KiB}}
faults: [{{name: loss, links: "leaf*<->spine*", loss: 1%}}]
clock: real
"""
GOOD = own_policy.named("Mine")
SHOWN = (
    "raises", "raises at the start", "returns None", "no such packet", "loops",
    "time stands still", "summary that is none", "ends the process at once", "crashes",
    "raises what Ctrl-C does",
)  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Two leaves, two spines, a host at each leaf."""
    folder = tmp_path_factory.mktemp("lab")
    made = fabric.up(experiment(folder, GOOD).plan(1), ephemeral=True)
    yield made
    made.down()


def experiment(folder, text):
    (folder / "mine.py").write_text(text)
    file = folder / "x.yaml"
    file.write_text(EXPERIMENT.format(name=secrets.token_hex(3)))
    return spec.load(file)


def run(wanted, which, lab):
    return real.run(wanted, wanted.transports[which], 1, lambda _: None, lab)


def test_a_policy_from_a_file_runs_in_every_host_process(lab, tmp_path):
    found = run(experiment(tmp_path, GOOD), 0, lab)
    assert (found.verdict, found.verified) == ("passed", True), found.reasons
    assert found.transport == "Mine"


@pytest.mark.parametrize("name", SHOWN)
def test_a_bad_policy_fails_and_the_other_transport_runs(lab, tmp_path, name):
    fails_and_the_other_runs(lab, tmp_path, name)


def fails_and_the_other_runs(lab, tmp_path, name):
    body, line, why = BAD[name]
    wanted = experiment(tmp_path, HEAD + body)
    began = time.monotonic()
    mine = run(wanted, 0, lab)
    assert time.monotonic() - began < 30
    assert mine.verdict == "failed"
    assert states(mine.reasons[0], why)
    assert names_line(mine.reasons[0], tmp_path / "mine.py", line), mine.reasons[0]
    assert run(wanted, 1, lab).verdict == "passed"
