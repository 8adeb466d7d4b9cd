# SPDX-License-Identifier: GPL-2.0-or-later
"""Work that cannot succeed, over each transport: it ends in error, in time, and at both sides."""

import dataclasses

import pytest

from softroce_lab import _native
from softroce_lab.errors import ibv_wc_status
from softroce_lab.transports import control, registry
from softroce_lab.transports.defaults import DEFAULT_TIMING
from tests import control_bodies
from tests.transports.pair_rig import (
    CONTROL,
    DATA,
    MILLISECOND_NS,
    PARITY,
    SECOND_NS,
    UNCODED,
    PairRig,
    noise,
)
from tests.transports.sabotage import ControlLoss, control_sent, lose

CHUNK = 2048 - 40
LENGTH = 40 * CHUNK - 7
KEY = (1, 2, 3)
SUCCESS = ibv_wc_status.IBV_WC_SUCCESS
RETRY = ibv_wc_status.IBV_WC_RETRY_EXC_ERR
NOT_READY = ibv_wc_status.IBV_WC_RNR_RETRY_EXC_ERR
TOO_LONG = ibv_wc_status.IBV_WC_REM_INV_REQ_ERR


@pytest.fixture(params=registry.transports(registry.Kind.SESSION))
def transport(request):
    return request.param


def make(transport, *, settings=None, **timing):
    rig = PairRig(
        transport, timing=dataclasses.replace(DEFAULT_TIMING, **timing), **(settings or {})
    )
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 100_000, 10_000
    return rig


def statuses(rig):
    return [side.statuses() for side in rig.sides]


def untouched(rig):
    """Nothing but what was expected has changed in either memory."""
    return all((side.arena == side.expected).all() for side in rig.sides)


def cut(rig, *directions):
    for direction in directions:
        rig.cables[direction].down = True
    return rig.now_ns


# ---------------------------------------------------------------- a peer falls silent


def test_a_dead_peer_is_not_stormed(transport):
    """Of many sends whose packets are out each asks, or retransmits, more and more rarely."""
    rig = make(transport)
    for number in range(64):
        rig.sides[0].send((1, 2, number), noise(1, CHUNK))
    cut(rig, 0, 1)
    rig.finish(within_ns=2 * SECOND_NS)
    assert statuses(rig) == [[RETRY] * 64, []]
    each = 4 * rig.now_ns // (3 * DEFAULT_TIMING.t_max_ns) + 10  # at three quarters of it
    sent = rig.counters(0)
    assert rig.sides[0].figures()["keepalives"] >= DEFAULT_TIMING.keepalive_probes
    assert sent["tx_control"] + sent["tx_data"] <= 64 * each + DEFAULT_TIMING.keepalive_probes + 64


@pytest.mark.parametrize(("most", "cut_at_ns"), [(2, 0), (8, 150_000)])
def test_a_silent_peer_does_not_cost_the_last_attempt(transport, most, cut_at_ns):
    """Keepalives decide what becomes of it; if it comes back, the message arrives. At 150 us `irn`
    has retransmitted packets that the cut then takes.
    """
    rig = make(transport, most_attempts=most, settings=UNCODED)
    rig.transfer(KEY, 20 * CHUNK)
    rig.step_until(cut_at_ns)
    cut(rig, 0, 1)
    rig.step_until(900 * MILLISECOND_NS)
    assert [side.outstanding for side in rig.sides] == [1, 1]
    assert rig.counters(0)["tx_data"] < 20 * most
    for cable in rig.cables:
        cable.down = False
    rig.finish(within_ns=300 * MILLISECOND_NS)
    rig.check()


@pytest.mark.parametrize("direction", [0, 1])
def test_who_hears_nothing_gives_up_and_tells_the_other(transport, direction):
    """Both end at once, not one after the other has fallen silent."""
    rig = make(transport, settings=UNCODED)
    lose(rig, 0, kind=DATA, index_first=100, index_last=100)
    rig.transfer(KEY, 200 * CHUNK)
    rig.step_until(300_000)
    cut_ns = cut(rig, direction)
    rig.finish(within_ns=2 * SECOND_NS)
    assert SECOND_NS < rig.now_ns - cut_ns < 1_210 * MILLISECOND_NS
    assert statuses(rig) == [[RETRY], [RETRY]]


def test_work_after_the_peer_was_given_up(transport):
    """Both gave up; the cable is mended; the same key, and every slot, can be used again."""
    rig = make(transport, settings={"message_slots": 4})
    for number in range(4):
        rig.transfer((1, 2, number), 200 * CHUNK)
    rig.step_until(300_000)
    cut(rig, 0, 1)
    rig.finish(within_ns=2 * SECOND_NS)
    assert statuses(rig) == [[RETRY] * 4, [RETRY] * 4]
    rig.step_until(rig.now_ns + MILLISECOND_NS)  # what they said of it is lost, too
    for cable in rig.cables:
        cable.down = False
    for side in rig.sides:
        side.completions.clear()
        side.posted.clear()
        side.expected[:] = side.arena
    for number in range(4):
        rig.transfer((1, 2, number), 100 * CHUNK)
    rig.finish(within_ns=100 * MILLISECOND_NS)
    rig.quiesce()
    rig.check()


# ---------------------------------------------------------------- not ready, too long


@pytest.mark.parametrize("rnr_retry", [0, 3])
def test_a_receiver_that_is_never_ready(transport, rnr_retry):
    rig = make(transport, rnr_retry=rnr_retry)
    rig.pair.keep_sent()
    rig.sides[0].send(KEY, noise(1, LENGTH))
    rig.finish(within_ns=rnr_retry * DEFAULT_TIMING.t_max_ns + 10 * MILLISECOND_NS)
    assert statuses(rig) == [[NOT_READY], []]
    assert control_sent(rig, control.RNR) >= rnr_retry + 1
    assert rig.now_ns >= rnr_retry * DEFAULT_TIMING.t_max_ns
    assert untouched(rig)
    rig.quiesce()


def test_rnr_naks_during_a_pause_are_not_counted(transport):
    """They left before it: one pause, however many RNRs they bring."""
    rig = make(transport, rnr_retry=1)
    rig.cables[0].delay_ns, rig.cables[0].packet_time_ns = 5_000_000, 1_000_000
    rig.pair.keep_sent()
    data = noise(1, LENGTH)
    rig.sides[0].send(KEY, data)
    rig.step_until(20 * MILLISECOND_NS)
    assert control_sent(rig, control.RNR) > 3
    rig.sides[1].expect(rig.sides[1].receive(KEY, LENGTH), data)
    rig.finish(within_ns=SECOND_NS)
    rig.quiesce()
    rig.check()


@pytest.mark.parametrize("lost_words", [2])
@pytest.mark.parametrize("capacity", [0, LENGTH - 1])
def test_a_message_larger_than_the_receive(transport, capacity, lost_words):
    """The sender is told, nothing is written, and the receive takes a message that fits."""
    rig = make(transport)
    ControlLoss(rig, 1, lost_words, control.REFUSE)
    receive = rig.sides[1].receive(KEY, capacity)
    rig.sides[0].send(KEY, noise(1, LENGTH))
    assert rig.step_until(300 * MILLISECOND_NS, lambda: not rig.sides[0].outstanding)
    rig.step_until(rig.now_ns + 20 * MILLISECOND_NS)
    assert statuses(rig) == [[TOO_LONG], []]
    assert rig.counters(1)["rx_message_too_long"] >= 1
    assert untouched(rig)
    data = noise(2, capacity)
    rig.sides[1].expect(receive, data)
    rig.sides[0].send(KEY, data)
    rig.finish(within_ns=100 * MILLISECOND_NS)
    assert statuses(rig) == [[TOO_LONG, SUCCESS], [SUCCESS]]
    assert untouched(rig)
    rig.quiesce()


# ---------------------------------------------------------------- too many attempts


@pytest.mark.parametrize("fields", [{}, {"index_first": 3, "index_last": 3}])
@pytest.mark.parametrize("most", [2, DEFAULT_TIMING.most_attempts])
def test_a_packet_is_lost_as_often_as_may_be(transport, fields, most):
    """Every packet, so that the receive never begins; and one, so that it never ends.

    `mrc` doubles a timeout of four base RTTs up to 16 times that.
    """
    longest_ns = DEFAULT_TIMING.t_max_ns * (16 if transport == "mrc" else 1)
    rig = make(transport, most_attempts=most, settings=UNCODED)
    lose(rig, 0, kind=DATA, **fields)
    rig.transfer(KEY, 10 * CHUNK)
    rig.finish(within_ns=most * (longest_ns + 10 * MILLISECOND_NS))
    assert statuses(rig) == [[RETRY], [RETRY]]
    assert most <= rig.pair.totals(0)["lost"] <= (1 if fields else 10) * most
    rig.quiesce()


@pytest.mark.parametrize("lost_words", [20])
def test_that_a_send_has_failed_is_said_until_it_is_heard(transport, lost_words):
    rig = make(transport, most_attempts=2)
    sabotage = ControlLoss(rig, 0, lost_words, control.REFUSE)
    lose(rig, 0, kind=DATA)
    lose(rig, 0, kind=PARITY)
    rig.transfer(KEY, 10 * CHUNK)
    rig.finish(within_ns=SECOND_NS)
    assert statuses(rig) == [[RETRY], [RETRY]]
    assert sabotage.lost == lost_words
    rig.quiesce()


def test_refusals_that_a_peer_never_acknowledges_are_bounded(transport):
    """It is alive, so keepalives do not end them. As many are repeated as there are slots."""
    slots, rounds = 4, 5
    rig = make(transport, most_attempts=2, settings={"message_slots": slots, "framing": "ud"})
    lose(rig, 0, kind=DATA)
    lose(rig, 0, kind=PARITY)
    lose(rig, 0, kind=CONTROL, body=control.REFUSE)
    rig.sides[1].receive((9, 9, 9), 0)
    for at in range(rounds):
        for number in range(slots):
            rig.transfer((1, at, number), 1)
        assert rig.step_until(rig.now_ns + SECOND_NS, lambda: not rig.sides[0].outstanding)
    assert rig.sides[0].statuses() == [RETRY] * (slots * rounds)
    rig.step_until(rig.now_ns + 50 * MILLISECOND_NS)
    rig.pair.keep_sent()
    rig.step_until(rig.now_ns + 50 * MILLISECOND_NS)
    frames = [
        _native.decode_frame(frame, True) for _, side, frame in rig.pair.take_sent() if side == 0
    ]
    bodies = [each["payload"] for each in frames if each["kind"] == CONTROL]
    refused = {control.decode(bytes(body)).key for body in bodies if body[0] == control.REFUSE}
    assert refused == {(1, rounds - 1, number) for number in range(slots)}


def test_a_refusal_heard_before_the_receive_does_not_fail_it_later(transport):
    """A copy that comes late names a message that is over; the key's next receive is another's."""
    rig = make(transport)
    refused = control.Refused(5, KEY, by_receiver=False, status=int(RETRY))

    def say_it():
        rig.sides[0].endpoint.control(rig.sides[0].peer, control_bodies.encode(refused, 2008))
        rig.step_until(rig.now_ns + 5 * MILLISECOND_NS)

    say_it()
    rig.sides[1].receive(KEY, LENGTH)
    say_it()
    assert statuses(rig) == [[], []]
