# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of csa_ud's policy, each by itself: copies, options, and what a sender makes of silence."""

import types

import numpy as np
import pytest

from softroce_lab.recovery import control
from softroce_lab.recovery.api import (
    LOST_PACKET,
    Control,
    MovePath,
    Nack,
    Retransmit,
    SetTimer,
)
from softroce_lab.recovery.runner import PolicyRunner
from softroce_lab.recovery.work import Receiving
from tests.recovery.pair_rig import DATA, MILLISECOND_NS, PairRig
from tests.recovery.sabotage import lose
from tests.recovery.test_csa_ud_timing import SRTT_NS, measured

KEY = (1, 2, 3)
CHUNK = 2048 - 40
ONE_WAY_NS = 100_000


def make_rig(**options):
    """Paths of 100 us each way, a packet each 2 us."""
    rig = PairRig("csa_ud", paths=4, initial_rtt_ns=2 * ONE_WAY_NS, options=options)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = ONE_WAY_NS, 2_000
    return rig


def kinds(actions):
    return [type(each) for each in actions]


# ---------------------------------------------------------------- copies


def copies(policy, *attempts):
    """Of how many of these lost packets, by their transmissions, two copies are sent."""
    lost = np.zeros(len(attempts), LOST_PACKET)
    lost["attempts"] = attempts
    return int(np.count_nonzero(policy._hedged(lost)))


def hedging(sent_packets, **options):
    policy = make_rig(**options).sides[0].policy
    policy._sent_packets = sent_packets
    return policy


def test_hedging_copies_what_was_lost_twice_up_to_a_hundredth_of_the_packets():
    policy = hedging(1000, hedging=True)
    assert copies(policy, 1, 1, 1) == 0
    assert copies(policy, 1, 2, 3) == 2
    assert copies(policy, *[2] * 9) == 0  # 11 would be more than 10
    assert copies(policy, *[2] * 8) == 8
    assert copies(policy, 2) == 0


@pytest.mark.parametrize("on", [False, True])
def test_a_few_packets_that_were_lost_eight_times_are_copied_whatever_it_costs(on):
    policy = hedging(0, hedging=on)
    assert copies(policy, 7, 7, 7, 7) == 0
    assert copies(policy, 8, 7, 9, 2) == 2
    assert copies(policy, 8, 8, 8, 8) == 4
    assert copies(policy, 8, 8, 8, 8, 8) == 0


# ---------------------------------------------------------------- options


def acknowledged_after_ns(rig):
    """From the arrival of the second of three messages to its acknowledgement."""
    for number in range(3):
        rig.transfer((1, 2, number), CHUNK)
    rig.transfer((1, 2, 3), 200 * CHUNK)  # a receive that still waits
    rig.finish()
    sent, came = (next(each for each in side.completions if each.key[2] == 1) for side in rig.sides)
    return sent.completed_ns - came.completed_ns


def test_without_immediate_acks_they_wait_for_others():
    assert acknowledged_after_ns(make_rig()) < ONE_WAY_NS + 10_000
    assert acknowledged_after_ns(make_rig(immediate_acks=False)) > 3 * ONE_WAY_NS


@pytest.mark.parametrize("on", [True, False])
def test_path_health_moves_a_path_that_loses_more_than_others(on):
    rig = make_rig(path_health=on, path_choice=False)
    for index in range(1, 800, 8):  # every second packet of path 1
        lose(rig, 0, kind=DATA, path=1, attempt_last=0, index_first=index, index_last=index)
    moved = []
    sender = rig.sides[0]

    def record(now_ns, event, action):
        if isinstance(action, MovePath):
            moved.append(action)

    sender.runner = PolicyRunner(sender.endpoint, sender.policy, record)
    rig.transfer(KEY, 800 * CHUNK)
    rig.finish()
    assert bool(moved) == on
    assert bool(sender.policy.summary()["paths_left"]) == on


# ---------------------------------------------------------------- what a sender makes of silence


def paused_rig(now_ns):
    """A message of 4 packets has left; nothing has come back by then."""
    rig = make_rig()
    lose(rig, 0)
    rig.transfer(KEY, 4 * CHUNK)
    rig.step_until(now_ns, lambda: rig.now_ns >= now_ns)
    policy = rig.sides[0].policy
    work = policy.work_with(rig.sides[0].peer)
    (send,) = work.sends.values()
    return policy, work, send


def answer(policy, work, message, now_ns):
    return kinds(policy.on_message(work, message, now_ns))


def test_a_receiver_without_any_packet_gets_those_again_that_left_two_round_trips_ago():
    policy, work, send = paused_rig(MILLISECOND_NS // 10)
    sack = control.Sack(send.id, send.key, None)
    long_ns = 2 * policy._round_trip_ns(work)
    assert answer(policy, work, sack, long_ns - 1) == []
    assert Retransmit in answer(policy, work, sack, long_ns + MILLISECOND_NS)


def test_a_sack_of_another_key_is_refused_and_causes_no_retransmission():
    policy, work, send = paused_rig(MILLISECOND_NS // 10)
    late_ns = 10 * policy._round_trip_ns(work)
    none = control.Sack(send.id, (9, 9, 9), None)
    assert answer(policy, work, none, late_ns) == []
    begun = control.Sack(send.id, (9, 9, 9), control.packet_set(np.ones(4, np.bool_)))
    (refused,) = policy.on_message(work, begun, late_ns)
    assert isinstance(refused, Control)
    assert isinstance(control.decode(refused.body), control.Refused)


def test_losses_of_a_send_whose_place_another_has_taken_are_nobodys():
    policy, work, send = paused_rig(MILLISECOND_NS // 10)
    lost = np.zeros(1, LOST_PACKET)
    lost["attempts"] = 1
    event = types.SimpleNamespace(
        peer=work.index, id=send.id, handle=send.handle, body=lost.tobytes()
    )
    assert Retransmit in kinds(policy.on_loss(event, MILLISECOND_NS))
    event.handle += 1
    assert list(policy.on_loss(event, MILLISECOND_NS)) == []


def test_the_answer_to_a_question_names_what_is_missing_of_all_messages():
    policy, work = measured()
    receive = Receiving(1, peer=0, key=KEY, count=10)
    assert kinds(policy.on_status_request(work, receive, 7, 0)) == [Control, Nack]


def test_a_sender_whose_packets_still_arrive_asks_nothing():
    policy, work = measured(reported_packets=5)
    work.newest_id = 7
    sending = types.SimpleNamespace(
        out=True, out_ns=0, rnr_naks=0, id=work.newest_id, reported=4, handle=1, key=KEY,
        peer=0, timeouts_without_progress=0,
    )  # fmt: skip
    assert kinds(policy.check_send(work, sending, MILLISECOND_NS)) == [SetTimer]
    assert kinds(policy.check_send(work, sending, MILLISECOND_NS)) == [Control, SetTimer]


def test_a_steady_rtt_gives_two_of_it_before_a_sender_asks():
    policy, work = measured(rttvar_ns=0)
    assert policy._patience_ns(work) == 2 * SRTT_NS


def test_a_straggler_that_is_checked_sooner_anyway_keeps_its_time():
    policy, _ = measured()
    receive = Receiving(1, peer=0, key=KEY, count=10)
    receive.id, receive.timer_at_ns = 7, 1
    assert policy._hurry([receive], 0) == []
    receive.timer_at_ns = 10**12
    assert kinds(policy._hurry([receive], 0)) == [SetTimer]
