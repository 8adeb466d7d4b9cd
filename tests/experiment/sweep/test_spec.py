# SPDX-License-Identifier: GPL-2.0-or-later
"""Sweep files: which runs they mean, and where their mistakes are."""

import pickle
import re

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment.sweep import spec
from softroce_lab.transports import registry

EXPERIMENT = """\
name: mine
topology: {generator: {kind: star, hosts: 3, access: {delay: 1us, loss: random 0.5%}}}
transports: [csa_ud, rc]
workload: {kind: point-to-point, bytes: 64KiB}
seeds: 2
"""
SWEEP = """\
name: many
experiment: mine.yaml
over:
  workload.bytes: [64KiB, 128KiB]
  depth: {from: 1, to: 4, times: 2}
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(EXPERIMENT)

    def load(text=SWEEP):
        (tmp_path / "many.yaml").write_text(text)
        return spec.load("many")

    return load


def test_all_combinations_in_order(load):
    tasks = load().tasks("")
    assert len(tasks) == 2 * 3 * 2 * 2
    assert [task.number for task in tasks] == list(range(24))
    first, last = tasks[0], tasks[-1]
    assert first.title == "workload.bytes=64KiB, depth=1, csa_ud, seed 1"
    assert last.title == "workload.bytes=128KiB, depth=4, rc, seed 2"
    experiment = last.recipe.experiment()
    assert (experiment.depth, experiment.raw.workload.bytes) == (4, 128 << 10)
    assert len({task.key for task in tasks}) == 24


def test_an_inline_experiment_takes_the_transports_of_the_sweep(load):
    work = "workload: {kind: permutation, bytes: 1KiB}"
    head = f"name: many\nexperiment: {{topology: leaf-spine, {work}}}\n"
    sweep = load(head + "transports: [csa_ud, rc]\nover: {depth: [1]}\n")
    assert [task.transport.label for task in sweep.tasks("")][:2] == ["csa_ud", "rc"]
    with pytest.raises(UserError, match=re.escape("many.yaml:3:13: unknown transport 'csa'")):
        load(head + "transports: [csa]\nover: {depth: [1]}\n")


def test_named_points_change_several_keys(load):
    sweep = load(
        "name: many\nexperiment: mine.yaml\nset: {workload.message: 1KiB}\nseeds: [7]\n"
        "transports: all\nover:\n  size:\n    small: {workload.bytes: 1KiB, depth: 1}\n"
        "    large: {workload.bytes: 1MiB, depth: 8}\n"
    )
    tasks = sweep.tasks("")
    assert [task.values["size"] for task in tasks[:: len(registry.transports())]] == [
        "small", "large",
    ]  # fmt: skip
    assert [task.transport.label for task in tasks[: len(registry.transports())]] == (
        registry.transports()
    )
    raw = tasks[-1].recipe.experiment().raw
    assert (raw.workload.bytes, raw.depth, raw.workload.message) == (1 << 20, 8, 1 << 10)
    assert {task.seed for task in tasks} == {7}


def test_an_experiment_in_the_file_itself(load):
    body = EXPERIMENT.partition("\n")[2].replace("\n", "\n  ").rstrip()
    sweep = load(f"name: many\nexperiment:\n  {body}\nover: {{depth: [1, 2]}}\n")
    assert [each.experiment.name for each in sweep.combinations] == ["many", "many"]


def test_seeds_alone_are_a_sweep(load):
    tasks = load("name: many\nexperiment: mine\nseeds: 3\n").tasks("")
    assert [task.title for task in tasks[:2]] == ["csa_ud, seed 1", "csa_ud, seed 2"]


def test_tasks_can_be_sent_to_other_processes(load):
    task = load().tasks("")[5]
    again = pickle.loads(pickle.dumps(task))  # noqa: S301
    assert again == task
    made = again.recipe.experiment()
    assert made.document() == task.recipe.experiment().document()


def test_keys_tell_what_decides_a_result(load, tmp_path):
    before = {task.key for task in load().tasks("code")}
    assert {task.key for task in load("# other words\n" + SWEEP).tasks("code")} == before
    assert not {task.key for task in load().tasks("other code")} & before
    more = {task.key for task in load(SWEEP.replace("128KiB]", "128KiB, 1MiB]")).tasks("code")}
    assert before < more
    (tmp_path / "mine.yaml").write_text(EXPERIMENT.replace("0.5%", "0.6%"))
    assert not {task.key for task in load().tasks("code")} & before


def test_a_named_topology_that_changes_is_noticed(load, tmp_path):
    topology = "name: t\ntopology: {generator: {kind: star, hosts: 2}}\n"
    (tmp_path / "t.yaml").write_text(topology)
    text = SWEEP + "set: {topology: t}\n"
    before = {task.key for task in load(text).tasks("")}
    (tmp_path / "t.yaml").write_text(topology.replace("hosts: 2", "hosts: 3"))
    assert not {task.key for task in load(text).tasks("")} & before


def test_a_part_of_it(load):
    sweep = load()
    tasks = sweep.tasks("")
    chosen = spec.only(tasks, sweep, ["transport=rc", "depth=2", "depth=4", "seed=2"])
    assert [task.labels["depth"] for task in chosen] == ["2", "4", "2", "4"]
    assert {task.transport.label for task in chosen} == {"rc"}
    by_pattern = spec.only(tasks, sweep, ["transport=r*", "depth=[24]", "seed=2"])
    assert by_pattern == chosen


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        ("transport", "'transport' chooses nothing"),
        ("depth=3", "no run has depth=3\n  hint: known: 1, 2, 4"),
        ("dept=1", "many varies no 'dept'\n  hint: did you mean 'depth'?"),
    ],
)
def test_a_part_that_is_not_there(load, choice, complaint):
    sweep = load()
    with pytest.raises(UserError, match="^" + re.escape(complaint)):
        spec.only(sweep.tasks(""), sweep, [choice])


HEAD = "name: many\nexperiment: mine.yaml\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name: many\nover: {}\n", "many.yaml:1:1: key 'experiment' is missing"),
        (EXPERIMENT, "many.yaml:1:1: this is no sweep, but an experiment or a topology"),
        ("name: many\nexperiment: nine\n", "many.yaml:2:13: no experiment called 'nine'"),
        ("name: many\nexperiment: [mine]\n", "many.yaml:2:13: expected keys and values"),
        ("name: many\nexperiment: {topology: leaf-spine, transports: [rc]}\n",
         "many.yaml:2:13: key 'workload' is missing"),
        ("name: many\nexperiment: {topology: leaf-spine, transports: [tcp],\n"
         "  workload: {kind: incast, bytes: 1KiB}}\n",
         "many.yaml:2:49: unknown transport 'tcp'"),
        (HEAD + "sets: {}\n", "many.yaml:3:1: unknown key 'sets'"),
        (HEAD + "seed: 4\n", "many.yaml:3:1: 'seed' does not belong here"),
        (HEAD + "set: {workload.bites: 1KiB}\n", "many.yaml:3:23: unknown key 'bites'"),
        (HEAD + "set: {depth.x: 1}\n", "many.yaml:3:16: expected a whole number, found a mapping"),
        (HEAD + "transports: [csa]\n", "many.yaml:3:13: unknown transport 'csa'"),
        (HEAD + "over:\n  depth: [1, 2, zwei]\n",
         "many.yaml:4:17: expected a whole number, found 'zwei'"),
        (HEAD + "over:\n  depth: [0, 1]\n", "many.yaml:4:11: depth 0 is below 1"),
        (HEAD + "over:\n  depth: [1]\n  workload.to: [h2, h9]\n",
         "many.yaml:5:21: the topology has no host 'h9'"),
        (HEAD + "over:\n  workload.to: [h9]\n  depth: [1]\n",
         "many.yaml:4:17: the topology has no host 'h9'"),
        (HEAD + "over:\n  topology: [leaf-spine, leaf-spin]\n",
         "many.yaml:4:26: no topology called 'leaf-spin'\n  hint: did you mean 'leaf-spine'?"),
        (HEAD + "over:\n  depth: []\n", "many.yaml:4:10: 'depth' is varied over nothing"),
        (HEAD + "over:\n  depth:\n", "many.yaml:4:8: what 'depth' is varied over is missing"),
        (HEAD + "over:\n  depth: 5\n", "many.yaml:4:10: what 'depth' is varied over is missing"),
        (HEAD + "over:\n  depth: [1, 2, 1]\n", "many.yaml:4:17: 1 stands twice"),
        (HEAD + "over:\n  workload.bytes: [1KiB]\n  x: {a: {workload.bytes: 2KiB}}\n",
         "many.yaml:5:10: 'workload.bytes' undoes 'workload.bytes', which is varied above"),
        (HEAD + "over:\n  workload.bytes: [1KiB]\n  workload: [{kind: incast, bytes: 1KiB}]\n",
         "many.yaml:5:14: 'workload' undoes 'workload.bytes', which is varied above\n  hint: each"),
        (HEAD + "over:\n  depth: {from: 1, to: 3}\n",
         "many.yaml:4:11: a range takes either a 'step' or a factor, 'times'"),
        (HEAD + "over:\n  depth: {from: 1, to: 99999, step: 1}\n",
         "many.yaml:4:10: more than 10000 values"),
        (HEAD + "over:\n  size: {small: 3}\n", "many.yaml:4:17: what 'small' sets is missing"),
        (HEAD + "over:\n  bytes: {few: {workload.bytes: 1B}}\n",
         "many.yaml:4:3: the table has a column 'bytes'"),
        (HEAD + "over:\n  run: {few: {workload.bytes: 1B}}\n",
         "many.yaml:4:3: the table has a column 'run'"),
        (HEAD + "over:\n  workload.bytes: [1KiB]\n  workload.bytes [B]: {few: {depth: 1}}\n",
         "many.yaml:5:3: the table has a column 'workload.bytes [B]'\n"
         "  hint: it is that of 'workload.bytes'"),
        (HEAD + "over:\n  x [share]: {few: {depth: 1}}\n  x: {few: {depth: 1}}\n",
         "many.yaml:4:3: the table has a column 'x [share]'"),
        (HEAD + 'over:\n  "\\ud800": {few: {depth: 1}}\n',
         "many.yaml:4:3: '\\ud800' cannot be shown in a table"),
        (HEAD + 'over:\n  x: {"a\\nb": {depth: 1}}\n',
         "many.yaml:4:7: 'a\\nb' cannot be shown in a table"),
        (HEAD + f"over:\n  ? transports.{'9' * 5000}\n  : [rc]\n",
         "many.yaml:5:6: 'transports.9999"),
        (HEAD + "over:\n  seeds: [1, 2]\n", "many.yaml:4:3: 'seeds' is not swept here"),
        (HEAD + "seeds: 1000000\nover:\n  depth: [1]\n", "many.yaml:5:3: 2,000,000 runs"),
    ],
)  # fmt: skip
def test_mistakes_have_a_place(load, text, complaint):
    with pytest.raises(UserError) as caught:
        load(text)
    assert str(caught.value).startswith(complaint)


def test_the_experiments_own_mistake_has_its_own_place(load, tmp_path):
    sweep = SWEEP.replace("mine.yaml", "broken.yaml")
    (tmp_path / "broken.yaml").write_text(EXPERIMENT.replace("csa_ud", "csa"))
    with pytest.raises(UserError, match=r"^broken.yaml:3:14: unknown transport 'csa'"):
        load(sweep)


def test_the_ready_ones_can_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [name for name, _ in spec.shipped()]
    assert "snapshots" in names
    for name in names:
        sweep = spec.load(name)
        assert sweep.name == name
        assert sweep.about


def test_a_sweep_like_another_has_what_it_does_not_change(load, tmp_path):
    (tmp_path / "base.yaml").write_text(SWEEP + "seeds: [7]\n")
    sweep = load("name: many\nlike: base\ntransports: [irn]\nover: {depth: [2]}\n")
    assert [task.title for task in sweep.tasks("")] == [
        "workload.bytes=64KiB, depth=2, irn, seed 7",
        "workload.bytes=128KiB, depth=2, irn, seed 7",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("like: nowhere\n", "many.yaml:2:7: no sweep called 'nowhere'"),
        ("like: base\nover: {workload.kind: [1]}\n", "many.yaml:3:24: "),
        ("like: base\nset: {depth: 2}\nover: {mtu: [a]}\n", "many.yaml:4:14: "),
        ("like: wrong\n", "many.yaml:2:7: "),
        ("like: second\n", "many.yaml:2:7: second itself is like another sweep"),
    ],
)
def test_mistakes_of_a_sweep_like_another(load, tmp_path, text, complaint):
    (tmp_path / "base.yaml").write_text(SWEEP)
    (tmp_path / "wrong.yaml").write_text(SWEEP.replace("over:", "over:\n  depht: [1]"))
    (tmp_path / "second.yaml").write_text("name: second\nlike: base\n")
    with pytest.raises(UserError) as caught:
        load(f"name: many\n{text}")
    assert str(caught.value).startswith(complaint)


SHARED = """\
name: shared
experiment:
  topology: {generator: {kind: star, hosts: 4, access: {rate: 100Gbit, delay: 1us}}}
  workload: {kind: permutation, bytes: 64KiB}
over:
  workload.bytes: [64KiB, 128KiB]
  loss: {none: {}, some: {faults: [{name: loss, links: "*->*", loss: random 1%}]},
         more: {faults: [{name: loss, links: "*->*", loss: random 1.00000000000001%}]}}
  topology.generator.hosts: [4, 5]
transports: [rc]
"""


def test_combinations_that_differ_in_their_workload_alone_share_a_plan(tmp_path):
    (tmp_path / "shared.yaml").write_text(SHARED)
    found = {}
    for each in spec.load(tmp_path / "shared.yaml").combinations:
        _, *rest = (point.label for point in each.points)
        found.setdefault(tuple(rest), []).append(each.experiment.plan(1))
    assert len(found) == 6
    assert all(first is second for first, second in found.values())
    assert len({plan.digest for plan, _ in found.values()}) == 6
