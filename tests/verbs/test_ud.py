# SPDX-License-Identifier: GPL-2.0-or-later
"""Queue pairs and datagrams: what they are made of, what arrives, what is dropped by which name."""

import errno

import pytest
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6

from softroce_lab import _native
from softroce_lab.verbs import (
    AH,
    CQ,
    GID,
    PD,
    QP,
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
from softroce_lab.verbs.enums import *
from tests.native.frames import Frame
from tests.refusals import refused
from tests.verbs.conftest import ADDRESSES, message_config
from tests.verbs.sides import QKEY, Side, connected, run

GRH = 40
PATH_MTU = 2048


@pytest.fixture
def talkers(contexts):
    return connected(contexts, IBV_QPT_UD)


# ---------------------------------------------------------------- queue pairs


@pytest.mark.parametrize(
    ("changes", "error"),
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
        ({"cap": QPCap(max_recv_wr=-1)}, OverflowError),
        ({"cap": QPCap(max_recv_wr=1 << 32)}, OverflowError),
        ({"cap": 5}, TypeError),
        ({"srq": object()}, TypeError),
        ({"scq": "a queue"}, TypeError),
        ({"qp_type": "RC"}, TypeError),
    ],
)
def test_what_a_queue_pair_cannot_be_made_of(contexts, pd, changes, error):
    cq = CQ(contexts[0], 8)
    attr = QPInitAttr(**({"scq": cq, "rcq": cq} | changes))
    if isinstance(error, int):
        refused(error, QP, pd, attr)
        refused(errno.EINVAL, QP, PD(contexts[1]), QPInitAttr(scq=cq, rcq=cq))
    else:
        with pytest.raises(error):
            QP(pd, attr)


def test_numbers_are_not_used_again(context, pd):
    cq = CQ(context, 8)
    numbers = set()
    for _ in range(100):
        with QP(pd, QPInitAttr(scq=cq, rcq=cq)) as qp:
            assert qp.qp_num > 1  # 0 and 1 are management's, IBA 3.5.3.3
            numbers.add(qp.qp_num)
    assert len(numbers) == 100
    assert qp.qp_state == IBV_QPS_RESET
    refused(errno.EINVAL, qp.modify, QPAttr(), IBV_QP_STATE)


def test_tables(talkers):
    alice, _ = talkers
    for words in ("IBV_QPT_UD", str(alice.qp.qp_num), "IBV_QPS_RTS"):
        assert words in str(alice.qp)
    assert "IBV_QPS_RTS" in str(QPAttr(qp_state=IBV_QPS_RTS))
    assert "max send wr" in str(QPInitAttr())


def chain(make, element, address=None):
    """Three requests, numbered from 1 on."""
    first = None
    for wr_id in (3, 2, 1):
        first = make(wr_id, num_sge=1, sg=[element], next_wr=first)
        if address:
            first.set_wr_ud(*address)
    return first


def test_of_a_chain_that_does_not_fit_the_one_refused_is_told(contexts):
    alice, bob = connected(contexts, IBV_QPT_UD, cap=QPCap(max_send_wr=2, max_recv_wr=2))
    element = alice.sge(8)
    route = AH(alice.pd, attr=alice.route_to(bob))
    for post, make, address in (
        (alice.qp.post_send, SendWR, (route, bob.qp.qp_num, QKEY)),
        (alice.qp.post_recv, RecvWR, None),
    ):
        bad = make(num_sge=1, sg=[element])
        refused(errno.ENOMEM, post, chain(make, element, address), bad)
        assert bad.wr_id == 3


# ---------------------------------------------------------------- requests and addresses


def test_requests_that_cannot_be(talkers):
    alice, bob = talkers
    request = SendWR(num_sge=1, sg=[alice.sge(8)])
    refused(errno.EINVAL, alice.qp.post_send, request)  # without an address
    request.set_wr_ud(AH(bob.pd, attr=bob.route_to(alice)), bob.qp.qp_num, QKEY)
    refused(errno.EINVAL, alice.qp.post_send, request)  # one of another domain
    for elements in (None, [], [alice.sge(8)]):
        for make in (SendWR, RecvWR):
            with pytest.raises(PyverbsUserError):
                make(num_sge=2, sg=elements)


def test_gids():
    gid = GID.of_address(0x0A000002)
    assert gid.gid == "0000:0000:0000:0000:0000:ffff:0a00:0002"
    assert gid == GID("::ffff:10.0.0.2")
    assert gid.ipv4 == gid.address == 0x0A000002
    assert GID("fe80::1").ipv4 is None
    assert GID.of_address(GID("fe80::1").address) == GID("fe80::1")
    with pytest.raises(PyverbsUserError, match="no gid"):
        GID("no gid")


def test_addresses_that_cannot_be_reached(pd):
    for attr in (
        AHAttr(is_global=0, dlid=5),
        AHAttr(is_global=1, gr=GlobalRoute(dgid=GID("fe80::1"))),
        AHAttr(is_global=1, port_num=2, gr=GlobalRoute(dgid=GID.of_address(1))),
    ):
        refused(errno.EINVAL, lambda attr=attr: AH(pd, attr=attr))
    for make in (lambda: AHAttr(is_global=1), lambda: AH(pd)):
        with pytest.raises(PyverbsUserError):
            make()


# ---------------------------------------------------------------- datagrams


@pytest.mark.parametrize("length", [0, 1, 3, PATH_MTU])
def test_a_datagram_arrives_behind_its_grh(pair, talkers, length):
    alice, bob = talkers
    data = alice.fill()
    bob.memory[:] = 0xEE
    bob.receive(PATH_MTU, wr_id=21)
    alice.post(IBV_WR_SEND, bob, length, wr_id=20)
    run(pair)
    (sent,), (received,) = alice.poll(), bob.poll()
    assert (sent.wr_id, sent.status, sent.opcode) == (20, IBV_WC_SUCCESS, IBV_WC_SEND)
    assert (received.wr_id, received.status, received.opcode) == (21, IBV_WC_SUCCESS, IBV_WC_RECV)
    assert (sent.qp_num, received.qp_num) == (alice.qp.qp_num, bob.qp.qp_num)
    assert (received.byte_len, received.src_qp) == (GRH + length, alice.qp.qp_num)
    assert received.wc_flags == IBV_WC_GRH
    assert bytes(bob.memory[GRH : GRH + length]) == data[:length]
    assert set(bob.memory[GRH + length :]) == {0xEE}
    header = IP(bytes(bob.memory[GRH - 20 : GRH]))
    assert header.len == 20 + 8 + 12 + 8 + length + -length % 4 + 4
    assert bytes(header) == bytes(IP(src="10.0.0.1", dst="10.0.0.2", proto=17, len=header.len,
                                     tos=2, id=0, flags="DF"))  # fmt: skip
    assert "IBV_WC_RECV" in str(received)


@pytest.mark.parametrize("version", [4, 6])
def test_an_answer_finds_its_way_by_completion_and_grh(version):
    """By the IP header that stands before what arrived."""
    addresses = ADDRESSES if version == 4 else [0xFD53 << 112 | each for each in ADDRESSES]
    pair = _native.Pair(*(message_config(each) for each in addresses), 1)
    with Context(pair.side(0)) as first, Context(pair.side(1)) as second:
        alice, bob = connected((first, second), IBV_QPT_UD)
        bob.receive(100)
        alice.receive(100, 1000)
        data = alice.fill()
        alice.post(IBV_WR_SEND, bob, 8)
        run(pair)
        (received,) = bob.poll()
        if version == 6:
            header = IPv6(bytes(bob.memory[:GRH]))
            assert (header.version, header.nh, header.plen) == (6, 17, 8 + 12 + 8 + 8 + 4)
            assert (header.src, header.dst) == ("fd53::a00:1", "fd53::a00:2")
            to_ipv4 = AHAttr(is_global=1, gr=GlobalRoute(dgid=GID.of_address(ADDRESSES[0])))
            refused(errno.EINVAL, lambda: AH(alice.pd, attr=to_ipv4))
        request = SendWR(num_sge=1, sg=[bob.sge(8, GRH)])
        request.set_wr_ud(AH(bob.pd, wc=received, grh=bob.mr.buf), received.src_qp, QKEY)
        bob.qp.post_send(request)
        run(pair)
        assert bytes(alice.memory[1000 + GRH : 1008 + GRH]) == data[:8]


def test_datagrams_keep_their_order_and_queue_pairs_take_turns(pair, contexts):
    first, bob = connected(contexts, IBV_QPT_UD)
    second = Side(contexts[0], IBV_QPT_UD)
    second.qp.to_rts(second.attr(bob))
    first.memory[:8] = range(8)
    for number in range(8):
        bob.receive(8, number * 64, wr_id=number)
    for sender in (first, second):
        for number in range(4):
            sender.post(IBV_WR_SEND, bob, 1, number)
    run(pair)
    received = bob.poll()
    assert [each.src_qp for each in received] == [first.qp.qp_num, second.qp.qp_num] * 4
    assert [each.wr_id for each in received] == list(range(8))
    assert [bob.memory[n * 64 + GRH] for n in (0, 2, 4, 6)] == [0, 1, 2, 3]


def test_who_may_be_heard(pair, talkers):
    """A Q_Key whose top bit is set stands for the sender's own (IBA 10.2.5), so that an ordinary
    program cannot name a privileged one. Limited members of a partition talk to full ones (10.9.3).
    A queue pair in RTR takes datagrams.
    """
    alice, bob = talkers
    bob.qp.modify(QPAttr(qp_state=IBV_QPS_RESET), IBV_QP_STATE)
    bob.qp.to_rtr(bob.attr(alice))
    for _ in range(2):
        bob.receive(100)
    alice.post(IBV_WR_SEND, bob, 4, qkey=0x80000000)
    run(pair)
    frame = Frame(destination_qp=bob.qp.qp_num, qkey=QKEY, pkey=0x7FFF, payload=b"limited")
    pair.inject(1, frame.encode())
    assert [status for _, status in bob.ends()] == [IBV_WC_SUCCESS] * 2


# ---------------------------------------------------------------- what is dropped, and its name


def send_to_nobody(pair, alice, bob):
    bob.qp.close()
    alice.qp.post_send(alice.request(IBV_WR_SEND, bob, 8))


def reset_first(pair, alice, bob):
    bob.qp.modify(QPAttr(qp_state=IBV_QPS_RESET), IBV_QP_STATE)
    alice.post(IBV_WR_SEND, bob, 8)


def inject(**fields):
    def act(pair, alice, bob):
        frame = Frame(destination_qp=bob.qp.qp_num, qkey=QKEY, payload=b"forged").but(**fields)
        pair.inject(1, frame.encode())

    return act


def send(pair, alice, bob):
    alice.post(IBV_WR_SEND, bob, 8)


@pytest.mark.parametrize(
    ("act", "room", "counter"),
    [
        (lambda pair, alice, bob: alice.post(IBV_WR_SEND, bob, 8, qkey=0), 60, "rx_wrong_qkey"),
        (send, None, "rx_ud_no_recv"),  # UD has no RNR NAK (IBA 9.8.3)
        (send, -GRH, "rx_ud_too_long"),  # class D, as in Linux's rxe
        (send, -1, "rx_ud_too_long"),
        (send, 7, "rx_ud_too_long"),
        (reset_first, None, "rx_qp_not_ready"),
        (send_to_nobody, None, "rx_unknown_qp"),
        (inject(pkey=0x7FFE), 60, "rx_wrong_pkey"),
        (inject(opcode=0x66), 60, "rx_bad_opcode"),
        (inject(opcode=0x04), 60, "rx_bad_opcode"),
        (inject(destination_ip=0x0A000003), 60, "rx_not_ours"),
        (inject(destination_qp=0xFFFFFF), 60, "rx_unknown_qp"),
    ],
)
def test_what_is_dropped_is_counted_and_changes_nothing(pair, talkers, act, room, counter):
    """And the receive stays for the next datagram."""
    alice, bob = talkers
    if room is not None:
        bob.receive(room)
    before, memory = bob.context.endpoint.counters(), bytes(bob.guarded)
    act(pair, alice, bob)
    run(pair)
    after = bob.context.endpoint.counters()
    changed = {name: n - before[name] for name, n in after.items() if n != before[name]}
    assert changed == {counter: 1}
    assert bytes(bob.guarded) == memory
    assert bob.ends() == []
    assert {status for _, status in alice.ends()} <= {IBV_WC_SUCCESS}
    if room is not None and room >= 4:
        alice.post(IBV_WR_SEND, bob, 4)
        run(pair)
        assert bob.ends() == [(0, IBV_WC_SUCCESS)]


def test_a_send_longer_than_the_mtu_is_a_local_length_error(pair, talkers):
    """IBA 9.8.2: a UD message is one packet. The send queue stops, the receive queue does not."""
    alice, bob = talkers
    alice.receive(100, 8000, wr_id=9)
    for wr_id, length in ((1, 8), (2, PATH_MTU + 1), (3, 8)):
        alice.post(IBV_WR_SEND, bob, length, wr_id=wr_id)
    run(pair)
    assert alice.ends() == [
        (1, IBV_WC_SUCCESS), (2, IBV_WC_LOC_LEN_ERR), (3, IBV_WC_WR_FLUSH_ERR)
    ]  # fmt: skip
    assert pair.totals(0)["sent"] == 1
    assert alice.state == IBV_QPS_SQE
    bob.post(IBV_WR_SEND, alice, 8)
    run(pair)
    assert alice.ends() == [(9, IBV_WC_SUCCESS)]
