# SPDX-License-Identifier: GPL-2.0-or-later
"""`sdr_ec`: data that is lost is restored from parity, and selective repeat carries the rest.

A small code: chunks of one packet, submessages of k = 4 and m = 2.
"""

import itertools

import numpy as np
import pytest

from softroce_lab.recovery.options import OptionError
from softroce_lab.recovery.sdr_ec import SdrEc
from tests.recovery.pair_rig import DATA, MILLISECOND_NS, PairRig
from tests.recovery.sabotage import lose

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
    """The first transmission of these packets."""
    for packet in packets:
        lose(rig, 0, kind=DATA, index_first=packet, index_last=packet, limit=1)


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
        assert rig.sides[1].policy.summary()["fallbacks"] == 1


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
    assert rig.sides[1].policy.summary()["fallbacks"] == 1
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


@pytest.mark.parametrize(
    ("method", "mistake"),
    [
        ("fto_ns", lambda self, state: 0),
        ("slack_ns", lambda self, receive: 0),
        ("slack_ns", lambda self, receive: 10 * MILLISECOND_NS),
        ("on_receive_timer", lambda self, receive, now_ns: ()),
    ],
    ids=["no time of the message", "no RTT behind it", "too many of them", "never"],
)
def test_planted_another_fto_is_noticed(method, mistake, monkeypatch):
    monkeypatch.setattr(SdrEc, method, mistake)
    with pytest.raises(AssertionError):
        test_the_receiver_falls_back_when_fto_ends(1.0, SLOW_BPS)


def test_xor_restores_one_loss_in_each_group():
    for lost in itertools.combinations(range(K + M), 2):
        groups = [packet % M for packet in lost]
        rig = make(XOR)
        lose_first(rig, *lost)
        sent(rig)
        falls_back = groups[0] == groups[1]
        assert (rig.counters(0)["tx_retransmitted"] > 0) == falls_back, lost


@pytest.mark.parametrize("framing", ["ud", "uc_immediate"])
@pytest.mark.parametrize("packets", [1, 3, 4, 5, 7, 8, 11])
@pytest.mark.parametrize("less", [0, 1, 500])
def test_messages_of_any_length_have_short_submessages_and_a_padded_chunk(framing, packets, less):
    length = packets * PACKET_BYTES[framing] - less
    for lost in range(packets):
        rig = make(framing=framing)
        lose_first(rig, lost)
        sent(rig, length, framing)
        assert rig.counters(0)["tx_retransmitted"] == 0
        assert rig.counters(1)["rx_restored"] == 1


def test_parity_of_a_short_chunk_is_no_longer_than_it():
    rig = make(MDS | {"chunk": f"{4 * MTU} B"})
    lose_first(rig, 1)  # the parity: packet 0 is the data
    assert sent(rig, length=100) <= 2 * MILLISECOND_NS
    assert rig.counters(0)["tx_data"] == 2


@pytest.mark.parametrize("options", [MDS, XOR])
def test_random_losses_of_chunks_of_several_packets(options):
    """Whatever is lost, of data, parity and control messages, every byte arrives."""
    for seed in range(1, 41):
        rig = make(options | {"chunk": f"{2 * MTU} B"}, seed=seed)
        for cable in rig.cables:
            cable.loss = 1 << 61  # 12.5 %
        sent(rig, length=50 * MTU - 3)
        rig.quiesce()


def test_a_corrupted_parity_is_lost_and_never_decoded_from():
    for seed in range(1, 31):
        rig = make(seed=seed)
        rig.cables[0].corrupt = 1 << 62  # every fourth packet
        sent(rig, packets=40)
        assert rig.counters(1)["rx_wrong_icrc"] > 0


def test_data_that_comes_after_it_was_restored_does_no_harm():
    rig = make()
    rig.cables[0].jitter_ns = 3 * MILLISECOND_NS
    for number in range(20):
        rig.transfer((1, 1, number), 9 * MTU)
    rig.finish()
    rig.check()


def test_the_engine_is_told_which_codes_there_are():
    for codes, packets in (([(0, 1)], 1), ([(1, 0)], 1), ([(200, 57)], 1), ([(4, 2)], 0)):
        with pytest.raises(ValueError, match="a code has k, m >= 1"):
            make(codes=codes, code_chunk_packets=packets)
    with pytest.raises(ValueError, match="tell codes apart"):
        make(codes=[(4, 2), (4, 1)])


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


def test_a_submessage_that_cannot_be_decoded_is_not_written():
    """The engine tests it by itself, whatever a policy asks for."""
    rig = make()
    lose(rig, 0, kind=DATA, index_last=0)
    for packet in (1, 2):
        lose_first(rig, packet)
    rig.transfer(KEY, K * MTU)
    rig.step_until(10 * MILLISECOND_NS, lambda: rig.sides[1].policy.hosted.fallbacks > 0)
    endpoint = rig.sides[1].endpoint
    handle = next(iter(rig.sides[1].policy.peers[0].receives))
    code = SdrEc.code_of(rig.sides[1].policy.hosted, 0, K, M)
    before = rig.sides[1].arena.copy()
    assert endpoint.restore(handle, 0, code.native) is False
    assert endpoint.restore(handle, 1, code.native) is False  # there is none
    assert np.array_equal(rig.sides[1].arena, before)
