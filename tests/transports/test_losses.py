# SPDX-License-Identifier: GPL-2.0-or-later
"""Losses by name, each over both transports: all end in delivery, with the right bytes once."""

import pytest

from softroce_lab.transports import control, registry
from softroce_lab.transports.defaults import DEFAULT_TIMING
from tests.transports.pair_rig import (
    DATA,
    MILLISECOND_NS,
    SECOND_NS,
    UNCODED,
    PairRig,
    threshold,
)
from tests.transports.sabotage import ControlLoss, lose

CHUNK = 2048 - 40
PACKETS = 40
LENGTH = PACKETS * CHUNK - 7
ONE_WAY_NS = 100_000


@pytest.fixture(params=registry.transports(registry.Kind.SESSION))
def transport(request):
    return request.param


def make(transport, **settings):
    """A rig whose packets take 0.1 ms one way and leave 1 us apart."""
    rig = PairRig(transport, **settings)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = ONE_WAY_NS, 1_000
    return rig


def deliver(rig, *lengths, within_ns=SECOND_NS):
    """Transfer messages of these lengths; all have to arrive, and silence has to follow."""
    for number, length in enumerate(lengths):
        rig.transfer((1, 2, number), length)
    rig.finish(within_ns)
    rig.quiesce()
    rig.check()


def lost(rig):
    return rig.pair.totals(0)["lost"] + rig.pair.totals(1)["lost"]


# ---------------------------------------------------------------- data


@pytest.mark.parametrize("index", [0, PACKETS - 1])
def test_one_packet(transport, index):
    rig = make(transport, **UNCODED)
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=index, index_last=index)
    deliver(rig, LENGTH, within_ns=30 * MILLISECOND_NS)
    assert lost(rig) == 1
    assert rig.counters(0)["tx_retransmitted"] >= 1


@pytest.mark.parametrize("k", [2, PACKETS])
def test_the_last_k_packets(transport, k):
    rig = make(transport, **UNCODED)
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=PACKETS - k)
    deliver(rig, LENGTH, within_ns=60 * MILLISECOND_NS)
    assert lost(rig) == k
    assert k <= rig.counters(0)["tx_retransmitted"] <= PACKETS


@pytest.mark.parametrize("length", [0, LENGTH])
def test_every_packet_of_a_messages_first_attempt(transport, length):
    rig = make(transport, **UNCODED)
    lose(rig, 0, kind=DATA, attempt_last=0)
    deliver(rig, length, within_ns=60 * MILLISECOND_NS)
    assert lost(rig) == max(1, -(-length // CHUNK))


# ---------------------------------------------------------------- control messages and reports


@pytest.mark.parametrize("most", [5])
def test_bitmaps(most):
    """Of a message that takes 8 ms to send: the receiver tells each millisecond."""
    rig = make("ud_rto")
    rig.cables[0].packet_time_ns = 200_000
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=0, index_last=2)
    sabotage = ControlLoss(rig, 1, most, control.SACK)
    deliver(rig, LENGTH, within_ns=200 * MILLISECOND_NS)
    assert sabotage.lost == most


@pytest.fixture
def of_messages(transport):
    """One that acknowledges messages, not packets."""
    if transport in (
        "irn",
        "srnic",
        "rack_tlp",
        "falcon",
        "uet_rud",
        "uet_rod",
        "mrc",
        "dcp",
        "ndp",
        "uccl",
    ):
        pytest.skip("it acknowledges each packet")
    return transport


@pytest.mark.parametrize("messages", [20])
@pytest.mark.parametrize("most", [4])
def test_every_acknowledgement_of_a_batch(of_messages, messages, most):
    """More messages than a batch holds, too; sent again with the next, and that is lost, too."""
    rig = make(of_messages)
    sabotage = ControlLoss(rig, 1, most, control.ACK)
    deliver(rig, *[3 * CHUNK] * messages, within_ns=200 * MILLISECOND_NS)
    assert sabotage.lost == lost(rig) == most


# ---------------------------------------------------------------- random loss, blackout, grey path


@pytest.mark.full("thirty-percent")
def test_thirty_percent_in_each_direction(transport, full):
    """30 % lost end to end in each direction: all is delivered; 3 seeds, in full 5,000."""
    for seed in range(5_000 if full else 3):
        rig = make(transport, seed=seed)
        for cable in rig.cables:
            cable.loss = threshold(0.3)
        lengths = (0, 1, CHUNK, 10 * CHUNK, 70 * CHUNK, 500 * CHUNK + 1)
        try:
            deliver(rig, *lengths, within_ns=2 * SECOND_NS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("directions", [(0,), (0, 1)])
def test_a_blackout_of_300_ms(transport, directions):
    rig = make(transport)
    rig.transfer((1, 2, 3), 500 * CHUNK)
    rig.step_until(300_000)
    assert rig.counters(1)["rx_placed"] > 0
    for direction in directions:
        rig.cables[direction].down = True
    rig.step_until(300 * MILLISECOND_NS)
    for cable in rig.cables:
        cable.down = False
    rig.finish(within_ns=100 * MILLISECOND_NS)
    rig.quiesce()
    rig.check()


def grey(rig, path):
    """Lose half of the packets on this path: every other group of eight of a message."""
    for first in range(0, 400, 16):
        lose(rig, 0, kind=DATA, path=path, index_first=first, index_last=first + 7)


def test_a_grey_path(of_messages):
    rig = make(of_messages, arena_bytes=1 << 23)
    grey(rig, 3)
    lost_by = []
    for number in range(12):
        before = lost(rig)
        rig.transfer((1, 2, number), 200 * CHUNK)
        rig.finish()
        lost_by.append(lost(rig) - before)
    rig.check()
    assert lost_by[0] >= 10  # of 25 packets on it
    if of_messages == "csa_ud":
        assert sum(lost_by[1:]) == 0, "it did not get another source port"
        left = rig.sides[0].figures()["paths_left"][rig.sides[0].peer]
        assert left == [0, 0, 0, 1, 0, 0, 0, 0]


# ---------------------------------------------------------------- duplication, ids that wrap


@pytest.mark.parametrize("jitter_ns", [0, 2_000_000])
def test_every_packet_arrives_twice(transport, jitter_ns):
    rig = make(transport, paths=4, **UNCODED)
    for cable in rig.cables:
        cable.duplicate, cable.jitter_ns = threshold(1), jitter_ns
    deliver(rig, *[LENGTH] * 5, within_ns=SECOND_NS)
    assert rig.counters(1)["rx_placed"] == 5 * PACKETS
    assert rig.counters(1)["rx_duplicate"] >= 5 * PACKETS


@pytest.mark.parametrize("slots", [1, 1024])
@pytest.mark.parametrize("first_id", [2**32 - 3])
def test_ids_wrap(transport, first_id, slots):
    """Ids pass 2**32, and 2**31, where signed ones would; each slot is used again."""
    rig = make(transport, first_message_id=first_id, message_slots=slots)
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=3)
    for number in range(12):
        rig.transfer((1, 2, number % 2), 10 * CHUNK)
        rig.finish()
    rig.quiesce()
    rig.check()


# ---------------------------------------------------------------- honest skew


def most_control(over_ns):
    """Control packets of both sides in a time in which nothing can be done but ask.

    A question and an answer each `keepalive_interval_ns`; a look and an answer, both twice, each
    `t_max_ns`.
    """
    return (
        2 * over_ns // DEFAULT_TIMING.keepalive_interval_ns
        + 4 * over_ns // DEFAULT_TIMING.t_max_ns
        + 20
    )


def control_sent(rig):
    return sum(rig.counters(side)["tx_control"] for side in (0, 1))


@pytest.mark.parametrize("receives", [8])
def test_a_sender_that_starts_late(transport, receives):
    rig = make(transport)
    keys = [(1, 2, number) for number in range(receives)]
    posted = [rig.sides[1].receive(key, LENGTH) for key in keys]
    rig.step_until(SECOND_NS)
    assert rig.sides[1].outstanding == receives
    assert control_sent(rig) <= most_control(SECOND_NS)
    for key, receive in zip(keys, posted, strict=True):
        data = rig.sides[1].arena[receive.offset : receive.offset + LENGTH][::-1].copy()
        rig.sides[1].expect(receive, data)
        rig.sides[0].send(key, data)
    rig.finish(within_ns=10 * MILLISECOND_NS)
    rig.quiesce()
    rig.check()


@pytest.mark.parametrize("sends", [8])
def test_a_receive_posted_late(transport, sends):
    rig = make(transport)
    data = rig.sides[0].arena[:LENGTH].copy()
    keys = [(1, 2, number) for number in range(sends)]
    for key in keys:
        rig.sides[0].send(key, data)
    rig.step_until(5 * SECOND_NS)
    assert rig.sides[0].outstanding == sends
    paused_each = 2 * 5 * SECOND_NS // DEFAULT_TIMING.t_max_ns  # a question, an answer
    assert control_sent(rig) <= most_control(5 * SECOND_NS) + sends * paused_each
    assert rig.counters(0)["tx_data"] <= 2 * sends * PACKETS
    for key in keys:
        rig.sides[1].expect(rig.sides[1].receive(key, LENGTH), data)
    rig.finish(within_ns=10 * MILLISECOND_NS)  # it asks at once
    rig.quiesce()
    rig.check()
