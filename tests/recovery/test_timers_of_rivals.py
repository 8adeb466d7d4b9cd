# SPDX-License-Identifier: GPL-2.0-or-later
"""The timers of `ud_rto`, `sdr_sr` and `sdr_sr_nack`, and when their receivers send SACKs."""

import dataclasses
import types

import numpy as np
import pytest

from softroce_lab.recovery.control import PacketSet
from softroce_lab.recovery.defaults import DEFAULT_TIMING
from softroce_lab.recovery.policy import Feedback, RequestStatus, Retransmit, SetTimer
from softroce_lab.recovery.sdr_sr import SdrSr, SdrSrNack
from softroce_lab.recovery.ud_rto import UdRto
from softroce_lab.recovery.work import Receiving, Sending

SRTT_NS, RTTVAR_NS = 10_000, 1_000
MTU = 4096
OF_CHUNK = 16  # packets of 64 KiB
NOW_NS = 1_000_000
QUICK = dataclasses.replace(
    DEFAULT_TIMING, t_min_ns=1_000, t_max_ns=10_000_000, sack_interval_least_ns=100,
    initial_rtt_ns=SRTT_NS,
)  # fmt: skip


class View:
    """What a policy may ask, with chosen measurements."""

    chunk_bytes = MTU

    def __init__(self, sent_ns, attempts, pending, sent=None):
        self._send = types.SimpleNamespace(
            count=len(sent_ns), sent=len(sent_ns) if sent is None else sent,
            sent_ns=np.array(sent_ns), attempts=np.array(attempts), retransmit_pending=pending,
        )  # fmt: skip
        self.received = 0

    def peer_state(self, peer):
        return types.SimpleNamespace(
            srtt_ns=SRTT_NS, rttvar_ns=RTTVAR_NS, remote_srtt_ns=SRTT_NS, remote_rttvar_ns=RTTVAR_NS
        )

    def send_state(self, handle):
        return self._send

    def receive_state(self, handle):
        return types.SimpleNamespace(received=self.received, duplicates=0)


def sending(policy_of, sent_ns, *, attempts=None, pending=0, sent=None, timing=QUICK):
    """A policy, and a message whose packets left at these times."""
    attempts = [1] * len(sent_ns) if attempts is None else attempts
    policy = policy_of(View(sent_ns, attempts, pending, sent), timing)
    send = Sending(1, 0, 7, (1, 2, 3), len(sent_ns))
    policy.on_send_posted(send, 0)
    return policy, send


def again(actions):
    """The packets that are sent again."""
    (found,) = [each for each in actions if isinstance(each, Retransmit)] or [None]
    return [] if found is None else sorted(found.packets.tolist())


# ---------------------------------------------------------------- how long


@pytest.mark.parametrize("policy_of", [UdRto, SdrSr, SdrSrNack])
def test_the_rto_is_three_srtt_and_no_shorter_than_t_min(policy_of):
    policy, send = sending(policy_of, [0])
    assert policy.rto_ns(send) == 3 * SRTT_NS
    slow = dataclasses.replace(QUICK, t_min_ns=5 * SRTT_NS)
    policy, send = sending(policy_of, [0], timing=slow)
    assert policy.rto_ns(send) == 5 * SRTT_NS


@pytest.mark.parametrize("policy_of", [UdRto, SdrSr, SdrSrNack])
def test_the_measured_rto_is_that_of_rfc_6298(policy_of):
    measured = dataclasses.replace(QUICK, fixed_rto_ns=1, rto_rttvar_weight=4)
    policy, send = sending(policy_of, [0], timing=measured)
    assert policy.rto_ns(send) == SRTT_NS + 4 * RTTVAR_NS


# ---------------------------------------------------------------- ud_rto


def test_ud_rto_repeats_nothing_while_packets_are_queued():
    late = [NOW_NS - 10 * SRTT_NS] * 4
    policy, send = sending(UdRto, late)
    assert again(policy.on_send_timer(send, NOW_NS)) == [0, 1, 2, 3]
    for queued in ({"pending": 1}, {"sent": 3}):
        policy, send = sending(UdRto, late, **queued)
        (timer,) = policy.on_send_timer(send, NOW_NS)
        assert timer == SetTimer(send, NOW_NS + 3 * SRTT_NS)


def test_ud_rto_waits_since_the_last_packet():
    policy, send = sending(UdRto, [0, NOW_NS - 3 * SRTT_NS + 1])
    assert list(policy.on_send_timer(send, NOW_NS)) == [SetTimer(send, NOW_NS + 1)]
    assert again(policy.on_send_timer(send, NOW_NS + 1)) == [0, 1]


# ---------------------------------------------------------------- sdr_sr


def two_chunks(policy_of, first_ns, second_ns, **more):
    return sending(policy_of, [first_ns] * OF_CHUNK + [second_ns] * OF_CHUNK, **more)


def test_a_chunk_is_repeated_an_rto_after_its_last_packet_left():
    policy, send = sending(SdrSr, [0] * (OF_CHUNK - 1) + [NOW_NS - 3 * SRTT_NS + 1])
    assert again(policy.on_send_timer(send, NOW_NS)) == []
    assert again(policy.on_send_timer(send, NOW_NS + 1)) == list(range(OF_CHUNK))


def test_each_chunk_has_a_timer_of_its_own():
    policy, send = two_chunks(SdrSr, NOW_NS - 3 * SRTT_NS, NOW_NS - SRTT_NS)
    timer, *repeat = policy.on_send_timer(send, NOW_NS)
    assert again(repeat) == list(range(OF_CHUNK))
    assert timer.at_ns == NOW_NS + 2 * SRTT_NS


def test_chunks_wait_for_those_that_are_queued_to_be_repeated():
    policy, send = two_chunks(SdrSr, 0, 0, pending=1)
    assert again(policy.on_send_timer(send, NOW_NS)) == []


def test_with_nothing_missing_that_left_the_receiver_is_asked():
    policy, send = two_chunks(SdrSr, 0, 0)
    send.known_missing = PacketSet(2, np.zeros(0, np.bool_))
    policy.on_feedback(send, NOW_NS)
    timer, ask = policy.on_send_timer(send, NOW_NS)
    assert timer.at_ns > NOW_NS
    assert isinstance(ask, RequestStatus)


def test_timeouts_without_progress_are_counted_once_a_round_trip_until_a_chunk_arrives():
    policy, send = two_chunks(SdrSr, 0, 0, attempts=[2] * 2 * OF_CHUNK)
    for now_ns, count in ((NOW_NS, 1), (NOW_NS + SRTT_NS - 1, 1), (NOW_NS + SRTT_NS, 2)):
        policy.on_send_timer(send, now_ns)
        assert send.memory.timeouts == count
    send.known_missing = PacketSet(0, np.array([True, True]))
    policy.on_feedback(send, NOW_NS)
    assert send.memory.timeouts == 2
    send.known_missing = PacketSet(1, np.array([True]))
    policy.on_feedback(send, NOW_NS)
    assert send.memory.timeouts == 0


def overtaken(policy_of, first_ns):
    """What is repeated once the second chunk is there, and the first is not."""
    policy, send = two_chunks(policy_of, first_ns, NOW_NS)
    send.known_missing = PacketSet(0, np.array([True, False]))
    return again(policy.on_feedback(send, NOW_NS))


def test_an_overtaken_chunk_is_repeated_by_sr_nack_alone_an_rtt_after_it_left():
    assert overtaken(SdrSr, 0) == []
    assert overtaken(SdrSrNack, NOW_NS - SRTT_NS) == list(range(OF_CHUNK))
    assert overtaken(SdrSrNack, NOW_NS - SRTT_NS + 1) == []


def test_what_is_missed_behind_all_that_is_there_is_not_overtaken():
    policy, send = two_chunks(SdrSrNack, 0, 0)
    send.known_missing = PacketSet(1, np.array([True]))
    assert again(policy.on_feedback(send, NOW_NS)) == []


# ---------------------------------------------------------------- SACKs


def test_sacks_are_a_quarter_of_a_round_trip_apart_while_packets_come():
    policy = UdRto(View([0], [1], 0), QUICK)
    receive = Receiving(1, 0, (1, 2, 3), 100)
    assert policy.on_first_packet(receive, 0) == [SetTimer(receive, SRTT_NS // 4)]
    policy.view.received = 5
    feedback, timer = policy.on_receive_timer(receive, NOW_NS)
    assert feedback == Feedback(receive)
    assert timer.at_ns == NOW_NS + SRTT_NS // 4


def test_a_receiver_that_gets_nothing_sends_one_each_t_max():
    policy = UdRto(View([0], [1], 0), QUICK)
    receive = Receiving(1, 0, (1, 2, 3), 100)
    policy.on_first_packet(receive, 0)
    silent = [len(list(policy.on_receive_timer(receive, NOW_NS))) for _ in range(14)]
    doublings = (QUICK.t_max_ns // (SRTT_NS // 4)).bit_length()
    assert silent == [1] * (doublings - 1) + [2] * (14 - doublings + 1)
    assert receive.memory == QUICK.t_max_ns
