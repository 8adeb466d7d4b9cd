# SPDX-License-Identifier: GPL-2.0-or-later
"""Critical paths: of graphs made by hand, and of runs, whose time they fill without a gap."""

import itertools

import numpy as np
import pytest

from softroce_lab.experiment.messages import MESSAGE
from softroce_lab.results.blame import counterfactual
from softroce_lab.results.blame.counterfactual import Case
from softroce_lab.results.blame.critical_path import Graph, Piece, critical_path
from softroce_lab.results.recorded import Recorded
from softroce_lab.workloads.message import Message
from softroce_lab.workloads.schedule import Schedule
from tests.results.made import run


def table(*rows):
    """(source, destination, posted, received, completed) each."""
    found = np.zeros(len(rows), MESSAGE)
    names = ("source", "destination", "posted_ns", "received_ns", "completed_ns")
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        found[name] = column
    return found


def message(source, destination, number):
    return Message((0, 0, number), source, destination, 100)


def test_a_chain_of_messages_and_a_computation():
    schedule = Schedule((0, 1, 2))
    schedule.transfer(message(0, 1, 0))
    schedule.transfer(message(2, 1, 1))
    work = schedule.compute(1, 50, requires=(0, 1))  # after both receives
    schedule.transfer(message(1, 2, 2), requires=(work,))
    messages = table((0, 1, 0, 300, 310), (2, 1, 5, 200, 500), (1, 2, 360, 460, 470))
    path = critical_path(Graph.of_schedule(schedule), messages, 2)
    assert path == [
        Piece("message", 0, 0, 0, 300),
        Piece("computing", 1, -1, 300, 350),
        Piece("waiting", 1, -1, 350, 360),
        Piece("acknowledged message", 1, 2, 360, 470),
    ]


def test_a_send_that_waits_for_room():
    schedule = Schedule((0, 1))
    for number in range(3):
        schedule.transfer(message(0, 1, number))
    messages = table((0, 1, 0, 90, 100), (0, 1, 0, 95, 250), (0, 1, 100, 280, 290))
    path = critical_path(Graph.of_schedule(schedule), messages, 2)
    assert path == [
        Piece("acknowledged message", 0, 0, 0, 100),
        Piece("acknowledged message", 0, 2, 100, 290),
    ]


def test_a_receive_that_waits_for_another():
    schedule = Schedule((0, 1, 2))
    schedule.transfer(message(0, 1, 0))
    second = schedule.transfer(message(2, 1, 1))
    second.requires = (0,)
    schedule.transfer(message(1, 0, 2), requires=(1,))
    messages = table((0, 1, 0, 400, 410), (2, 1, 0, 100, 110), (1, 0, 400, 600, 610))
    path = critical_path(Graph.of_schedule(schedule), messages, 2)
    assert [each.row for each in path] == [0, 2]


@pytest.mark.parametrize("name", ["pipeline", "training", "moe"])
def test_the_path_fills_the_run(tmp_path, name):
    directory = run(name, tmp_path, "seeds=1", "payload=none", transports=("irn",))
    recorded = Recorded(directory)
    base = counterfactual.carry_out(Case.of(recorded, recorded.runs[0]))
    experiment, _ = counterfactual.opened(Case.of(recorded, recorded.runs[0]))
    graph = Graph.of_schedule(experiment.workload(recorded.runs[0]["seed"]).schedule())
    path = critical_path(graph, base.messages, int(base.messages["completed_ns"].argmax()))
    assert path[0].begin_ns == base.messages["posted_ns"].min()
    assert path[-1].end_ns == base.messages["completed_ns"].max()
    assert all(one.end_ns == two.begin_ns for one, two in itertools.pairwise(path))
    assert sum(each.end_ns - each.begin_ns for each in path) == base.end_ns()
    assert all(each.begin_ns <= each.end_ns for each in path)
