# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment as one file that needs no other."""

import json

import pytest

from softroce_lab import paths
from softroce_lab.experiment import frozen, spec
from softroce_lab.telemetry.rundir import RunDirectory

POLICY = """\
from softroce_lab.transports.policy import MessagePolicy
class Mine(MessagePolicy):
    pass
"""


def reloaded(experiment, folder):
    directory = RunDirectory.create("frozen", under=folder)
    frozen.write(directory, experiment)
    return spec.load(directory.path / frozen.FILE)


def same_work(one, other):
    seed = one.seeds[-1]
    assert other.seeds == one.seeds
    assert other.plan(seed).digest == one.plan(seed).digest
    first, second = (list(each.workload(seed).schedule().messages) for each in (one, other))
    assert second == first
    written_out = dict.fromkeys(("faults", "topology", "lb", "mtu"))
    assert other.document() | written_out == one.document() | written_out


@pytest.mark.parametrize("name", [name for name, _ in spec.shipped()])
def test_every_ready_experiment_is_the_same_again(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # nothing of it lies here
    experiment = spec.load(name)
    again = reloaded(experiment, tmp_path)
    if "goal" in json.dumps(experiment.document()["workload"]):
        seed = experiment.seeds[0]
        assert again.workload(seed).message_count == experiment.workload(seed).message_count
    else:
        same_work(experiment, again)


def test_a_policy_and_a_goal_file_are_copied(tmp_path):
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "two.goal").write_bytes((paths.WORKLOADS / "pipeline.goal").read_bytes())
    text = (paths.WORKLOADS / "pipeline.yaml").read_text().replace("pipeline.goal", "two.goal")
    (tmp_path / "own.yaml").write_text(text)
    experiment = spec.load(tmp_path / "own.yaml")
    experiment = spec.with_transports(experiment, [f"{tmp_path}/mine.py:Mine", "rc"])
    again = reloaded(experiment, tmp_path / "runs")
    for name in ("mine.py", "two.goal", "own.yaml"):
        (tmp_path / name).unlink()
    assert again.transports[0].sha256 == experiment.transports[0].sha256
    assert again.transports[0].file.endswith("inputs/mine.py")
    assert again.workload(1).message_count > 0


def test_a_version_of_a_kernel_keeps_its_digits(tmp_path):
    text = """\
name: kernels
topology:
  nodes: {h1: {kind: kernel, kernel: 6.10}, h2: {kind: host}, s1: {kind: switch}}
  links: [{endpoints: ["h1:eth1", "s1:h1"]}, {endpoints: ["h2:eth1", "s1:h2"]}]
transports: [rc]
clock: real
workload: {kind: point-to-point, bytes: 1kB}
faults: [{name: a, links: "h1->s1", loss: random 0.10%}]
"""
    (tmp_path / "kernels.yaml").write_text(text.replace("kind: kernel, kernel: 6.10", "kind: host"))
    experiment = spec.load(tmp_path / "kernels.yaml")
    source = spec.yaml_source.parse(text)
    document = frozen.text(source.data)
    assert '"kernel": 6.10\n' in document
    same_work(experiment, reloaded(experiment, tmp_path / "runs"))
