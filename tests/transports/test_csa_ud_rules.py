# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of csa_ud, each by itself: copies, options, and what is made of silence."""

import numpy as np
import pytest

from softroce_lab.transports import control
from tests.transports.pair_rig import CONTROL, DATA, MILLISECOND_NS, PairRig
from tests.transports.sabotage import control_sent, lose

KEY = (1, 2, 3)
CHUNK = 2048 - 40
ONE_WAY_NS = 100_000
PATH_PROBE = 3


def make_rig(*, paths=4, **options):
    """Paths of 100 us each way, a packet each 2 us."""
    rig = PairRig("csa_ud", paths=paths, initial_rtt_ns=2 * ONE_WAY_NS, options=options)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = ONE_WAY_NS, 2_000
    return rig


# ---------------------------------------------------------------- copies


@pytest.mark.parametrize(("lost", "times", "twice"), [(4, 7, 0), (1, 8, 1), (4, 8, 4), (5, 8, 0)])
def test_a_few_packets_that_were_lost_eight_times_are_sent_twice(lost, times, twice):
    """More would be a storm: they fill a round of recovery by themselves."""
    rig = make_rig(paths=1)
    lose(rig, 0, kind=DATA, attempt_last=times - 1, index_first=10, index_last=9 + lost)
    rig.transfer(KEY, 40 * CHUNK)
    rig.finish()
    rig.check()
    assert rig.sides[0].figures()["sent_twice"] == twice


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
    assert acknowledged_after_ns(make_rig(immediate_acks=False)) > ONE_WAY_NS + 40_000


@pytest.mark.parametrize("on", [True, False])
def test_path_health_moves_a_path_that_loses_more_than_others(on):
    rig = make_rig(path_health=on, path_choice=False)
    for index in range(1, 800, 8):  # every second packet of path 1
        lose(rig, 0, kind=DATA, path=1, attempt_last=0, index_first=index, index_last=index)
    rig.transfer(KEY, 800 * CHUNK)
    rig.finish()
    left = rig.sides[0].figures()["paths_left"]
    assert (sum(left[rig.sides[0].peer]) if on else len(left)) == on
    assert rig.counters(0)["tx_path_moved"] == on


# ---------------------------------------------------------------- what is made of silence


def unheard(ms):
    """A message of 4 packets, of which nothing has arrived after so many ms."""
    rig = make_rig()
    lose(rig, 0)
    rig.transfer(KEY, 4 * CHUNK)
    rig.step_until(rig.now_ns + int(ms * MILLISECOND_NS))
    return rig


def said(rig, message):
    """What the sender says within half a millisecond upon a control message."""
    before = rig.counters(0)
    receiver = rig.sides[1]
    receiver.endpoint.control(receiver.peer, control.encode(message, 2008))
    rig.pair.keep_sent()
    rig.step_until(rig.now_ns + MILLISECOND_NS // 2)
    again = rig.counters(0)["tx_retransmitted"] - before.get("tx_retransmitted", 0)
    return again, control_sent(rig, control.REFUSE, 0)


@pytest.mark.parametrize(("ms", "again"), [(0.1, 0), (2, 4)])
def test_a_receiver_without_any_packet_gets_those_again_that_left_two_round_trips_ago(ms, again):
    rig = unheard(ms)
    assert said(rig, control.Sack(0, KEY, None)) == (again, 0)


def test_a_sack_of_another_key_is_refused_and_causes_no_retransmission():
    begun = control.packet_set(np.ones(4, np.bool_))
    assert said(unheard(2), control.Sack(0, (9, 9, 9), None)) == (0, 0)
    assert said(unheard(2), control.Sack(0, (9, 9, 9), begun)) == (0, 1)


def test_the_answer_to_a_question_names_what_is_missing_of_all_messages():
    rig = make_rig()
    lose(rig, 0, kind=PATH_PROBE)
    lose(rig, 0, kind=DATA, index_first=1)
    rig.transfer(KEY, 4 * CHUNK)
    rig.step_until(MILLISECOND_NS // 2)
    assert rig.counters(1)["tx_nack"] == 0
    rig.pair.keep_sent()
    sender = rig.sides[0]
    sender.endpoint.control(sender.peer, control.encode(control.Keepalive(((0, KEY),)), 2008))
    rig.step_until(rig.now_ns + MILLISECOND_NS // 4)
    assert rig.counters(1)["tx_nack"] > 0
    assert control_sent(rig, control.SACK) == 1


def test_a_sender_whose_packets_still_arrive_asks_nothing():
    """What is queued behind a slow link takes many round trips."""
    rig = make_rig()
    rig.cables[0].service_time_ns = 2 * MILLISECOND_NS
    rig.transfer(KEY, 100 * CHUNK)
    rig.finish()
    assert rig.sides[0].figures()["keepalives"] == 0


def test_loss_checks_of_a_receive_back_off_until_packets_come_again():
    """They end at T_max apart; after a packet they are as close as at first."""
    rig = make_rig()
    lose(rig, 0, kind=PATH_PROBE)
    lose(rig, 0, kind=CONTROL)
    lose(rig, 0, kind=DATA, index_first=1, attempt_last=4)

    def checked_ns(count):
        """When the next loss checks are."""
        at_ns, checks = [], rig.sides[1].figures()["loss_checks"]
        while len(at_ns) < count:
            rig.step(rig.now_ns + MILLISECOND_NS // 10)
            now = rig.sides[1].figures()["loss_checks"]
            at_ns += [rig.now_ns] * (now > checks)
            checks = now
        return np.diff(at_ns)

    rig.cables[1].down = True  # no NACK is heard
    rig.transfer(KEY, 4 * CHUNK)
    waits_ns = checked_ns(12)
    assert waits_ns[-1] > 3 * waits_ns[0]
    rig.cables[0].rules = []
    rig.cables[1].down = False
    rig.finish()
    rig.check()
