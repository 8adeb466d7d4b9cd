# SPDX-License-Identifier: GPL-2.0-or-later
"""Who sends how much to whom, and in which round."""

from softroce_lab.workloads import graph
from softroce_lab.workloads.collectives.collective import Collective
from softroce_lab.workloads.flows import Incast
from softroce_lab.workloads.operations import Operations, Timeline
from tests.workloads.goal.texts import binomial_tree, of, ranks


def test_a_ring_passes_on_in_rounds():
    found = graph.flows(Collective((0, 1, 2, 3), 1600, 200))
    assert [(flow.source, flow.destination) for flow in found] == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert {(flow.messages, flow.bytes) for flow in found} == {(12, 2400)}
    assert {(flow.first_round, flow.last_round) for flow in found} == {(1, 6)}


def test_a_tree_has_a_round_a_level():
    found = graph.flows(of(binomial_tree(8)))
    assert {(flow.destination, flow.first_round) for flow in found} == {
        (1, 1), (2, 1), (3, 2), (4, 1), (5, 2), (6, 2), (7, 3)
    }  # fmt: skip


def test_what_only_begins_behind_a_message_is_of_its_round():
    text = ranks(
        "a: send 1b to 1\nb: send 1b to 2\nb irequires a", "recv 1b from 0", "recv 1b from 0"
    )
    assert [flow.first_round for flow in graph.flows(of(text))] == [1, 1]
    text = text.replace("irequires", "requires")
    assert [flow.first_round for flow in graph.flows(of(text))] == [1, 2]


def test_times_are_those_of_the_first_message():
    workload = Operations(Incast((0, 1, 2), 10, 10), 2, Timeline(1000, skew_ns=300, seed=1))
    starts = {host: workload.timeline.begins_ns(0, host) for host in (1, 2)}
    assert {flow.source: flow.not_before_ns for flow in graph.flows(workload)} == starts
