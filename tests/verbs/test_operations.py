# SPDX-License-Identifier: GPL-2.0-or-later
"""Every operation over every service that has it: data, completions, immediates, order."""

import errno
import socket

import numpy as np
import pytest

from softroce_lab.verbs import MR, SGE, QPAttr, RecvWR
from softroce_lab.verbs.enums import *
from tests.refusals import refused
from tests.verbs.sides import SERVICES, connected, run

CARRIED_BY = ("rc", "csa_ud", "irn")

CONNECTED = (IBV_QPT_RC, IBV_QPT_UC)
IMMEDIATE = 0x12345678
SIZES = (0, 1, 255, 256, 257, 1024, 1025, 5000, 32768)
MTUS = (IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048)


def name(value):
    return getattr(value, "name", str(value)).removeprefix("IBV_").removeprefix("WR_")


def check_ends(side, *expected):
    """What completed: (wr_id, opcode), all of it well."""
    completions = side.poll()
    assert [(each.wr_id, each.opcode) for each in completions] == list(expected)
    assert {each.status for each in completions} <= {IBV_WC_SUCCESS}
    assert {each.qp_num for each in completions} <= {side.qp.qp_num}
    return completions


# ---------------------------------------------------------------- SEND


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("service", SERVICES, ids=name)
def test_send(pair, contexts, service, size):
    size = min(size, 2048) if service == IBV_QPT_UD else size
    alice, bob = connected(contexts, service)
    data = alice.fill()
    bob.receive(size, wr_id=2)
    alice.post(IBV_WR_SEND, bob, size, 100, wr_id=1)
    run(pair)
    check_ends(alice, (1, IBV_WC_SEND))
    (received,) = check_ends(bob, (2, IBV_WC_RECV))
    assert received.byte_len == bob.head + size
    assert received.wc_flags == (IBV_WC_GRH if service == IBV_QPT_UD else 0)
    assert bytes(bob.memory[bob.head : bob.head + size]) == data[100 : 100 + size]
    assert not bob.memory[bob.head + size :].any()


@pytest.mark.only_rc
@pytest.mark.parametrize("mtu", MTUS, ids=name)
@pytest.mark.parametrize("service", CONNECTED, ids=name)
def test_path_mtu(pair, contexts, service, mtu):
    alice, bob = connected(contexts, service, attr={"path_mtu": mtu})
    data = alice.fill()
    bob.receive(10_000)
    alice.post(IBV_WR_SEND, bob, 10_000)
    run(pair)
    assert bytes(bob.memory[:10_000]) == data[:10_000]
    packets = -(-10_000 // (128 << mtu))
    assert pair.totals(0)["sent"] == packets


def test_the_largest_path_mtu_is_the_ports(contexts):
    port = contexts[0].query_port(1)
    assert port.max_mtu == port.active_mtu == IBV_MTU_2048
    refused(errno.EINVAL, lambda: connected(contexts, attr={"path_mtu": IBV_MTU_2048 + 1}))


@pytest.mark.parametrize("service", SERVICES, ids=name)
def test_send_with_immediate(pair, contexts, service):
    alice, bob = connected(contexts, service)
    alice.fill()
    bob.receive(64)
    alice.post(IBV_WR_SEND_WITH_IMM, bob, 10, imm_data=socket.htonl(IMMEDIATE))
    run(pair)
    check_ends(alice, (0, IBV_WC_SEND))
    (received,) = check_ends(bob, (0, IBV_WC_RECV))
    assert received.wc_flags & IBV_WC_WITH_IMM
    assert socket.ntohl(received.imm_data) == IMMEDIATE
    assert received.byte_len == bob.head + 10


def test_send_with_invalidate(pair, contexts):
    """The key is spent, and no other."""
    alice, bob = connected(contexts)
    rkey = bob.mr.rkey
    other = MR(bob.pd, 4096, 1)
    bob.qp.post_recv(RecvWR(3, 1, [SGE(other.buf, 64, other.lkey)]))
    alice.post(IBV_WR_SEND_WITH_INV, bob, 10, imm_data=rkey)
    run(pair)
    check_ends(alice, (0, IBV_WC_SEND))
    (received,) = check_ends(bob, (3, IBV_WC_RECV))
    assert received.wc_flags == IBV_WC_WITH_INV
    assert received.imm_data == rkey
    alice.post(IBV_WR_RDMA_WRITE, bob, 8)
    run(pair)
    assert alice.ends()[0][1] != IBV_WC_SUCCESS
    assert not bob.memory.any()


# ---------------------------------------------------------------- WRITE and READ


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("service", CONNECTED, ids=name)
def test_write(pair, contexts, service, size):
    alice, bob = connected(contexts, service)
    data = alice.fill()
    alice.post(IBV_WR_RDMA_WRITE, bob, size, 7, to=13, wr_id=4)
    run(pair)
    check_ends(alice, (4, IBV_WC_RDMA_WRITE))
    check_ends(bob)
    assert bytes(bob.memory[13 : 13 + size]) == data[7 : 7 + size]
    bob.memory[13 : 13 + size] = 0
    assert not bob.memory.any()


@pytest.mark.parametrize("size", [0, 1, 1024, 5000])
@pytest.mark.parametrize("service", CONNECTED, ids=name)
def test_write_with_immediate(pair, contexts, service, size):
    """A receive is used up, and its memory is not."""
    alice, bob = connected(contexts, service)
    data = alice.fill()
    bob.receive(0, 60_000, wr_id=5)
    opcode = IBV_WR_RDMA_WRITE_WITH_IMM
    alice.post(opcode, bob, size, to=50, wr_id=4, imm_data=socket.htonl(IMMEDIATE))
    run(pair)
    check_ends(alice, (4, IBV_WC_RDMA_WRITE))
    (received,) = check_ends(bob, (5, IBV_WC_RECV_RDMA_WITH_IMM))
    assert (received.wc_flags, received.byte_len) == (IBV_WC_WITH_IMM, size)
    assert socket.ntohl(received.imm_data) == IMMEDIATE
    assert bytes(bob.memory[50 : 50 + size]) == data[:size]


@pytest.mark.parametrize("size", SIZES)
def test_read(pair, contexts, size):
    alice, bob = connected(contexts)
    data = bob.fill()
    alice.post(IBV_WR_RDMA_READ, bob, size, 11, to=3, wr_id=6)
    run(pair)
    (end,) = check_ends(alice, (6, IBV_WC_RDMA_READ))
    assert end.byte_len == size
    check_ends(bob)
    assert bytes(alice.memory[11 : 11 + size]) == data[3 : 3 + size]
    alice.memory[11 : 11 + size] = 0
    assert not alice.memory.any()


# ---------------------------------------------------------------- atomics


def word(side, offset=0):
    return side.memory[offset : offset + 8].view(np.uint64)


def test_fetch_and_add(pair, contexts):
    alice, bob = connected(contexts)
    word(bob, 64)[0] = 2**64 - 1
    for number in range(3):
        alice.post(IBV_WR_ATOMIC_FETCH_AND_ADD, bob, 8, number * 8, to=64, add=2, wr_id=number)
    run(pair)
    ends = check_ends(alice, *((number, IBV_WC_FETCH_ADD) for number in range(3)))
    assert {each.byte_len for each in ends} == {8}
    assert [int(word(alice, at)[0]) for at in (0, 8, 16)] == [2**64 - 1, 1, 3]
    assert word(bob, 64)[0] == 5


def test_compare_and_swap(pair, contexts):
    alice, bob = connected(contexts)
    word(bob)[0] = 10
    for compare, swap, fetched, after in ((10, 20, 10, 20), (10, 30, 20, 20), (20, 0, 20, 0)):
        alice.post(IBV_WR_ATOMIC_CMP_AND_SWP, bob, 8, 8, add=compare, swap=swap)
        run(pair)
        check_ends(alice, (0, IBV_WC_COMP_SWAP))
        assert (word(alice, 8)[0], word(bob)[0]) == (fetched, after)


@pytest.mark.parametrize("opcode", [IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD])
@pytest.mark.parametrize(("length", "to"), [(7, 0), (9, 0), (0, 0), (8, 4), (8, 1)])
def test_an_atomic_is_eight_bytes_on_an_address_of_eight(contexts, opcode, length, to):
    alice, bob = connected(contexts)
    refused(errno.EINVAL, lambda: alice.post(opcode, bob, length, to=to))


@pytest.mark.parametrize(
    ("service", "opcode"),
    [
        *((IBV_QPT_UC, opcode) for opcode in (IBV_WR_RDMA_READ, IBV_WR_SEND_WITH_INV)),
        (IBV_QPT_UC, IBV_WR_ATOMIC_FETCH_AND_ADD),
        (IBV_QPT_UC, IBV_WR_ATOMIC_CMP_AND_SWP),
        (IBV_QPT_UD, IBV_WR_RDMA_WRITE),
        (IBV_QPT_UD, IBV_WR_RDMA_READ),
        (IBV_QPT_UD, IBV_WR_SEND_WITH_INV),
        (IBV_QPT_UD, 7),  # IBV_WR_LOCAL_INV
        (IBV_QPT_RC, 8),  # IBV_WR_BIND_MW, without a window
        (IBV_QPT_RC, 200),
    ],
    ids=name,
)
def test_operations_that_a_service_does_not_have(contexts, service, opcode):
    alice, bob = connected(contexts, service)
    refused(errno.EOPNOTSUPP, lambda: alice.post(opcode, bob, 8))


# ---------------------------------------------------------------- lists, inline data


PIECES = ((0, 100), (5000, 1), (300, 0), (9000, 1000), (200, 700))


@pytest.mark.parametrize("service", SERVICES, ids=name)
def test_lists_of_elements(pair, contexts, service):
    """Gathered from several places and scattered to others."""
    alice, bob = connected(contexts, service, attr={"path_mtu": IBV_MTU_256})
    data = alice.fill()
    sent = b"".join(data[at : at + n] for at, n in PIECES)
    target = [bob.sge(40, 0), bob.sge(1, 100), bob.sge(999, 1000), bob.sge(2000, 3000)]
    bob.qp.post_recv(RecvWR(0, 4, target))
    alice.post(IBV_WR_SEND, bob, 0, sg=[alice.sge(n, at) for at, n in PIECES])
    run(pair)
    (received,) = check_ends(bob, (0, IBV_WC_RECV))
    assert received.byte_len == bob.head + len(sent)
    arrived = b"".join(bytes(bob.memory[at : at + n])
                       for at, n in ((0, 40), (100, 1), (1000, 999), (3000, 2000)))  # fmt: skip
    assert arrived[bob.head : bob.head + len(sent)] == sent


def test_lists_of_elements_of_remote_operations(pair, contexts):
    alice, bob = connected(contexts)
    data = alice.fill()
    sent = b"".join(data[at : at + n] for at, n in PIECES)
    alice.post(IBV_WR_RDMA_WRITE, bob, 0, to=77, sg=[alice.sge(n, at) for at, n in PIECES])
    run(pair)
    assert bytes(bob.memory[77 : 77 + len(sent)]) == sent
    alice.memory[:] = 0
    alice.post(IBV_WR_RDMA_READ, bob, 0, to=77, sg=[alice.sge(n, at) for at, n in PIECES])
    run(pair)
    check_ends(alice, (0, IBV_WC_RDMA_WRITE), (0, IBV_WC_RDMA_READ))
    assert b"".join(bytes(alice.memory[at : at + n]) for at, n in PIECES) == sent


@pytest.mark.parametrize("service", SERVICES, ids=name)
def test_more_elements_than_asked_for_are_refused(contexts, service):
    alice, bob = connected(contexts, service)
    for post in (
        lambda: alice.post(IBV_WR_SEND, bob, 0, sg=[alice.sge(1)] * 9),
        lambda: alice.qp.post_recv(RecvWR(0, 9, [alice.sge(1)] * 9)),
    ):
        refused(errno.EINVAL, post)


@pytest.mark.parametrize("service", SERVICES, ids=name)
def test_inline_data_is_taken_when_it_is_posted(pair, contexts, service):
    """From memory that needs no region, and may change at once."""
    alice, bob = connected(contexts, service)
    memory = np.arange(200, dtype=np.uint8)
    elements = [SGE(memory.ctypes.data, 150, 0), SGE(memory.ctypes.data + 150, 50, 0)]
    flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED
    bob.receive(512)
    alice.post(IBV_WR_SEND, bob, 0, sg=elements, send_flags=flags)
    memory[:] = 0xEE
    run(pair)
    check_ends(alice, (0, IBV_WC_SEND))
    assert list(bob.memory[bob.head : bob.head + 200]) == list(range(200))


@pytest.mark.parametrize(
    ("opcode", "address", "length", "error_code"),
    [
        (IBV_WR_SEND, None, 513, errno.EINVAL),  # more than max_inline_data
        (IBV_WR_SEND, None, 1 << 31, errno.EINVAL),
        (IBV_WR_RDMA_READ, None, 8, errno.EINVAL),
        (IBV_WR_SEND, 64, 8, errno.EFAULT),  # no memory of this process
        (IBV_WR_SEND, (1 << 64) - 64, 512, errno.EFAULT),
    ],
)
def test_inline_data_that_cannot_be(contexts, opcode, address, length, error_code):
    alice, bob = connected(contexts)
    element = SGE(alice.mr.buf if address is None else address, length, 0)
    refused(
        error_code, lambda: alice.post(opcode, bob, 0, sg=[element], send_flags=IBV_SEND_INLINE)
    )


# ---------------------------------------------------------------- order, signals, fences


def test_requests_end_in_their_order(pair, contexts):
    alice, bob = connected(contexts)
    for number in range(4):
        bob.receive(64, wr_id=number)
    opcodes = [IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND,
               IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_SEND]  # fmt: skip
    for number, opcode in enumerate(opcodes):
        alice.post(opcode, bob, 8, number * 8, to=1024, wr_id=number)
    run(pair)
    assert alice.ends() == [(number, IBV_WC_SUCCESS) for number in range(8)]
    assert bob.ends() == [(number, IBV_WC_SUCCESS) for number in range(4)]


@pytest.mark.parametrize("service", SERVICES, ids=name)
def test_unsignalled_requests_complete_in_silence(pair, contexts, service):
    alice, bob = connected(contexts, service)
    for number in range(8):
        bob.receive(64)
        flags = IBV_SEND_SIGNALED if number == 5 else 0
        alice.post(IBV_WR_SEND, bob, 8, wr_id=number, send_flags=flags)
    run(pair)
    assert alice.ends() == [(5, IBV_WC_SUCCESS)]
    assert len(bob.poll()) == 8


def test_all_are_signalled_where_the_queue_pair_says_so(pair, contexts):
    alice, bob = connected(contexts, sq_sig_all=1)
    alice.post(IBV_WR_RDMA_WRITE, bob, 8, wr_id=3, send_flags=0)
    run(pair)
    assert alice.ends() == [(3, IBV_WC_SUCCESS)]


def test_unsignalled_requests_free_their_places(pair, contexts):
    """The send queue holds 64; none of a thousand is signalled."""
    alice, bob = connected(contexts)
    for _ in range(20):
        for _ in range(50):
            alice.post(IBV_WR_RDMA_WRITE, bob, 8, send_flags=0)
        run(pair)
    assert alice.poll() == []


def test_a_fence_waits_for_the_reads_before_it(pair, contexts):
    """IBA 10.8.3.3: what a READ brings may be sent by the fenced request behind it."""
    alice, bob = connected(contexts)
    pair.cable(0).delay_ns = pair.cable(1).delay_ns = 50_000
    word(bob)[0] = 77
    bob.receive(64, 4096)
    alice.post(IBV_WR_RDMA_READ, bob, 8)
    flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED
    alice.post(IBV_WR_SEND, bob, 8, send_flags=flags)
    run(pair)
    assert len(alice.ends()) == 2
    assert word(bob, 4096)[0] == 77


def test_without_a_fence_what_was_there_is_sent(pair, contexts):
    alice, bob = connected(contexts)
    pair.cable(0).delay_ns = pair.cable(1).delay_ns = 50_000
    word(bob)[0] = 77
    bob.receive(64, 4096)
    alice.post(IBV_WR_RDMA_READ, bob, 8)
    alice.post(IBV_WR_SEND, bob, 8)
    run(pair)
    assert word(bob, 4096)[0] == 0


# ---------------------------------------------------------------- flush


@pytest.mark.parametrize("service", SERVICES, ids=name)
def test_in_error_everything_is_flushed_in_order(contexts, service):
    alice, bob = connected(contexts, service)
    for number in range(3):
        alice.receive(64, wr_id=10 + number)
        alice.post(IBV_WR_SEND, bob, 8, wr_id=number, send_flags=0)
    alice.qp.modify(QPAttr(qp_state=IBV_QPS_ERR), IBV_QP_STATE)
    flushed = alice.ends()
    assert {status for _, status in flushed} == {IBV_WC_WR_FLUSH_ERR}
    ids = [wr_id for wr_id, _ in flushed]
    assert [wr_id for wr_id in ids if wr_id < 10] == [0, 1, 2]
    assert [wr_id for wr_id in ids if wr_id >= 10] == [10, 11, 12]
    alice.post(IBV_WR_SEND, bob, 8, wr_id=99)
    assert alice.ends() == [(99, IBV_WC_WR_FLUSH_ERR)]
