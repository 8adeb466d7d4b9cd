# SPDX-License-Identifier: GPL-2.0-or-later
"""Framing and recovery are seams: every policy over UC WRITEs with immediate, `sdr_sr` over both.

What only the framing uc_immediate has is here, too: sends that wait for their receives, matching by
order, slots that are used again, generations.
"""

import random

import pytest

from softroce_lab import _native
from softroce_lab.errors import ibv_wc_status
from softroce_lab.transports import registry
from tests.transports.pair_rig import (
    CONTROL,
    MILLISECOND_NS,
    SECOND_NS,
    PairRig,
    noise,
    threshold,
)
from tests.transports.sabotage import lose

MTU = 2048
PACKETS = 80
LENGTH = PACKETS * MTU - 7
UC = {"framing": "uc_immediate"}
INVALID = ibv_wc_status.IBV_WC_REM_INV_REQ_ERR


POLICIES = [
    name
    for name in registry.transports(registry.Kind.SESSION)
    if "uc_immediate" in registry.find(name).framings
]


@pytest.fixture(params=POLICIES)
def transport(request):
    return request.param


def make(transport="sdr_sr", **settings):
    """A rig whose packets take 0.1 ms one way and leave 1 us apart."""
    rig = PairRig(transport, **(UC | settings))
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 100_000, 1_000
    return rig


def all_statuses(rig):
    return [status for side in rig.sides for status in side.statuses()]


# ---------------------------------------------------------------- the seam


@pytest.mark.parametrize("framing", _native.framing_names())
@pytest.mark.parametrize("loss", [0.02, 0.4])
def test_every_policy_recovers_over_either_framing(transport, framing, loss):
    rig = make(transport, seed=3, framing=framing)
    for cable in rig.cables:
        cable.loss, cable.duplicate = threshold(loss), threshold(0.05)
        cable.jitter_ns = 300_000
    for number in range(6):
        rig.transfer((1, 2, number), LENGTH, sender=number % 2)
    rig.finish()
    rig.quiesce()
    rig.check()
    assert rig.counters(0)["tx_retransmitted"] > 0


# ---------------------------------------------------------------- random schedules


def schedule(seed):
    """Random cables, settings and messages; in steps, each of which reuses slots of the last."""
    rng = random.Random(seed)
    rig = PairRig(
        rng.choice(POLICIES),
        seed=seed,
        framing="uc_immediate",
        path_mtu=rng.choice((256, 1024, 4096)),
        paths=rng.randint(1, 16),
        window_packets=rng.choice((1, 2, 7, 64, 1024)),
        receive_ring_packets=rng.choice((2, 64, 2048)),
        report_every_packets=rng.choice((1, 8, 64)),
        message_slots=rng.choice((1, 2, 4, 64)),
        first_message_id=rng.choice((0, 2**31 - 1, 2**32 - 1, rng.getrandbits(32))),
    )
    for cable in rig.cables:
        cable.loss = threshold(rng.choice((0, 0.01, 0.1, 0.3)))
        cable.duplicate = threshold(rng.choice((0, 0.05, 0.5)))
        cable.corrupt = threshold(rng.choice((0, 0, 0.05)))
        cable.delay_ns = rng.choice((0, 1_000, 100_000, 2_000_000))
        cable.jitter_ns = rng.choice((0, 20_000, 300_000, 3_000_000))
        cable.packet_time_ns = rng.choice((0, 200, 20_000))
    return rng, rig


@pytest.mark.parametrize("seed", range(15))
def test_any_schedule_ends_in_delivery(seed):
    rng, rig = schedule(seed)
    slots = rig.sides[0].endpoint.message_slots
    chunk = rig.sides[0].endpoint.chunk_bytes
    both = rng.random() < 0.5
    for step in range(rng.choice((3, 10))):
        for number in range(rng.randint(1, min(slots, 4))):
            length = rng.choice((0, 1, chunk, chunk + 1, rng.randint(1, 70) * chunk + 3))
            rig.transfer((1, step, number), length, sender=rng.randrange(2) if both else 0)
        rig.finish(20 * SECOND_NS)
    rig.quiesce()
    rig.check()


# ---------------------------------------------------------------- clearances


@pytest.mark.parametrize("name", ["sdr_sr", "ud_rto"])
def test_a_send_waits_for_its_receive(name):
    rig = make(name)
    data = noise(1, LENGTH)
    rig.sides[0].send((1, 2, 3), data)
    rig.step_until(100 * MILLISECOND_NS)
    assert rig.counters(0)["tx_data"] == 0
    rig.sides[1].expect(rig.sides[1].receive((1, 2, 3), LENGTH), data)
    rig.finish(60 * MILLISECOND_NS)
    rig.check()
    assert rig.counters(0)["tx_data"] == PACKETS
    assert rig.counters(1)["rx_no_recv"] == 0


@pytest.mark.parametrize("most", [1, 3])
def test_clearances_that_are_lost_are_said_again(most):
    rig = make()
    lose(rig, 1, kind=CONTROL, limit=most)
    rig.transfer((1, 2, 3), LENGTH)
    rig.finish(SECOND_NS)
    rig.check()
    assert 1 < rig.counters(1)["tx_clear"] <= most + 1
    assert rig.counters(0)["rx_clear"] == 1


def test_sends_meet_receives_in_the_order_of_posting():
    """A key is a name that both sides check, not what matches them."""
    rig = make()
    for key in ((1, 2, 0), (1, 2, 1)):
        rig.sides[1].receive(key, LENGTH)
    for key in ((1, 2, 1), (1, 2, 0)):
        rig.sides[0].send(key, noise(1, LENGTH))
    rig.finish(SECOND_NS)
    assert all_statuses(rig) == [INVALID] * 4
    assert rig.counters(0)["tx_data"] == 0
    assert (rig.sides[1].arena == rig.sides[1].expected).all()


@pytest.mark.parametrize("capacity", [LENGTH - 1, LENGTH + 1])
def test_a_receive_of_another_length_fails_both(transport, capacity):
    rig = make(transport)
    rig.transfer((1, 2, 3), LENGTH, capacity=capacity)
    rig.finish(SECOND_NS)
    rig.quiesce()
    assert all_statuses(rig) == [INVALID] * 2
    rig.transfer((1, 2, 4), LENGTH)  # and what comes after goes well
    rig.finish(SECOND_NS)
    assert all_statuses(rig)[1:] == [0, INVALID, 0]


def test_a_message_has_at_most_as_many_packets_as_an_offset_can_tell():
    rig = make(path_mtu=256, carries_payload=False)
    for which, most in ((0, 256 << 18), (1, 256 << 18)):
        endpoint = rig.sides[which].endpoint
        post = endpoint.post_send if which == 0 else endpoint.post_receive
        post(0, (1, 2, 3), 0, 0, most, 1)
        assert endpoint.poll_completions() == []
        post(0, (1, 2, 4), 0, 0, most + 1, 2)
        (refused,) = endpoint.poll_completions()
        assert ibv_wc_status(refused.status) == ibv_wc_status.IBV_WC_LOC_QP_OP_ERR


# ---------------------------------------------------------------- generations


def test_late_packets_of_earlier_uses_of_a_slot_are_told_and_write_nothing():
    """One slot, used fourteen times; half of the packets come again up to 3 ms later."""
    rig = make(message_slots=1)
    rig.cables[0].duplicate, rig.cables[0].jitter_ns = threshold(0.5), 3 * MILLISECOND_NS
    for number in range(14):
        rig.transfer((1, 2, number), 3 * MTU)
        rig.step_until(rig.now_ns + SECOND_NS, lambda: not rig.sides[0].outstanding)
    rig.finish(SECOND_NS)
    rig.quiesce()
    rig.check()
    assert rig.counters(1)["rx_stale_generation"] > 3
    assert rig.counters(1)["rx_placed"] == 14 * 3
