# SPDX-License-Identifier: GPL-2.0-or-later
"""The timers of `ud_rto`, `sdr_sr` and `sdr_sr_nack`, and when their receivers send SACKs."""

import dataclasses

import numpy as np
import pytest

from softroce_lab.transports.defaults import DEFAULT_TIMING
from tests.transports.pair_rig import DATA, MILLISECOND_NS, PairRig
from tests.transports.sabotage import lose

MTU = 4096
PACKET = MTU - 40
OF_CHUNK = 16  # packets of 64 KiB
RTT_NS = 20 * MILLISECOND_NS
RIVALS = ["ud_rto", "sdr_sr", "sdr_sr_nack"]
KEY = (1, 2, 3)
EPSILON_NS = MILLISECOND_NS // 10
QUICK = dataclasses.replace(
    DEFAULT_TIMING, clock_granularity_ns=1_000, t_min_ns=MILLISECOND_NS,
    t_max_ns=1000 * MILLISECOND_NS,
    sack_interval_least_ns=MILLISECOND_NS, initial_rtt_ns=RTT_NS,
    keepalive_interval_ns=1000 * MILLISECOND_NS,
)  # fmt: skip


def make(transport, timing=QUICK, **settings):
    """A rig whose senders have measured its RTT."""
    rig = PairRig(
        transport, timing=timing, framing="ud", path_mtu=MTU, initial_rtt_ns=RTT_NS,
        **settings,
    )  # fmt: skip
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = RTT_NS // 2, 1_000
    for number in range(20):
        rig.transfer((0, 0, number), PACKET)
        rig.finish()
    assert srtt_ns(rig) == pytest.approx(RTT_NS, rel=0.01)
    return rig


def srtt_ns(rig):
    return rig.sides[0].endpoint.peer_state(0).srtt_ns


def times_ns(rig, side, counter, until_ns):
    """When this counter grew, from now on."""
    begun_ns, times = rig.now_ns, []
    count = rig.counters(side)[counter]
    while rig.now_ns < begun_ns + until_ns:
        rig.step(rig.now_ns + EPSILON_NS // 2)
        if rig.counters(side)[counter] != count:
            count = rig.counters(side)[counter]
            times.append(rig.now_ns - begun_ns)
    return times


def repeated_ns(rig, packets, *lost, until_ns=10 * RTT_NS):
    """When packets are sent again of a message of which these are lost at first."""
    for packet in lost:
        lose(rig, 0, kind=DATA, index_first=packet, index_last=packet, limit=1)
    rig.transfer(KEY, packets * PACKET)
    times = times_ns(rig, 0, "tx_retransmitted", until_ns)
    rig.finish()
    rig.check()
    return times


def about(*times_ns):
    return pytest.approx(list(times_ns), abs=2 * EPSILON_NS)


@pytest.mark.parametrize("transport", RIVALS)
def test_the_rto_is_three_srtt_and_no_shorter_than_t_min(transport):
    for t_min_ns, rto_ns in ((MILLISECOND_NS, 3 * RTT_NS), (5 * RTT_NS, 5 * RTT_NS)):
        rig = make(transport, dataclasses.replace(QUICK, t_min_ns=t_min_ns))
        assert repeated_ns(rig, 1, 0) == about(rto_ns)


@pytest.mark.parametrize("transport", RIVALS)
def test_the_measured_rto_is_that_of_rfc_6298(transport):
    rig = make(transport, dataclasses.replace(QUICK, fixed_rto_ns=1, rto_rttvar_weight=4))
    state = rig.sides[0].endpoint.peer_state(0)
    assert repeated_ns(rig, 1, 0) == about(state.srtt_ns + 4 * state.rttvar_ns)


def test_ud_rto_waits_since_the_last_packet():
    rig = make("ud_rto")
    rig.cables[0].packet_time_ns = MILLISECOND_NS
    assert repeated_ns(rig, 100, 3) == about(99 * MILLISECOND_NS + 3 * RTT_NS)


@pytest.mark.parametrize("transport", ["sdr_sr"])
def test_each_chunk_is_repeated_an_rto_after_its_last_packet_left(transport):
    rig = make(transport)
    rig.cables[0].packet_time_ns = MILLISECOND_NS
    first, second = repeated_ns(rig, 2 * OF_CHUNK, 0, OF_CHUNK)[::OF_CHUNK]
    assert [first, second] == about(
        (OF_CHUNK - 1) * MILLISECOND_NS + 3 * RTT_NS,
        (2 * OF_CHUNK - 1) * MILLISECOND_NS + 3 * RTT_NS,
    )


def test_timeouts_without_progress_back_off_once_a_round_trip():
    """Chunks have timers of their own: two that end in the same round trip are one timeout."""
    rig = make("sdr_sr", dataclasses.replace(QUICK, eager_rounds=1))
    rig.cables[0].packet_time_ns = MILLISECOND_NS // 4
    chunk_ns = OF_CHUNK * MILLISECOND_NS // 4
    lose(rig, 0, kind=DATA)
    rig.transfer(KEY, 2 * OF_CHUNK * PACKET)
    first_ns, *repeats = times_ns(rig, 0, "tx_retransmitted", 20 * RTT_NS)[::OF_CHUNK]
    round_ns = 3 * RTT_NS + (OF_CHUNK - 1) * MILLISECOND_NS // 4
    assert [at - first_ns for at in repeats[:4]] == about(
        chunk_ns, round_ns, round_ns + chunk_ns, 2 * round_ns
    )
    assert repeats[4] - first_ns > 2 * round_ns + chunk_ns + RTT_NS


# ---------------------------------------------------------------- SACKs


@pytest.mark.parametrize("transport", RIVALS)
def test_sacks_are_a_quarter_of_a_round_trip_apart_while_packets_come(transport):
    rig = make(transport)
    rig.cables[0].packet_time_ns = MILLISECOND_NS
    rig.transfer(KEY, 100 * PACKET)
    sacks = times_ns(rig, 1, "tx_control", 90 * MILLISECOND_NS)
    assert np.diff(sacks).tolist() == about(*[RTT_NS // 4] * (len(sacks) - 1))
    rig.finish()
    rig.check()


def test_a_receiver_that_gets_nothing_sends_one_each_t_max():
    rig = make("sdr_sr", dataclasses.replace(QUICK, t_max_ns=7 * RTT_NS))
    lose(rig, 0, kind=DATA, index_first=1)
    lose(rig, 0, kind=DATA, attempt_first=1)
    rig.transfer(KEY, 2 * PACKET)
    first, second, *later = times_ns(rig, 1, "tx_control", 40 * RTT_NS)
    doubled_ns = (1 + 2 + 4 + 8 + 16) * RTT_NS // 4  # until the interval is T_max
    assert [first, second - first] == about(RTT_NS // 2 + RTT_NS // 4, doubled_ns)
    assert np.diff([second, *later]).tolist() == about(*[7 * RTT_NS] * len(later))
    assert len(later) >= 3
