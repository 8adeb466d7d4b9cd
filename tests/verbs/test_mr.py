# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory regions: keys, bounds, access, and what holds them."""

import errno
import gc
import mmap

import numpy as np
import pytest

from softroce_lab.verbs import (
    MR,
    PD,
    SGE,
    MessageEndpoint,
    PyverbsUserError,
    RecvWR,
)
from softroce_lab.verbs.enums import *
from tests.refusals import refused
from tests.verbs.conftest import ADDRESSES, QKEY
from tests.verbs.sides import BYTES, connected, run


@pytest.fixture
def talkers(contexts):
    return connected(contexts, IBV_QPT_UD)


# ---------------------------------------------------------------- what a region is made of


def test_a_region_of_its_own_memory_is_zeroed(pd):
    with MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE) as mr:
        assert mr.length == 4096
        assert mr.lkey == mr.rkey
        assert mr.read(4096, 0) == bytes(4096)
        for words in ("lkey", "rkey", "length", "4096"):
            assert words in str(mr)


@pytest.mark.parametrize(
    "buffer",
    [bytearray(64), np.zeros(64, np.uint8), np.zeros(16, np.float32), mmap.mmap(-1, 64)],
    ids=lambda each: type(each).__name__,
)
def test_a_buffer_is_used_in_place(pd, buffer):
    mr = MR(pd, buffer, IBV_ACCESS_LOCAL_WRITE)
    mr.write("seen", 4, 10)
    assert memoryview(buffer).cast("B")[10:14].tobytes() == b"seen"
    assert mr.buf == np.frombuffer(buffer, np.uint8).ctypes.data
    mr.close()


def test_memory_at_an_address(pd):
    memory = np.zeros(100, np.uint8)
    mr = MR(pd, 50, IBV_ACCESS_LOCAL_WRITE, address=memory.ctypes.data + 20)
    mr.write(b"x" * 50, 50)
    assert bytes(memory) == bytes(20) + b"x" * 50 + bytes(30)


@pytest.mark.parametrize("length", [0, -1, bytearray()])
def test_an_empty_region_is_refused(pd, length):
    refused(errno.EINVAL, lambda: MR(pd, length, IBV_ACCESS_LOCAL_WRITE))


def test_a_buffer_with_holes_is_refused(pd):
    with pytest.raises(PyverbsUserError, match="contiguous"):
        MR(pd, np.zeros((8, 8), np.uint8)[:, ::2], 0)


def test_read_only_memory_may_be_sent_and_not_written(pd):
    MR(pd, b"constant", 0).close()
    MR(pd, b"constant", IBV_ACCESS_REMOTE_READ).close()
    refused(errno.EFAULT, lambda: MR(pd, b"constant", IBV_ACCESS_LOCAL_WRITE))


@pytest.mark.parametrize("access", [IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC])
def test_remote_writes_need_local_write(pd, access):
    """IBA 10.6.3.1."""
    refused(errno.EINVAL, lambda: MR(pd, 64, access))
    MR(pd, 64, access | IBV_ACCESS_LOCAL_WRITE).close()


# ---------------------------------------------------------------- reading and writing it


def test_read_and_write_stay_within(pd):
    mr = MR(pd, 16, IBV_ACCESS_LOCAL_WRITE)
    mr.write("hello", 5)
    mr.write(b"world", 3, 13)
    assert mr.read(16, 0) == b"hello" + bytes(8) + b"wor"
    assert mr.read(0, 16) == b""
    for length, offset in ((17, 0), (1, 16), (-1, 4), (4, -1), (1, 1 << 64)):
        with pytest.raises(PyverbsUserError, match="outside the MR"):
            mr.read(length, offset)
    with pytest.raises(PyverbsUserError, match="outside the MR"):
        mr.write(b"world", 4, 13)
    with pytest.raises(PyverbsUserError, match="6 bytes of a buffer of 5"):
        mr.write("hello", 6)


def test_a_closed_region_has_no_bytes(pd):
    mr = MR(pd, 16, IBV_ACCESS_LOCAL_WRITE)
    mr.close()
    mr.close()
    with pytest.raises(PyverbsUserError, match="closed"):
        mr.read(1, 0)
    with pytest.raises(PyverbsUserError, match="closed"):
        mr.write(b"x", 1)


# ---------------------------------------------------------------- keys


def test_keys_are_not_used_again(pd):
    seen = set()
    last = None
    for _ in range(1000):
        with MR(pd, 64, IBV_ACCESS_LOCAL_WRITE) as mr:
            assert mr.lkey not in seen
            assert last is None or mr.lkey & 0xFF != last & 0xFF
            seen.add(mr.lkey)
            last = mr.lkey


def test_one_buffer_may_be_two_regions(pd):
    buffer = bytearray(64)
    first, second = (MR(pd, buffer, IBV_ACCESS_LOCAL_WRITE) for _ in range(2))
    assert first.lkey != second.lkey
    first.close()
    second.write(b"still", 5)
    assert buffer[:5] == b"still"


# ---------------------------------------------------------------- what work requests may touch


def test_the_last_byte_of_a_region_may_be_used(pair, talkers):
    alice, bob = talkers
    data = alice.fill()
    bob.receive(3, BYTES - 43)
    alice.post(IBV_WR_SEND, bob, 3, BYTES - 3)
    run(pair)
    assert bob.ends() == [(0, IBV_WC_SUCCESS)]
    assert bytes(bob.memory[-3:]) == data[-3:]


# ---------------------------------------------------------------- who holds a region


def test_a_region_may_go_while_receives_name_it(pair, talkers):
    """What used it ends in error, and nothing is written where it was (IBA 10.6.5.4)."""
    alice, bob = talkers
    bob.receive(100)
    bob.mr.close()
    alice.post(IBV_WR_SEND, bob, 10)
    run(pair)
    assert bob.ends() == [(0, IBV_WC_LOC_PROT_ERR)]
    assert not bob.memory.any()


def test_a_region_may_go_while_sends_name_it(pair, talkers):
    alice, bob = talkers
    bob.receive(100)
    alice.post(IBV_WR_SEND, bob, 10)  # the pair does not run
    alice.mr.close()
    run(pair)
    assert alice.ends() == [(0, IBV_WC_LOC_PROT_ERR)]
    assert bob.ends() == []


def test_a_region_that_a_striped_message_uses_stays(context):
    pd = PD(context)
    mr = MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE)
    with MessageEndpoint(pd, QKEY) as messages:
        peer = messages.connect(ADDRESSES[1], 0x020000000002, (0x11, 0x12), QKEY)
        messages.post_recv(1, 0, peer, 64, mr)
        refused(errno.EBUSY, mr.close)
        assert not mr.closed
    mr.close()
    assert mr.closed


def test_closing_a_domain_closes_queue_pairs_before_regions(talkers):
    _, bob = talkers
    bob.receive(100)
    bob.pd.close()
    assert bob.qp.closed
    assert bob.mr.closed


def test_a_forgotten_region_is_gone(pair, talkers):
    """Python gives its memory to others: the RNIC must not write there any more."""
    alice, bob = talkers
    forgotten = MR(bob.pd, 4096, IBV_ACCESS_LOCAL_WRITE)
    memory, lkey = forgotten.array, forgotten.lkey
    bob.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(forgotten.buf, 100, lkey)]))
    del forgotten
    gc.collect()
    alice.post(IBV_WR_SEND, bob, 4)
    run(pair)
    assert bob.ends() == [(0, IBV_WC_LOC_PROT_ERR)]
    assert not memory.any()
    with pytest.raises(OSError, match="no such memory region"):
        bob.context.endpoint.deregister_memory(lkey)


def test_memory_of_a_forgotten_region_lives_while_a_message_may_write_it(context):
    pd = PD(context)
    mr = MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE)
    lkey = mr.lkey
    with MessageEndpoint(pd, QKEY) as messages:
        peer = messages.connect(ADDRESSES[1], 0x020000000002, (0x11, 0x12), QKEY)
        messages.post_recv(1, 0, peer, 64, mr)
        del mr
        gc.collect()
        with pytest.raises(OSError, match="still use"):
            context.endpoint.deregister_memory(lkey)
    MR(pd, 64).close()  # now it can go
    with pytest.raises(OSError, match="no such memory region"):
        context.endpoint.deregister_memory(lkey)
