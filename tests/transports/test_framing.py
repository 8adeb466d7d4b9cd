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
    ADDRESSES,
    CONTROL,
    DATA,
    MILLISECOND_NS,
    SECOND_NS,
    UNCODED,
    V6_ADDRESSES,
    PairRig,
    config,
    noise,
    threshold,
)
from tests.transports.sabotage import lose

MTU = 2048
PACKETS = 80
LENGTH = PACKETS * MTU - 7
UC = {"framing": "uc_immediate"}
RETRY = ibv_wc_status.IBV_WC_RETRY_EXC_ERR
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


def test_the_known_framings_are_told():
    assert _native.framing_names() == ["ud", "uc_immediate"]
    with pytest.raises(ValueError, match="unknown framing 'rc'; known: ud, uc_immediate"):
        _native.FrameEndpoint(config(1, framing="rc"), 1)


def test_a_packet_carries_a_whole_path_mtu_and_control_messages_do_not():
    endpoint = _native.FrameEndpoint(config(1, framing="uc_immediate", path_mtu=1024), 1)
    assert (endpoint.chunk_bytes, endpoint.control_bytes) == (1024, 984)
    endpoint = _native.FrameEndpoint(config(1, path_mtu=1024), 1)
    assert (endpoint.chunk_bytes, endpoint.control_bytes) == (984, 984)


def test_an_immediate_has_room_for_1024_messages():
    with pytest.raises(ValueError, match="at most 1024"):
        _native.FrameEndpoint(config(1, framing="uc_immediate", message_slots=2048), 1)


@pytest.mark.parametrize("addresses", [ADDRESSES, V6_ADDRESSES], ids=["ipv4", "ipv6"])
def test_nothing_is_lost_and_nothing_is_retransmitted(transport, addresses):
    rig = make(transport, addresses=addresses)
    for number, length in enumerate((0, 1, MTU, LENGTH)):
        rig.transfer((1, 2, number), length)
    rig.finish(2 * MILLISECOND_NS)
    rig.quiesce()
    rig.check()
    counters = rig.counters(0)
    assert counters["tx_data"] - counters["tx_parity"] == PACKETS + 3
    assert rig.counters(0)["tx_retransmitted"] == 0
    assert rig.sides[0].endpoint.peer_state(0).srtt_ns == 200_000


@pytest.mark.parametrize("framing", _native.framing_names())
@pytest.mark.parametrize("loss", [0.02, 0.1, 0.4])
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


def test_paths_are_used_alike(transport):
    rig = make(transport, paths=4, **UNCODED)
    rig.pair.keep_sent()
    rig.transfer((1, 2, 3), LENGTH)
    rig.finish()
    ports = [int.from_bytes(frame[34:36], "big") for _, _, frame in rig.pair.take_sent()
             if frame[42] == 0x2B]  # fmt: skip
    assert [ports.count(0xC000 + path) for path in range(4)] == [PACKETS // 4] * 4


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


@pytest.mark.parametrize("seed", range(60))
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


def test_a_receive_waits_for_its_send():
    """Its clearance is said again, ever more rarely, and known when the send is posted."""
    rig = make()
    receive = rig.sides[1].receive((1, 2, 3), LENGTH)
    rig.step_until(2 * SECOND_NS)
    assert 5 <= rig.counters(1)["tx_clear"] <= 20
    data = noise(1, LENGTH)
    rig.sides[1].expect(receive, data)
    rig.sides[0].send((1, 2, 3), data)
    rig.finish(2 * MILLISECOND_NS)
    rig.check()


@pytest.mark.parametrize("most", [1, 3])
def test_clearances_that_are_lost_are_said_again(most):
    rig = make()
    lose(rig, 1, kind=CONTROL, limit=most)
    rig.transfer((1, 2, 3), LENGTH)
    rig.finish(SECOND_NS)
    rig.check()
    assert 1 < rig.counters(1)["tx_clear"] <= most + 1
    assert rig.counters(0)["rx_clear"] == 1


def test_more_receives_are_posted_than_there_are_slots():
    rig = make(message_slots=2)
    data = [noise(each, LENGTH) for each in range(9)]
    for number, each in enumerate(data):
        rig.sides[1].expect(rig.sides[1].receive((1, 2, number), LENGTH), each)
    for number, each in enumerate(data):
        rig.sides[0].send((1, 2, number), each)
        rig.step_until(SECOND_NS, lambda: rig.sides[0].outstanding == 0)
    rig.finish(SECOND_NS)
    rig.check()


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


@pytest.mark.parametrize("capacity", [LENGTH - 1, LENGTH + 1, 0])
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


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("when", ["at once", "in mid transfer"])
@pytest.mark.parametrize("directions", [(0,), (1,), (0, 1)], ids=["there", "back", "both"])
def test_total_loss_ends_in_error_at_both_ends(transport, directions, when):
    rig = make(transport)
    if when != "at once":
        rig.transfer((1, 2, 2), LENGTH)
        rig.transfer((1, 2, 3), 100 * LENGTH // 10)
        rig.step_until(300_000, lambda: rig.counters(1)["rx_data"] > 0)
    for direction in directions:
        rig.cables[direction].down = True
    rig.transfer((1, 2, 4), LENGTH)
    rig.finish(5 * SECOND_NS)
    rig.quiesce()
    assert RETRY in rig.sides[0].statuses()
    assert RETRY in rig.sides[1].statuses()
    assert {*all_statuses(rig)} <= {0, RETRY}


def test_all_data_lost_for_ever_ends_in_error_though_the_peer_is_alive(transport):
    rig = make(transport)
    lose(rig, 0, kind=DATA)
    rig.transfer((1, 2, 3), 5 * MTU)
    rig.finish(20 * SECOND_NS)
    assert all_statuses(rig) == [RETRY] * 2


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


def test_a_late_packet_has_its_message_acknowledged_again():
    """The sender's slot stays in use until it knows, though the receiver's is another's."""
    rig = make(message_slots=1)
    lose(rig, 1, kind=CONTROL, message=1)  # the first acknowledgement
    rig.sides[1].expect(rig.sides[1].receive((1, 2, 0), MTU), noise(1, MTU))
    rig.sides[1].expect(rig.sides[1].receive((1, 2, 1), MTU), noise(2, MTU))
    rig.sides[0].send((1, 2, 0), noise(1, MTU))
    assert rig.step_until(SECOND_NS, lambda: not rig.sides[0].outstanding)
    rig.sides[0].send((1, 2, 1), noise(2, MTU))
    rig.finish(SECOND_NS)
    rig.check()
