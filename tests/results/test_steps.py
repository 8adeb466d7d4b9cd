# SPDX-License-Identifier: GPL-2.0-or-later
"""Steps by name: of operations, of jobs and of trainings, and how long each took."""

import shutil

import numpy as np
import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment.figure_table import quantile
from softroce_lab.results.recorded import Recorded
from softroce_lab.results.steps import Steps
from tests.results.made import run

TRAINING = "kind: training, layers: 2, forward: 50us, gradient: 64KiB, steps: 3"
RING = "kind: ring-all-reduce, bytes: 64KiB, message: 16KiB"
JOBS = (
    f"workload={{kind: jobs, jobs: [{{name: model, workload: {{{TRAINING}, hosts: [h1, h3]}}}}, "
    f"{{name: rings, workload: {{{RING}, repeat: 2, hosts: [h2, h4, h5]}}}}, "
    f"{{name: '7', workload: {{{RING}, hosts: [h6, h7]}}}}]}}"
)


def made(folder, workload):
    return Recorded(run("ring-all-reduce", folder, workload, "seeds=[1]", transports=("irn",)))


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return made(tmp_path_factory.mktemp("jobs"), JOBS)


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twice")
    return made(folder, f"workload={{{RING}, repeat: 2, hosts: [h1, h2, h3]}}")


def steps_of(recorded, name="irn/1"):
    found = recorded.run(name)
    messages = recorded.table("messages", found)
    return Steps.of(recorded, found, messages), messages


def names(steps):
    return [each.name for each in steps.every]


def test_one_operation_has_numbers(ring_run):
    steps, messages = steps_of(Recorded(ring_run))
    assert names(steps) == [str(number) for number in range(6)]
    assert steps.find("4") == steps.find("0:4") == 4
    assert (steps.of_row == messages["step"]).all()


def test_steps_of_two_operations_are_two(twice):
    steps, messages = steps_of(twice)
    assert names(steps) == [f"{operation}:{step}" for operation in (0, 1) for step in range(4)]
    rows = steps.rows(steps.find("1:2"))
    assert set(messages["operation"][rows]) == {1}
    assert set(messages["step"][rows]) == {2}
    with pytest.raises(UserError, match="2 steps are called 2") as refused:
        steps.find("2")
    assert refused.value.hint == "one of 0:2, 1:2"
    for wrong in ("9", "2:0", "x", "", "1:2:3"):
        with pytest.raises(UserError, match=f"there is no step {wrong}") as refused:
            steps.find(wrong)
        assert refused.value.hint == "steps are 0:0 to 1:3"


def test_steps_of_jobs_are_those_of_each(jobs):
    steps, messages = steps_of(jobs)
    assert names(steps) == [
        *(f"model:{step}" for step in range(3)),
        *(f"rings:{operation}:{step}" for operation in (0, 1) for step in range(4)),
        *(f"7:{step}" for step in range(2)),
    ]
    ends = {"model": {"h1", "h3"}, "rings": {"h2", "h4", "h5"}, "7": {"h6", "h7"}}
    for index, each in enumerate(steps.every):
        assert set(messages["source"][steps.rows(index)]) <= ends[each.job]
    assert len(np.concatenate([steps.rows(index) for index in range(len(steps.every))])) == (
        len(messages["step"])
    )


def test_parts_that_no_other_step_needs_may_be_left_out(jobs):
    steps, _ = steps_of(jobs)
    called = {name: steps.every[steps.find(name)].name for name in
              ("model:2", "rings:1:3", "1:3", "7:1", "7:0:1")}  # fmt: skip
    assert called == {"model:2": "model:2", "rings:1:3": "rings:1:3", "1:3": "rings:1:3",
                      "7:1": "7:1", "7:0:1": "7:1"}  # fmt: skip
    with pytest.raises(UserError, match="2 steps are called rings:3") as refused:
        steps.find("rings:3")
    assert refused.value.hint == "one of rings:0:3, rings:1:3"
    with pytest.raises(UserError, match="there is no step 9") as refused:
        steps.find("9")
    assert refused.value.hint == "steps are model:0 to model:2, rings:0:0 to rings:1:3, 7:0 to 7:1"


def test_a_step_of_a_training_is_all_that_it_sends(jobs, tmp_path):
    """Its times are those of its percentiles."""
    alone = made(tmp_path, f"workload={{{TRAINING}, hosts: [h1, h2, h3, h4]}}")
    steps, messages = steps_of(alone)
    assert names(steps) == ["0", "1", "2"]
    assert (steps.of_row == messages["operation"]).all()
    assert len(set(messages["step"][steps.rows(1)])) > 1  # classes of traffic
    for recorded, job in ((alone, ""), (jobs, "model")):
        steps, messages = steps_of(recorded)
        taken = steps.times_ns(messages).items()
        times = np.array([time for index, time in taken if steps.every[index].job == job])
        figures = recorded.run("irn/1")
        figures = figures["jobs"][job] if job else figures
        assert len(times) == figures["steps"] == 3
        for per_mille, figure in ((500, "step_p50_ns"), (990, "step_p99_ns")):
            assert quantile(times, per_mille) == figures[figure]


def test_other_steps_last_from_their_first_post_to_their_last_completion(jobs):
    steps, messages = steps_of(jobs)
    times = steps.times_ns(messages)
    assert len(times) == len(steps.every)
    for index, each in enumerate(steps.every):
        if each.job != "model":
            rows = steps.rows(index)
            ended, begun = messages["completed_ns"][rows].max(), messages["posted_ns"][rows].min()
            assert times[index] == ended - begun > 0


def edited(messages, steps, name, **values):
    """The same messages, but for one of a step."""
    row = steps.rows(steps.find(name))[0]
    changed = {key: column.copy() for key, column in messages.items()}
    for key, value in values.items():
        changed[key][row] = value
    return changed


def test_a_step_with_a_message_that_failed_has_no_time(jobs):
    """Nor has the step of a training behind one: when it began is not known."""
    steps, messages = steps_of(jobs)
    whole = steps.times_ns(messages)
    for name, gone in (("model:0", {"model:0", "model:1"}), ("rings:1:2", {"rings:1:2"})):
        for failed in ({"status": 12}, {"status": -1, "completed_ns": -1, "received_ns": -1}):
            left = steps.times_ns(edited(messages, steps, name, **failed))
            assert {steps.every[index].name for index in whole.keys() - left.keys()} == gone
            assert left.items() <= whole.items()


def test_jobs_are_known_by_the_experiment(jobs, tmp_path):
    copy = shutil.copytree(jobs.path, tmp_path / "copy")
    (copy / "experiment.json").unlink()
    with pytest.raises(UserError, match=r"experiment.json is missing"):
        steps_of(Recorded(copy))
