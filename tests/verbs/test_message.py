# SPDX-License-Identifier: GPL-2.0-or-later
"""Striped messages through verbs: posted, moved by a policy, polled."""

import errno

import numpy as np
import pytest

from softroce_lab.verbs import MR, PD, MessageEndpoint, PyverbsUserError
from softroce_lab.verbs.enums import *
from tests.refusals import refused
from tests.verbs.conftest import ADDRESSES, QKEY

CHUNK = 2048 - 40
MACS = (0x020000000001, 0x020000000002)
SECOND_NS = 1_000_000_000


class Node:
    """One side: endpoint and memory."""

    def __init__(self, context):
        self.context = context
        self.pd = PD(context)
        self.messages = MessageEndpoint(self.pd, QKEY)
        self.mr = MR(self.pd, 1 << 20, IBV_ACCESS_LOCAL_WRITE)
        self.peer = None
        self.completions = []

    def step(self):
        self.completions += self.messages.poll(100)[1]


@pytest.fixture
def nodes(contexts):
    made = [Node(context) for context in contexts]
    for here, there in ((0, 1), (1, 0)):
        made[here].peer = made[here].messages.connect(
            ADDRESSES[there], MACS[there], made[there].messages.qpns, QKEY
        )
    return made


def run(pair, nodes, wanted):
    """Until so many completions in all, or 5 s have passed."""
    until_ns = pair.now_ns + 5 * SECOND_NS
    for _ in range(100_000):
        for node in nodes:
            node.step()
        if sum(len(node.completions) for node in nodes) >= wanted:
            return
        if not pair.run(until_ns):
            break
    raise AssertionError(f"completions: {[node.completions for node in nodes]}")


def fill(mr, length, offset=0):
    data = np.random.default_rng(length).integers(0, 256, length, np.uint8).tobytes()
    mr.write(data, length, offset)
    return data


# ---------------------------------------------------------------- transfers


@pytest.mark.parametrize("length", [0, CHUNK, CHUNK + 1, 100_000])
def test_a_message_arrives(pair, nodes, length):
    alice, bob = nodes
    data = fill(alice.mr, length, 77)
    bob.messages.post_recv(1, 2, bob.peer, length, bob.mr, 500, message=3, wr_id=8)
    alice.messages.post_send(1, 2, alice.peer, length, alice.mr, 77, message=3, wr_id=7)
    run(pair, nodes, 2)
    (sent,), (received,) = alice.completions, bob.completions
    assert (sent.wr_id, sent.status, sent.opcode) == (7, IBV_WC_SUCCESS, IBV_WC_SEND)
    assert (received.wr_id, received.status, received.opcode) == (8, IBV_WC_SUCCESS, IBV_WC_RECV)
    for completion in (sent, received):
        assert completion.byte_len == length
        assert completion.key == (1, 2, 3)
        assert completion.packets == max(1, -(-length // CHUNK))
        assert completion.peer == 0
        assert completion.posted_ns <= completion.first_ns <= completion.completed_ns
    assert received.completed_ns <= sent.completed_ns
    assert bob.mr.read(length, 500) == data
    assert "packets" in str(received)


def test_many_messages_both_ways_under_loss(pair, nodes):
    for which in range(2):
        pair.cable(which).loss = int(0.05 * 2**64)
        pair.cable(which).delay_ns = 100_000
    length, slots = 10_000, 20
    sent = []
    for node in nodes:
        for message in range(slots):
            node.messages.post_recv(
                0, 0, node.peer, length, node.mr, (slots + message) * length, message=message
            )
    for node in nodes:
        sent.append([fill(node.mr, length, message * length) for message in range(slots)])
        for message in range(slots):
            node.messages.post_send(
                0, 0, node.peer, length, node.mr, message * length, message=message
            )
    run(pair, nodes, 4 * slots)
    for node, data in zip(nodes, reversed(sent), strict=True):
        assert all(each.status == IBV_WC_SUCCESS for each in node.completions)
        for message in range(slots):
            assert node.mr.read(length, (slots + message) * length) == data[message]
    assert sum(each.retransmitted for node in nodes for each in node.completions) > 0


def test_a_message_larger_than_its_receive_fails_at_the_sender(pair, nodes):
    alice, bob = nodes
    fill(alice.mr, 5000)
    bob.messages.post_recv(0, 0, bob.peer, 4999, bob.mr)
    alice.messages.post_send(0, 0, alice.peer, 5000, alice.mr)
    run(pair, nodes, 1)
    assert alice.completions[0].status == IBV_WC_REM_INV_REQ_ERR
    assert bob.mr.read(5000, 0) == bytes(5000)


# ---------------------------------------------------------------- what cannot be posted


def test_a_name_that_is_posted_already(pair, nodes):
    alice, bob = nodes
    for wr_id in (1, 2):
        bob.messages.post_recv(0, 0, bob.peer, 8, bob.mr, wr_id=wr_id)
        alice.messages.post_send(0, 0, alice.peer, 8, alice.mr, wr_id=wr_id)
    for node in nodes:
        count, (completion,) = node.messages.poll(4)
        assert count == 1
        assert (completion.wr_id, completion.status) == (2, IBV_WC_LOC_QP_OP_ERR)
    run(pair, nodes, 2)
    assert all(node.completions[0].wr_id == 1 for node in nodes)


def test_more_sends_than_there_are_slots(nodes):
    alice, _ = nodes
    slots = alice.context.endpoint.message_slots
    for message in range(slots + 1):
        alice.messages.post_send(0, 0, alice.peer, 1, alice.mr, message=message, wr_id=message)
    _, (completion,) = alice.messages.poll(4)
    assert (completion.wr_id, completion.status) == (slots, IBV_WC_LOC_QP_OP_ERR)


@pytest.mark.parametrize("verb", ["post_send", "post_recv"])
def test_memory_that_may_not_be_used(nodes, verb):
    alice, _ = nodes
    post = getattr(alice.messages, verb)
    size = alice.mr.length
    refused(errno.EINVAL, post, 0, 0, alice.peer, size + 1, alice.mr)
    refused(errno.EINVAL, post, 0, 0, alice.peer, 1, alice.mr, size)
    refused(errno.EINVAL, post, 0, 0, alice.peer, 1 << 32, alice.mr)
    foreign = MR(PD(alice.context), 64, IBV_ACCESS_LOCAL_WRITE)
    refused(errno.EINVAL, post, 0, 0, alice.peer, 64, foreign)
    if verb == "post_recv":
        refused(errno.EACCES, post, 0, 0, alice.peer, 64, MR(alice.pd, 64))
    gone = MR(alice.pd, 64, IBV_ACCESS_LOCAL_WRITE)
    gone.close()
    refused(errno.EINVAL, post, 0, 0, alice.peer, 64, gone)
    assert alice.messages.poll(4) == (0, [])


@pytest.mark.parametrize("verb", ["post_send", "post_recv"])
@pytest.mark.parametrize("name", [(1 << 16, 0, 0), (0, 1 << 16, 0), (0, 0, 1 << 32), (-1, 0, 0)])
def test_names_that_do_not_fit_the_header(nodes, verb, name):
    alice, _ = nodes
    op, step, message = name
    with pytest.raises(PyverbsUserError, match="16 bits"):
        getattr(alice.messages, verb)(op, step, alice.peer, 1, alice.mr, message=message)


def test_memory_in_use_stays(pair, nodes):
    alice, bob = nodes
    bob.messages.post_recv(0, 0, bob.peer, 8, bob.mr)
    refused(errno.EBUSY, bob.mr.close)
    alice.messages.post_send(0, 0, alice.peer, 8, alice.mr)
    run(pair, nodes, 2)
    bob.mr.close()
    alice.mr.close()


# ---------------------------------------------------------------- endpoints


def test_there_is_one_at_a_time(nodes):
    alice, _ = nodes
    refused(errno.EBUSY, MessageEndpoint, alice.pd, QKEY)
    alice.messages.close()
    MessageEndpoint(alice.pd, QKEY).close()


def test_a_peer_is_connected_once(nodes):
    alice, bob = nodes
    refused(errno.EISCONN, alice.messages.connect, ADDRESSES[1], 2, bob.messages.qpns, QKEY)
    refused(errno.EAFNOSUPPORT, alice.messages.connect, "fd53::2", 2, bob.messages.qpns, QKEY)


def test_closing_flushes(nodes):
    alice, bob = nodes
    for wr_id in range(3):
        bob.messages.post_recv(0, 0, bob.peer, 8, bob.mr, message=wr_id, wr_id=wr_id)
    alice.messages.post_send(0, 0, alice.peer, 8, alice.mr)
    for node, flushed in ((bob, 3), (alice, 1)):
        node.messages.close()
        count, completions = node.messages.poll(8)
        assert count == flushed
        assert all(each.status == IBV_WC_WR_FLUSH_ERR for each in completions)
        node.mr.close()  # nothing holds it any more


def test_peers_say_who_they_are(nodes):
    alice, bob = nodes
    assert str(alice.peer.address) == "10.0.0.2"
    assert alice.peer.qpns == bob.messages.qpns
    assert str(bob.messages.qpns) in str(bob.messages)
