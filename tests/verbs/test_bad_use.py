# SPDX-License-Identifier: GPL-2.0-or-later
"""Bad use: what is closed, of another context, of a wrong type or size, and the words for it."""

import errno
import mmap

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.verbs import (
    AH,
    CQ,
    MR,
    PD,
    QP,
    SGE,
    SRQ,
    AHAttr,
    CompChannel,
    Context,
    GlobalRoute,
    PyverbsError,
    PyverbsRDMAError,
    PyverbsUserError,
    QPAttr,
    QPInitAttr,
    RecvWR,
    SendWR,
    SrqAttr,
    SrqInitAttr,
)
from softroce_lab.verbs.enums import *
from tests.refusals import refused
from tests.verbs.sides import ALL_ACCESS, Side, connect, connected, run

# ---------------------------------------------------------------- what is closed


def test_nothing_is_made_of_what_is_closed(pair):
    context = Context(pair.side(0))
    pd, cq, channel = PD(context), CQ(context, 8), CompChannel(context)
    context.close()
    route = AHAttr(is_global=1, gr=GlobalRoute(PLACE))
    for make in (
        lambda: PD(context),
        lambda: CQ(context, 8),
        lambda: CompChannel(context),
        lambda: MR(pd, 64),
        lambda: AH(pd, attr=route),
        lambda: SRQ(pd, SrqInitAttr(SrqAttr())),
        lambda: QP(pd, QPInitAttr(scq=cq, rcq=cq)),
    ):
        assert "is closed" in refused(errno.EINVAL, make)
    assert channel.closed


PLACE = Context(_native.FrameEndpoint(_native.MessageConfig(), 1)).query_gid(1, 0)


def test_what_is_closed_does_nothing(contexts):
    alice, bob = connected(contexts)
    request = alice.request(IBV_WR_SEND, bob, 8)
    for each in (alice.qp, alice.cq):
        each.close()
    for call in (
        lambda: alice.qp.post_send(request),
        lambda: alice.receive(8),
        lambda: alice.qp.modify(QPAttr(), 1),
        lambda: alice.qp.to_rts(QPAttr()),
        lambda: alice.qp.query(1),
        lambda: alice.cq.poll(),
        lambda: alice.cq.req_notify(),
        lambda: alice.cq.resize(8),
        lambda: alice.cq.ack_events(1),
    ):
        refused(errno.EINVAL, call)
    alice.qp.close()  # a second time is no harm


def test_a_refusal_says_why(contexts):
    alice, bob = (Side(context, 4) for context in contexts)
    request, receive = alice.request(IBV_WR_SEND, bob, 8), RecvWR(1, 1, [alice.sge(8)])
    qp = QP(alice.pd, QPInitAttr(IBV_QPT_RC, scq=alice.cq, rcq=alice.cq))
    assert "it sends from IBV_QPS_RTS on" in refused(errno.EINVAL, qp.post_send, request)
    assert "from IBV_QPS_INIT on" in refused(errno.EINVAL, qp.post_recv, receive)
    assert "ah_attr leads nowhere" in refused(errno.EINVAL, qp.to_rts, QPAttr())
    assert qp.qp_state == IBV_QPS_INIT
    for _ in range(10):
        qp.post_recv(receive)
    assert "max_recv_wr" in refused(errno.ENOMEM, qp.post_recv, receive)
    assert "hint" not in refused(errno.EINVAL, qp.to_init, QPAttr(port_num=2))
    connect(alice, bob)
    assert "the QP is in IBV_QPS_RTS" in refused(errno.EINVAL, alice.qp.to_rts, QPAttr())
    request.ah.close()
    assert "set_wr_ud" in refused(errno.EINVAL, alice.qp.post_send, request)
    qp.close()
    assert "the QP is closed" in refused(errno.EINVAL, qp.post_recv, receive)


def test_of_a_chain_those_before_the_bad_one_are_posted(pair, contexts):
    alice, bob = (Side(context, 4) for context in contexts)
    connect(alice, bob)
    bob.receive(64, wr_id=3)
    last = alice.request(IBV_WR_SEND, bob, 8, wr_id=3)
    bad = alice.request(IBV_WR_SEND, bob, 8, wr_id=2, next_wr=last)
    first = alice.request(IBV_WR_SEND, bob, 8, wr_id=1, next_wr=bad)
    bad.ah.close()
    reported = alice.request(IBV_WR_SEND, bob, 8)
    refused(errno.EINVAL, alice.qp.post_send, first, reported)
    assert (reported.wr_id, reported.next_wr, reported.ah) == (2, last, bad.ah)
    run(pair)
    assert alice.ends() == [(1, IBV_WC_SUCCESS)]


def test_a_chain_that_is_a_ring_fills_the_queue(contexts):
    alice, bob = connected(contexts)
    request = alice.request(IBV_WR_RDMA_WRITE, bob, 8)
    request.next_wr = request
    refused(errno.ENOMEM, alice.qp.post_send, request)


# ---------------------------------------------------------------- wrong types and sizes


@pytest.mark.parametrize(
    "make",
    [
        lambda: Context("rxe0"),
        lambda: PD("context"),
        lambda: MR(None, 64),
        lambda: MR(5, 64),
        lambda: CQ(None, 8),
        lambda: SRQ(None, None),
        lambda: QP(None, QPInitAttr()),
        lambda: AH("pd", attr=AHAttr()),
        lambda: CompChannel(1),
        lambda: AHAttr(is_global=1, gr="somewhere"),
        lambda: SGE("0", 1, 2),
        lambda: SGE(-1, 1, 2),
        lambda: SGE(0, 1 << 32, 2),
        lambda: SendWR(1 << 64, num_sge=1, sg=[SGE(0, 0, 0)]),
        lambda: SendWR(num_sge=1, sg=[5]),
        lambda: RecvWR(-1, 1, [SGE(0, 0, 0)]),
        lambda: SrqInitAttr(5),
    ],
)
def test_wrong_types(make):
    with pytest.raises(TypeError):
        make()


def test_the_words_of_a_wrong_type_are_pyverbs():
    with pytest.raises(TypeError) as caught:
        PD("rxe0")
    assert str(caught.value) == (
        "Argument 'creator' has incorrect type (expected Context, got str)"
    )


def test_errors_are_those_of_the_lab():
    assert str(PyverbsRDMAError("Failed to do it", 22)) == (
        "Failed to do it. Errno: 22, Invalid argument"
    )
    assert str(PyverbsRDMAError("Failed to do it")) == "Failed to do it"
    assert PyverbsRDMAError("").error_code == -1


@pytest.mark.parametrize(
    ("length", "access", "error_code"),
    [
        (0, 0, errno.EINVAL),
        (-5, 0, errno.EINVAL),
        (64, 1 << 12, errno.EINVAL),
        (64, 1 << 31, errno.EINVAL),
        (64, IBV_ACCESS_ON_DEMAND, errno.EOPNOTSUPP),
        (64, IBV_ACCESS_MW_BIND, errno.EOPNOTSUPP),
    ],
)
def test_regions_that_cannot_be(pd, length, access, error_code):
    text = refused(error_code, MR, pd, length, access)
    assert f"Failed to register a MR. length: {length}, access flags: {access}" in text


def test_regions_beyond_all_memory(pd):
    for length in (1 << 62, 1 << 63, 1 << 80):
        with pytest.raises(PyverbsError, match="Failed to allocate MR buffer"):
            MR(pd, length)
    assert not MR(pd, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING).closed


@pytest.mark.parametrize(
    ("address", "length"),
    [(64, 64), (1 << 46, 4096), ((1 << 64) - 64, 64), ((1 << 64) - 64, 128), (None, 1 << 45)],
)
def test_memory_that_is_not_there(pd, address, length):
    buffer = np.zeros(4096, np.uint8)
    at = buffer.ctypes.data if address is None else address
    refused(errno.EFAULT, lambda: MR(pd, length, IBV_ACCESS_LOCAL_WRITE, at))


def test_memory_that_may_not_be_written(pd):
    page = np.frombuffer(mmap.mmap(-1, 4096, prot=mmap.PROT_READ), np.uint8)
    address = page.ctypes.data
    assert MR(pd, 64, 0, address).read(5, 0) == bytes(5)
    refused(errno.EFAULT, lambda: MR(pd, 64, IBV_ACCESS_LOCAL_WRITE, address))


@pytest.mark.parametrize("iova", [0, 8, 1 << 40, (1 << 64) - 65536 - 8])
def test_a_region_may_be_called_by_another_address(pair, contexts, iova):
    alice, bob = connected(contexts)
    data = alice.fill()
    region = MR(bob.pd, bob.memory, ALL_ACCESS, iova=iova)
    alice.post(IBV_WR_RDMA_WRITE, bob, 100, rkey=region.rkey, remote_addr=iova + 1000)
    alice.post(IBV_WR_RDMA_READ, bob, 50, 2000, rkey=region.rkey, remote_addr=iova + 1000)
    run(pair)
    assert [status for _, status in alice.ends()] == [IBV_WC_SUCCESS] * 2
    assert bytes(bob.memory[1000:1100]) == data[:100]
    assert bytes(alice.memory[2000:2050]) == data[:50]


def test_a_zero_based_region(pair, contexts):
    alice, bob = connected(contexts)
    data = alice.fill()
    region = MR(bob.pd, bob.memory, ALL_ACCESS | IBV_ACCESS_ZERO_BASED)
    assert region.iova == 0
    alice.post(IBV_WR_RDMA_WRITE, bob, 100, rkey=region.rkey, remote_addr=0)
    run(pair)
    assert bytes(bob.memory[:100]) == data[:100]


def test_a_region_whose_addresses_would_wrap(pd):
    refused(errno.EINVAL, lambda: MR(pd, 64, iova=(1 << 64) - 32))


# ---------------------------------------------------------------- requests


def test_elements_of_requests(contexts):
    alice, bob = connected(contexts)
    request = SendWR(opcode=IBV_WR_SEND_WITH_INV)  # of no elements, as pyverbs has it
    assert request.num_sge == 0
    request.sg_list = alice.sge(8)
    assert (request.num_sge, request.sg_list[0].length) == (1, 8)
    receive = RecvWR(1, 1, [alice.sge(8)])
    receive.sg_list = [alice.sge(4), alice.sge(5)]
    assert [each.length for each in receive.sg_list] == [4, 5]
    assert "Opcode" in str(request)
    assert "SEND_WITH_INV" in str(request)
    refused(errno.EINVAL, lambda: alice.post(IBV_WR_SEND, bob, 0, sg=[alice.sge(1)] * 9,
                                             send_flags=IBV_SEND_INLINE))  # fmt: skip


def test_an_element_can_be_read(contexts):
    alice, _ = connected(contexts)
    alice.mr.write(b"0123456789", 10)
    assert alice.sge(10).read(4, 3) == b"3456"
    refused(errno.EFAULT, lambda: SGE(64, 8, 0).read(8, 0))
    with pytest.raises(OverflowError):
        SGE(0, 8, 0).read(8, -1)
    with pytest.raises(PyverbsUserError):
        SGE(0, 8, 0).read(1 << 60, 0)
