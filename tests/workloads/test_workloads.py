# SPDX-License-Identifier: GPL-2.0-or-later
"""All generators: what they move, whatever order the network chooses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab.workloads.collectives.collective import Collective
from softroce_lab.workloads.flows import AllToAll, Incast, Permutation, PointToPoint, Scatter
from softroce_lab.workloads.operations import Operations, Timeline
from softroce_lab.workloads.work import mismatches
from tests.workloads.legal_order import carry_out

FLOWS = (PointToPoint, Permutation, Incast, Scatter, AllToAll)
KINDS = (*FLOWS, Collective)
ONE_SENDS = (PointToPoint, Scatter)  # rank 0 alone has bytes of its own


@pytest.mark.parametrize("kind", FLOWS)
@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.integers(0, 100), st.integers(1, 40), st.integers(0, 1 << 64))
def test_flows_arrive_where_they_belong(kind, hosts, size, message, order):
    workload = kind(tuple(range(10, 10 + hosts)), size, message)
    buffers = carry_out(workload, seed=3, order=order)
    assert mismatches(workload, list(buffers.items()), 3) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, 3])
def test_messages_are_counted_and_named_apart(kind, times):
    workload = Operations(kind((0, 1, 2, 3, 4), 1000, 96), times)
    messages = list(workload.messages())
    assert len(messages) == workload.message_count
    assert len({(m.source, m.destination, m.key) for m in messages}) == len(messages)
    assert {m.key[0] for m in messages} == set(range(times))
    for message in messages:
        end = message.source_offset + message.length_bytes
        assert end <= workload.buffer_bytes_of(message.source) <= workload.buffer_bytes


@pytest.mark.parametrize("kind", KINDS)
def test_several_operations_do_not_disturb_each_other(kind):
    workload = Operations(kind((0, 1, 2, 3), 200, 48), 3, Timeline(1000, skew_ns=300, seed=1))
    buffers = carry_out(workload, seed=5, order=6)
    assert mismatches(workload, list(buffers.items()), 5) == []
    assert (workload.initial(1, 5) != workload.initial(1, 6)).any() or kind in ONE_SENDS


def test_a_wrong_byte_is_found():
    workload = Permutation((0, 1, 2), 100, 100)
    buffers = carry_out(workload, seed=1)
    buffers[2][150] ^= 1
    assert mismatches(workload, list(buffers.items()), 1) == [
        "host 2: 1 bytes are wrong, the first at 150"
    ]


def test_a_permutation_follows_its_seed():
    drawn = [list(Permutation(tuple(range(16)), 1, 1, seed=seed).flows()) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Incast((0,), 1, 1), "two hosts"),
        (lambda: Incast((0, 0), 1, 1), "each once"),
        (lambda: Incast((0, 1), 1, 0), "messages 1 to"),
        (lambda: Incast((0, 1), -1, 1), "0 bytes or more"),
        (lambda: Collective((0, 1), 10, 4), "whole elements"),
        (lambda: Collective((0, 1), 16, 3), "whole elements"),
        (lambda: Operations(Incast((0, 1), 1, 1), 0), "1 to 65536 times"),
        (lambda: Operations(Incast((0, 1), 1, 1), 2, warm_up=2), "follows the warm-up"),
    ],
)
def test_what_cannot_be(make, why):
    with pytest.raises(ValueError, match=why):
        make()
