# SPDX-License-Identifier: GPL-2.0-or-later
"""The state machine of queue pairs: every transition of every service, every attribute of each.

The table is written down here once more, after IBA 10.3.1 (table 91) and Linux's
ib_modify_qp_is_ok, so that the engine's is not compared with itself.
"""

import errno
import itertools

import pytest

from softroce_lab.verbs import QP, SGE, PyverbsRDMAError, QPAttr, QPCap
from softroce_lab.verbs.enums import *
from tests.verbs.sides import SERVICES, Side, connect, connected, run

CARRIED_BY = ("rc", "csa_ud", "irn")

RESET, INIT, RTR, RTS = IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS
SQD, SQE, ERR = IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR
STATES = (RESET, INIT, RTR, RTS, SQD, SQE, ERR)
RC, UC, UD = SERVICES

_PATH = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE
_TO_INIT = {
    RC: IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
    UC: IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
    UD: IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
}
_CONNECT = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
_TO_RTR = {
    RC: _CONNECT | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
    UC: _CONNECT,
    UD: 0,
}
_RTR_MAY = {
    RC: IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
    UC: IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
    UD: IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
}
_TO_RTS = {
    RC: IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN
    | IBV_QP_MAX_QP_RD_ATOMIC,
    UC: IBV_QP_SQ_PSN,
    UD: IBV_QP_SQ_PSN,
}  # fmt: skip
_RTS_MAY = {
    RC: IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | _PATH,
    UC: IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | _PATH,
    UD: IBV_QP_CUR_STATE | IBV_QP_QKEY,
}
_SQD_MAY = {
    RC: IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY
    | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS
    | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | _PATH,
    UC: IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | _PATH,
    UD: IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
}  # fmt: skip


def transitions(service):
    """(from, to) -> (required, optional), besides IBV_QP_STATE."""
    table = {(state, to): (0, 0) for state in STATES for to in (RESET, ERR)}
    table |= {
        (RESET, INIT): (_TO_INIT[service], 0),
        (INIT, INIT): (0, _TO_INIT[service]),
        (INIT, RTR): (_TO_RTR[service], _RTR_MAY[service]),
        (RTR, RTS): (_TO_RTS[service], _RTS_MAY[service]),
        (RTS, RTS): (0, _RTS_MAY[service]),
        (RTS, SQD): (0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
        (SQD, RTS): (0, _RTS_MAY[service]),
        (SQD, SQD): (0, _SQD_MAY[service]),
    }
    if service != RC:  # there an error of the send queue is one of the whole QP
        table[(SQE, RTS)] = (0, _RTS_MAY[service])
    return table


BITS = [bit for bit in ibv_qp_attr_mask if bit not in (IBV_QP_STATE, IBV_QP_RATE_LIMIT)]


def name(value):
    return getattr(value, "name", str(value)).removeprefix("IBV_")


class Walk:
    """A queue pair that can be brought to any state."""

    def __init__(self, contexts, service):
        self.sides = [Side(context, service) for context in contexts]
        self.side = self.sides[0]
        self.qp = self.side.qp
        self.table = transitions(service)

    def try_to(self, state, mask, **fields):
        """The errno of a modification; 0: it is done."""
        attr = self.side.attr(self.sides[1], qp_state=state, cur_qp_state=self.qp.qp_state)
        for field, value in fields.items():
            setattr(attr, field, value)
        try:
            self.qp.modify(attr, mask)
        except PyverbsRDMAError as error:
            return error.error_code
        return 0

    def bring(self, state):
        assert self.try_to(RESET, IBV_QP_STATE) == 0
        if state in (RESET, ERR):
            steps = [state]
        elif state == SQE:
            steps = [INIT, RTR, RTS]
        else:
            steps = [INIT, RTR, RTS, SQD][: [INIT, RTR, RTS, SQD].index(state) + 1]
        for step in steps:
            required, _ = self.table[(self.qp.qp_state, step)]
            assert self.try_to(step, required | IBV_QP_STATE) == 0
        if state == SQE:
            self.break_send_queue()
        assert self.qp.qp_state == state

    def break_send_queue(self):
        """By a request of its own that names memory it may not read."""
        element = SGE(0, 8, 0xDEAD)
        self.side.post(IBV_WR_SEND, self.sides[1], 0, sg=[element])
        self.pair_run()
        assert self.side.ends()[0][1] == IBV_WC_LOC_PROT_ERR


@pytest.fixture
def walk(pair, contexts, request):
    made = Walk(contexts, request.param)
    made.pair_run = lambda: run(pair)
    return made


each_service = pytest.mark.parametrize("walk", SERVICES, ids=name, indirect=True)


@each_service
def test_every_transition(walk):
    for state, target in itertools.product(STATES, STATES):
        if (state, target) == (SQE, SQE) or (walk.side.qp.qp_type == RC and state == SQE):
            continue
        walk.bring(state)
        required, _ = walk.table.get((state, target), (0, 0))
        error = walk.try_to(target, required | IBV_QP_STATE)
        allowed = (state, target) in walk.table
        assert error == (0 if allowed else errno.EINVAL), (state, target)
        assert walk.qp.qp_state == (target if allowed else state)


@each_service
def test_every_required_attribute_is_required(walk):
    for (state, target), (required, _) in walk.table.items():
        for bit in BITS:
            if not required & bit:
                continue
            walk.bring(state)
            assert walk.try_to(target, (required & ~bit) | IBV_QP_STATE) == errno.EINVAL
            assert walk.qp.qp_state == state


@each_service
def test_every_other_attribute_is_optional_or_refused(walk):
    for (state, target), (required, optional) in walk.table.items():
        if state == SQE and walk.qp.qp_type == RC:
            continue
        for bit in BITS:
            if required & bit:
                continue
            walk.bring(state)
            error = walk.try_to(target, required | bit | IBV_QP_STATE)
            assert error == (0 if optional & bit else errno.EINVAL), (state, target, bit)


@each_service
def test_a_modification_without_a_state_stays(walk):
    walk.bring(RTS)
    bit = IBV_QP_QKEY if walk.qp.qp_type == UD else IBV_QP_ACCESS_FLAGS
    assert walk.try_to(RESET, bit) == 0
    assert walk.qp.qp_state == RTS
    assert walk.try_to(RESET, IBV_QP_CAP) == errno.EINVAL


@each_service
def test_the_current_state_must_be_the_current_state(walk):
    walk.bring(RTS)
    mask = IBV_QP_STATE | IBV_QP_CUR_STATE
    assert walk.try_to(RTS, mask, cur_qp_state=SQD) == errno.EINVAL
    assert walk.try_to(RTS, mask, cur_qp_state=RTS) == 0


@pytest.mark.parametrize("walk", [RC], ids=name, indirect=True)
@pytest.mark.parametrize(
    ("state", "fields"),
    [
        (INIT, {"port_num": 0}),
        (INIT, {"port_num": 2}),
        (INIT, {"pkey_index": 1}),
        (RTR, {"path_mtu": 0}),
        (RTR, {"path_mtu": 6}),
        (RTR, {"max_dest_rd_atomic": 129}),
        (RTR, {"min_rnr_timer": 32}),
        (RTS, {"timeout": 32}),
        (RTS, {"retry_cnt": 8}),
        (RTS, {"rnr_retry": 8}),
        (RTS, {"max_rd_atomic": 129}),
        (ibv_qp_state.IBV_QPS_UNKNOWN, {}),
        (255, {}),
    ],
)
def test_values_out_of_range_are_refused(walk, state, fields):
    before = {INIT: RESET, RTR: INIT, RTS: RTR}.get(state, RESET)
    walk.bring(before)
    required, _ = walk.table.get((before, state), (0, 0))
    assert walk.try_to(state, required | IBV_QP_STATE, **fields) == errno.EINVAL
    assert walk.qp.qp_state == before


@pytest.mark.parametrize("walk", [RC], ids=name, indirect=True)
@pytest.mark.parametrize(
    "fields",
    [{"timeout": 256}, {"sq_psn": 1 << 32}, {"retry_cnt": -1}, {"qp_state": 256}],
    ids=str,
)
def test_values_that_do_not_fit_their_field(walk, fields):
    walk.bring(RTR)
    with pytest.raises(OverflowError):
        walk.try_to(RTS, _TO_RTS[RC] | IBV_QP_STATE, **fields)
    assert walk.qp.qp_state == RTR


def test_an_address_that_is_not_global_leads_nowhere(contexts):
    first, second = (Side(context) for context in contexts)
    attr = QPAttr(dest_qp_num=second.qp.qp_num)
    with pytest.raises(PyverbsRDMAError, match=r"to RTR\. Errno: 22, Invalid argument"):
        first.qp.to_rtr(attr)
    assert first.state == INIT


# ---------------------------------------------------------------- the short ways


@pytest.mark.parametrize("service", SERVICES, ids=name)
def test_to_rts_takes_all_steps(contexts, service):
    first, second = (Side(context, service) for context in contexts)
    first.qp.to_rts(first.attr(second))
    assert first.state == RTS


@pytest.mark.parametrize("service", SERVICES, ids=name)
def test_with_attributes_a_queue_pair_goes_as_far_as_it_can(contexts, service):
    side = Side(contexts[0], service)
    attr = QPAttr(qkey=1)
    init = side.qp.query(0)[1]
    made = QP(side.pd, init, attr)
    assert made.qp_state == (RTS if service == UD else INIT)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("to_init", "Failed to modify QP state to init. Errno: 22, Invalid argument"),
        ("to_rtr", "Failed to modify QP state to init. Errno: 22, Invalid argument"),
    ],
)
def test_steps_that_cannot_be(contexts, step, words):
    first, _ = connected(contexts)
    with pytest.raises(PyverbsRDMAError, match=words):
        getattr(first.qp, step)(QPAttr())
    assert first.state == RTS


def test_what_was_set_can_be_asked(contexts):
    first, second = connected(contexts, attr={"timeout": 17, "qp_access_flags": 3})
    attr, init = first.qp.query(IBV_QP_STATE)
    assert (attr.qp_state, attr.cur_qp_state) == (RTS, RTS)
    assert attr.dest_qp_num == second.qp.qp_num
    assert attr.path_mtu == IBV_MTU_1024
    assert (attr.rq_psn, attr.sq_psn) == (second.psn & 0xFFFFFF, first.psn & 0xFFFFFF)
    assert (attr.timeout, attr.retry_cnt, attr.rnr_retry) == (17, 3, 3)
    assert (attr.max_rd_atomic, attr.max_dest_rd_atomic) == (4, 4)
    assert (attr.qp_access_flags, attr.min_rnr_timer) == (3, 1)
    assert attr.ah_attr.gr.dgid == second.context.query_gid(1, 0)
    assert not attr.sq_draining
    assert attr.cap == QPCap(64, 64, 8, 8, 512)
    assert (init.qp_type, init.scq, init.send_cq) == (RC, first.cq, first.cq)
    assert "IBV_QPS_RTS" in str(attr)


# ---------------------------------------------------------------- what states mean


def test_a_drained_send_queue_is_told(pair, contexts):
    """SQD: what is under way ends, what waits stays (IBA 10.3.1.5)."""
    alice, bob = connected(contexts)
    pair.cable(0).delay_ns = pair.cable(1).delay_ns = 100_000
    alice.post(IBV_WR_RDMA_READ, bob, 8, wr_id=1)
    pair.run(pair.now_ns + 1000)
    mask = IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY
    alice.qp.modify(alice.attr(bob, qp_state=SQD, en_sqd_async_notify=1), mask)
    alice.post(IBV_WR_RDMA_WRITE, bob, 8, wr_id=2)
    assert alice.qp.query(0)[0].sq_draining
    assert alice.next_event() is None
    run(pair)
    assert alice.ends() == [(1, IBV_WC_SUCCESS)]
    event = alice.next_event()
    assert (event.event_type, event.element) == (IBV_EVENT_SQ_DRAINED, alice.qp)
    assert not alice.qp.query(0)[0].sq_draining
    alice.qp.modify(QPAttr(qp_state=RTS), IBV_QP_STATE)
    run(pair)
    assert alice.ends() == [(2, IBV_WC_SUCCESS)]


@pytest.mark.parametrize("service", [UC, UD], ids=name)
def test_a_broken_send_queue_still_receives_and_can_be_mended(pair, contexts, service):
    """SQE, IBA 10.3.1.6; of RC an error is the whole queue pair's."""
    alice, bob = connected(contexts, service)
    alice.receive(64)
    bad = SGE(alice.mr.buf, 8, alice.mr.lkey + 1)
    alice.post(IBV_WR_SEND, bob, 0, sg=[bad], wr_id=1)
    alice.post(IBV_WR_SEND, bob, 8, wr_id=2)
    run(pair)
    assert alice.ends() == [(1, IBV_WC_LOC_PROT_ERR), (2, IBV_WC_WR_FLUSH_ERR)]
    assert alice.state == SQE
    bob.post(IBV_WR_SEND, alice, 8)
    run(pair)
    assert alice.ends() == [(0, IBV_WC_SUCCESS)]
    alice.qp.modify(QPAttr(qp_state=RTS), IBV_QP_STATE)
    bob.ends()
    bob.receive(64)
    alice.post(IBV_WR_SEND, bob, 8)
    run(pair)
    assert alice.ends() == [(0, IBV_WC_SUCCESS)]
    assert bob.ends() == [(0, IBV_WC_SUCCESS)]


def test_a_broken_request_of_rc_breaks_the_queue_pair(pair, contexts):
    alice, bob = connected(contexts)
    bad = SGE(alice.mr.buf, 8, alice.mr.lkey + 1)
    alice.post(IBV_WR_SEND, bob, 0, sg=[bad], wr_id=1)
    alice.post(IBV_WR_SEND, bob, 8, wr_id=2)
    run(pair)
    assert alice.ends() == [(1, IBV_WC_LOC_PROT_ERR), (2, IBV_WC_WR_FLUSH_ERR)]
    assert alice.state == ERR


@pytest.mark.parametrize("service", SERVICES, ids=name)
def test_a_queue_pair_can_be_used_again_after_reset(pair, contexts, service):
    sides = connected(contexts, service)
    alice, bob = sides
    for side in sides:
        side.qp.modify(QPAttr(qp_state=ERR), IBV_QP_STATE)
        side.qp.modify(QPAttr(qp_state=RESET), IBV_QP_STATE)
    connect(alice, bob)
    bob.receive(64)
    alice.post(IBV_WR_SEND, bob, 8)
    run(pair)
    assert alice.ends() == bob.ends() == [(0, IBV_WC_SUCCESS)]
