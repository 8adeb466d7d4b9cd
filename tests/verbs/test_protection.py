# SPDX-License-Identifier: GPL-2.0-or-later
"""Protection: what nobody granted is refused as InfiniBand says, and touches no memory.

Every operation of every service, and for each what may be wrong with the remote memory, with the
local memory, with the posted receive, with the connection, and with the state of queue pairs.
Memory is compared whole, between guard zones, at both ends.
"""

import errno
import itertools

import pytest

from softroce_lab.verbs import MR, PD, SGE, QPAttr, RecvWR
from softroce_lab.verbs.enums import *
from tests.refusals import refused
from tests.verbs.sides import (
    ALL_ACCESS,
    ATOMICS,
    BYTES,
    QKEY,
    SECOND_NS,
    SERVICES,
    Side,
    connect,
    connected,
    run,
)

CARRIED_BY = ("rc", "csa_ud", "irn")

RC, UC, UD = SERVICES
SENDS = (IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV)
WRITES = (IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM)
REMOTE = (*WRITES, IBV_WR_RDMA_READ, *ATOMICS)
OPERATIONS = {
    RC: (*SENDS, *REMOTE),
    UC: (IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, *WRITES),
    UD: (IBV_WR_SEND, IBV_WR_SEND_WITH_IMM),
}
ALL = [(service, opcode) for service in SERVICES for opcode in OPERATIONS[service]]
REMOTE_ALL = [(service, opcode) for service, opcode in ALL if opcode in REMOTE]
SEND_ALL = [(service, opcode) for service, opcode in ALL if opcode in SENDS]
RIGHT = {
    **dict.fromkeys(WRITES, IBV_ACCESS_REMOTE_WRITE),
    IBV_WR_RDMA_READ: IBV_ACCESS_REMOTE_READ,
    **dict.fromkeys(ATOMICS, IBV_ACCESS_REMOTE_ATOMIC),
}


def name(value):
    return getattr(value, "name", str(value)).removeprefix("IBV_").removeprefix("WR_")


def length_of(opcode):
    return 8 if opcode in ATOMICS else 3000


class Watch:
    """The memory of both sides, filled, and compared whole at the end."""

    def __init__(self, *sides):
        self.sides = sides
        for seed, side in enumerate(sides):
            side.fill(seed + 1)
        self.before = [bytes(side.guarded) for side in sides]

    def check(self, *but):
        """Nothing has changed, but (side, offset, length)."""
        for side, before in zip(self.sides, self.before, strict=True):
            after = bytearray(side.guarded)
            for changed, offset, length in but:
                if changed is side:
                    at = len(after) // 2 - BYTES // 2 + offset
                    after[at : at + length] = before[at : at + length]
            assert bytes(after) == before


def fits(service, opcode, length):
    """Of a datagram there is one packet."""
    return min(length, 2000) if service == UD else length


# ---------------------------------------------------------------- the peer's memory

WRONG_REMOTE = [
    "wrong rkey",
    "rkey zero",
    "a byte over",
    "a byte before",
    "beyond the end",
    "no right",
    "another domain",
    "deregistered",
    "past 64 bits",
    "all of 64 bits",
]


def wrong_region(wrong, opcode, side):
    """A region of all the side's memory, that the other may not use for this."""
    if wrong == "another domain":
        return MR(PD(side.context), side.memory, ALL_ACCESS)
    if wrong == "no right":
        return MR(side.pd, side.memory, ALL_ACCESS & ~RIGHT[opcode])
    if wrong == "a byte over":
        return MR(side.pd, side.memory[:-1], ALL_ACCESS)
    return MR(side.pd, side.memory, ALL_ACCESS)


def wrong_remote(wrong, opcode, bob):
    """Fields of a request that names memory it may not use, and what has to stay alive."""
    length = length_of(opcode)
    end = bob.mr.buf + BYTES
    addresses = {
        "a byte before": bob.mr.buf - (8 if opcode in ATOMICS else 1),
        "beyond the end": end + 64,
        "past 64 bits": (1 << 64) - 8,
        "all of 64 bits": (1 << 64) - 8 - length // 8 * 8,
    }
    if wrong in addresses:
        return {"remote_addr": addresses[wrong]}, None
    if wrong in ("wrong rkey", "rkey zero"):
        return {"rkey": 0 if wrong == "rkey zero" else bob.mr.rkey ^ 0x100}, None
    mr = wrong_region(wrong, opcode, bob)
    fields = {"rkey": mr.rkey, "remote_addr": end - length}
    if wrong == "deregistered":
        mr.close()
    return fields, mr


@pytest.mark.parametrize("wrong", WRONG_REMOTE)
@pytest.mark.parametrize(("service", "opcode"), REMOTE_ALL, ids=name)
def test_the_peers_memory(pair, contexts, service, opcode, wrong):
    """RC: NAK remote access error (IBA 9.7.5.2.7); UC: dropped in silence (9.8.2.2.7)."""
    alice, bob = connected(contexts, service)
    watch = Watch(alice, bob)
    bob.receive(BYTES, wr_id=8)
    fields, alive = wrong_remote(wrong, opcode, bob)
    alice.post(opcode, bob, length_of(opcode), wr_id=1, add=1, swap=2, **fields)
    alice.post(opcode, bob, length_of(opcode), wr_id=2, send_flags=0, **fields)
    run(pair)
    watch.check()
    if service == RC:
        assert alice.ends() == [(1, IBV_WC_REM_ACCESS_ERR), (2, IBV_WC_WR_FLUSH_ERR)]
        assert bob.ends() == [(8, IBV_WC_WR_FLUSH_ERR)]
        assert (alice.state, bob.state) == (IBV_QPS_ERR, IBV_QPS_ERR)
        assert bob.events() == [IBV_EVENT_QP_ACCESS_ERR]
    else:
        assert alice.ends() == [(1, IBV_WC_SUCCESS)]
        assert bob.ends() == []
        assert (alice.state, bob.state) == (IBV_QPS_RTS, IBV_QPS_RTS)
    del alive


@pytest.mark.parametrize(("service", "opcode"), REMOTE_ALL, ids=name)
def test_what_the_queue_pair_does_not_grant(pair, contexts, service, opcode):
    """qp_access_flags (IBA 11.2.5.1): an operation that the QP has not enabled is invalid."""
    alice, bob = (Side(context, service) for context in contexts)
    connect(alice, bob, qp_access_flags=ALL_ACCESS & ~RIGHT[opcode])
    watch = Watch(alice, bob)
    bob.receive(BYTES)
    alice.post(opcode, bob, length_of(opcode), add=1)
    run(pair)
    watch.check()
    ended = IBV_WC_REM_INV_REQ_ERR if service == RC else IBV_WC_SUCCESS
    assert alice.ends() == [(0, ended)]
    assert bob.state == (IBV_QPS_ERR if service == RC else IBV_QPS_RTS)


@pytest.mark.parametrize(("service", "opcode"), REMOTE_ALL, ids=name)
def test_to_the_last_byte_of_the_peers_memory(pair, contexts, service, opcode):
    """The other side of the bound: what is granted may be used."""
    alice, bob = connected(contexts, service)
    watch = Watch(alice, bob)
    bob.receive(0)
    length = length_of(opcode)
    alice.post(opcode, bob, length, to=BYTES - length)
    run(pair)
    assert alice.ends() == [(0, IBV_WC_SUCCESS)]
    watch.check((alice, 0, length), (bob, BYTES - length, length))


@pytest.mark.parametrize("opcode", [*WRITES, IBV_WR_RDMA_READ], ids=name)
def test_of_no_bytes_nothing_is_checked(pair, contexts, opcode):
    """C9-88: a request for nothing names nothing."""
    alice, bob = connected(contexts)
    watch = Watch(alice, bob)
    bob.receive(0)
    alice.post(opcode, bob, 0, rkey=0, remote_addr=(1 << 64) - 1)
    run(pair)
    assert alice.ends() == [(0, IBV_WC_SUCCESS)]
    watch.check()


# ---------------------------------------------------------------- one's own memory

WRONG_LOCAL = [
    "wrong lkey",
    "lkey zero",
    "a byte over",
    "a byte before",
    "another domain",
    "deregistered",
    "past 64 bits",
]


def wrong_element(wrong, side, length):
    """An element that the side may not use, and what has to stay alive."""
    start, key = side.mr.buf, side.mr.lkey
    if wrong == "wrong lkey":
        return SGE(start, length, key ^ 0x100), None
    if wrong == "lkey zero":
        return SGE(start, length, 0), None
    if wrong == "a byte over":
        return SGE(start + BYTES - length + 1, length, key), None
    if wrong == "a byte before":
        return SGE(start - 1, length, key), None
    if wrong == "past 64 bits":
        return SGE((1 << 64) - 4, length, key), None
    if wrong == "no right":
        mr = MR(side.pd, side.memory, IBV_ACCESS_REMOTE_READ)
    elif wrong == "another domain":
        mr = MR(PD(side.context), side.memory, ALL_ACCESS)
    else:
        mr = MR(side.pd, side.memory, ALL_ACCESS)
    element = SGE(start, length, mr.lkey)
    if wrong == "deregistered":
        mr.close()
    return element, mr


@pytest.mark.parametrize("wrong", WRONG_LOCAL)
@pytest.mark.parametrize(("service", "opcode"), ALL, ids=name)
def test_ones_own_memory(pair, contexts, service, opcode, wrong):
    """A local protection error (IBA 10.6.3.3). UC and UD stop sending, RC stops altogether."""
    alice, bob = connected(contexts, service)
    watch = Watch(alice, bob)
    bob.receive(BYTES - 64)
    element, alive = wrong_element(wrong, alice, fits(service, opcode, length_of(opcode)))
    alice.post(opcode, bob, 0, sg=[element], wr_id=1, add=1)
    alice.post(opcode, bob, length_of(opcode), wr_id=2, add=1, send_flags=0)
    run(pair)
    assert alice.ends() == [(1, IBV_WC_LOC_PROT_ERR), (2, IBV_WC_WR_FLUSH_ERR)]
    assert alice.state == (IBV_QPS_ERR if service == RC else IBV_QPS_SQE)
    # Packets before the first bad byte may have left.
    begun = {"a byte over": bob}.get(wrong)
    watch.check(*([(begun, 0, BYTES)] if begun and opcode != IBV_WR_RDMA_READ else []))
    assert bob.guards_stand()
    del alive


@pytest.mark.parametrize("opcode", [IBV_WR_RDMA_READ, *ATOMICS], ids=name)
def test_results_need_local_write(pair, contexts, opcode):
    alice, bob = connected(contexts)
    watch = Watch(alice, bob)
    element, alive = wrong_element("no right", alice, length_of(opcode))
    alice.post(opcode, bob, 0, sg=[element], add=1)
    run(pair)
    assert alice.ends() == [(0, IBV_WC_LOC_PROT_ERR)]
    watch.check()
    del alive


@pytest.mark.parametrize("opcode", [*SENDS, *WRITES], ids=name)
def test_what_is_sent_needs_no_right(pair, contexts, opcode):
    alice, bob = connected(contexts)
    bob.receive(BYTES)
    spare = MR(bob.pd, 64)
    constant = MR(alice.pd, bytes(range(64)))
    element = SGE(constant.buf, 64, constant.lkey)
    alice.post(opcode, bob, 0, sg=[element], imm_data=spare.rkey)
    run(pair)
    assert alice.ends() == [(0, IBV_WC_SUCCESS)]
    assert bytes(bob.memory[:64]) == bytes(range(64))


# ---------------------------------------------------------------- the posted receive


@pytest.mark.parametrize("wrong", [*WRONG_LOCAL, "no right"])
@pytest.mark.parametrize(("service", "opcode"), SEND_ALL, ids=name)
def test_the_posted_receive(pair, contexts, service, opcode, wrong):
    """The receiver's own fault: it tells the sender of RC "remote operational error"."""
    alice, bob = connected(contexts, service)
    watch = Watch(alice, bob)
    length = fits(service, opcode, 1000)
    element, alive = wrong_element(wrong, bob, length + bob.head)
    bob.qp.post_recv(RecvWR(1, 1, [element]))
    bob.receive(BYTES - 64, wr_id=2)
    alice.post(opcode, bob, length, imm_data=bob.mr.rkey)
    run(pair)
    assert bob.ends() == [(1, IBV_WC_LOC_PROT_ERR), (2, IBV_WC_WR_FLUSH_ERR)]
    assert alice.ends() == [(0, IBV_WC_REM_OP_ERR if service == RC else IBV_WC_SUCCESS)]
    assert bob.state == IBV_QPS_ERR
    assert bob.events() == [IBV_EVENT_QP_FATAL]
    grh = [(bob, BYTES - length - bob.head + 1, bob.head)] if wrong == "a byte over" else []
    watch.check(*grh)
    del alive


@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 2500])
@pytest.mark.parametrize(("service", "opcode"), SEND_ALL, ids=name)
def test_a_message_a_byte_longer_than_its_receive(pair, contexts, service, opcode, size):
    """RC: NAK invalid request, a local length error; UC and UD: dropped, the receive stays."""
    alice, bob = connected(contexts, service)
    watch = Watch(alice, bob)
    size = fits(service, opcode, size)
    bob.receive(size - 1, 100, wr_id=1)
    alice.post(opcode, bob, size, imm_data=bob.mr.rkey)
    run(pair)
    watch.check((bob, 100, size - 1 + bob.head))
    if service == RC:
        assert alice.ends() == [(0, IBV_WC_REM_INV_REQ_ERR)]
        assert bob.ends() == [(1, IBV_WC_LOC_LEN_ERR)]
        assert bob.events() == [IBV_EVENT_QP_REQ_ERR]
    else:
        assert alice.ends() == [(0, IBV_WC_SUCCESS)]
        assert bob.ends() == []
        alice.post(opcode, bob, size - 1)
        run(pair)
        assert bob.ends() == [(1, IBV_WC_SUCCESS)]


@pytest.mark.parametrize("wrong", ["wrong rkey", "another domain", "deregistered"])
def test_a_key_that_may_not_be_invalidated(pair, contexts, wrong):
    """An error of class J (IBA 9.9.3.1): the receiver stops, and says nothing."""
    alice, bob = connected(contexts)
    before = bytes(bob.guarded)
    bob.receive(64, wr_id=1)
    foreign = MR(PD(bob.context), 64, ALL_ACCESS)
    spare = MR(bob.pd, 64, ALL_ACCESS)
    keys = {"wrong rkey": spare.rkey ^ 0x100, "another domain": foreign.rkey,
            "deregistered": spare.rkey}  # fmt: skip
    if wrong == "deregistered":
        spare.close()
    alice.post(IBV_WR_SEND_WITH_INV, bob, 8, imm_data=keys[wrong])
    run(pair, SECOND_NS)
    assert alice.ends() == [(0, IBV_WC_RETRY_EXC_ERR)]
    assert bob.ends() == [(1, IBV_WC_REM_INV_REQ_ERR)]
    assert bob.state == IBV_QPS_ERR
    assert bytes(bob.guarded) == before
    mine = connected(contexts)  # the foreign key still works for those it is for
    assert mine[0].state == IBV_QPS_RTS
    assert not foreign.closed


# ---------------------------------------------------------------- Q_Keys and PSNs


@pytest.mark.parametrize("qkey", [0, QKEY + 1, QKEY ^ 1 << 16, 0x7FFFFFFF])
@pytest.mark.parametrize("opcode", OPERATIONS[UD], ids=name)
def test_a_wrong_qkey(pair, contexts, opcode, qkey):
    """IBA 9.6.1.4: dropped, and the receive stays."""
    alice, bob = connected(contexts, UD)
    watch = Watch(alice, bob)
    bob.receive(64)
    alice.post(opcode, bob, 64, qkey=qkey)
    run(pair)
    watch.check()
    assert alice.ends() == [(0, IBV_WC_SUCCESS)]
    assert bob.ends() == []
    assert bob.context.endpoint.counters()["rx_wrong_qkey"] == 1


@pytest.mark.only_rc
@pytest.mark.parametrize("ahead", [1, 1000, 1 << 22, -1000, -(1 << 22)])
@pytest.mark.parametrize("opcode", OPERATIONS[RC], ids=name)
def test_a_psn_outside_the_window(pair, contexts, opcode, ahead):
    """IBA 9.7.4.1.1: beyond the one expected or before it, nothing is executed."""
    alice, bob = (Side(context) for context in contexts)
    alice.qp.to_rts(alice.attr(bob))
    bob.qp.to_rts(bob.attr(alice, rq_psn=(alice.psn - ahead) & 0xFFFFFF))
    watch = Watch(alice, bob)
    bob.receive(BYTES)
    alice.post(opcode, bob, length_of(opcode), add=1, imm_data=bob.mr.rkey)
    run(pair, SECOND_NS)
    watch.check()
    assert alice.ends() == [(0, IBV_WC_RETRY_EXC_ERR)]
    assert bob.ends() == []
    assert bob.state == IBV_QPS_RTS
    counters = bob.context.endpoint.counters()
    assert counters["out_of_sequence" if ahead > 0 else "duplicate_request"] > 0
    MR(bob.pd, 64).close()


@pytest.mark.parametrize("opcode", OPERATIONS[UC], ids=name)
def test_a_message_of_uc_that_lost_a_packet(pair, contexts, opcode):
    """IBA 9.8.2.2.1: whole or not at all, as far as anybody is told."""
    alice, bob = connected(contexts, UC)
    watch = Watch(alice, bob)
    bob.receive(BYTES)
    pair.cable(0).packet_time_ns = 1000
    alice.post(opcode, bob, 3000)
    pair.run(pair.now_ns + 500)
    pair.cable(0).down = True
    pair.run(pair.now_ns + 1000)
    pair.cable(0).down = False
    run(pair)
    assert bob.ends() == []
    watch.check((bob, 0, 3000))


# ---------------------------------------------------------------- states


@pytest.mark.parametrize("state", [IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR], ids=name)
@pytest.mark.parametrize(("service", "opcode"), ALL, ids=name)
def test_a_sender_that_is_not_ready_may_not_post(pair, contexts, service, opcode, state):
    alice, bob = (Side(context, service) for context in contexts)
    bob.qp.to_rts(bob.attr(alice))
    if state == IBV_QPS_INIT:
        alice.qp.to_init(alice.attr(bob))
    elif state == IBV_QPS_RTR:
        alice.qp.to_rtr(alice.attr(bob))
    watch = Watch(alice, bob)
    bob.receive(BYTES - 64)
    refused(errno.EINVAL, lambda: alice.post(opcode, bob, length_of(opcode)))
    run(pair)
    watch.check()
    assert pair.totals(0)["sent"] == 0


@pytest.mark.parametrize("state", [IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_ERR], ids=name)
@pytest.mark.parametrize(("service", "opcode"), ALL, ids=name)
def test_a_receiver_that_is_not_ready_takes_nothing(pair, contexts, service, opcode, state):
    alice, bob = connected(contexts, service)
    bob.qp.modify(QPAttr(qp_state=IBV_QPS_ERR), IBV_QP_STATE)
    if state != IBV_QPS_ERR:
        bob.qp.modify(QPAttr(qp_state=IBV_QPS_RESET), IBV_QP_STATE)
    if state == IBV_QPS_INIT:
        bob.qp.to_init(bob.attr(alice))
        bob.receive(BYTES - 64)
    watch = Watch(alice, bob)
    length = fits(service, opcode, length_of(opcode))
    alice.post(opcode, bob, length, imm_data=bob.mr.rkey)
    run(pair, SECOND_NS)
    watch.check()
    assert alice.ends() == [(0, IBV_WC_RETRY_EXC_ERR if service == RC else IBV_WC_SUCCESS)]
    assert bob.ends() == []
    assert bob.state == state


@pytest.mark.parametrize("state", ["reset", "init"])
@pytest.mark.parametrize("service", SERVICES, ids=name)
def test_receives_may_be_posted_from_init_on(contexts, service, state):
    side, other = (Side(context, service) for context in contexts)
    if state == "init":
        side.qp.to_init(side.attr(other))
        side.receive(64)
    else:
        refused(errno.EINVAL, lambda: side.receive(64))


# ---------------------------------------------------------------- everything at once


def test_connections_do_not_share_what_they_grant(pair, contexts):
    """Two peers of one host, each with a domain of its own: neither has the other's memory."""
    first, second = (connected(contexts) for _ in range(2))
    for (alice, bob), (_, other) in itertools.permutations((first, second)):
        watch = Watch(alice, bob, other)
        alice.post(IBV_WR_RDMA_WRITE, other, 100)
        run(pair)
        assert alice.ends() == [(0, IBV_WC_REM_ACCESS_ERR)]
        watch.check()


@pytest.mark.parametrize("access", [0, IBV_ACCESS_LOCAL_WRITE])
def test_memory_is_private_unless_it_is_granted(pair, contexts, access):
    for opcode in REMOTE:
        alice, bob = connected(contexts, access=access)
        watch = Watch(alice, bob)
        source = MR(alice.pd, 4096, ALL_ACCESS)
        element = SGE(source.buf, length_of(opcode), source.lkey)
        alice.post(opcode, bob, 0, sg=[element], add=1)
        run(pair)
        assert alice.ends()[0][1] != IBV_WC_SUCCESS
        watch.check()
        assert not source.array.any()
