# SPDX-License-Identifier: GPL-2.0-or-later
"""`sdr_ec`: data that is lost is restored from parity, and selective repeat carries the rest.

A small code: chunks of one packet, submessages of k = 4 and m = 2.
"""

import itertools

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.transports.erasure.code import ErasureCode
from softroce_lab.transports.options import OptionError
from tests.transports.pair_rig import (
    ADDRESSES,
    DATA,
    MACS,
    MILLISECOND_NS,
    PARITY,
    QKEY,
    PairRig,
    config,
)
from tests.transports.sabotage import lose, rule

MTU = 1024
K, M = 4, 2
MDS = {"k": K, "m": M, "chunk": f"{MTU} B"}
XOR = MDS | {"code": "xor"}
KEY = (1, 2, 3)
PACKET_BYTES = {"ud": MTU - 40, "uc_immediate": MTU}


def make(options=MDS, framing="uc_immediate", seed=1, **settings):
    """A rig whose packets take 1 ms one way and leave 1 us apart."""
    rig = PairRig("sdr_ec", options=options, framing=framing, path_mtu=MTU, seed=seed, **settings)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = MILLISECOND_NS, 1_000
    return rig


def lose_first(rig, *packets):
    """The first transmission of these packets, of data or of parity."""
    for packet in packets:
        for kind in (DATA, PARITY):
            lose(rig, 0, kind=kind, index_first=packet, index_last=packet, limit=1)


def sent(rig, length=None, framing="uc_immediate", packets=K):
    """Send a message and check every byte; how long it took at the receiver."""
    if length is None:
        length = packets * PACKET_BYTES[framing]
    rig.transfer(KEY, length)
    rig.finish()
    rig.check()
    (received,) = rig.sides[1].completions
    return received.completed_ns


PATTERNS = [lost for count in range(M + 1) for lost in itertools.combinations(range(K + M), count)]


@pytest.mark.parametrize("framing", ["ud", "uc_immediate"])
def test_every_pattern_of_up_to_m_losses_is_restored_without_a_retransmission(framing):
    for lost in PATTERNS:
        rig = make(framing=framing)
        lose_first(rig, *lost)
        took_ns = sent(rig, framing=framing)
        assert took_ns < 3 * MILLISECOND_NS, lost
        counters = rig.counters(0)
        assert counters["tx_retransmitted"] == 0, lost
        assert counters["tx_parity"] <= M
        assert rig.counters(1)["rx_restored"] == sum(packet < K for packet in lost), lost


@pytest.mark.parametrize("framing", ["ud", "uc_immediate"])
def test_more_than_m_losses_fall_back_to_selective_repeat(framing):
    patterns = [p for p in itertools.combinations(range(K + M), M + 1) if p[0] < K]
    for lost in patterns:
        rig = make(framing=framing)
        lose_first(rig, *lost)
        took_ns = sent(rig, framing=framing)
        missing = sum(packet < K for packet in lost)
        assert took_ns > 4 * MILLISECOND_NS, lost
        assert rig.counters(0)["tx_retransmitted"] == missing, lost
        # The first of the retransmissions is enough to restore the others.
        assert rig.counters(1)["rx_restored"] == missing - 1, lost
        # These come all the same: nobody needs them, and they had not come before.
        assert rig.counters(1)["rx_needless"] == missing - 1, lost
        assert rig.counters(1)["rx_duplicate"] == 0, lost
        assert rig.sides[1].endpoint.figures()["fallbacks"] == 1


MANY = 40  # packets of data: ten submessages
SLOW_BPS = 100_000_000  # a port that takes longer than the cable: FTO is its time


def took_after_a_fallback_ns(beta, line_rate_bps=SLOW_BPS):
    """Of a message of which more is lost than its parity restores, from its posting."""
    rig = make(MDS | {"beta": beta}, framing="ud", line_rate_bps=line_rate_bps)
    rig.transfer((0, 0, 0), MTU)
    rig.finish()  # both ends know the RTT
    lose_first(rig, 0, 1, 2)
    begun_ns = rig.now_ns
    rig.transfer(KEY, MANY * PACKET_BYTES["ud"])
    rig.finish()
    rig.check()
    assert rig.sides[1].endpoint.figures()["fallbacks"] == 1
    return rig.sides[1].completions[-1].completed_ns - begun_ns


def fto_ns(line_rate_bps=SLOW_BPS):
    """(M + ceil(M / R)) T_inj."""
    return (MANY + MANY * M // K) * PACKET_BYTES["ud"] * 8 * 10**9 // line_rate_bps


FALLBACKS = [(0.5, SLOW_BPS), (1.0, SLOW_BPS), (3.0, SLOW_BPS), (1.0, 4 * SLOW_BPS)]


@pytest.mark.parametrize(("beta", "line_rate_bps"), FALLBACKS)
def test_the_receiver_falls_back_when_fto_ends(beta, line_rate_bps):
    """FTO runs from the first bit; then the NACK and what it names take a round trip."""
    rtt_ns = 2 * MILLISECOND_NS
    expected_ns = rtt_ns / 2 + fto_ns(line_rate_bps) + beta * rtt_ns + rtt_ns
    assert took_after_a_fallback_ns(beta, line_rate_bps) == pytest.approx(expected_ns, abs=100_000)


def test_xor_restores_one_loss_in_each_group():
    for lost in itertools.combinations(range(K + M), 2):
        groups = [packet % M for packet in lost]
        rig = make(XOR)
        lose_first(rig, *lost)
        sent(rig)
        falls_back = groups[0] == groups[1]
        assert (rig.counters(0)["tx_retransmitted"] > 0) == falls_back, lost


@pytest.mark.parametrize("framing", ["ud", "uc_immediate"])
@pytest.mark.parametrize("packets", [1, 5, 11])
@pytest.mark.parametrize("less", [0, 1])
def test_messages_of_any_length_have_short_submessages_and_a_padded_chunk(framing, packets, less):
    length = packets * PACKET_BYTES[framing] - less
    for lost in range(packets):
        rig = make(framing=framing)
        lose_first(rig, lost)
        sent(rig, length, framing)
        assert rig.counters(0)["tx_retransmitted"] == 0
        assert rig.counters(1)["rx_restored"] == 1


@pytest.mark.parametrize("options", [MDS, XOR])
def test_random_losses_of_chunks_of_several_packets(options):
    """Whatever is lost, of data, parity and control messages, every byte arrives."""
    for seed in range(1, 6):
        rig = make(options | {"chunk": f"{2 * MTU} B"}, seed=seed)
        for cable in rig.cables:
            cable.loss = 1 << 61  # 12.5 %
        sent(rig, length=50 * MTU - 3)
        rig.quiesce()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"k": 0}, "'k': 0 is out of bounds"),
        ({"m": 0}, "'m': 0 is out of bounds"),
        ({"k": 200, "m": 57}, "'m': k \\+ m is 257, more than 256"),
        ({"code": "xor", "k": 4, "m": 5}, "'m': 5 chunks of parity for k = 4"),
        ({"code": "rs"}, "unknown value 'rs'"),
        ({"chunk": f"{MTU + 256} B"}, "no multiple of the path MTU, 1024 bytes"),
        ({"beta": -1.0}, "'beta': -1.0 is out of bounds"),
    ],
)
def test_what_is_no_code_is_refused(options, what):
    with pytest.raises(OptionError, match=what):
        make(options)


def test_coding_in_slices_restores_every_byte():
    """As on a real clock, which the engine reads between the slices."""
    for seed in range(1, 4):
        rig = make({"k": 32, "m": 8, "chunk": f"{4 * MTU} B"}, seed=seed)
        for side in rig.sides:
            side.endpoint.code_in_slices()
        rig.cables[0].loss = 1 << 59  # 3 %
        for number, length in enumerate((300 * MTU, 129 * MTU - 5, 0, 17)):
            rig.transfer((1, 1, number), length)
        rig.finish()
        rig.check()
        assert rig.sides[1].endpoint.figures()["restored"] > 0


def test_a_submessage_that_cannot_be_decoded_is_not_written():
    """The engine tests it by itself, whatever a user's policy asks for."""
    ends = [config(each, codes=[(K, M)], code_chunk_packets=1) for each in ADDRESSES]
    pair = _native.Pair(*ends, 1)
    sides = [pair.side(which) for which in (0, 1)]
    for which, side in enumerate(sides):
        other = sides[1 - which]
        side.set_qkey(QKEY)
        side.connect(ADDRESSES[1 - which], MACS[1 - which], other.data_qp, other.recovery_qp, QKEY)
    pair.cable(0).rules = [rule(kind=DATA, index_first=1, index_last=1)]
    memory = np.ones(2 * K * MTU, np.uint8)
    keys = [side.register_memory(memory.ctypes.data, memory.size, 1) for side in sides]
    sides[1].post_receive(0, KEY, keys[1], K * MTU, K * MTU, 1)
    sides[0].post_send(0, KEY, keys[0], 0, K * MTU, 2)
    memory[K * MTU :] = 0
    pair.run(MILLISECOND_NS)
    handle = sides[1].take_events()[0].handle
    before = memory.copy()
    code = ErasureCode("mds", K, M).native
    assert sides[1].restore(handle, 0, code) is False  # without parity
    assert sides[1].restore(handle, 1, code) is False  # there is none
    assert np.array_equal(memory, before)
