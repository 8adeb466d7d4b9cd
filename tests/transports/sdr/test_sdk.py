# SPDX-License-Identifier: GPL-2.0-or-later
"""The SDK of SDR-RDMA: bitmaps, order-based matching, partial completion, late packets."""

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab import verbs as pyverbs
from softroce_lab.transports import sdr

MTU = 1024
CHUNK = 4 * MTU
LENGTH = 10 * CHUNK - 100
MILLISECOND_NS = 1_000_000


def config(address):
    made = _native.MessageConfig()
    made.address = address
    return made


class Rig:
    """Two connected ends on a cable of 1 ms."""

    def __init__(self, **attr):
        self.pair = _native.Pair(config(0x0A000001), config(0x0A000002), 1)
        for number in range(2):
            self.pair.cable(number).delay_ns = MILLISECOND_NS
        self.contexts = [sdr.context_create(pyverbs.Context(self.pair.side(n))) for n in range(2)]
        settings = sdr.QpAttr(**{"mtu": MTU, "chunk_bytes": CHUNK, "slots": 4, **attr})
        self.qps = [sdr.qp_create(each, settings) for each in self.contexts]
        infos = [sdr.qp_info_get(each) for each in self.qps]
        for qp, info in zip(self.qps, reversed(infos), strict=True):
            sdr.qp_connect(qp, info)
        self.data = np.random.default_rng(1).integers(1, 256, LENGTH, dtype=np.uint8)
        self.source = sdr.mr_reg(self.contexts[0], self.data)
        self.target = sdr.mr_reg(self.contexts[1], LENGTH)

    @property
    def arrived(self):
        return self.target.mr.array

    def run(self, ns=20 * MILLISECOND_NS):
        end = self.pair.now_ns + ns
        while self.pair.now_ns < end:
            self.pair.run(min(self.pair.now_ns + MILLISECOND_NS, end))
            for qp in self.qps:
                qp.progress()

    def receive(self):
        return sdr.recv_post(self.qps[1], self.target, 0, LENGTH)

    def send(self, **of):
        return sdr.send_post(self.qps[0], self.source, 0, LENGTH, **of)


@pytest.fixture
def rig():
    return Rig()


def test_a_message_arrives_and_says_so(rig):
    receive, send = rig.receive(), rig.send(immediate=0xCAFE0123)
    assert not sdr.send_poll(send)
    rig.run()
    assert sdr.send_poll(send)
    assert sdr.recv_bitmap_get(receive).all()
    assert sdr.recv_imm_get(receive) == 0xCAFE0123
    assert np.array_equal(rig.arrived, rig.data)
    sdr.recv_complete(receive)


def test_the_bitmap_is_a_view_that_follows_and_cannot_be_written(rig):
    receive = rig.receive()
    bitmap = sdr.recv_bitmap_get(receive)
    assert bitmap.shape == (10,)
    assert not bitmap.any()
    send = sdr.send_stream_start(rig.qps[0], LENGTH)
    sdr.send_stream_continue(send, rig.source, 2 * CHUNK, CHUNK, 2 * CHUNK)
    rig.run()
    assert np.shares_memory(bitmap, sdr.recv_bitmap_get(receive))
    assert np.flatnonzero(bitmap).tolist() == [2]
    with pytest.raises(ValueError, match="read-only"):
        bitmap[0] = True


def test_what_is_missing_is_sent_again_until_all_is_there(rig):
    rig.pair.cable(0).loss = 2**64 // 5
    rig.pair.cable(0).duplicate = 2**64 // 5
    rig.pair.cable(0).jitter_ns = MILLISECOND_NS
    receive = rig.receive()
    send = sdr.send_stream_start(rig.qps[0], LENGTH, 7)
    sdr.send_stream_continue(send, rig.source, 0, LENGTH, 0)
    for _ in range(100):
        rig.run()
        missing = np.flatnonzero(~sdr.recv_bitmap_get(receive))
        if not missing.size:
            break
        for chunk in missing:
            at = chunk * CHUNK
            sdr.send_stream_continue(send, rig.source, at, min(CHUNK, LENGTH - at), at)
    sdr.send_stream_end(send)
    rig.run()
    assert sdr.send_poll(send)
    assert np.array_equal(rig.arrived, rig.data)
    assert sdr.recv_imm_get(receive) == 7


def test_sends_match_receives_by_order_whoever_is_first(rig):
    """Two sends wait for their receives, two receives for their sends."""
    parts = [rig.data[n * CHUNK : (n + 1) * CHUNK] for n in range(4)]

    def send(n):
        return sdr.send_post(rig.qps[0], rig.source, n * CHUNK, CHUNK, n)

    def receive(n):
        return sdr.recv_post(rig.qps[1], rig.target, n * CHUNK, CHUNK)

    sends = [send(0), send(1)]
    rig.run()
    assert [sdr.send_poll(each) for each in sends] == [False, False]
    receives = [receive(n) for n in range(4)]
    rig.run()
    sends += [send(2), send(3)]
    rig.run()
    assert all(sdr.send_poll(each) for each in sends)
    for number, each in enumerate(receives):
        assert sdr.recv_bitmap_get(each).all()
        assert sdr.recv_imm_get(each) == number
        assert np.array_equal(rig.arrived[number * CHUNK :][:CHUNK], parts[number])


def test_partial_completion_keeps_what_is_there(rig):
    receive = rig.receive()
    send = sdr.send_stream_start(rig.qps[0], LENGTH)
    sdr.send_stream_continue(send, rig.source, 0, 3 * CHUNK, 0)
    rig.run()
    assert sdr.recv_bitmap_get(receive).sum() == 3
    sdr.recv_complete(receive)
    sdr.send_stream_continue(send, rig.source, 3 * CHUNK, CHUNK, 3 * CHUNK)
    rig.run()
    assert np.array_equal(rig.arrived[: 3 * CHUNK], rig.data[: 3 * CHUNK])
    assert not rig.arrived[3 * CHUNK :].any()


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_late_packets_write_nothing_behind_whole_turns_of_the_slots(rig, turns):
    """They are delayed beyond `recv_complete`, and beyond further uses of the same slot."""
    rig.pair.cable(0).delay_ns = 500 * MILLISECOND_NS
    late, late_send = rig.receive(), rig.send(immediate=5)
    rig.run(10 * MILLISECOND_NS)  # the packets are on their way
    assert rig.pair.totals(0)["sent"] >= 40
    sdr.recv_complete(late)
    rig.pair.cable(0).delay_ns = MILLISECOND_NS
    other = sdr.mr_reg(rig.contexts[1], CHUNK)
    for _ in range(turns * 4):
        receive = sdr.recv_post(rig.qps[1], other, 0, CHUNK)
        sdr.send_post(rig.qps[0], rig.source, 0, CHUNK)
        rig.run(5 * MILLISECOND_NS)
        assert sdr.recv_bitmap_get(receive).all()
        sdr.recv_complete(receive)
    current = rig.receive()  # into the same memory
    refused = rig.pair.side(1).counters()["rx_uc_dropped"]
    assert rig.pair.now_ns < 400 * MILLISECOND_NS
    rig.run(600 * MILLISECOND_NS)
    assert rig.pair.side(1).counters()["rx_uc_dropped"] - refused == 40
    assert not rig.arrived.any()
    assert not sdr.recv_bitmap_get(current).any()
    assert sdr.recv_imm_get(current) is None
    assert sdr.send_poll(late_send)
    rig.send()
    rig.run()
    assert np.array_equal(rig.arrived, rig.data)


def test_a_message_longer_than_its_receive_is_an_error_of_the_sender(rig):
    sdr.recv_post(rig.qps[1], rig.target, 0, CHUNK)
    send = rig.send()
    rig.run()
    with pytest.raises(sdr.SdrError, match=f"{LENGTH} bytes for a receive of {CHUNK}"):
        sdr.send_poll(send)
    assert not rig.arrived.any()


@pytest.mark.parametrize(
    ("of", "what"),
    [
        ((0, MTU + 1, 0), "no whole packets"),
        ((0, MTU, 7), "at offset 7"),
        ((0, MTU, LENGTH), "at offset"),
        ((LENGTH, MTU, 0), "of a region of"),
        ((0, 0, 0), "0 bytes"),
    ],
)
def test_parts_that_are_none_are_refused(rig, of, what):
    send = sdr.send_stream_start(rig.qps[0], LENGTH)
    with pytest.raises(sdr.SdrError, match=what):
        sdr.send_stream_continue(send, rig.source, *of)


@pytest.mark.parametrize("length", [0, sdr.MOST_PACKETS * MTU + 1])
def test_a_message_larger_than_a_slot_is_refused(rig, length):
    with pytest.raises(sdr.SdrError, match=f"a message of {length} bytes"):
        sdr.send_stream_start(rig.qps[0], length)


@pytest.mark.parametrize(
    ("attr", "what"),
    [
        ({"mtu": 1000}, "no path MTU has 1000 bytes"),
        ({"chunk_bytes": 1500}, "no multiple of the path MTU"),
        ({"slots": 1025}, "slots is 1025"),
        ({"channels": 0}, "channels is 0"),
    ],
)
def test_a_queue_pair_that_cannot_be_is_refused(attr, what):
    with pytest.raises(sdr.SdrError, match=what):
        Rig(**attr)


def test_two_ends_that_do_not_fit_are_refused(rig):
    one = sdr.qp_create(rig.contexts[0], sdr.QpAttr(slots=8))
    other = sdr.qp_create(rig.contexts[1], sdr.QpAttr(slots=4))
    with pytest.raises(sdr.SdrError, match="slots: 8 here, 4 there"):
        sdr.qp_connect(one, sdr.qp_info_get(other))
    with pytest.raises(sdr.SdrError, match="not connected"):
        sdr.recv_post(other, rig.target, 0, CHUNK)


def test_an_immediate_has_the_papers_fields():
    value = sdr.immediate(1023, sdr.MOST_PACKETS - 1, 0x87654321)
    assert value == 1023 << 22 | (sdr.MOST_PACKETS - 1) << 4 | 8
    assert sdr.parsed(value) == (1023, sdr.MOST_PACKETS - 1, 8)
    fragments = [sdr.parsed(sdr.immediate(0, n, 0x87654321))[2] for n in range(8)]
    assert fragments == [1, 2, 3, 4, 5, 6, 7, 8]
