# SPDX-License-Identifier: GPL-2.0-or-later
"""The paper's two traces, which look the same to the sender: a request lost, its ACK lost."""

import pytest

from softroce_lab.experiment.fuzz.failover.rig import DETECTION_NS, Rig
from softroce_lab.transports.shift import SEND_ONCE, Sender
from softroce_lab.verbs import QPAttr
from softroce_lab.verbs.enums import (
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_WC_RDMA_READ,
    IBV_WC_RDMA_WRITE,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_SEND,
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


def test_a_read_is_repeated_and_what_was_executed_behind_it_ends_behind_it(trace):
    """Once each, with the operations that they were; the WRITEs do not come again under T2."""
    a, b = trace.ends
    b.memory[2000:2100] = 3
    posted = [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_RDMA_READ,
              IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM]  # fmt: skip
    for number, opcode in enumerate(posted):
        to = {IBV_WR_RDMA_READ: 2000, IBV_WR_RDMA_WRITE: 3000}.get(opcode, 4000)
        a.post(opcode, 100, 100 * number, to=to, wr_id=number)
        b.receive(100, 40000, wr_id=number)
    completed, notified = [], 0
    for _ in range(AFTER_NS // 2000):
        trace.step()
        completed += a.poll()
        for _ in b.poll():
            notified += 1
            if notified == 2:
                b.memory[3000:3100] = 9  # the application's again
    assert [(wc.wr_id, wc.status) for wc in completed] == [
        (number, IBV_WC_SUCCESS) for number in range(len(posted))
    ]
    operations = {IBV_WR_RDMA_READ: IBV_WC_RDMA_READ, IBV_WR_SEND: IBV_WC_SEND}
    assert [wc.opcode for wc in completed] == [
        operations.get(opcode, IBV_WC_RDMA_WRITE) for opcode in posted
    ]
    assert notified == 2
    assert (a.memory[100:200] == 3).all()
    assert (a.memory[300:400] == 3).all()
    assert (b.memory[3000:3100] == 9).all()


@pytest.mark.parametrize("opcode", [IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ])
def test_an_executed_request_whose_result_is_lost_and_that_may_not_come_again_surfaces(opcode):
    rig = Rig()
    a, b = rig.ends
    rig.pairs[0].cable(1).down = True
    b.receive(8, 40000, wr_id=7)
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=3000, wr_id=1)
    a.post(opcode, 8, 0, to=2000, wr_id=2, flags=SIGNALED | SEND_ONCE)
    a.post(IBV_WR_SEND, 8, 0, wr_id=3)
    rig.run(AFTER_NS)
    assert ends(b) == [(7, IBV_WC_SUCCESS)]
    assert ends(a) == [(1, IBV_WC_SUCCESS), (2, IBV_WC_RETRY_EXC_ERR), (3, IBV_WC_WR_FLUSH_ERR)]
    assert int(b.memory[2000]) <= 1
    rig.close()


@pytest.mark.parametrize("opcode", [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE])
def test_what_was_in_flight_when_the_peer_gave_up_ends_as_far_as_it_is_known(opcode):
    """The peer had counted the SEND; the result of a READ before it cannot be had any more."""
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
