# SPDX-License-Identifier: GPL-2.0-or-later
"""Parity of csa_ud: how much of it, when it leaves, and what a receiver restores from it.

A row is a packet of parity. The block of a message is the packets of data that its rows cover.
"""

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
from tests.native.frames import PARITY, PATH_PROBE, REPORT
from tests.transports.pair_rig import (
    ADDRESSES,
    IBV_ACCESS_LOCAL_WRITE,
    MACS,
    QKEY,
    PairRig,
    config,
    threshold,
)

ROWS, BLOCK = 4, 64  # the most rows of a message, and the most packets of a block
MESSAGE_AT, INDEX_AT, CODE_COUNT_AT = 8, 16, 20  # offsets in the lab's header
PACKETS_AT, LOST_AT = 12, 20  # offsets in the body of a report
ECN_AT = frames.IP_AT + 1
LAST_BYTES = 100  # length of a last packet that is shorter than the others


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


def test_sixty_thousand_packets_without_a_loss_reset_the_estimate_to_zero():
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


def test_a_late_packet_is_subtracted_from_the_losses():
    estimate = _native.LossEstimate()
    estimate.note(64, 3, 1)
    estimate.note(0, -3, -1)
    assert (estimate.loss, estimate.burst_packets) == (0, 1)
    estimate.note(64, -5, -2)
    assert (estimate.loss, estimate.burst_packets) == (0, 1)


@pytest.mark.parametrize("lost", [100_000, 2**23, 2**31 - 1])
def test_the_estimate_never_exceeds_one(lost):
    """After an outage a path's numbers may jump by this many at once."""
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
def test_rows_are_the_fewest_with_which_less_than_a_thousandth_of_blocks_fail(block, loss):
    enough = [rows for rows in range(ROWS) if fails(block, rows, loss) < 1e-3]
    assert _native.parity_rows(block, loss, 1, ROWS) == min([*enough, ROWS])


@pytest.mark.parametrize("most", range(ROWS + 1))
def test_rows_are_no_more_than_asked_for(most):
    assert _native.parity_rows(BLOCK, 0.2, 1, most) == most
    assert _native.parity_rows(BLOCK, 1, 1, most) == most


def test_a_burst_needs_as_many_rows_as_it_has_packets():
    rows = [_native.parity_rows(17, 1e-3, burst, ROWS) for burst in (1, 1.5, 2, 3, 4)]
    assert rows == [1, 2, 2, 3, 4]


# ---------------------------------------------------------------- ends


class Ends(ByHand):
    """A sender and a receiver of csa_ud. Their messages lie one after the other in memory."""

    def __init__(self, packets, options=(), **settings):
        options = {"parity": str(ROWS), "parity_budget": 1.0, **dict(options)}
        engine = registry.find("csa_ud").engine(options)
        del engine["transport"]
        super().__init__("csa_ud", packets, **engine, **settings)
        self.posted = []  # (begin, length) of each message

    def post_message(self, length):
        """Posts the receive, then the send. Returns the number of the message, also its id."""
        number = len(self.posted)
        begin = sum(before for _, before in self.posted)
        self.posted.append((begin, length))
        key = (*KEY[:2], number)
        self.receiver.post_receive(0, key, self.keys[1], begin, length, number)
        self.sender.post_send(0, key, self.keys[0], begin, length, number)
        return number

    def out(self, end):
        """All frames that this end sends now."""
        found = iter(lambda: end.poll_frame(self.now_ns), None)
        return [Sent(frame, _native.decode_frame(frame, True)) for frame in found]

    def next_frame(self):
        """The next frame of the sender, or None."""
        frame = self.sender.poll_frame(self.now_ns)
        return None if frame is None else Sent(frame, _native.decode_frame(frame, True))

    def placed(self, number):
        begin, length = self.posted[number]
        return self.place[begin : begin + length]

    def is_right(self, number):
        begin, length = self.posted[number]
        return np.array_equal(self.placed(number), self.data[begin : begin + length])

    def exchange(self, *sent):
        """Delivers frames to the receiver, and its answers to the sender. Returns all answers."""
        answers = self.deliver(self.receiver, *sent)
        answers += self.deliver(self.sender, *answers)
        return answers

    def settle(self):
        """Runs timers and delivers frames until nothing is in flight."""
        for _ in range(4):
            self.now_ns += 10 * BASE_RTT_NS
            for end in (self.receiver, self.sender):
                end.handle_timeout(self.now_ns)
            self.exchange(*self.out(self.sender))
            self.deliver(self.sender, *self.out(self.receiver))


def data_of(sent, number=0):
    return [s for s in sent if s.is_data and s.reported["message_id"] == number]


def parity_of(sent, number=0):
    """The rows of this message among `sent`; `number` None: of all messages."""
    parity = [s for s in sent if s.reported["kind"] == PARITY]
    return [s for s in parity if number in (None, s.reported["message_id"])]


def parity_and_data(sent):
    """("parity" or "data", message) in the order of sending; one entry for packets in a row."""
    kinds = [
        ("parity" if s.reported["kind"] == PARITY else "data", s.reported["message_id"])
        for s in sent
        if s.is_data or s.reported["kind"] == PARITY
    ]
    return [kind for kind, _ in itertools.groupby(kinds)]


def changed(sent, at, form, *values):
    """The frame with other values at the offset `at` of the lab's header, and a correct ICRC."""
    frame = bytearray(sent.frame)
    struct.pack_into(form, frame, frames.layout(sent.frame).lab_at + at, *values)
    sealed = frames.seal(bytes(frame))
    return Sent(sealed, _native.decode_frame(sealed, True))


def marked(sent):
    """The frame with the congestion mark of a switch (ECN)."""
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


def test_without_parity_idle_parity_does_not_wait_for_other_messages():
    ends = Ends(34, {"parity_idle": False})
    for _ in range(2):
        ends.post_message(17 * CHUNK)
    assert parity_and_data(ends.out(ends.sender)) == [
        ("data", 0), ("parity", 0), ("data", 1), ("parity", 1),
    ]  # fmt: skip


def reported_loss(ends, lost, bursts=None):
    """Sends a message whose acknowledgement reports `lost` losses, each a burst of its own unless
    `bursts` says how many bursts they were."""
    number = ends.post_message(17 * CHUNK)
    [ack] = ends.deliver(ends.receiver, *data_of(ends.out(ends.sender), number))
    ends.now_ns += BASE_RTT_NS
    report_at = frames.LAB + ack.reported["length"]  # behind the acknowledgement's own body
    ends.deliver(ends.sender, changed(ack, report_at + LOST_AT, ">II", lost, bursts or lost))


@pytest.mark.parametrize(
    ("rate_bps", "bursts", "waiting", "first"),
    [
        (800_000_000, 60, 1, "parity"),  # a packet takes 2.6 us, a round trip 24 us
        (800_000_000, 60, 2, "data"),
        (800_000_000, 10, 1, "data"),
    ],
)
def test_parity_that_gains_more_than_it_costs_does_not_wait(rate_bps, bursts, waiting, first):
    """62 % of the messages (17 packets) meet a loss if bursts have one packet, 15 % if six."""
    ends = Ends(17 * (2 + waiting), line_rate_bps=rate_bps)
    reported_loss(ends, 60, bursts)
    for _ in range(1 + waiting):
        ends.post_message(17 * CHUNK)
    order = parity_and_data(ends.out(ends.sender))
    assert order[0] == ("data", 1)
    assert order[1] == (first, 1 if first == "parity" else 2)


@pytest.mark.parametrize(("packets", "rows"), [(3, 0), (4, 1), (8, 2), (17, 4)])
def test_a_message_has_a_quarter_of_its_packets_as_parity_at_most(packets, rows):
    ends = Ends(17 + packets, {"parity": "auto"})
    reported_loss(ends, 60)
    number = ends.post_message(packets * CHUNK)
    assert len(parity_of(ends.out(ends.sender), number)) == rows


@pytest.mark.parametrize(("condition", "rows"), [(True, 4), (False, 2)])
def test_longer_bursts_raise_the_parity(condition, rows):
    ends = Ends(34, {"parity": "auto", "parity_bursts": condition})
    reported_loss(ends, 4, 1)
    number = ends.post_message(17 * CHUNK)
    assert len(parity_of(ends.out(ends.sender), number)) == rows


def test_parity_leaves_when_a_report_without_marks_arrives():
    ends = Ends(17 + 34)
    first = ends.post_message(17 * CHUNK)
    ends.exchange(*map(marked, data_of(ends.out(ends.sender), first)))
    number = ends.post_message(34 * CHUNK)
    sent = ends.out(ends.sender)
    assert not parity_of(sent, number)
    answers = ends.exchange(*data_of(sent, number)[:-1])
    assert len(parity_of(answers, number)) == ROWS


def test_parity_waits_for_the_window():
    ends = Ends(16, window_packets=16)
    number = ends.post_message(16 * CHUNK)
    sent = ends.out(ends.sender)
    assert not parity_of(sent)
    assert len(parity_of(ends.exchange(*data_of(sent, number)[:-1]))) == ROWS


def test_an_acknowledgement_ends_parity_and_the_next_message_has_its_probe():
    ends = Ends(34)
    number = ends.post_message(17 * CHUNK)
    sent = [ends.next_frame() for _ in range(18)]
    assert len(parity_of(sent)) == 1
    ends.exchange(*data_of(sent, number))
    assert not parity_of(ends.out(ends.sender))
    ends.post_message(17 * CHUNK)
    assert ends.out(ends.sender)[-1].reported["kind"] == PATH_PROBE


def test_losses_that_a_later_report_takes_back_are_no_reason_for_parity():
    """The report that `reported_loss` changes is the only one that tells of losses."""
    ends, rows = Ends(51, {"parity": "auto"}), []
    reported_loss(ends, 60)
    for _ in range(2):
        number = ends.post_message(17 * CHUNK)
        sent = ends.out(ends.sender)
        rows.append(len(parity_of(sent, number)))
        ends.exchange(*data_of(sent, number))
    assert rows == [ROWS, 0]


def test_a_peer_has_an_estimate_of_its_own_after_10_000_packets():
    """Until then, a loss to the first peer gives parity to messages to the second one, too."""
    ends = Ends(17 * 4, {"parity": "auto"})
    engine = registry.find("csa_ud").engine()
    second = _native.FrameEndpoint(
        config(ADDRESSES[1] + 1, path_mtu=256, initial_rtt_ns=BASE_RTT_NS, **engine), MACS[1] + 1
    )
    second.set_qkey(QKEY)
    second.connect(ADDRESSES[0], MACS[0], ends.sender.data_qp, ends.sender.recovery_qp, QKEY)
    ends.sender.connect(ADDRESSES[1] + 1, MACS[1] + 1, second.data_qp, second.recovery_qp, QKEY)
    place = np.zeros(17 * CHUNK, np.uint8)
    key = second.register_memory(place.ctypes.data, len(place), IBV_ACCESS_LOCAL_WRITE)

    def to_second(number):
        second.post_receive(0, (*KEY[:2], number), key, 0, len(place), number)
        ends.sender.post_send(1, (*KEY[:2], number), ends.keys[0], 0, len(place), number)
        return ends.out(ends.sender)

    reported_loss(ends, 60)
    sent = to_second(1)
    assert len(parity_of(sent, None)) == ROWS
    [ack] = ends.deliver(second, *[each for each in sent if each.is_data])
    report_at = frames.LAB + ack.reported["length"]
    ends.deliver(ends.sender, changed(ack, report_at + PACKETS_AT, ">I", 10_000))
    assert not parity_of(to_second(2), None)
    ends.post_message(17 * CHUNK)
    assert parity_of(ends.out(ends.sender), None)


@pytest.mark.parametrize("condition", [True, False])
def test_no_parity_for_a_message_whose_acknowledgement_is_due(condition):
    ends = Ends(34, {"parity_unacknowledged": condition})
    for _ in range(2):
        ends.post_message(17 * CHUNK)
    for _ in range(20):
        ends.next_frame()
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
        ends.settle()
    assert ends.statuses() == ([0] * 3, [0] * 3)
    assert counts == ([ROWS, 0, ROWS] if condition else [ROWS] * 3)


@pytest.mark.parametrize("length", [1, CHUNK, 3 * CHUNK + 1, 17 * CHUNK])
@pytest.mark.parametrize("budget", [0, 0.15, 0.5])
def test_parity_stays_within_its_budget(budget, length):
    """Rows are at most `budget` times the data packets, and nearly as many, up to 4 a message.
    Retransmissions do not count as data."""
    messages = 2_000
    rig = pair({"parity": "4", "parity_budget": budget})
    rig.cables[0].loss = threshold(0.1)
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
    """Sends messages one after the other. Returns how many rows each had."""
    counts = []
    for number in range(first, first + messages):
        before = rig.counters(0)["tx_parity"]
        rig.transfer((1, 1, number), PAIR_PACKETS * PAIR_CHUNK)
        rig.finish()
        counts.append(rig.counters(0)["tx_parity"] - before)
    return counts


@pytest.mark.parametrize(
    ("packets", "lost", "one_path"), [(8, 60, True), (9, 60, False), (8, 0, False)]
)
def test_a_short_message_takes_one_path_if_packets_are_lost(packets, lost, one_path):
    ends = Ends(17 + packets)
    reported_loss(ends, lost)
    number = ends.post_message(packets * CHUNK)
    paths = {each.reported["path"] for each in data_of(ends.out(ends.sender), number)}
    assert (len(paths) == 1) == one_path


def test_without_loss_there_is_no_parity():
    rig = pair()
    assert set(transfers(rig, 0, 1_000)) == {0}
    rig.check()


def test_parity_follows_the_loss():
    """Each message has parity 200 round trips after the loss began, and none has any 60,000
    packets after it ended."""
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


def test_reports_count_losses_and_bursts_of_each_path():
    """Three packets in a row are lost on the first path, and one on another path. Then one of the
    three, and the one on the other path, arrive late. Each report is of 64 packets and more, and
    two round trips after the report before."""
    ends = Ends(280)
    ends.post_message(280 * CHUNK)
    data = data_of(ends.out(ends.sender))
    lost = [data[index] for index in (8, 16, 24, 3)]
    assert [each.reported["path"] for each in lost] == [0, 0, 0, 3]
    counts = []
    for arrive in (
        [each for each in data[:72] if each not in lost],
        data[72:136],
        [lost[1], lost[3], *data[136:200]],
    ):
        ends.now_ns += 2 * BASE_RTT_NS
        answers = ends.deliver(ends.receiver, *arrive)
        [report] = [each for each in answers if each.reported["kind"] == REPORT]
        counts.append(struct.unpack_from(">II", report.body, LOST_AT))
    assert counts == [(0, 0), (4, 2), (2, 1)]


# ---------------------------------------------------------------- what is restored


@dataclasses.dataclass
class Sending:
    """The frames of one message, which each test delivers to receivers of its own."""

    ends: Ends
    length: int
    data: list[Sent]
    parity: list[Sent]

    @classmethod
    def of(cls, packets, last_bytes=LAST_BYTES, before=ROWS * 4):
        """`before`: packets of an earlier message, which raise the budget of parity."""
        ends = Ends(packets + before)
        ends.post_message(before * CHUNK)
        ends.out(ends.sender)
        length = (packets - 1) * CHUNK + last_bytes
        number = ends.post_message(length)
        sent = ends.out(ends.sender)
        return cls(ends, length, data_of(sent, number), parity_of(sent, number))

    def receiver(self):
        """A new receiver, to which nothing was delivered."""
        return Receiving(self)


class Receiving:
    """A receiver of one message, with guard bytes before and after the message."""

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
        """Whether the message is complete. Asserts its bytes, and that the guards are intact."""
        completions = self.end.poll_completions()
        if not completions:
            return False
        begin, length = self._sending.ends.posted[1]
        assert [each.status for each in completions] == [0]
        assert np.array_equal(
            self.memory[CHUNK:-CHUNK], self._sending.ends.data[begin : begin + length]
        )
        self.check_guards()
        return True

    def check_guards(self):
        assert (self.memory[:CHUNK] == 0xA5).all()
        assert (self.memory[-CHUNK:] == 0xA5).all()

    def check_written(self, indices):
        """Asserts that the packets at `indices` were written, and no other byte."""
        begin, length = self._sending.ends.posted[1]
        for index in range(len(self._sending.data)):
            at, end = index * CHUNK, min((index + 1) * CHUNK, length)
            here = self.memory[CHUNK + at : CHUNK + end]
            there = self._sending.ends.data[begin + at : begin + end]
            if index in indices:
                assert np.array_equal(here, there)
            else:
                assert (here == 0xA5).all()
        self.check_guards()


def lost_subsets(packets, dice):
    """Sets of at most four lost packets. All sets of a size, if there are at most 2,500; else 500
    that are drawn."""
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
def test_as_many_lost_packets_as_rows_are_restored(packets, last_bytes):
    sending, dice = Sending.of(packets, last_bytes), random.Random(packets)
    assert len(sending.parity) == ROWS
    for lost in lost_subsets(packets, dice):
        rows = dice.sample(sending.parity, len(lost))
        here = [each for index, each in enumerate(sending.data) if index not in lost]
        receiver = sending.receiver()
        receiver.take(*here, *rows[1:])
        assert not receiver.is_complete()
        receiver.take(rows[0])
        assert receiver.is_complete(), (lost, [row.reported["index"] for row in rows])
        assert receiver.counts("rx_restored", "rx_duplicate") == (len(lost), 0)


@pytest.mark.parametrize("packets", [2, 4, 17])
def test_the_order_of_packets_does_not_matter(packets):
    """Rows may arrive before data."""
    sending, dice = Sending.of(packets), random.Random(packets)
    for _ in range(300):
        lost = dice.randint(0, min(packets, ROWS))
        sent = [*dice.sample(sending.data, packets - lost), *dice.sample(sending.parity, lost)]
        dice.shuffle(sent)
        receiver = sending.receiver()
        receiver.take(*sent)
        assert receiver.is_complete()
        assert receiver.counts("rx_restored") == (lost,)


def test_a_long_message_has_parity_of_its_last_64_packets():
    sending = Sending.of(200)
    first = 200 - BLOCK
    assert {s.reported["code"] for s in sending.parity} == {BLOCK}
    receiver, lost = sending.receiver(), {5, first - 1, first, 150, 198, 199}
    receiver.take(*[s for index, s in enumerate(sending.data) if index not in lost])
    receiver.take(*sending.parity[:3])
    assert receiver.counts("rx_restored") == (0,)
    receiver.check_written({*range(200)} - lost)
    receiver.take(sending.parity[3])
    assert receiver.counts("rx_restored") == (4,)
    receiver.check_written({*range(200)} - {5, first - 1})
    assert not receiver.is_complete()
    receiver.take(sending.data[5], sending.data[first - 1])
    assert receiver.is_complete()


@pytest.mark.parametrize("kept", [*itertools.combinations(range(ROWS), 2)])
def test_parity_is_lost_like_data(kept):
    """Of four rows two are lost. The other two restore two packets."""
    sending = Sending.of(17)
    receiver = sending.receiver()
    receiver.take(*[s for index, s in enumerate(sending.data) if index not in (2, 16)])
    receiver.take(*[sending.parity[row] for row in kept])
    assert receiver.is_complete()


def test_a_retransmission_leaves_no_more_missing_packets_than_rows():
    sending = Sending.of(17)
    receiver = sending.receiver()
    receiver.take(*[s for index, s in enumerate(sending.data) if index not in (2, 9, 16)])
    receiver.take(*sending.parity[1:3])
    receiver.check_written({*range(17)} - {2, 9, 16})
    receiver.take(sending.data[9])
    assert receiver.is_complete()
    assert receiver.counts("rx_restored") == (2,)


def test_one_row_too_few_restores_nothing():
    sending = Sending.of(17)
    for missing in range(2, ROWS + 2):
        receiver = sending.receiver()
        receiver.take(*sending.data[missing:], *sending.parity[: missing - 1])
        assert receiver.counts("rx_restored") == (0,)
        receiver.check_written(range(missing, 17))


# ---------------------------------------------------------------- parity that must not be used


def test_late_parity_and_late_data_change_nothing():
    sending = Sending.of(17)
    receiver = sending.receiver()
    receiver.take(*sending.data[1:], sending.parity[0])
    assert receiver.is_complete()
    receiver.take(*sending.parity, sending.data[0], sending.data[0])
    assert receiver.counts("rx_late_parity", "rx_restored") == (4, 1)
    assert receiver.counts("rx_overtaken", "rx_duplicate") == (1, 1)
    receiver.check_guards()


def test_a_duplicate_of_a_row_does_not_count():
    sending = Sending.of(17)
    receiver = sending.receiver()
    receiver.take(*sending.data[2:], *[sending.parity[2]] * 3)
    assert receiver.counts("rx_late_parity", "rx_restored") == (2, 0)
    receiver.check_written(range(2, 17))


def test_parity_of_another_block_is_not_mixed_in():
    """If two rows name blocks of different sizes, the receiver refuses the second."""
    sending = Sending.of(17)
    receiver = sending.receiver()
    other = changed(sending.parity[1], CODE_COUNT_AT, ">I", 16 << 24 | 17)
    receiver.take(*sending.data[2:], sending.parity[0], other)
    assert receiver.counts("rx_inconsistent", "rx_restored") == (1, 0)
    receiver.check_written(range(2, 17))
    receiver.take(sending.parity[1])
    assert receiver.is_complete()


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
    receiver = sending.receiver()
    receiver.take(*sending.data[1:], changed(sending.parity[0], *change))
    assert receiver.counts(counter, "rx_restored") == (1, 0)
    receiver.check_written(range(1, 17))
    receiver.take(sending.parity[1])
    assert receiver.is_complete()


def test_parity_with_a_flipped_bit_is_refused_by_its_icrc():
    sending, dice = Sending.of(17), random.Random(3)
    parity = sending.parity[0].frame
    begin = frames.layout(parity).lab_at
    for _ in range(200):
        receiver = sending.receiver()
        broken = frames.flip(parity, dice.randrange(8 * begin, 8 * len(parity)))
        receiver.take(*sending.data[1:], Sent(broken, {}))
        assert receiver.counts("rx_wrong_icrc", "rx_restored") == (1, 0)
        receiver.check_written(range(1, 17))
        receiver.take(sending.parity[0])
        assert receiver.is_complete()


def test_interleaved_messages_are_restored_each_from_its_own_parity():
    """Three messages of equal shape: their packets and rows differ only in the message id."""
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
def test_the_bytes_are_right_over_a_cable_with_all_faults(seed):
    """Messages of many lengths, with loss, corruption, duplicates and reordering."""
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
