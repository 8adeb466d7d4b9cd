# SPDX-License-Identifier: GPL-2.0-or-later
"""The paper's two traces, which look the same to the sender: a request lost, its ACK lost."""

import pytest

from softroce_lab.experiment.fuzz.failover.rig import DETECTION_NS, Rig
from softroce_lab.transports.shift import SEND_ONCE, Sender
from softroce_lab.verbs import QPAttr
from softroce_lab.verbs.enums import (
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR,
    IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
)

TRACES = {"request lost": 0, "acknowledgement lost": 1}  # the direction that is dead
SIGNALED = 2
AFTER_NS = 2 * DETECTION_NS


@pytest.fixture(params=TRACES)
def trace(request):
    """A rig whose first rail is dead in one direction: T1, or T2."""
    rig = Rig()
    rig.pairs[0].cable(TRACES[request.param]).down = True
    yield rig
    rig.close()


def ends(end):
    return [(wc.wr_id, wc.status) for wc in end.poll()]


def test_a_write_and_its_notification_are_right_under_both(trace):
    """The receiver reuses the memory as soon as it is notified; T2's WRITE must not come again."""
    a, b = trace.ends
    a.memory[:1000] = 5
    b.receive(8, 40000, wr_id=7)
    a.post(IBV_WR_RDMA_WRITE, 1000, 0, to=2000, wr_id=1)
    a.post(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, to=2000, wr_id=2)
    notified = []
    for _ in range(AFTER_NS // 2000):
        trace.step()
        for wc in b.poll():
            notified.append(wc.wr_id)
            assert (b.memory[2000:3000] == 5).all()
            b.memory[2000:3000] = 9  # the application's again
    assert notified == [7]
    assert (b.memory[2000:3000] == 9).all()
    assert ends(a) == [(1, IBV_WC_SUCCESS), (2, IBV_WC_SUCCESS)]
    assert a.state is Sender.FALLBACK


@pytest.mark.parametrize("opcode", [IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP])
def test_an_atomic_in_flight_surfaces_under_both(trace, opcode):
    a, b = trace.ends
    b.receive(8, 40000, wr_id=7)
    a.post(opcode, 8, 0, to=2000, wr_id=1)
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=3000, wr_id=2)
    trace.run(AFTER_NS)
    assert ends(a) == [(1, IBV_WC_RETRY_EXC_ERR), (2, IBV_WC_WR_FLUSH_ERR)]
    assert int(b.memory[2000]) <= 1
    assert a.state is Sender.FAILED
    assert ends(b) == [(7, IBV_WC_WR_FLUSH_ERR)]  # and so the peer knows
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=3000, wr_id=3)
    assert ends(a) == [(3, IBV_WC_WR_FLUSH_ERR)]


def test_a_marked_write_surfaces_under_both(trace):
    a, _ = trace.ends
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=2000, wr_id=1, flags=SIGNALED | SEND_ONCE)
    trace.run(AFTER_NS)
    assert ends(a) == [(1, IBV_WC_RETRY_EXC_ERR)]


def test_a_marked_send_that_the_peer_counted_is_done():
    """Only under T2 the peer has it; then nothing is to be repeated."""
    for dead, expected in ((0, IBV_WC_RETRY_EXC_ERR), (1, IBV_WC_SUCCESS)):
        rig = Rig()
        a, b = rig.ends
        rig.pairs[0].cable(dead).down = True
        b.receive(8, 40000, wr_id=7)
        a.post(IBV_WR_SEND, 8, 0, wr_id=1, flags=SIGNALED | SEND_ONCE)
        rig.run(AFTER_NS)
        assert ends(a) == [(1, expected)]
        rig.close()


def test_what_the_peer_counted_before_a_culprit_is_done():
    rig = Rig()
    a, b = rig.ends
    rig.pairs[0].cable(1).down = True
    b.receive(8, 40000, wr_id=7)
    a.post(IBV_WR_SEND, 8, 0, wr_id=1)
    a.post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, to=2000, wr_id=2)
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=3000, wr_id=3)
    rig.run(AFTER_NS)
    assert ends(b) == [(7, IBV_WC_SUCCESS)]
    assert ends(a) == [(1, IBV_WC_SUCCESS), (2, IBV_WC_RETRY_EXC_ERR), (3, IBV_WC_WR_FLUSH_ERR)]
    rig.close()


def test_a_read_is_repeated_unless_the_peer_went_on():
    """A READ before a notification that was executed: its result cannot be had again."""
    for notified in (False, True):
        rig = Rig()
        a, b = rig.ends
        rig.pairs[0].cable(1).down = True
        b.memory[2000:2100] = 3
        b.receive(8, 40000, wr_id=7)
        a.post(IBV_WR_RDMA_READ, 100, 0, to=2000, wr_id=1)
        if notified:
            a.post(IBV_WR_SEND, 8, 0, wr_id=2)
        rig.run(AFTER_NS)
        expected = [(1, IBV_WC_SUCCESS)]
        if notified:
            expected = [(1, IBV_WC_RETRY_EXC_ERR), (2, IBV_WC_WR_FLUSH_ERR)]
        assert ends(a) == expected
        assert notified or (a.memory[:100] == 3).all()
        rig.close()


@pytest.mark.parametrize("opcode", [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE])
def test_what_was_in_flight_when_the_peer_gave_up_ends_as_far_as_it_is_known(opcode):
    """The peer had counted the SEND; only the result of a READ before it is lost for good."""
    rig = Rig()
    a, b = rig.ends
    rig.pairs[0].cable(1).down = True
    b.receive(8, 40000, wr_id=7)
    a.post(opcode, 100, 0, to=2000, wr_id=1)
    a.post(IBV_WR_SEND, 8, 0, wr_id=2)
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=3000, wr_id=3)
    assert rig.until(lambda: ends(b) == [(7, IBV_WC_SUCCESS)], DETECTION_NS)
    b.qp.modify(QPAttr(qp_state=IBV_QPS_ERR), IBV_QP_STATE)
    rig.run(AFTER_NS)
    statuses = [IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR]
    if opcode == IBV_WR_RDMA_WRITE:
        statuses = [IBV_WC_SUCCESS, IBV_WC_SUCCESS, IBV_WC_RETRY_EXC_ERR]
    assert ends(a) == list(enumerate(statuses, 1))
    assert a.backup.events[-1].why == "the peer surfaced an error"
    rig.close()
