# SPDX-License-Identifier: GPL-2.0-or-later
"""GOAL programs as workloads: who sends what to whom, after what; and cycles."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab.errors import UserError
from softroce_lab.workloads.goal import writer
from softroce_lab.workloads.schedule import Compute, Receive, Send
from softroce_lab.workloads.work import mismatches
from tests.workloads.goal.texts import (
    CROSSED,
    assert_refused,
    binomial_tree,
    dissemination,
    of,
    output,
    ranks,
)
from tests.workloads.legal_order import Network, carry_out


def lengths(workload, host):
    return [each.length_bytes for each in workload.schedule().sends(host)]


@pytest.mark.parametrize("count", [2, 8, 32])
def test_a_tree_of_loggopsim_sends_what_it_says(count):
    workload = of(binomial_tree(count))
    assert workload.message_count == count - 1
    assert {m.length_bytes for m in workload.messages()} == {1}
    parents = {m.destination: m.source for m in workload.messages()}
    assert parents == {rank: rank - (1 << rank.bit_length() - 1) for rank in range(1, count)}
    network = Network(workload, 1, 2, 5)
    network.carry_out()
    reached = {0}
    for message in network.delivered:
        assert message.source in reached
        reached.add(message.destination)
    assert mismatches(workload, list(network.buffers.items()), 1) == []


@pytest.mark.parametrize("count", [16, 32])
def test_a_dissemination_of_loggopsim_sends_what_it_says(count):
    workload = of(dissemination(count))
    rounds = count.bit_length() - 1
    found = sorted((m.source, m.destination, m.length_bytes) for m in workload.messages())
    assert found == sorted(
        (rank, (rank + (1 << number)) % count, 1)
        for rank in range(count) for number in range(rounds)
    )  # fmt: skip
    network = Network(workload, 1, 2, 5)
    network.carry_out()
    place = {(m.source, m.destination): n for n, m in enumerate(network.delivered)}
    for rank in range(count):
        for number in range(1, rounds):  # behind the receive of the round before
            before = place[(rank - (1 << number - 1)) % count, rank]
            assert before < place[rank, (rank + (1 << number)) % count]
    assert mismatches(workload, list(network.buffers.items()), 1) == []


def test_operations_become_vertices():
    text = ranks(
        "l1: calc 50 cpu 2\nl2: send 7b to 1 tag 65539\nl2 requires l1\n"
        "l3: calc 0\nl3 irequires l2",
        "recv 7b from 0 tag 65539",
    )
    workload = of(text)
    compute, send, joint = workload.schedule().of[0]
    assert compute == Compute(50, cpu=2)
    assert (send.message.key, send.requires) == ((1, 3, 0), (0,))
    assert joint == Compute(0, (), (1,))
    assert [type(each) for each in workload.schedule().of[1]] == [Receive]
    assert workload.longest_message_bytes == workload.buffer_bytes == 7


def test_a_receive_takes_the_send_of_its_tag_in_order():
    workload = of(
        ranks(
            "send 1b to 1 tag 5\nsend 2b to 1 tag 6\nsend 3b to 1 tag 5",
            "recv 2b from 0 tag 6\nx: recv 1b from 0 tag 5\nrecv 3b from 0 tag 5\n"
            "c: calc 1\nc requires x",
        )
    )
    assert lengths(workload, 0) == [1, 2, 3]
    vertices = workload.schedule().of[1]
    assert [each.message.length_bytes for each in vertices[:3]] == [1, 2, 3]
    assert vertices[3].requires == (0,)  # the receive of 1 byte, whatever its place
    assert mismatches(workload, list(carry_out(workload, 3, order=1).items()), 3) == []


def test_what_would_wait_for_a_send_behind_it_is_sent_behind_it():
    workload = of(CROSSED)
    assert lengths(workload, 0) == [2, 1]
    assert isinstance(workload.schedule().of[0][0], Send)
    assert mismatches(workload, list(carry_out(workload, 3, order=1).items()), 3) == []


@pytest.mark.parametrize(
    ("blocks", "line", "what"),
    [
        (("l: calc 1\nl requires l", "calc 1"), 3, "a cycle: rank 0 l .line 3. waits for itself"),
        (
            ("calc 9\na: calc 1\nb: calc 1\na requires b\nb irequires a", "calc 1"),
            4,
            "each waits for the next one: rank 0 . .line .., rank 0 . .line ..$",
        ),
        (
            (
                "r: recv 1b from 1\ns: send 1b to 1\ns requires r",
                "r: recv 1b from 0\ns: send 1b to 0\ns requires r",
            ),
            3,
            "rank 1 r .line 8.",
        ),
    ],
)
def test_a_cycle_is_refused_at_its_first_operation(blocks, line, what):
    blocks = tuple(blocks)
    if "send" not in blocks[0]:
        blocks = (f"{blocks[0]}\nsend 1b to 1", f"{blocks[1]}\nrecv 1b from 0")
    assert_refused(ranks(*blocks), line, 1, what)


@pytest.mark.parametrize(
    ("blocks", "line", "column", "what"),
    [
        (("calc 1\n  x: send 1b to 1", "calc 1"), 4, 3, "a send without a receive: rank 1"),
        (("send 1b to 1 tag 1", "recv 1b from 0 tag 2"), 3, 1, "a send without a receive"),
        (("calc 1", "recv 1b from 0"), 6, 1, "a receive without a send: rank 0"),
        (("send 1b to 1", "recv 1b from 0\nrecv 1b from 0"), 7, 1, "a receive without a send"),
        (("send 1b to 1", "recv 2b from 0"), 6, 1, "2 bytes, and the send in line 3 has 1"),
        (("send 2b to 1", "recv 1b from 0"), 6, 1, "1 bytes, and the send in line 3 has 2"),
    ],
)
def test_ends_that_do_not_fit_are_refused(blocks, line, column, what):
    assert_refused(ranks(*blocks), line, column, what)


def test_a_program_that_sends_nothing_is_refused():
    with pytest.raises(UserError, match="no rank sends anything"):
        of(ranks("calc 1", "calc 2"))


MESSAGES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 2), st.integers(0, 40)),
    min_size=1, max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(MESSAGES, st.randoms(use_true_random=False), st.integers(0, 1 << 60))
def test_any_program_without_a_cycle_is_carried_out(messages, drawn, order):
    """Operations depend on those of messages before theirs, whatever their place in the file."""
    done = [[] for _ in range(4)]
    dependencies = [[] for _ in range(4)]
    for number, (source, distance, tag, length) in enumerate(messages):
        destination = (source + distance) % 4
        ends = ((source, f"send {length}b to {destination}"),
                (destination, f"recv {length}b from {source}"))  # fmt: skip
        before = [list(each) for each in done]
        for rank, operation in ends:
            word = drawn.choice(["requires", "irequires"])
            label = f"m{number}"
            if before[rank]:
                required = drawn.choice(before[rank]).partition(":")[0]
                dependencies[rank].append(f"{label} {word} {required}")
            done[rank].append(f"{label}: {operation} tag {tag * 100 + number}")
    for each in done:
        drawn.shuffle(each)
    blocks = ["\n".join(each + more) for each, more in zip(done, dependencies, strict=True)]
    workload = of(ranks(*blocks))
    assert workload.message_count == len(messages)
    for depth in (1, 3):
        buffers = carry_out(workload, 3, order=order, depth=depth)
        assert mismatches(workload, list(buffers.items()), 3) == []
    assert output(of("\n".join(writer.lines(workload)))) == output(workload)
