# SPDX-License-Identifier: GPL-2.0-or-later
"""UD queue pairs: states, datagrams, and what is dropped under which name."""

import errno

import pytest
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6

from softroce_lab import _native
from softroce_lab.verbs import (
    AH,
    CQ,
    GID,
    MR,
    PD,
    QP,
    SGE,
    AHAttr,
    Context,
    GlobalRoute,
    PyverbsUserError,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from softroce_lab.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_QP_PKEY_INDEX,
    IBV_QP_PORT,
    IBV_QP_QKEY,
    IBV_QP_SQ_PSN,
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_QPS_INIT,
    IBV_QPS_RESET,
    IBV_QPS_RTR,
    IBV_QPS_RTS,
    IBV_QPS_SQD,
    IBV_QPS_SQE,
    IBV_QPT_RAW_PACKET,
    IBV_SEND_INLINE,
    IBV_SEND_SIGNALED,
    IBV_WC_GRH,
    IBV_WC_LOC_LEN_ERR,
    IBV_WC_LOC_PROT_ERR,
    IBV_WC_RECV,
    IBV_WC_SEND,
    IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_SEND_WITH_INV,
)
from tests.native.frames import Frame
from tests.refusals import refused
from tests.verbs.conftest import ADDRESSES, QKEY, message_config, ud_resources

GRH = 40
PATH_MTU = 2048
MILLISECOND_NS = 1_000_000
TO_INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY


def run(pair):
    pair.run(pair.now_ns + MILLISECOND_NS)


def attributes(state, **fields):
    attr = QPAttr(qp_state=state, qkey=QKEY)
    for name, value in fields.items():
        setattr(attr, name, value)
    return attr


MASKS = {
    IBV_QPS_RESET: IBV_QP_STATE,
    IBV_QPS_INIT: TO_INIT,
    IBV_QPS_RTR: IBV_QP_STATE,
    IBV_QPS_RTS: IBV_QP_STATE | IBV_QP_SQ_PSN,
    IBV_QPS_ERR: IBV_QP_STATE,
}


def go(qp, state, **fields):
    sends = state == IBV_QPS_RTS and qp.qp_state != IBV_QPS_RTR
    qp.modify(attributes(state, **fields), IBV_QP_STATE if sends else MASKS[state])


@pytest.fixture
def fresh(pd, context):
    """A queue pair in RESET."""
    cq = CQ(context, 8)
    return QP(pd, QPInitAttr(scq=cq, rcq=cq, cap=QPCap(max_send_wr=2, max_recv_wr=2)))


# ---------------------------------------------------------------- making one


@pytest.mark.parametrize(
    ("changes", "error_code"),
    [
        ({"qp_type": IBV_QPT_RAW_PACKET}, errno.EOPNOTSUPP),
        ({"qp_type": 77}, errno.EOPNOTSUPP),
        ({"scq": None}, errno.EINVAL),
        ({"rcq": None}, errno.EINVAL),
        ({"cap": QPCap(max_send_wr=16385)}, errno.EINVAL),
        ({"cap": QPCap(max_recv_wr=16385)}, errno.EINVAL),
        ({"cap": QPCap(max_send_sge=33)}, errno.EINVAL),
        ({"cap": QPCap(max_recv_sge=33)}, errno.EINVAL),
        ({"cap": QPCap(max_inline_data=4097)}, errno.EINVAL),
    ],
)
def test_what_a_queue_pair_cannot_be_made_of(context, pd, changes, error_code):
    cq = CQ(context, 8)
    refused(error_code, QP, pd, QPInitAttr(**({"scq": cq, "rcq": cq} | changes)))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cap": QPCap(max_recv_wr=-1)}, OverflowError),
        ({"cap": QPCap(max_recv_wr=1 << 32)}, OverflowError),
        ({"cap": 5}, TypeError),
        ({"srq": object()}, TypeError),
        ({"scq": "a queue"}, TypeError),
        ({"qp_type": "RC"}, TypeError),
    ],
)
def test_what_makes_no_sense(context, pd, changes, error):
    cq = CQ(context, 8)
    with pytest.raises(error):
        QP(pd, QPInitAttr(**({"scq": cq, "rcq": cq} | changes)))


def test_domain_and_completion_queues_are_of_one_context(contexts):
    foreign = CQ(contexts[1], 8)
    refused(errno.EINVAL, QP, PD(contexts[0]), QPInitAttr(scq=foreign, rcq=foreign))


def test_numbers_are_not_used_again(context, pd):
    cq = CQ(context, 8)
    numbers = set()
    for _ in range(100):
        with QP(pd, QPInitAttr(scq=cq, rcq=cq)) as qp:
            assert qp.qp_num > 1  # 0 and 1 are management's, IBA 3.5.3.3
            numbers.add(qp.qp_num)
    assert len(numbers) == 100


def test_a_queue_pair_that_is_closed_is_gone(fresh):
    go(fresh, IBV_QPS_INIT)
    fresh.close()
    assert fresh.qp_state == IBV_QPS_RESET
    refused(errno.EINVAL, go, fresh, IBV_QPS_INIT)


def test_tables(fresh):
    for words in ("IBV_QPT_UD", str(fresh.qp_num), "IBV_QPS_RESET"):
        assert words in str(fresh)
    assert "IBV_QPS_RTS" in str(attributes(IBV_QPS_RTS))
    assert "max send wr" in str(QPInitAttr())


# ---------------------------------------------------------------- states, IBA 10.3.1

ALLOWED = {
    IBV_QPS_RESET: {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_ERR},
    IBV_QPS_INIT: {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_ERR},
    IBV_QPS_RTR: {IBV_QPS_RESET, IBV_QPS_RTS, IBV_QPS_ERR},
    IBV_QPS_RTS: {IBV_QPS_RESET, IBV_QPS_RTS, IBV_QPS_ERR},
    IBV_QPS_ERR: {IBV_QPS_RESET, IBV_QPS_ERR},
}
WAY = [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS]


def bring(qp, state):
    for each in [IBV_QPS_ERR] if state == IBV_QPS_ERR else WAY[: WAY.index(state) + 1]:
        go(qp, each)


@pytest.mark.parametrize("target", MASKS, ids=lambda state: state.name)
@pytest.mark.parametrize("state", MASKS, ids=lambda state: state.name)
def test_transitions(fresh, state, target):
    if state != IBV_QPS_RESET:
        bring(fresh, state)
    assert fresh.qp_state == state
    if target in ALLOWED[state]:
        go(fresh, target)
        assert fresh.qp_state == target
    else:
        refused(errno.EINVAL, go, fresh, target)
        assert fresh.qp_state == state


@pytest.mark.parametrize(
    ("state", "mask"),
    [
        (IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT),  # no Q_Key
        (IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_QKEY),
        (IBV_QPS_INIT, TO_INIT & ~IBV_QP_STATE),
        (IBV_QPS_INIT, TO_INIT | IBV_QP_SQ_PSN),
        (IBV_QPS_ERR, IBV_QP_STATE | IBV_QP_QKEY),
        (IBV_QPS_SQD, IBV_QP_STATE),
        (IBV_QPS_SQE, IBV_QP_STATE),
    ],
)
def test_attributes_that_do_not_fit_the_transition(fresh, state, mask):
    refused(errno.EINVAL, fresh.modify, attributes(state), mask)
    assert fresh.qp_state == IBV_QPS_RESET


@pytest.mark.parametrize("fields", [{"port_num": 2}, {"pkey_index": 1}])
def test_there_is_one_port_with_one_pkey(fresh, fields):
    refused(errno.EINVAL, lambda: go(fresh, IBV_QPS_INIT, **fields))


def test_to_rts_takes_all_steps(fresh):
    fresh.to_rts(QPAttr(qkey=QKEY))
    assert fresh.qp_state == IBV_QPS_RTS


def post_receive(qp, mr, *, wr_id=0):
    qp.post_recv(RecvWR(wr_id, num_sge=1, sg=[SGE(mr.buf, 64, mr.lkey)]))


def post_send(qp, mr, route, *, wr_id=0, qp_num=0x99):
    request = SendWR(wr_id, num_sge=1, sg=[SGE(mr.buf, 64, mr.lkey)])
    request.set_wr_ud(route, qp_num, QKEY)
    qp.post_send(request)


@pytest.fixture
def mr(pd):
    return MR(pd, 64, IBV_ACCESS_LOCAL_WRITE)


@pytest.fixture
def route(pd):
    return AH(pd, attr=AHAttr(is_global=1, gr=GlobalRoute(dgid=GID.of_address(ADDRESSES[1]))))


def test_nothing_can_be_posted_in_reset(fresh, mr, route):
    refused(errno.EINVAL, post_receive, fresh, mr)
    refused(errno.EINVAL, post_send, fresh, mr, route)


@pytest.mark.parametrize("state", [IBV_QPS_INIT, IBV_QPS_RTR])
def test_before_rts_receives_only(fresh, mr, route, state):
    bring(fresh, state)
    post_receive(fresh, mr)
    refused(errno.EINVAL, post_send, fresh, mr, route)


def test_in_error_all_that_is_posted_is_flushed(fresh, mr, route, context):
    cq = CQ(context, 8)
    qp = QP(fresh.pd, QPInitAttr(scq=cq, rcq=cq))
    bring(qp, IBV_QPS_ERR)
    post_receive(qp, mr, wr_id=1)
    post_send(qp, mr, route, wr_id=2)
    _, completions = cq.poll(8)
    assert [(each.wr_id, each.status) for each in completions] == [
        (1, IBV_WC_WR_FLUSH_ERR),
        (2, IBV_WC_WR_FLUSH_ERR),
    ]


def test_going_to_error_flushes_and_to_reset_forgets(context, pd, mr, route):
    cq = CQ(context, 8)
    qp = QP(pd, QPInitAttr(scq=cq, rcq=cq))
    for end, flushed in ((IBV_QPS_ERR, [2, 1]), (IBV_QPS_RESET, [])):
        go(qp, IBV_QPS_RESET)
        bring(qp, IBV_QPS_RTS)
        post_receive(qp, mr, wr_id=1)
        post_send(qp, mr, route, wr_id=2)
        go(qp, end)
        _, completions = cq.poll(8)
        assert [each.wr_id for each in completions] == flushed
        assert all(each.status == IBV_WC_WR_FLUSH_ERR for each in completions)
    mr.close()  # nothing holds it any more


def test_full_queues(fresh, mr, route):
    bring(fresh, IBV_QPS_RTS)
    for _ in range(2):
        post_receive(fresh, mr)
        post_send(fresh, mr, route)
    refused(errno.ENOMEM, post_receive, fresh, mr)
    refused(errno.ENOMEM, post_send, fresh, mr, route)


def test_of_a_chain_the_one_refused_is_told(fresh, mr, route):
    bring(fresh, IBV_QPS_RTS)
    element = SGE(mr.buf, 64, mr.lkey)
    chain = None
    for wr_id in (3, 2, 1):
        chain = SendWR(wr_id, num_sge=1, sg=[element], next_wr=chain)
        chain.set_wr_ud(route, 0x99, QKEY)
    bad = SendWR(num_sge=1, sg=[element])
    refused(errno.ENOMEM, fresh.post_send, chain, bad)
    assert bad.wr_id == 3
    chain = None
    for wr_id in (3, 2, 1):
        chain = RecvWR(wr_id, num_sge=1, sg=[element], next_wr=chain)
    bad = RecvWR(num_sge=1, sg=[element])
    refused(errno.ENOMEM, fresh.post_recv, chain, bad)
    assert bad.wr_id == 3


# ---------------------------------------------------------------- requests that cannot be


def test_other_operations_are_not_there(talkers):
    alice, bob = talkers
    for opcode in (IBV_WR_RDMA_WRITE, IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_READ, 77):
        refused(errno.EOPNOTSUPP, lambda opcode=opcode: alice.send(bob, 8, opcode=opcode))


def test_a_datagram_needs_an_address_of_its_domain(talkers):
    alice, bob = talkers
    request = SendWR(num_sge=1, sg=[alice.sge(8)])
    refused(errno.EINVAL, alice.qp.post_send, request)
    request.set_wr_ud(bob.route_to(alice), bob.qp.qp_num, QKEY)
    refused(errno.EINVAL, alice.qp.post_send, request)


def test_inline_data_that_was_not_asked_for_is_not_there(talkers):
    alice, bob = talkers
    flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED
    refused(errno.EINVAL, lambda: alice.send(bob, 8, send_flags=flags))


def test_a_request_has_elements_as_it_says(talkers):
    alice, _ = talkers
    for elements in (None, [], [alice.sge(8)]):
        for make in (SendWR, RecvWR):
            with pytest.raises(PyverbsUserError):
                make(num_sge=2, sg=elements)
    refused(errno.EINVAL, alice.qp.post_recv, RecvWR(num_sge=2, sg=[alice.sge(8)] * 2))


# ---------------------------------------------------------------- addresses


def test_gids():
    gid = GID.of_address(0x0A000002)
    assert gid.gid == "0000:0000:0000:0000:0000:ffff:0a00:0002"
    assert gid == GID("::ffff:10.0.0.2")
    assert gid.ipv4 == 0x0A000002
    assert gid.address == 0x0A000002
    assert GID("fe80::1").ipv4 is None
    assert GID.of_address(GID("fe80::1").address) == GID("fe80::1")
    with pytest.raises(PyverbsUserError, match="no gid"):
        GID("no gid")


def test_addresses_that_cannot_be_reached(context, pd):
    for attr in (
        AHAttr(is_global=0, dlid=5),
        AHAttr(is_global=1, gr=GlobalRoute(dgid=GID("fe80::1"))),
        AHAttr(is_global=1, port_num=2, gr=GlobalRoute(dgid=GID.of_address(1))),
    ):
        refused(errno.EINVAL, lambda attr=attr: AH(pd, attr=attr))
    with pytest.raises(PyverbsUserError):
        AHAttr(is_global=1)
    with pytest.raises(PyverbsUserError):
        AH(pd)
    refused(errno.EINVAL, context.query_gid, 1, 1)
    refused(errno.EINVAL, context.query_gid, 2, 0)


# ---------------------------------------------------------------- datagrams


@pytest.mark.parametrize("length", [0, 1, 3, 4, 64, 1000, PATH_MTU])
def test_a_datagram_arrives_behind_its_grh(pair, talkers, length):
    alice, bob = talkers
    payload = bytes(range(256)) * 8
    alice.mr.write(payload, PATH_MTU)
    bob.mr.array[:] = 0xEE
    bob.receive(GRH + PATH_MTU, wr_id=21)
    alice.send(bob, length, wr_id=20)
    run(pair)
    _, (sent,) = alice.cq.poll(4)
    assert (sent.wr_id, sent.status, sent.opcode) == (20, IBV_WC_SUCCESS, IBV_WC_SEND)
    assert sent.qp_num == alice.qp.qp_num
    _, (received,) = bob.cq.poll(4)
    assert (received.wr_id, received.status, received.opcode) == (21, IBV_WC_SUCCESS, IBV_WC_RECV)
    assert received.byte_len == GRH + length
    assert received.qp_num == bob.qp.qp_num
    assert received.src_qp == alice.qp.qp_num
    assert received.wc_flags == IBV_WC_GRH
    assert bob.mr.read(length, GRH) == payload[:length]
    assert set(bob.mr.read(bob.mr.length - GRH - length, GRH + length)) == {0xEE}
    header = IP(bob.mr.read(GRH - 20, 20))
    assert (header.src, header.dst, header.proto) == ("10.0.0.1", "10.0.0.2", 17)
    assert header.len == 20 + 8 + 12 + 8 + length + -length % 4 + 4
    assert bytes(header) == bytes(IP(src="10.0.0.1", dst="10.0.0.2", proto=17, len=header.len,
                                     tos=2, id=0, flags="DF"))  # fmt: skip
    assert "IBV_WC_RECV" in str(received)


def test_an_answer_finds_its_way_by_completion_and_grh(pair, talkers):
    alice, bob = talkers
    bob.receive(100)
    alice.receive(100, offset=1000)
    alice.mr.write(b"question", 8)
    alice.send(bob, 8)
    run(pair)
    _, (received,) = bob.cq.poll()
    request = SendWR(num_sge=1, sg=[bob.sge(8, GRH)])
    request.set_wr_ud(AH(bob.pd, wc=received, grh=bob.mr.buf), received.src_qp, QKEY)
    bob.qp.post_send(request)
    run(pair)
    assert alice.mr.read(8, 1000 + GRH) == b"question"


def test_datagrams_over_ipv6():
    """There and back by the IPv6 header that stands before what arrived."""
    addresses = [0xFD536C61_62000000_00000000_0A000001, 0xFD536C61_62000000_00000000_0A000002]
    pair = _native.Pair(*(message_config(address) for address in addresses), 1)
    with Context(pair.side(0)) as first, Context(pair.side(1)) as second:
        alice, bob = (ud_resources(context) for context in (first, second))
        assert first.query_gid(1, 0) == GID("fd53:6c61:6200::a00:1")
        bob.receive(100)
        alice.receive(100, offset=1000)
        alice.mr.write(b"question", 8)
        alice.send(bob, 8)
        run(pair)
        _, (received,) = bob.cq.poll()
        header = IPv6(bob.mr.read(GRH, 0))
        assert (header.version, header.nh, header.plen) == (6, 17, 8 + 12 + 8 + 8 + 4)
        assert [header.src, header.dst] == ["fd53:6c61:6200::a00:1", "fd53:6c61:6200::a00:2"]
        request = SendWR(num_sge=1, sg=[bob.sge(8, GRH)])
        request.set_wr_ud(AH(bob.pd, wc=received, grh=bob.mr.buf), received.src_qp, QKEY)
        bob.qp.post_send(request)
        run(pair)
        assert alice.mr.read(8, 1000 + GRH) == b"question"
        to_ipv4 = AHAttr(is_global=1, gr=GlobalRoute(dgid=GID.of_address(ADDRESSES[0])))
        refused(errno.EINVAL, lambda: AH(alice.pd, attr=to_ipv4))


def test_datagrams_arrive_in_the_order_posted(pair, talkers):
    alice, bob = talkers
    for number in range(16):
        alice.mr.write(bytes([number]), 1, number)
        bob.receive(GRH + 8, offset=number * 64, wr_id=number)
    for number in range(16):
        alice.send(bob, 1, offset=number)
    run(pair)
    count, received = bob.cq.poll(20)
    assert count == 16
    assert [each.wr_id for each in received] == list(range(16))
    assert [bob.mr.read(1, n * 64 + GRH)[0] for n in range(16)] == list(range(16))


def test_queue_pairs_take_turns(pair, contexts):
    """Two senders on one RNIC: neither waits until the other has nothing left."""
    first, second = (ud_resources(contexts[0]) for _ in range(2))
    bob = ud_resources(contexts[1])
    for number in range(8):
        bob.receive(GRH + 8, offset=number * 64)
    for sender in (first, second):
        for _ in range(4):
            sender.send(bob, 1)
    run(pair)
    _, received = bob.cq.poll(16)
    assert [each.src_qp for each in received] == [first.qp.qp_num, second.qp.qp_num] * 4


def test_sends_that_are_not_signaled_complete_in_silence(pair, contexts):
    alice, bob = (ud_resources(context, sq_sig_all=0) for context in contexts)
    bob.receive(100)
    bob.receive(100)
    alice.send(bob, 8, wr_id=1, send_flags=0)
    alice.send(bob, 8, wr_id=2, send_flags=IBV_SEND_SIGNALED)
    run(pair)
    assert [each.wr_id for each in alice.cq.poll(4)[1]] == [2]
    assert bob.cq.poll(4)[0] == 2


# ---------------------------------------------------------------- what is dropped, and its name


def dropped(pair, alice, bob, counter, send):
    """That `send` changes nothing at the receiver but one counter."""
    before, memory = bob.context.endpoint.counters(), bytes(bob.mr.array)
    send()
    run(pair)
    after = bob.context.endpoint.counters()
    assert {name: n - before[name] for name, n in after.items() if n != before[name]} == {
        counter: 1
    }
    assert bytes(bob.mr.array) == memory
    assert bob.cq.poll(4)[0] == 0
    assert [each.status for each in alice.cq.poll(4)[1]] in ([], [IBV_WC_SUCCESS])


def works(pair, alice, bob):
    alice.mr.write(b"fine", 4)
    alice.send(bob, 4)
    run(pair)
    assert [each.status for each in bob.cq.poll(4)[1]] == [IBV_WC_SUCCESS]
    assert bob.mr.read(4, GRH) == b"fine"


@pytest.mark.parametrize("qkey", [0, QKEY + 1, QKEY ^ 1 << 30])
def test_wrong_qkey(pair, talkers, qkey):
    """IBA 9.6.1.4: dropped, and the receive stays."""
    alice, bob = talkers
    bob.receive(100)
    dropped(pair, alice, bob, "rx_wrong_qkey", lambda: alice.send(bob, 8, qkey=qkey))
    works(pair, alice, bob)


def test_a_qkey_with_its_top_bit_set_stands_for_the_senders_own(pair, talkers):
    """IBA 10.2.5: an ordinary program cannot say a privileged one."""
    alice, bob = talkers
    bob.receive(100)
    alice.send(bob, 4, qkey=0x80000000)
    run(pair)
    assert [each.status for each in bob.cq.poll(4)[1]] == [IBV_WC_SUCCESS]


def test_no_receive_posted(pair, talkers):
    """UD has no RNR NAK: dropped (IBA 9.8.3)."""
    alice, bob = talkers
    dropped(pair, alice, bob, "rx_ud_no_recv", lambda: alice.send(bob, 8))
    bob.receive(100)
    works(pair, alice, bob)


@pytest.mark.parametrize("room", [0, 1, GRH - 1, GRH, GRH + 7])
def test_longer_than_the_receive(pair, talkers, room):
    """An error of class D, as Linux's rxe has it: dropped, and the receive stays."""
    alice, bob = talkers
    bob.receive(room)
    dropped(pair, alice, bob, "rx_ud_too_long", lambda: alice.send(bob, 8))
    assert bob.qp.qp_state == IBV_QPS_RTS


def test_a_receive_that_just_fits(pair, talkers):
    alice, bob = talkers
    bob.receive(GRH + 4)
    works(pair, alice, bob)


@pytest.mark.parametrize("state", [IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_ERR])
def test_a_state_that_takes_nothing(pair, talkers, state):
    alice, bob = talkers
    go(bob.qp, IBV_QPS_RESET)
    if state == IBV_QPS_INIT:
        go(bob.qp, IBV_QPS_INIT)
        bob.receive(100)
    elif state == IBV_QPS_ERR:
        go(bob.qp, IBV_QPS_ERR)
    dropped(pair, alice, bob, "rx_qp_not_ready", lambda: alice.send(bob, 8))


def test_in_rtr_datagrams_are_taken(pair, talkers):
    alice, bob = talkers
    go(bob.qp, IBV_QPS_RESET)
    bring(bob.qp, IBV_QPS_RTR)
    bob.receive(100)
    works(pair, alice, bob)


def test_a_queue_pair_that_is_gone(pair, talkers):
    alice, bob = talkers
    number = bob.qp.qp_num
    bob.qp.close()
    request = SendWR(num_sge=1, sg=[alice.sge(8)])
    request.set_wr_ud(alice.route_to(bob), number, QKEY)
    dropped(pair, alice, bob, "rx_unknown_qp", lambda: alice.qp.post_send(request))


@pytest.mark.parametrize(
    ("fields", "counter"),
    [
        ({"pkey": 0x7FFE}, "rx_wrong_pkey"),
        ({"opcode": 0x66}, "rx_bad_opcode"),
        ({"opcode": 0x04}, "rx_bad_opcode"),
        ({"destination_ip": 0x0A000003}, "rx_not_ours"),
        ({"destination_qp": 0xFFFFFF}, "rx_unknown_qp"),
    ],
)
def test_frames_that_no_peer_of_ours_sends(pair, talkers, fields, counter):
    alice, bob = talkers
    bob.receive(100)
    frame = Frame(destination_qp=bob.qp.qp_num, qkey=QKEY, payload=b"forged").but(**fields)
    dropped(pair, alice, bob, counter, lambda: pair.inject(1, frame.encode()))
    works(pair, alice, bob)


def test_a_limited_member_of_the_partition_is_heard(pair, talkers):
    """IBA 10.9.3: the top bit of the P_Key tells full members, who talk to limited ones."""
    _, bob = talkers
    bob.receive(100)
    frame = Frame(destination_qp=bob.qp.qp_num, qkey=QKEY, pkey=0x7FFF, payload=b"limited")
    pair.inject(1, frame.encode())
    assert bob.cq.poll()[1][0].status == IBV_WC_SUCCESS
    assert bob.mr.read(7, GRH) == b"limited"


# ---------------------------------------------------------------- errors of one's own


def test_a_send_longer_than_the_mtu_is_a_local_length_error(pair, talkers):
    """IBA 9.8.2: a UD message is one packet. The send queue stops, the receive queue does not."""
    alice, bob = talkers
    alice.receive(100, offset=8000)
    alice.send(bob, 8, wr_id=1)
    alice.send(bob, PATH_MTU + 1, wr_id=2)
    alice.send(bob, 8, wr_id=3)
    run(pair)
    assert [(each.wr_id, each.status) for each in alice.cq.poll(8)[1]] == [
        (1, IBV_WC_SUCCESS),
        (2, IBV_WC_LOC_LEN_ERR),
        (3, IBV_WC_WR_FLUSH_ERR),
    ]
    assert pair.totals(0)["sent"] == 1
    assert alice.qp.qp_state == IBV_QPS_SQE
    bob.send(alice, 8)
    run(pair)
    assert [each.status for each in alice.cq.poll(8)[1]] == [IBV_WC_SUCCESS]


def test_a_stopped_send_queue_goes_on_after_rts(pair, talkers):
    alice, bob = talkers
    alice.send(bob, PATH_MTU + 1)
    run(pair)
    alice.send(bob, 8)  # flushed
    assert [each.status for each in alice.cq.poll(8)[1]] == [
        IBV_WC_LOC_LEN_ERR,
        IBV_WC_WR_FLUSH_ERR,
    ]
    go(alice.qp, IBV_QPS_RTS)
    bob.receive(100)
    works(pair, alice, bob)


def test_a_receive_that_names_wrong_memory_stops_the_queue_pair(pair, talkers):
    alice, bob = talkers
    bob.qp.post_recv(RecvWR(1, num_sge=1, sg=[SGE(bob.mr.buf, 100, bob.mr.lkey + 1)]))
    bob.receive(100, wr_id=2)
    alice.send(bob, 8)
    run(pair)
    assert [(each.wr_id, each.status) for each in bob.cq.poll(8)[1]] == [
        (1, IBV_WC_LOC_PROT_ERR),
        (2, IBV_WC_WR_FLUSH_ERR),
    ]
    assert bob.qp.qp_state == IBV_QPS_ERR
    assert bob.context.endpoint.counters()["rx_ud_bad_recv"] == 1
