# SPDX-License-Identifier: GPL-2.0-or-later
"""What csa_ud's engine finds by the numbers on paths, and by probes of them."""

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.transports import control
from tests.transports.pair_rig import CONTROL, DATA, MILLISECOND_NS, PairRig
from tests.transports.sabotage import lose

KEY = (1, 2, 3)
CHUNK = 2048 - 40
PATH_PROBE = 3
ONE_WAY_NS = 100_000


@pytest.fixture
def rig():
    """Paths of 100 us each way, a packet each 2 us."""
    rig = PairRig("csa_ud", paths=4, initial_rtt_ns=2 * ONE_WAY_NS)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = ONE_WAY_NS, 2_000
    return rig


def finished_ns(rig, length):
    """When the message has arrived."""
    rig.transfer(KEY, length)
    rig.finish(within_ns=400 * MILLISECOND_NS)
    rig.quiesce()
    rig.check()
    return rig.sides[1].completions[0].completed_ns


def summary(rig, side=0):
    return rig.sides[side].figures()


@pytest.mark.parametrize("index", [0, 20, 31, 39])
def test_a_lost_packet_costs_one_round_trip_and_no_timer(rig, index):
    """The next packet on its path shows it; behind the last packet that is a probe."""
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=index, index_last=index)
    assert finished_ns(rig, 40 * CHUNK) < 3 * ONE_WAY_NS + 150_000
    assert rig.counters(0)["tx_retransmitted"] == 1
    assert summary(rig)["lost_by_timer"] == 0
    assert summary(rig)["lost_by_gap"] + summary(rig)["lost_by_probe"] == 1


def test_a_lost_tail_is_found_by_probes(rig):
    """Of other paths than the probe's a quarter of a round trip later."""
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=30)
    assert finished_ns(rig, 40 * CHUNK) < 3 * ONE_WAY_NS + 150_000
    assert summary(rig)["lost_by_probe"] > 0
    assert rig.counters(0)["tx_retransmitted"] == 10


def test_a_message_lost_whole_is_found_by_probes(rig):
    lose(rig, 0, kind=DATA, attempt_last=0)
    assert finished_ns(rig, 40 * CHUNK) < 4 * ONE_WAY_NS + 150_000
    assert rig.counters(0)["tx_retransmitted"] == 40
    assert summary(rig)["lost_by_timer"] == 0


def test_a_lost_retransmission_costs_one_round_trip_more(rig):
    lose(rig, 0, kind=DATA, attempt_last=2, index_first=5, index_last=5)
    assert finished_ns(rig, 40 * CHUNK) < 7 * ONE_WAY_NS + 300_000
    assert rig.counters(0)["tx_retransmitted"] == 3
    assert summary(rig)["lost_by_timer"] == 0


def test_a_lost_nack_is_repeated_behind_the_probes(rig):
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=5, index_last=5)
    lose(rig, 1, kind=CONTROL, message=1 << 31)
    assert finished_ns(rig, 40 * CHUNK) < 3 * ONE_WAY_NS + 250_000
    assert summary(rig)["lost_by_timer"] == 0


def test_without_probes_silence_is_left(rig):
    """The sender asks, and the receiver's loss check names what is missing."""
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=30)
    lose(rig, 0, kind=PATH_PROBE)
    finished_ns(rig, 40 * CHUNK)
    assert summary(rig)["lost_by_timer"] > 0
    assert rig.counters(0)["tx_retransmitted"] >= 10


def test_without_loss_nothing_is_asked_for(rig):
    """One acknowledgement, one probe."""
    finished_ns(rig, 24 * CHUNK)
    assert rig.counters(0)["tx_probe"] == 1
    assert rig.counters(1)["tx_control"] == 1
    assert rig.counters(1)["tx_nack"] == 0


def test_other_transports_probe_nothing():
    for transport in ("ud_rto", "sdr_sr", "irn"):
        rig = PairRig(transport)
        finished_ns(rig, 24 * CHUNK)
        assert rig.counters(0)["tx_probe"] == rig.counters(1)["tx_nack"] == 0


def test_acknowledgements_wait_for_nothing(rig):
    for number in range(3):
        rig.transfer((1, 2, number), CHUNK)
    rig.finish()
    for number in range(3):
        sent = next(each for each in rig.sides[0].completions if each.key[2] == number)
        came = next(each for each in rig.sides[1].completions if each.key[2] == number)
        assert sent.completed_ns - came.completed_ns < ONE_WAY_NS + 10_000


# ---------------------------------------------------------------- reordering


def retransmitted(rig, messages):
    """Of so many messages over paths whose packets overtake each other."""
    before = rig.counters(0).get("tx_retransmitted", 0)
    for number in range(messages):
        rig.transfer((2, 2, number + messages * rig.steps), 100 * CHUNK)
        rig.finish()
    return rig.counters(0).get("tx_retransmitted", 0) - before


def test_reordering_within_a_path_is_learnt(rig):
    """What comes after it was given up makes the window grow, of later messages, too."""
    for cable in rig.cables:
        cable.jitter_ns = 60_000
    first = retransmitted(rig, 8)
    later = retransmitted(rig, 8)
    assert rig.counters(1)["rx_late_number"] > 0
    assert first > 0
    assert later < first / 4
    rig.check()


# ---------------------------------------------------------------- what a NACK says


def test_a_nack_is_read_as_it_was_written(rig):
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=3, index_last=3)
    rig.pair.keep_sent()
    finished_ns(rig, 40 * CHUNK)
    frames = [_native.decode_frame(frame, True) for _, side, frame in rig.pair.take_sent() if side]
    bodies = [each["payload"][: each["length"]] for each in frames if each["kind"] == CONTROL]
    nacks = [control.decode(each) for each in bodies if each[0] == control.NACK]
    assert nacks
    assert nacks[0].words[0] == (0, 0, 1 << 3)
    assert nacks[0].end == 1
    assert max(nacks[0].settled) > 0


@pytest.mark.parametrize(("path_mtu", "waiting"), [(256, 12), (1024, 60)])
def test_a_loss_is_repaired_while_older_messages_wait_for_receives(path_mtu, waiting):
    """More of them than a NACK has room for: it names first what has begun."""
    rig = PairRig("csa_ud", paths=4, path_mtu=path_mtu)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = ONE_WAY_NS, 2_000
    chunk = path_mtu - 40
    for index in range(waiting):
        rig.sides[0].send((9, 9, index), np.zeros(chunk, np.uint8))
    rig.step_until(rig.now_ns + 20 * MILLISECOND_NS)
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=3, index_last=3)
    rig.transfer(KEY, 40 * chunk)
    receiver = rig.sides[1]
    begun_ns = rig.now_ns
    assert rig.step_until(begun_ns + 5 * MILLISECOND_NS, lambda: bool(receiver.completions))
    assert [each.key for each in receiver.completions] == [KEY]
    assert rig.now_ns - begun_ns < 4 * ONE_WAY_NS + 150_000


def test_messages_that_complete_together_are_acknowledged_together(rig):
    """In packets that have room for them."""
    rig.cables[0].packet_time_ns = 0
    count = 300
    for index in range(count):
        rig.transfer((*KEY[:2], index), 64)
    rig.finish(within_ns=20 * MILLISECOND_NS)
    assert summary(rig)["keepalives"] == 0
    assert rig.counters(0)["rx_bad_control"] == 0
    assert rig.counters(1)["tx_control"] - rig.counters(1)["tx_nack"] < count / 8
