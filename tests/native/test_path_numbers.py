# SPDX-License-Identifier: GPL-2.0-or-later
"""What an engine makes of the numbers of packets on a path, by frames whose numbers are chosen."""

import struct

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.transports import control
from tests.native import frames
from tests.native.by_hand import BASE_RTT_NS, CHUNK, ByHand, Sent
from tests.transports.pair_rig import CONTROL

PACKETS = 12
STEP_NS = BASE_RTT_NS // 4  # of the reordering window
NUMBERS = 1 << 24
OFFSETS = {"trimmed": 0, "number": 32}  # in the header of ours
SETTLED_AT, END_AT, WORDS_AT = 4 + 4, 4, 8 + 4 * 16  # in the body of a NACK
LOST_PACKET = np.dtype([("index", "u4"), ("attempts", "u2"), ("path", "u1"), ("reason", "u1")])


class Path(ByHand):
    """A message, over one path if no other number is given, and frames with any number."""

    def __init__(self, packets=PACKETS, **settings):
        super().__init__("policy", packets, path_probes=True, **{"paths": 1} | settings)
        self.post()
        self.frames = self.data_out()
        [posted] = [each for each in self.sender.take_events() if each.kind.name == "SEND_POSTED"]
        self.handle = posted.handle

    def arrive(self, *numbers):
        """Numbers on the path, 1 us apart; the NACKs that the receiver sends at once."""
        first = self.frames[0].frame
        sent = [_changed(first, "number", ">I", number) for number in numbers]
        return [nack for each in sent for nack in _nacks(self.deliver(self.receiver, each))]

    def trim(self, number):
        """The packet arrives trimmed; the NACK that the receiver sends at once."""
        cut = Sent(_native.trim_frame(self.frames[number].frame, False), {})
        [nack] = _nacks(self.deliver(self.receiver, cut))
        return nack

    def sent_once_reported(self, packets):
        """What the sender sends when so many packets have arrived at once, and reports say so."""
        self.now_ns += 1_000
        for number in range(packets):
            self.receiver.handle_frame(self.frames[number].frame, self.now_ns)
        reports = list(iter(lambda: self.receiver.poll_frame(self.now_ns), None))
        sent = self.deliver(self.sender, *(Sent(each, {}) for each in reports))
        return [each for each in sent if each.is_data]

    def nacks_at(self, at_ns):
        """What the receiver's timers bring by then."""
        self.now_ns = at_ns
        self.receiver.handle_timeout(at_ns)
        return _nacks(self.out(self.receiver))

    def window_ns(self, number):
        """How long the receiver waits for this number, which never comes: 0, 1 us, 2 us, ..."""
        if self.arrive(number + 1):
            return 0
        since_ns = self.now_ns
        while not self.nacks_at(self.now_ns + 1_000):
            assert self.now_ns - since_ns < 10 * BASE_RTT_NS
        return self.now_ns - since_ns

    def losses(self, nack):
        """Packets that the sender finds lost by this NACK."""
        self.deliver(self.sender, nack)
        found = [each for each in self.sender.take_events() if each.kind.name == "LOSS"]
        return [index for each in found for index in np.frombuffer(each.body, LOST_PACKET)["index"]]


def _nacks(sent):
    return [
        each
        for each in sent
        if each.reported["kind"] == CONTROL and each.body and each.body[0] == control.NACK
    ]


def _changed(frame, field, form, value):
    return _resealed(frame, frames.layout(frame).lab_at + OFFSETS[field], form, value)


def _resealed(frame, at, form, value):
    changed = bytearray(frame)
    struct.pack_into(form, changed, at, value)
    sealed = frames.seal(bytes(changed))
    return Sent(sealed, _native.decode_frame(sealed, True))


def _of_body(nack, at, form, value):
    lab_at = frames.layout(nack.frame).lab_at
    return _resealed(nack.frame, lab_at + frames.LAB + at, form, value)


@pytest.fixture
def path():
    return Path()


def reordering(path, times):
    """A path whose window has grown so often; the next number."""
    number = 1
    path.arrive(0)
    for _ in range(times):
        path.arrive(number + 1)
        path.nacks_at(path.now_ns + BASE_RTT_NS)  # given up; growth: once a round trip
        path.arrive(number)
        number += 2
    return number


# ---------------------------------------------------------------- the receiver


@pytest.mark.parametrize("late", [0, 1, 2])
def test_what_is_left_of_a_gap_is_lost_when_its_window_ends(path, late):
    """One of three missing numbers comes; the others do not."""
    number = reordering(path, 1)
    assert path.arrive(number + 3) == []
    ends_ns = path.now_ns + STEP_NS
    assert path.arrive(number + late) == []
    assert path.nacks_at(ends_ns - 1) == []
    assert len(path.nacks_at(ends_ns)) >= 1
    late_before = path.receiver.counters()["rx_late_number"]
    path.arrive(number + (late + 1) % 3)  # it was given up, and the receiver knows that
    assert path.receiver.counters()["rx_late_number"] == late_before + 1


def test_the_window_grows_by_a_quarter_of_the_least_round_trip():
    for times in range(4):
        path = Path()
        assert path.window_ns(reordering(path, times)) == times * STEP_NS


def test_the_window_shrinks_when_sixteen_losses_were_none_of_its_fault(path):
    number = reordering(path, 3)
    waits = [path.window_ns(number + 2 * times) for times in range(18)]
    assert waits[:16] == [3 * STEP_NS] * 16
    assert waits[16:] == [STEP_NS] * 2


def test_a_gap_that_a_late_number_parts_counts_as_two_of_the_most(path):
    """64 gaps are kept. The next one gives up the oldest, which are 65 then."""
    number = reordering(path, 1)
    ends = [number + 3 + 2 * each for each in range(64)]
    assert path.arrive(*ends, number + 1) == []
    [nack] = path.arrive(ends[-1] + 2)
    assert settled(nack) == number + 4


@pytest.mark.parametrize(
    ("arrivals", "lost"),
    [
        ("0 1t", [[], [1]]),
        ("0 3t", [[], [3]]),
        ("0 3t 1 2 4", [[], [3], [], [], []]),
        ("0 3t 4t 1 2", [[], [3], [4], [], []]),
        ("0 3t 2", [[], [3], [1]]),
        ("0 3t 4", [[], [3], [1, 2]]),
        ("0 3t 1 6t 5", [[], [3], [], [6], [2, 4]]),
        ("0 2 1t", [[], [1], []]),
        ("0 4t 2t 1 3", [[], [4], [2], [], []]),
        ("0t 1 2", [[0], [], []]),
    ],
)
def test_a_trimmed_packet_is_lost_and_tells_nothing_of_those_that_it_overtook(path, arrivals, lost):
    """Whole packets of a path do not overtake each other."""
    found = []
    for each in arrivals.split():
        frame = path.frames[int(each.rstrip("t"))].frame
        if each.endswith("t"):
            frame = _native.trim_frame(frame, False)
        nacks = _nacks(path.deliver(path.receiver, Sent(frame, {})))
        found.append([index for nack in nacks for index in path.losses(nack)])
    assert found == lost
    assert path.receiver.counters()["rx_trimmed"] == arrivals.count("t")


def test_what_a_trimmed_packet_overtook_is_lost_if_it_does_not_come_within_an_rtt(path):
    path.arrive(0)
    nack = path.trim(3)
    ends_ns = path.now_ns + BASE_RTT_NS
    assert path.losses(nack) == [3]
    assert path.nacks_at(ends_ns - 1) == []
    [nack] = path.nacks_at(ends_ns)
    assert path.losses(nack) == [1, 2]


def test_a_trimmed_packet_leaves_the_window_at_once():
    """It makes room for one, although a packet before it is in flight. A repeated NACK does not."""
    path = Path(window_packets=8)
    assert sorted(path.frames) == list(range(8))
    nack = path.trim(7)
    for expected in ([8], []):
        sent = path.deliver(path.sender, nack)
        assert [each.reported["index"] for each in sent if each.is_data] == expected


def test_of_two_nacks_that_name_a_trimmed_packet_one_makes_the_window_of_nscc_smaller():
    path = Path(window_packets=8, congestion_control="nscc")
    nack = path.trim(7)
    for _ in range(2):
        assert [each for each in path.deliver(path.sender, nack) if each.is_data] == []
    assert len(path.sent_once_reported(6)) == 4


def test_the_path_of_a_trimmed_packet_is_emptier_by_one():
    path = Path(packets=64, paths=4, window_packets=8)
    on_paths = {n: each.reported["path"] for n, each in path.frames.items()}
    for number in (7, 5):
        nack = path.trim(number)
        [sent] = [each for each in path.deliver(path.sender, nack) if each.is_data]
        assert sent.reported["path"] == on_paths[number]


def test_a_report_of_the_credit_goes_with_each_nack_that_names_a_trimmed_packet(path):
    path.arrive(0)
    for number in (1, 2):
        nack = path.trim(number)
        assert len(nack.body) > nack.reported["length"]


@pytest.mark.parametrize(("mtu", "named"), [(256, 18), (2048, 63)])
def test_a_nack_has_room_for_so_many_trimmed_packets(mtu, named):
    """And for words. The settled number tells of the others."""
    path = Path(packets=70 * (mtu - frames.LAB) // CHUNK, path_mtu=mtu)
    cut = [_native.trim_frame(each.frame, False) for each in path.frames.values()]
    [nack] = _nacks(path.deliver(path.receiver, *(Sent(each, {}) for each in cut)))
    length = nack.reported["length"]
    assert length <= mtu - frames.LAB
    assert len(control.decode(nack.body[:length]).trimmed) == named
    assert path.losses(nack) == list(range(len(cut)))


@pytest.mark.parametrize("times", [2, 40])
def test_trimmed_packets_are_counted_once_when_a_report_comes(times):
    """Six packets before them arrive. Two that left behind them are in flight."""
    path = Path(packets=64, window_packets=8)
    for number in range(6, 6 + times):
        nack = path.trim(number)
        sent = [each for each in path.deliver(path.sender, nack) if each.is_data]
        assert [each.reported["index"] for each in sent] == [number + 2]
        path.frames[number + 2] = sent[0]
    assert len(path.sent_once_reported(6)) == 6


FAR = 1_000_000  # more than four windows ahead


def settled(nack):
    return control.decode(nack.body[: nack.reported["length"]]).settled[0]


def test_two_forged_packets_mislead_until_two_of_the_sender_have_come(path):
    """From then on a number that is skipped is a loss again."""
    path.arrive(0, 1)
    [misled] = path.arrive(FAR, FAR + 4)
    assert settled(misled) == FAR + 5
    assert path.arrive(2) == []
    [nack] = path.arrive(3)
    assert settled(nack) == 4
    assert path.arrive(4) == []
    [nack] = path.arrive(6)
    assert settled(nack) == 7


def test_an_expected_packet_that_was_trimmed_parts_two_forged_ones(path):
    path.arrive(0, FAR)
    cut = _native.trim_frame(path.frames[1].frame, False)
    assert _nacks(path.deliver(path.receiver, Sent(cut, {})))
    assert path.arrive(FAR + 4, 2) == []
    assert path.receiver.counters()["rx_number_jump"] == 2


def test_what_a_trimmed_packet_overtook_is_told_apart_where_numbers_wrap(path):
    """0 is missing behind the last number, and may still come."""
    for number in (NUMBERS // 2 - 10, NUMBERS - 5):
        path.arrive(number, number + 1)
    frame = _changed(path.frames[1].frame, "number", ">I", 1).frame
    cut = Sent(_native.trim_frame(frame, False), {})
    [nack] = _nacks(path.deliver(path.receiver, cut))
    assert settled(nack) == NUMBERS - 3
    [nack] = path.arrive(NUMBERS - 1)
    assert settled(nack) == 0


# ---------------------------------------------------------------- the sender


def test_a_trimmed_packet_tells_nothing_of_the_same_number_on_another_path():
    path = Path(paths=2)
    numbers = [path.frames[each].frame for each in range(2)]
    assert len({_native.decode_frame(each, True)["number"] for each in numbers}) == 1
    cut = Sent(_native.trim_frame(numbers[1], False), {})
    [nack] = _nacks(path.deliver(path.receiver, cut))
    assert path.losses(nack) == [1]


def test_numbers_behind_the_settled_one_may_be_on_their_way(path):
    """Also where the numbers wrap: 0 comes behind 2**24 - 3."""
    [nack] = path.arrive(0, 2)
    assert path.losses(_of_body(nack, SETTLED_AT, ">I", NUMBERS - 3)) == []
    assert path.losses(_of_body(nack, SETTLED_AT, ">I", 1)) == []
    assert path.losses(nack) == [1, 2]


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("how", ["by a word", "behind the end"])
def test_of_a_paused_send_nothing_is_lost_before_it_begins(path, paused, how):
    """No receive was posted for it: what was sent was refused, not lost."""
    [nack] = path.arrive(0, PACKETS)
    body = nack.body[: nack.reported["length"]]
    assert control.decode(body).end == 1
    if paused:
        path.sender.pause(path.handle, True)
    if how == "behind the end":
        nack = _of_body(nack, END_AT, ">I", 0)
        nack = _of_body(nack, WORDS_AT, ">I", 77)  # a word about a message that is none
    else:
        nack = _of_body(nack, WORDS_AT + 4, ">I", 0)
        nack = _of_body(nack, WORDS_AT + 8, ">Q", 0)
    assert path.losses(nack) == ([] if paused else list(range(PACKETS)))
