# SPDX-License-Identifier: GPL-2.0-or-later
"""Selective repeat packet by packet, on the pair: what no other transport does.

What it shares with all sessions is in tests/transports.
"""

import dataclasses
import random

import pytest

from softroce_lab import _native
from softroce_lab.dissect.description import PACKET_ACK, PACKET_PULL
from softroce_lab.errors import ibv_wc_status
from softroce_lab.experiment.hosts.report import taken
from softroce_lab.transports import control, registry
from softroce_lab.transports.defaults import DEFAULT_TIMING
from tests import control_bodies
from tests.native.by_hand import BASE_RTT_NS, CHUNK, MTU, RTO_HIGH_NS, ByHand, fast_timing
from tests.transports.pair_rig import (
    ADDRESSES,
    CONTROL,
    DATA,
    MILLISECOND_NS,
    SECOND_NS,
    PairRig,
    config,
    noise,
    threshold,
)
from tests.transports.sabotage import lose

KEY = (1, 2, 3)
RETRY = ibv_wc_status.IBV_WC_RETRY_EXC_ERR
LONGEST_LIFE_NS = 200 * MILLISECOND_NS  # 40 timeouts of 16 * 320 us, nearly


@pytest.fixture(
    params=("irn", "srnic", "rack_tlp", "falcon", "uet_rud", "uet_rod", "mrc", "dcp", "ndp", "uccl")
)
def transport(request):
    return request.param


def timer_ns(transport):
    """No timer without backing off is longer."""
    long_ms = {"dcp": 8, "ndp": 20, "uccl": 2}
    return long_ms.get(transport, 0) * MILLISECOND_NS or RTO_HIGH_NS


def answers_each(transport):
    """Settings with which a receiver that coalesces feedback answers each packet."""
    options = registry.find(transport).engine()["options"]
    each = {"coalesced_packets": 1, "acknowledged_bytes": 0}
    return {"options": options | {name: each[name] for name in options if name in each}}


def rig_of(transport, **settings):
    rig = PairRig(transport, **{"path_mtu": MTU, "initial_rtt_ns": BASE_RTT_NS, **settings})
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 10_000, 100
    return rig


def test_the_registry_names_them_all():
    named = [each.name for each in _native.transports()]
    assert named == sorted(named)
    assert sorted([*named, "lossless"]) == registry.known(registry.Kind.SESSION)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        ValueError, match="unknown transport 'tcp'; known: policy, csa_ud, dcp, falcon, irn, mrc"
    ):
        _native.Pair(*(config(each, transport="tcp") for each in ADDRESSES), 1)


# ---------------------------------------------------------------- exactly once


@pytest.mark.parametrize("block", range(1))
def test_all_arrives_exactly_once_whatever_the_network_does(transport, block):
    for seed in range(12 * block, 12 * block + 12):
        rng = random.Random(seed)
        rig = rig_of(
            transport,
            seed=seed,
            window_packets=rng.choice((1, 2, 7, 64)),
            message_slots=rng.choice((8, 64)),
            paths=rng.randint(1, 8),
            options={"path_picker": rng.choice(_native.path_picker_names())},
            first_message_id=rng.choice((0, 2**32 - 2, 2**31 - 2)),
        )
        for cable in rig.cables:
            cable.loss = threshold(rng.choice((0, 0.01, 0.1, 0.3)))
            cable.duplicate = threshold(rng.choice((0, 0.05, 0.5)))
            cable.corrupt = threshold(rng.choice((0, 0, 0.05)))
            cable.jitter_ns = rng.choice((0, 5_000, 100_000))
        for number in range(rng.randint(1, 6)):
            length = rng.choice((0, 1, CHUNK - 1, CHUNK, 70 * CHUNK + 3, rng.randrange(40_000)))
            rig.transfer((1, 2, number), length, sender=rng.randrange(2))
        try:
            rig.finish()
            rig.check()
            rig.quiesce()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("kind", [DATA, CONTROL])
def test_the_loss_of_the_tail_or_of_its_answer_is_found(transport, kind):
    rig = rig_of(transport)
    tail = {"index_first": 9} if kind == DATA else {}
    answers = 20 if transport == "ndp" else 10  # and pulls
    lose(rig, 0 if kind == DATA else 1, kind=kind, limit=1 if kind == DATA else answers, **tail)
    rig.transfer(KEY, 10 * CHUNK)
    rig.finish()
    rig.check()
    assert rig.counters(0)["tx_retransmitted"] >= 1
    assert rig.now_ns < timer_ns(transport) + 2 * MILLISECOND_NS


# ---------------------------------------------------------------- work that waits, or fails


def test_an_rnr_nak_does_not_wait_for_acknowledgements(transport):
    """A receiver at line rate has acknowledgements waiting until the data ends."""
    talk = ByHand.begun(transport, 5, **answers_each(transport))
    key = talk.sender.register_memory(talk.data.ctypes.data, CHUNK, 0)
    talk.sender.post_send(0, (1, 2, 4), key, 0, CHUNK, 1)
    data = [each for each in talk.out(talk.sender) if each.is_data]
    out = talk.deliver(talk.receiver, *data)
    kinds = [each.body[0] for each in out if each.body[0] != PACKET_PULL]
    assert kinds == [control.RNR] + [PACKET_ACK] * 5


def test_a_receive_that_began_ends_though_its_sender_forgot_it(transport):
    """The sender's flush tells nobody; the receiver asks."""
    rig = rig_of(transport)
    rig.transfer(KEY, 200 * CHUNK)
    rig.step_until(14_000)
    rig.sides[0].endpoint.flush_messages()
    rig.finish(within_ns=LONGEST_LIFE_NS)
    assert rig.sides[1].statuses() == [RETRY]


@pytest.mark.parametrize("late_ns", [50_000, 50 * MILLISECOND_NS, 2 * SECOND_NS])
def test_a_send_waits_for_its_receive(transport, late_ns):
    rig = rig_of(transport)
    data = noise(1, 50 * CHUNK)
    rig.sides[0].send(KEY, data)
    rig.step_until(late_ns)
    rig.sides[1].expect(rig.sides[1].receive(KEY, data.size), data)
    rig.finish()
    rig.check()
    assert rig.now_ns - late_ns < min(late_ns + MILLISECOND_NS, 41 * MILLISECOND_NS)
    assert rig.counters(1)["rx_no_recv"] <= 140  # a window, then one more try at a time


def test_an_rnr_nak_is_older_than_what_has_arrived(transport):
    """It was overtaken: the send goes on, though it may not wait for a receive even once."""
    timing = dataclasses.replace(DEFAULT_TIMING, rnr_retry=0)
    rig = rig_of(transport, timing=timing, window_packets=4)
    send = rig.transfer(KEY, 1000 * CHUNK)
    rig.step_until(50_000)
    rig.sides[1].endpoint.control(0, control_bodies.encode(control.Rnr(0, send.key), CHUNK))
    rig.finish()
    rig.check()


def test_decisions_are_about_their_messages(transport):
    """Each pause ends with the answer on its own message, no matter what was decided before."""
    rig = rig_of(transport)
    sender = rig.sides[0].endpoint
    sender.record_decisions()
    for number in (7, 8):
        rig.sides[0].send((1, 2, number), noise(1, 5 * CHUNK))
    rig.step_until(MILLISECOND_NS)
    for number in (8, 7):
        rig.sides[1].receive((1, 2, number), 5 * CHUNK)
    rig.finish()
    pauses = [row for row in taken([sender]) if _native.DECISIONS[row["kind"]] == "pause"]
    assert [row["message"] for row in pauses] == [7, 8, 8, 7]


def paused(transport, packets):
    """A sender that was told that its receiver is not ready."""
    talk = ByHand(transport, packets)
    talk.post_send()
    (rnr,) = talk.answers(*talk.data_out().values())
    assert talk.deliver(talk.sender, rnr) == []
    return talk


def test_what_is_lost_after_a_pause_is_retransmitted_after_a_timeout(transport):
    """Not after the time that the pause might have lasted."""
    talk = paused(transport, 6)
    talk.post_receive()
    again = talk.deliver(talk.sender, *talk.out(talk.receiver))
    assert [each.reported["index"] for each in again] == [0, 1, 2, 3, 4, 5]  # all lost
    sent_ns = talk.now_ns
    assert 0 in talk.retransmitted_at(sent_ns + timer_ns(transport))


def test_what_was_sent_again_before_a_pause_is_sent_again_after_it(transport):
    """The receiver refused that, too."""
    talk = ByHand(transport, 4)
    talk.post_send()
    talk.data_out()  # all lost
    assert 0 in talk.retransmitted_at(talk.now_ns + 2 * timer_ns(transport))
    (rnr,) = talk.answers(*talk.latest.values())[:1]
    talk.deliver(talk.sender, rnr)
    talk.post_receive()
    again = talk.deliver(talk.sender, *talk.out(talk.receiver))
    assert sorted(each.reported["index"] for each in again) == [0, 1, 2, 3]


def test_progress_ends_the_backoff(transport):
    if transport.startswith("uet_"):
        pytest.skip("each packet has its own back-off")
    talk = ByHand.begun(transport, 8, timing=fast_timing(), **answers_each(transport))
    talk.data_out()
    for _ in range(6):
        assert 0 in talk.retransmitted_at(talk.now_ns + 16 * timer_ns(transport))
    talk.deliver(talk.sender, *talk.answers(talk.latest[0]))
    heard_ns = talk.now_ns
    assert 1 in talk.retransmitted_at(heard_ns + timer_ns(transport))


# ---------------------------------------------------------------- hostile control messages


def packet_ack(id_=0, cumulative=0, stamp=1, *more):
    """A well-formed acknowledgement; `more`: (bytes, value) of each field behind."""
    kind = {0: 16, 1: 17, 2: 18}[len(more)]
    fields = [(4, id_), (4, cumulative), (4, stamp), *more]
    return bytes([kind]) + b"".join(value.to_bytes(size, "big") for size, value in fields)


REFUSED_BODIES = {
    "empty": b"",
    "unknown type": b"\x63",
    "a policy's NACK": b"\x01" + bytes(40),
    "short": packet_ack()[:-1],
    "long": packet_ack() + b"\0",
    "more than was sent": packet_ack(0, 11),
    "a stamp of the future": packet_ack(0, 1, 2**30),
    "a NACK of a packet never sent": packet_ack(0, 0, 1, (4, 10)),
    "a NACK of a packet in order": packet_ack(0, 5, 1, (4, 4)),
    "a NACK of packet 2^32 - 1": packet_ack(0, 0, 1, (4, 2**32 - 1)),
    "a SACK of nothing": packet_ack(0, 0, 1, (4, 0), (8, 0)),
    "a SACK with an odd base": packet_ack(0, 0, 1, (4, 1), (8, 4)),
    "a SACK beyond the end": packet_ack(0, 0, 1, (4, 0), (8, 1 << 10)),
    "a SACK at 2^32 - 64": packet_ack(0, 0, 1, (4, 2**32 - 64), (8, 1 << 63)),
    "a REFUSE with success": b"\x06" + bytes(14),
    "a REFUSE by nobody": b"\x06" + bytes(12) + b"\x02\x0c",
}


@pytest.mark.parametrize("name", REFUSED_BODIES)
def test_what_makes_no_sense_is_refused(transport, name):
    talk = ByHand(transport, 10)
    talk.post()
    assert len(talk.data_out()) == 10
    talk.receiver.control(0, REFUSED_BODIES[name])
    answers = talk.deliver(talk.sender, *talk.out(talk.receiver))
    assert answers == []
    counters = talk.sender.counters()
    assert counters["rx_bad_control"] == 1
    assert talk.statuses() == ([], [])


def test_random_bodies_do_no_harm_that_lies_cannot_do(transport):
    """Whatever a peer says: all ends, in silence, after few packets; other memory stays."""
    for seed in range(12):
        rng = random.Random(seed)
        rig = rig_of(
            transport, seed=seed, timing=dataclasses.replace(DEFAULT_TIMING, most_attempts=5)
        )
        rig.transfer(KEY, 100 * CHUNK)
        rig.transfer((1, 2, 4), 30 * CHUNK, sender=1)
        for _ in range(60):
            rig.step_until(rig.now_ns + 1_000)
            kind = rng.choice((3, 5, 6, 7, 16, 17, 18, rng.randrange(256)))
            size = {3: 4, 5: 12, 6: 14, 7: 12, 16: 12, 17: 16, 18: 24}.get(kind, rng.randrange(40))
            body = bytes(rng.choice((0, 0, 0, 1, rng.randrange(256))) for _ in range(size))
            side = rig.sides[rng.randrange(2)].endpoint
            side.control(0, bytes([kind]) + body)
        rig.finish(within_ns=LONGEST_LIFE_NS)
        rig.quiesce()
        for side in rig.sides:
            assert len(side.completions) == len(side.posted)
            for each in side.completions:  # guard zones and what is not received stay as they were
                posted = side.posted[each.wr_id]
                span = slice(posted.offset, posted.offset + posted.length)
                side.expected[span] = side.arena[span]
            assert (side.arena == side.expected).all()
        assert rig.packets() < 5_000
