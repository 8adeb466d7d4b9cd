# SPDX-License-Identifier: GPL-2.0-or-later
"""Parity of csa_ud: how much, when it leaves, and what a receiver restores from it."""

import dataclasses
import itertools
import math
import random
import struct

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.transports import registry
from tests.native import frames
from tests.native.by_hand import BASE_RTT_NS, CHUNK, KEY, ByHand, Sent
from tests.native.frames import PARITY
from tests.transports.pair_rig import (
    ADDRESSES,
    IBV_ACCESS_LOCAL_WRITE,
    MACS,
    QKEY,
    PairRig,
    config,
    threshold,
)

ROWS, BLOCK = 4, 64  # the most parity of a message, and the most packets that it covers
MESSAGE_AT, INDEX_AT, CODE_COUNT_AT = 8, 16, 20  # in the header of ours
LOST_AT = 20  # in the body of a report
ECN_AT = frames.IP_AT + 1
LAST_BYTES = 100  # of a message that ends with a short packet


# ---------------------------------------------------------------- how much is lost


def test_before_any_loss_the_estimate_is_zero():
    estimate = _native.LossEstimate()
    estimate.note(100_000, 0, 0)
    assert (estimate.loss, estimate.burst_packets) == (0, 1)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_the_estimate_reaches_a_constant_loss(share):
    estimate, dice = _native.LossEstimate(), random.Random(1)
    for _ in range(2_000):
        lost = sum(dice.random() < share for _ in range(64))
        estimate.note(64, lost, lost)
    assert estimate.loss == pytest.approx(share, rel=0.5)
    assert estimate.burst_packets == 1


def test_sixty_thousand_packets_without_a_loss_are_as_good_as_none():
    estimate = _native.LossEstimate()
    for _ in range(1_000):
        estimate.note(100, 1, 1)
    assert 0.009 < estimate.loss < 0.011
    for _ in range(400):
        estimate.note(100, 0, 0)
    assert estimate.loss > 0
    for _ in range(200):
        estimate.note(100, 0, 0)
    assert estimate.loss == 0


def test_bursts_have_their_mean_length():
    estimate = _native.LossEstimate()
    for _ in range(1_000):
        estimate.note(400, 4, 1)
    assert estimate.burst_packets == pytest.approx(4)
    assert estimate.loss == pytest.approx(0.01, rel=0.1)


def test_what_came_after_all_was_not_lost():
    estimate = _native.LossEstimate()
    estimate.note(64, 3, 1)
    estimate.note(0, -3, -1)
    assert (estimate.loss, estimate.burst_packets) == (0, 1)
    estimate.note(64, -5, -2)
    assert (estimate.loss, estimate.burst_packets) == (0, 1)


@pytest.mark.parametrize("lost", [100_000, 2**23, 2**31 - 1])
def test_no_report_makes_the_estimate_more_than_everything(lost):
    """After an outage a path's numbers may be far ahead."""
    estimate = _native.LossEstimate()
    estimate.note(lost, lost, 1)
    assert 0 < estimate.loss <= 1


def fails(block, rows, loss):
    """The probability that more packets than `rows` are lost, each by itself."""
    total = block + rows
    return 1 - sum(
        math.comb(total, n) * loss**n * (1 - loss) ** (total - n) for n in range(rows + 1)
    )


@pytest.mark.parametrize("loss", [0, 1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("block", [4, 8, 17, 64])
def test_rows_are_the_fewest_with_which_few_blocks_fail(block, loss):
    enough = [rows for rows in range(ROWS) if fails(block, rows, loss) < 1e-3]
    assert _native.parity_rows(block, loss, 1, ROWS) == min([*enough, ROWS])


@pytest.mark.parametrize("most", range(ROWS + 1))
def test_rows_are_no_more_than_asked_for(most):
    assert _native.parity_rows(BLOCK, 0.2, 1, most) == most
    assert _native.parity_rows(BLOCK, 1, 1, most) == most


def test_losses_in_a_row_need_as_many_rows():
    """Groups of so many packets are lost whole: fewer rows restore none."""
    rows = [_native.parity_rows(17, 1e-3, burst, ROWS) for burst in (1, 1.5, 2, 3, 4)]
    assert rows == [1, 2, 2, 3, 4]


# ---------------------------------------------------------------- ends


class Ends(ByHand):
    """A sender and a receiver of csa_ud, and messages of any length one behind the other."""

    def __init__(self, packets, options=(), **settings):
        options = {"parity": str(ROWS), "parity_budget": 1.0, **dict(options)}
        engine = registry.find("csa_ud").engine(options)
        del engine["transport"]
        super().__init__("csa_ud", packets, **engine, **settings)
        self.posted = []  # of each: where it begins, and its length

    def post_message(self, length):
        """The receive, then the send; its number, which is its id, too."""
        number = len(self.posted)
        begin = sum(before for _, before in self.posted)
        self.posted.append((begin, length))
        key = (*KEY[:2], number)
        self.receiver.post_receive(0, key, self.keys[1], begin, length, number)
        self.sender.post_send(0, key, self.keys[0], begin, length, number)
        return number

    def out(self, end):
        """All that this end sends now."""
        found = iter(lambda: end.poll_frame(self.now_ns), None)
        return [Sent(frame, _native.decode_frame(frame, True)) for frame in found]

    def one(self):
        """The next frame of the sender."""
        frame = self.sender.poll_frame(self.now_ns)
        return None if frame is None else Sent(frame, _native.decode_frame(frame, True))

    def placed(self, number):
        begin, length = self.posted[number]
        return self.place[begin : begin + length]

    def is_right(self, number):
        begin, length = self.posted[number]
        return np.array_equal(self.placed(number), self.data[begin : begin + length])

    def exchange(self, *sent):
        """The receiver takes the frames, and the sender its answers; these."""
        answers = self.deliver(self.receiver, *sent)
        answers += self.deliver(self.sender, *answers)
        return answers

    def rest(self):
        """Nothing is on its way any more, and timers have brought what they had to."""
        for _ in range(4):
            self.now_ns += 10 * BASE_RTT_NS
            for end in (self.receiver, self.sender):
                end.handle_timeout(self.now_ns)
            self.exchange(*self.out(self.sender))
            self.deliver(self.sender, *self.out(self.receiver))


def data_of(sent, number=0):
    return [s for s in sent if s.is_data and s.reported["message_id"] == number]


def parity_of(sent, number=0):
    """Of this message; None: of all."""
    parity = [s for s in sent if s.reported["kind"] == PARITY]
    return [s for s in parity if number in (None, s.reported["message_id"])]


def parity_and_data(sent):
    """(kind, message) of the messages' packets, those that follow each other once."""
    kinds = [
        ("parity" if s.reported["kind"] == PARITY else "data", s.reported["message_id"])
        for s in sent
        if s.is_data or s.reported["kind"] == PARITY
    ]
    return [kind for kind, _ in itertools.groupby(kinds)]


def changed(sent, at, form, *values):
    """With other bytes behind our header's beginning, and a right ICRC."""
    frame = bytearray(sent.frame)
    struct.pack_into(form, frame, frames.layout(sent.frame).lab_at + at, *values)
    sealed = frames.seal(bytes(frame))
    return Sent(sealed, _native.decode_frame(sealed, True))


def marked(sent):
    """A switch has marked it (ECN)."""
    frame = bytearray(sent.frame)
    frame[ECN_AT] |= 3
    return Sent(bytes(frame), sent.reported)


# ---------------------------------------------------------------- when parity leaves


def test_parity_follows_the_message_and_the_probe_follows_it():
    ends = Ends(17)
    ends.post_message(17 * CHUNK)
    sent = ends.out(ends.sender)
    assert [s.reported["kind"] for s in sent] == [0] * 17 + [PARITY] * ROWS + [3]
    rows = parity_of(sent)
    assert [(s.reported["index"], s.reported["count"]) for s in rows] == [
        (17 + row, 17) for row in range(ROWS)
    ]
    assert {s.reported["code"] for s in rows} == {17}
    assert len({s.reported["path"] for s in rows}) == ROWS


def test_parity_waits_until_nothing_else_may_leave():
    ends = Ends(34)
    for _ in range(2):
        ends.post_message(17 * CHUNK)
    assert parity_and_data(ends.out(ends.sender)) == [
        ("data", 0), ("data", 1), ("parity", 0), ("parity", 1),
    ]  # fmt: skip


def test_without_that_condition_parity_waits_for_nothing():
    ends = Ends(34, {"parity_idle": False})
    for _ in range(2):
        ends.post_message(17 * CHUNK)
    assert parity_and_data(ends.out(ends.sender)) == [
        ("data", 0), ("parity", 0), ("data", 1), ("parity", 1),
    ]  # fmt: skip


def reported_loss(ends, lost):
    """A report of the receiver that says that so many packets were lost, one by one."""
    number = ends.post_message(17 * CHUNK)
    [ack] = ends.deliver(ends.receiver, *data_of(ends.out(ends.sender), number))
    report_at = frames.LAB + ack.reported["length"]  # behind the acknowledgement's own body
    ends.deliver(ends.sender, changed(ack, report_at + LOST_AT, ">II", lost, lost))


@pytest.mark.parametrize(
    ("rate_bps", "first"),
    [
        (100_000_000_000, "parity"),  # a packet takes 0.02 us, a round trip 24 us
        (100_000_000, "data"),  # 20 us
    ],
)
def test_parity_that_gains_more_than_it_costs_waits_for_nobody(rate_bps, first):
    """At a loss of a twentieth a message of 17 packets loses one more often than not."""
    ends = Ends(51, line_rate_bps=rate_bps)
    reported_loss(ends, 60)
    for _ in range(2):
        ends.post_message(17 * CHUNK)
    order = parity_and_data(ends.out(ends.sender))
    assert order[0] == ("data", 1)
    assert order[1] == (first, 1 if first == "parity" else 2)


@pytest.mark.parametrize("condition", [True, False])
def test_no_parity_for_a_message_whose_acknowledgement_is_due(condition):
    ends = Ends(34, {"parity_unacknowledged": condition})
    for _ in range(2):
        ends.post_message(17 * CHUNK)
    for _ in range(20):
        ends.one()
    ends.now_ns += BASE_RTT_NS + 1_000
    rest = ends.out(ends.sender)
    assert len(parity_of(rest, 0)) == (0 if condition else ROWS)
    assert len(parity_of(rest, 1)) == ROWS


@pytest.mark.parametrize("condition", [True, False])
def test_no_parity_to_a_peer_whose_newest_report_has_marks(condition):
    ends = Ends(51, {"parity_uncongested": condition})
    counts = []
    for marks in (True, False, False):
        number = ends.post_message(17 * CHUNK)
        sent = ends.out(ends.sender)
        counts.append(len(parity_of(sent, number)))
        data = data_of(sent, number)
        ends.exchange(*[marked(s) if marks else s for s in data])
        ends.rest()
    assert ends.statuses() == ([0] * 3, [0] * 3)
    assert counts == ([ROWS, 0, ROWS] if condition else [ROWS] * 3)


@pytest.mark.parametrize("length", [1, CHUNK, 3 * CHUNK + 1, 17 * CHUNK])
@pytest.mark.parametrize("budget", [0, 0.15, 0.5])
def test_parity_stays_within_its_budget(budget, length):
    """Of so many messages no more than that share is parity, and nearly as much."""
    messages = 2_000
    rig = pair({"parity": "4", "parity_budget": budget})
    data = 0
    for number in range(messages):
        rig.transfer((1, 1, number), length)
        data += -(-length // PAIR_CHUNK)
        if number % 16 == 15:
            rig.finish()
    rig.finish()
    sent = rig.counters(0)["tx_parity"]
    assert sent <= budget * data
    assert sent >= min(budget * data, ROWS * messages) * 0.9 - ROWS


# ---------------------------------------------------------------- by the measured loss


PAIR_CHUNK = 256 - frames.LAB
PAIR_PACKETS = 17
DELAY_NS = 10_000


def pair(options=(), **settings):
    rig = PairRig(
        "csa_ud", options=dict(options), path_mtu=256, initial_rtt_ns=2 * DELAY_NS,
        arena_bytes=1 << 25, **settings,
    )  # fmt: skip
    for cable in rig.cables:
        cable.delay_ns = DELAY_NS
    return rig


def transfers(rig, first, messages):
    """So many messages, one after the other; how much parity each had."""
    counts = []
    for number in range(first, first + messages):
        before = rig.counters(0)["tx_parity"]
        rig.transfer((1, 1, number), PAIR_PACKETS * PAIR_CHUNK)
        rig.finish()
        counts.append(rig.counters(0)["tx_parity"] - before)
    return counts


def test_without_loss_there_is_no_parity():
    rig = pair()
    assert set(transfers(rig, 0, 1_000)) == {0}
    rig.check()


def test_parity_follows_the_loss():
    """From none to 1 % in 200 round trips, and back in 60,000 packets."""
    rig = pair()
    assert set(transfers(rig, 0, 600)) == {0}
    rig.cables[0].loss = threshold(0.01)
    began_ns = rig.now_ns
    jump = transfers(rig, 600, 100)
    assert rig.now_ns - began_ns < 200 * 2.5 * DELAY_NS
    assert jump[-1] >= 1
    steady = transfers(rig, 700, 500)
    assert min(steady) >= 1
    rig.cables[0].loss = 0
    back = transfers(rig, 1_200, 60_000 // PAIR_PACKETS)
    assert back[0] >= 1
    assert back[-1] == 0
    assert sorted(back, reverse=True) == back
    rig.check()


# ---------------------------------------------------------------- what is restored


@dataclasses.dataclass
class Sending:
    """A message that was sent to receivers which are all alike."""

    ends: Ends
    length: int
    data: list[Sent]
    parity: list[Sent]

    @classmethod
    def of(cls, packets, last_bytes=LAST_BYTES, before=ROWS * 4):
        """`before`: packets of a message before it, so that the budget has room."""
        ends = Ends(packets + before)
        ends.post_message(before * CHUNK)
        ends.out(ends.sender)
        length = (packets - 1) * CHUNK + last_bytes
        number = ends.post_message(length)
        sent = ends.out(ends.sender)
        return cls(ends, length, data_of(sent, number), parity_of(sent, number))

    def receiver(self):
        """A new one, which has heard of nothing."""
        return Receiving(self)


class Receiving:
    """A receiver of its own for one message, with a guard behind the message."""

    def __init__(self, sending):
        self._sending = sending
        engine = registry.find("csa_ud").engine({"parity": "0"})
        self.end = _native.FrameEndpoint(
            config(ADDRESSES[1], path_mtu=256, initial_rtt_ns=BASE_RTT_NS, **engine), MACS[1]
        )
        self.end.set_qkey(QKEY)
        sender = sending.ends.sender
        self.end.connect(ADDRESSES[0], MACS[0], sender.data_qp, sender.recovery_qp, QKEY)
        self.memory = np.full(sending.length + 2 * CHUNK, 0xA5, np.uint8)
        key = self.end.register_memory(
            self.memory.ctypes.data, len(self.memory), IBV_ACCESS_LOCAL_WRITE
        )
        self.end.post_receive(0, (*KEY[:2], 1), key, CHUNK, sending.length, 7)

    def take(self, *sent):
        for each in sent:
            self.end.handle_frame(each.frame, sending_ns := self._sending.ends.now_ns)
            while self.end.poll_frame(sending_ns) is not None:
                pass

    def counts(self, *names):
        counters = self.end.counters()
        return tuple(counters[name] for name in names)

    def is_complete(self):
        """With the right bytes, and none beyond them."""
        completions = self.end.poll_completions()
        if not completions:
            return False
        begin, length = self._sending.ends.posted[1]
        assert [each.status for each in completions] == [0]
        assert np.array_equal(
            self.memory[CHUNK:-CHUNK], self._sending.ends.data[begin : begin + length]
        )
        self.guards()
        return True

    def guards(self):
        assert (self.memory[:CHUNK] == 0xA5).all()
        assert (self.memory[-CHUNK:] == 0xA5).all()

    def wrote_only(self, indices):
        """What was not delivered, or restored, has no bytes."""
        begin, length = self._sending.ends.posted[1]
        for index in range(len(self._sending.data)):
            at, end = index * CHUNK, min((index + 1) * CHUNK, length)
            here = self.memory[CHUNK + at : CHUNK + end]
            there = self._sending.ends.data[begin + at : begin + end]
            if index in indices:
                assert np.array_equal(here, there)
            else:
                assert (here == 0xA5).all()
        self.guards()


def lost_subsets(packets, dice):
    """All of what four rows restore; of blocks of 64 all pairs, and some larger ones."""
    for size in range(1, min(packets, ROWS) + 1):
        everything = math.comb(packets, size)
        if everything <= 2_500:
            yield from itertools.combinations(range(packets), size)
        else:
            for _ in range(500):
                yield tuple(sorted(dice.sample(range(packets), size)))


@pytest.mark.parametrize(
    ("packets", "last_bytes"),
    [(1, 1), (2, 1), *itertools.product((1, 2, 4, 17, 64), (LAST_BYTES, CHUNK))],
)
def test_every_loss_of_no_more_packets_than_rows_is_restored(packets, last_bytes):
    sending, dice = Sending.of(packets, last_bytes), random.Random(packets)
    assert len(sending.parity) == ROWS
    for lost in lost_subsets(packets, dice):
        rows = dice.sample(sending.parity, len(lost))
        here = [each for index, each in enumerate(sending.data) if index not in lost]
        made = sending.receiver()
        made.take(*here, *rows[1:])
        assert not made.is_complete()
        made.take(rows[0])
        assert made.is_complete(), (lost, [row.reported["index"] for row in rows])
        assert made.counts("rx_restored", "rx_duplicate") == (len(lost), 0)


@pytest.mark.parametrize("packets", [2, 4, 17])
def test_the_order_of_packets_does_not_matter(packets):
    """Parity may come first."""
    sending, dice = Sending.of(packets), random.Random(packets)
    for _ in range(300):
        lost = dice.randint(0, min(packets, ROWS))
        sent = [*dice.sample(sending.data, packets - lost), *dice.sample(sending.parity, lost)]
        dice.shuffle(sent)
        made = sending.receiver()
        made.take(*sent)
        assert made.is_complete()
        assert made.counts("rx_restored") == (lost,)


def test_a_long_message_has_parity_of_its_last_64_packets():
    sending = Sending.of(200)
    first = 200 - BLOCK
    assert {s.reported["code"] for s in sending.parity} == {BLOCK}
    made, lost = sending.receiver(), {5, first - 1, first, 150, 198, 199}
    made.take(*[s for index, s in enumerate(sending.data) if index not in lost])
    made.take(*sending.parity[:3])
    assert made.counts("rx_restored") == (0,)
    made.wrote_only({*range(200)} - lost)
    made.take(sending.parity[3])
    assert made.counts("rx_restored") == (4,)
    made.wrote_only({*range(200)} - {5, first - 1})
    assert not made.is_complete()
    made.take(sending.data[5], sending.data[first - 1])
    assert made.is_complete()


@pytest.mark.parametrize("kept", [*itertools.combinations(range(ROWS), 2)])
def test_parity_is_lost_like_data(kept):
    """Two rows are left, and restore two packets."""
    sending = Sending.of(17)
    made = sending.receiver()
    made.take(*[s for index, s in enumerate(sending.data) if index not in (2, 16)])
    made.take(*[sending.parity[row] for row in kept])
    assert made.is_complete()


def test_a_retransmission_lets_the_parity_that_is_here_suffice():
    sending = Sending.of(17)
    made = sending.receiver()
    made.take(*[s for index, s in enumerate(sending.data) if index not in (2, 9, 16)])
    made.take(*sending.parity[1:3])
    made.wrote_only({*range(17)} - {2, 9, 16})
    made.take(sending.data[9])
    assert made.is_complete()
    assert made.counts("rx_restored") == (2,)


def test_one_row_too_few_restores_nothing():
    sending = Sending.of(17)
    for missing in range(2, ROWS + 2):
        made = sending.receiver()
        made.take(*sending.data[missing:], *sending.parity[: missing - 1])
        assert made.counts("rx_restored") == (0,)
        made.wrote_only(range(missing, 17))


# ---------------------------------------------------------------- parity that is not to be used


def test_late_parity_and_late_data_change_nothing():
    sending = Sending.of(17)
    made = sending.receiver()
    made.take(*sending.data[1:], sending.parity[0])
    assert made.is_complete()
    made.take(*sending.parity, sending.data[0], sending.data[0])
    assert made.counts("rx_late_parity", "rx_restored") == (4, 1)
    assert made.counts("rx_overtaken", "rx_duplicate") == (1, 1)
    made.guards()


def test_a_row_that_comes_twice_is_one_row():
    sending = Sending.of(17)
    made = sending.receiver()
    made.take(*sending.data[2:], *[sending.parity[2]] * 3)
    assert made.counts("rx_late_parity", "rx_restored") == (2, 0)
    made.wrote_only(range(2, 17))


def test_parity_of_another_block_is_not_mixed_in():
    """It would be right for its block; one of the two is a mistake, and nobody knows which."""
    sending = Sending.of(17)
    made = sending.receiver()
    other = changed(sending.parity[1], CODE_COUNT_AT, ">I", 16 << 24 | 17)
    made.take(*sending.data[2:], sending.parity[0], other)
    assert made.counts("rx_inconsistent", "rx_restored") == (1, 0)
    made.wrote_only(range(2, 17))
    made.take(sending.parity[1])
    assert made.is_complete()


BAD_PARITY = {
    "no block": (CODE_COUNT_AT, ">I", 17, "rx_bad_count"),
    "a block longer than the message": (CODE_COUNT_AT, ">I", 18 << 24 | 17, "rx_bad_count"),
    "another length of the message": (CODE_COUNT_AT, ">I", 17 << 24 | 16, "rx_bad_count"),
    "a fifth row": (INDEX_AT, ">I", 17 + ROWS, "rx_bad_index"),
    "a row before the first": (INDEX_AT, ">I", 16, "rx_bad_index"),
    "a block of the last packet, which is shorter": (
        CODE_COUNT_AT, ">I", 1 << 24 | 17, "rx_bad_length",
    ),
    "another message": (MESSAGE_AT, ">I", 9, "rx_inconsistent"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_PARITY)
def test_parity_that_contradicts_its_message_is_not_used(what):
    *change, counter = BAD_PARITY[what]
    sending = Sending.of(17)
    made = sending.receiver()
    made.take(*sending.data[1:], changed(sending.parity[0], *change))
    assert made.counts(counter, "rx_restored") == (1, 0)
    made.wrote_only(range(1, 17))
    made.take(sending.parity[1])
    assert made.is_complete()


def test_what_the_icrc_refuses_is_no_parity():
    """Whatever bit of what it covers was flipped."""
    sending, dice = Sending.of(17), random.Random(3)
    parity = sending.parity[0].frame
    begin = frames.layout(parity).lab_at
    for _ in range(200):
        made = sending.receiver()
        broken = frames.flip(parity, dice.randrange(8 * begin, 8 * len(parity)))
        made.take(*sending.data[1:], Sent(broken, {}))
        assert made.counts("rx_wrong_icrc", "rx_restored") == (1, 0)
        made.wrote_only(range(1, 17))
        made.take(sending.parity[0])
        assert made.is_complete()


def test_messages_that_mix_on_their_way_are_restored_each_from_its_own():
    """Their packets have the same indices, and their parity the same blocks."""
    ends = Ends(3 * 17)
    for _ in range(3):
        ends.post_message(17 * CHUNK)
    sent, dice = ends.out(ends.sender), random.Random(5)
    kept = []
    for number in range(3):
        lost = dice.sample(range(17), ROWS)
        kept += [s for s in data_of(sent, number) if s.reported["index"] not in lost]
        kept += parity_of(sent, number)
    dice.shuffle(kept)
    ends.deliver(ends.receiver, *kept)
    assert all(ends.is_right(number) for number in range(3))
    assert ends.receiver.counters()["rx_restored"] == 3 * ROWS


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_on_the_way_the_bytes_are_right(seed):
    """Messages of many lengths, which share what receivers keep, over a cable with all faults."""
    rig = pair({"parity": "4", "parity_budget": 1.0})
    cable, dice = rig.cables[0], random.Random(seed)
    cable.loss, cable.corrupt = threshold(0.05), threshold(0.02)
    cable.duplicate, cable.jitter_ns = threshold(0.02), DELAY_NS
    for number in range(600):
        packets = dice.choice((1, 2, 3, 4, 17, 63, 64, 65, 100))
        rig.transfer((1, 1, number), (packets - 1) * PAIR_CHUNK + dice.randint(1, PAIR_CHUNK))
        if number % 8 == 7:
            rig.finish()
    rig.check()
    assert rig.counters(1)["rx_restored"] > 500
    assert rig.counters(1)["rx_late_parity"] > 100
