# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets that are late by a whole turn of the messages' names never write user memory.

A name repeats: (slot, generation) of the framing uc_immediate after 64 uses of a slot, an id of the
framing ud after 2^32 messages. No name is used again within a packet's lifetime; sends wait.
"""

import pytest

from softroce_lab.transports import registry
from tests.transports.pair_rig import MILLISECOND_NS, SECOND_NS, PairRig, noise

PACKETS = 12
LENGTH = PACKETS * 2048 - 7
LATE_NS, LIFETIME_NS = 200 * MILLISECOND_NS, 300 * MILLISECOND_NS
SLOTS, GENERATIONS = 2, 64
EIGHTH = 1 << 29
KEY = (1, 0, 0)


def make(transport, framing, lifetime_ns, **settings):
    rig = PairRig(
        transport,
        framing=framing,
        packet_lifetime_ns=lifetime_ns,
        arena_bytes=1 << 23,
        **settings,
    )
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 10_000, 100
    return rig


def transfer_with_late_copies(rig, key):
    """A message whose first transmissions arrive `LATE_NS` later than their repetitions."""
    rig.cables[0].delay_ns = LATE_NS
    rig.transfer(key, LENGTH)
    rig.step_until(rig.now_ns + 100_000)
    assert rig.counters(0)["tx_data"] >= PACKETS
    assert rig.counters(1)["rx_data"] == 0
    rig.cables[0].delay_ns = 10_000
    rig.finish(LATE_NS // 2)
    assert rig.counters(1)["rx_duplicate"] == 0  # they are on their way


def late_arrivals(rig):
    counters = rig.counters(1)
    return counters["rx_stale_generation"] + counters["rx_duplicate"] + counters["rx_late_parity"]


# ---------------------------------------------------------------- uc_immediate


def slots_used_again(transport, lifetime_ns):
    """Every slot is used 64 times, then the first name again, while its late packets arrive."""
    rig = make(transport, "uc_immediate", lifetime_ns, message_slots=SLOTS)
    transfer_with_late_copies(rig, KEY)
    for step in range(1, GENERATIONS * SLOTS):
        rig.transfer((1, step, 0), 2048)
        rig.finish(LATE_NS)
    assert rig.now_ns < LATE_NS
    data = noise(5, LENGTH)
    key = (1, GENERATIONS * SLOTS, 0)  # the same bits of the user's immediate as the first
    rig.sides[1].expect(rig.sides[1].receive(key, LENGTH), data)
    rig.step_until(LATE_NS + 2 * MILLISECOND_NS)
    rig.sides[0].send(key, data)
    rig.finish(SECOND_NS)
    return rig


@pytest.mark.parametrize("transport", ["sdr_ec", "sdr_sr", "csa_ud", "ud_rto"])
def test_a_slot_and_generation_wait_for_packets_of_their_last_use(transport):
    rig = slots_used_again(transport, LIFETIME_NS)
    assert rig.now_ns > LIFETIME_NS
    assert rig.counters(1)["rx_name_waits"] == 1
    assert late_arrivals(rig) >= PACKETS
    rig.quiesce()
    rig.check()


def test_without_the_wait_such_a_packet_would_be_taken():
    """The mistake that the test above is about: it does corrupt memory."""
    rig = slots_used_again("sdr_sr", 0)
    with pytest.raises(AssertionError, match=r"bytes wrong|completions"):
        rig.check()


def test_receives_that_wait_for_a_name_keep_their_order():
    rig = make("sdr_sr", "uc_immediate", LIFETIME_NS, message_slots=1)
    steps = range(3 * GENERATIONS + 5)
    for step in steps:
        rig.sides[1].expect(
            rig.sides[1].receive((1, step, 0), 2048 + step), noise(step, 2048 + step)
        )
    for step in steps:
        rig.sides[0].send((1, step, 0), noise(step, 2048 + step))
        rig.step_until(rig.now_ns + SECOND_NS, lambda: rig.sides[0].outstanding == 0)
    rig.finish()
    rig.check()
    assert 2 * LIFETIME_NS < rig.now_ns < 4 * LIFETIME_NS
    assert rig.counters(1)["rx_name_waits"] >= 3


# ---------------------------------------------------------------- ud


def ids_used_again(transport, lifetime_ns):
    """A turn of the ids, one message in each eighth of it; then the first id again, by its key."""
    rig = make(transport, "ud", lifetime_ns)
    transfer_with_late_copies(rig, KEY)
    receive = rig.sides[1].receive(KEY, LENGTH)
    rig.step_until(rig.now_ns + 10 * MILLISECOND_NS)
    for eighth in range(1, 8):
        rig.sides[0].endpoint.set_next_message_id(0, eighth * EIGHTH)
        rig.transfer((1, eighth, 0), LENGTH)
        rig.step_until(rig.now_ns + SECOND_NS, lambda: rig.sides[0].outstanding == 0)
    rig.step_until(LATE_NS + 10 * MILLISECOND_NS)
    rig.sides[0].endpoint.set_next_message_id(0, 0)
    data = noise(5, LENGTH)
    rig.sides[1].expect(receive, data)
    rig.sides[0].send(KEY, data)
    rig.finish(5 * SECOND_NS)
    return rig


@pytest.mark.parametrize("transport", ["csa_ud", "ud_rto", "sdr_ec", "sdr_auto", "irn"])
def test_an_id_waits_for_packets_that_would_be_taken_for_newer_ones(transport):
    rig = ids_used_again(transport, LIFETIME_NS)
    assert rig.now_ns > LIFETIME_NS
    assert rig.counters(0)["tx_name_waits"] >= 1
    assert late_arrivals(rig) >= PACKETS
    if transport in registry.transports(registry.Kind.SESSION):
        rig.quiesce()
    rig.check()


def test_without_the_wait_a_late_packet_would_open_a_newer_message():
    rig = ids_used_again("ud_rto", 0)
    with pytest.raises(AssertionError, match=r"bytes wrong|completions"):
        rig.check()
