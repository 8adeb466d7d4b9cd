# SPDX-License-Identifier: GPL-2.0-or-later
"""What an engine that numbers paths says beside data, by frames that are chosen: reports that go
with other messages, probes, and NACKs as answers to them.
"""

import collections
import struct

import pytest

from softroce_lab import _native
from softroce_lab.transports import control
from tests.native import frames
from tests.native.by_hand import BASE_RTT_NS, KEY, MTU, ByHand, Sent
from tests.transports.pair_rig import CONTROL, DATA, REPORT

PATH_PROBE = 3
CONTROL_BYTES = MTU - frames.LAB
FIXED_OF_REPORT, OF_A_PATH = 24, 12
PROBE_AT = 2  # in the body of a NACK: which probe it answers
STATUS_SUCCESS = 0


class Peers(ByHand):
    """A sender and a receiver that number paths, of which every frame is the test's."""

    def __init__(self, packets, paths=1, **settings):
        super().__init__("policy", packets, path_probes=True, paths=paths, **settings)

    def all_out(self, end):
        """All that this end sends now, reports too."""
        frames_ = list(iter(lambda: end.poll_frame(self.now_ns), None))
        return [Sent(frame, _native.decode_frame(frame, True)) for frame in frames_]

    def hand(self, end, *sent):
        """What that end sends once it has these frames, one by one."""
        found = []
        for each in sent:
            self.now_ns += 1_000
            end.handle_frame(each.frame, self.now_ns)
            found += self.all_out(end)
        return found

    def later(self, end, by_ns):
        """What its timers make it send within that time."""
        found, until_ns = [], self.now_ns + by_ns
        while self.now_ns < until_ns:
            self.now_ns = min(self.now_ns + 1_000, until_ns)
            end.handle_timeout(self.now_ns)
            found += self.all_out(end)
        return found

    def begin(self, number):
        """One more message of the same bytes, posted at both ends; what its sender sends."""
        key = (*KEY[:2], number)
        self.receiver.post_receive(0, key, self.keys[1], 0, len(self.place), number)
        self.sender.post_send(0, key, self.keys[0], 0, len(self.data), number)
        return self.all_out(self.sender)


def kinds(sent):
    return [each.reported["kind"] for each in sent]


def of_kind(sent, kind):
    return [each for each in sent if each.reported["kind"] == kind]


def nacks(sent):
    return [each for each in of_kind(sent, CONTROL) if each.body and each.body[0] == control.NACK]


def changed(sent, at, form, value):
    """The frame with another value so far behind the lab header."""
    frame = bytearray(sent.frame)
    struct.pack_into(form, frame, frames.layout(sent.frame).lab_at + frames.LAB + at, value)
    sealed = frames.seal(bytes(frame))
    return Sent(sealed, _native.decode_frame(sealed, True))


# ---------------------------------------------------------------- reports


@pytest.mark.parametrize(("ring", "window", "due"), [
    (4096, 4096, 64), (4096, 128, 32), (128, 4096, 32), (64, 4096, 16), (12, 4096, 6),
    (4096, 12, 6), (1, 4096, 1),
])  # fmt: skip
def test_a_report_is_due_after_a_quarter_of_window_or_credit(ring, window, due):
    """The fewer of both, so that the sender need not wait for it. Eight packets are no less."""
    peers = Peers(300, receive_ring_packets=ring, window_packets=window)
    data = of_kind(peers.begin(1), DATA)
    while len(data) < min(ring, window, 150):  # a ring has that many frames
        data += of_kind(peers.all_out(peers.sender), DATA)
    arrived, reports = 0, []
    while arrived < 150:
        for each in peers.hand(peers.receiver, data[arrived]):
            if each.reported["kind"] == REPORT:
                reports.append(arrived + 1)
                data += of_kind(peers.hand(peers.sender, each), DATA)
        arrived += 1
    assert reports == list(range(due, 151, due))


def test_a_report_goes_alone_where_a_message_has_no_room_for_it():
    """Of eight paths, behind two words of a NACK, it would be longer than the path MTU."""
    peers = Peers(64, paths=8)
    data = of_kind(peers.begin(1), DATA)
    assert not peers.hand(peers.receiver, data[0])
    [nack] = peers.hand(peers.receiver, data[16])  # the same path, two turns later
    assert len(nack.body) == nack.reported["length"]
    assert len(nack.body) + FIXED_OF_REPORT + OF_A_PATH * 8 > CONTROL_BYTES
    [report] = of_kind(peers.later(peers.receiver, 200_000), REPORT)
    assert struct.unpack(">I", report.body[12:16]) == (2,)


def test_a_closed_window_is_forgiven_after_four_round_trips_without_a_report():
    peers = Peers(64, window_packets=8, persist_least_ns=1_000, report_least_interval_ns=1_000)
    window = of_kind(peers.begin(1), DATA)
    peers.now_ns += 7 * BASE_RTT_NS  # long since
    [report, *_] = of_kind(peers.hand(peers.receiver, *window), REPORT)
    assert len(of_kind(peers.hand(peers.sender, report), DATA)) == 8
    since_ns, srtt_ns = peers.now_ns, peers.sender.peer_state(0).srtt_ns
    assert srtt_ns > 7 * BASE_RTT_NS
    while not peers.sender.counters().get("window_forgiven"):
        peers.later(peers.sender, 1_000)
    assert abs(peers.now_ns - since_ns - 4 * srtt_ns) <= 1_000


# ---------------------------------------------------------------- what a probe names


def waits_ns(peers, number):
    """From a probe to the NACK of what it names on another path, which then comes."""
    sent = peers.begin(number)
    [probe] = of_kind(sent, PATH_PROBE)
    other = [each for each in of_kind(sent, DATA) if path(each) != path(probe)]
    here = [each for each in of_kind(sent, DATA) if path(each) == path(probe)]
    assert not nacks(peers.hand(peers.receiver, *here, probe))
    since_ns = peers.now_ns
    while not nacks(peers.later(peers.receiver, 1_000)):
        assert peers.now_ns - since_ns < 10 * BASE_RTT_NS
    wait_ns = peers.now_ns - since_ns
    peers.hand(peers.receiver, *other)
    return wait_ns


def path(sent):
    return sent.reported["path"]


def lose_a_probe(peers):
    """No message misses anything, but the receiver knows that packets are lost."""
    *data, _ = peers.begin(100)
    assert not nacks(peers.hand(peers.receiver, *data))
    assert nacks(peers.hand(peers.receiver, *peers.begin(101)))


@pytest.mark.parametrize(("loses", "quarters"), [
    (True, [2, 3, 4, 5, 6, 6]), (False, [4, 5, 6, 7, 8, 8]),
])  # fmt: skip
def test_the_wait_of_other_paths_grows_as_long_as_it_was_too_short(loses, quarters):
    """By a quarter of the least round trip, up to a whole one. Until a packet is lost, the wait
    begins with a round trip, else with half of one.
    """
    peers = Peers(16, paths=2)
    if loses:
        lose_a_probe(peers)
    waits = [waits_ns(peers, number) for number in range(6)]
    assert waits == [each * BASE_RTT_NS // 4 for each in quarters]


@pytest.mark.parametrize("sent_before_ns", [0, 3_000, 6_000, 12_000, 13_000])
def test_a_path_is_waited_for_as_long_as_its_newest_packet_took(sent_before_ns):
    """And a quarter of the least round trip, if that left within half a round trip before."""
    peers = Peers(16, paths=2)
    lose_a_probe(peers)
    peers.post()
    sent = [peers.sender.poll_frame(peers.now_ns) for _ in range(14)]
    peers.now_ns += sent_before_ns
    sent += iter(lambda: peers.sender.poll_frame(peers.now_ns), None)
    sent = [Sent(frame, _native.decode_frame(frame, True)) for frame in sent]
    [probe] = of_kind(sent, PATH_PROBE)
    other = [each for each in of_kind(sent, DATA)[:14] if path(each) != path(probe)]
    here = [each for each in of_kind(sent, DATA) if path(each) == path(probe)]
    peers.hand(peers.receiver, *other)
    came_ns = peers.now_ns
    assert not nacks(peers.hand(peers.receiver, *here, probe))
    since_ns = peers.now_ns
    later_ns = came_ns - (since_ns - sent_before_ns)
    wait_ns = max(later_ns, 0) + BASE_RTT_NS // 4
    if sent_before_ns > BASE_RTT_NS // 2:
        wait_ns = BASE_RTT_NS // 2
    assert not nacks(peers.later(peers.receiver, wait_ns - 1_000))
    assert nacks(peers.later(peers.receiver, 1_000))


def test_both_copies_of_a_nack_name_a_packet_that_was_trimmed():
    """It came just before a probe that shows a loss."""
    peers = Peers(4)
    first, second, *_, probe = peers.begin(1)
    cut = Sent(_native.trim_frame(second.frame, False), {})
    found = nacks(peers.deliver(peers.receiver, first, cut, probe))
    named = [control.decode(each.body[: each.reported["length"]]).trimmed for each in found]
    assert named == [((0, 1),)] * 2


# ---------------------------------------------------------------- paths of probes

LOST_AT = 20  # in a report: lost packets, and bursts of losses


def known_losses(lost_packets, bursts, paths=4):
    """A sender whose peer reports losses."""
    peers = Peers(64, paths=paths, report_least_interval_ns=1_000)
    data = of_kind(peers.begin(1), DATA)
    peers.hand(peers.receiver, *data[:-1])
    [report, *_] = of_kind(peers.later(peers.receiver, 4 * BASE_RTT_NS), REPORT)
    peers.hand(peers.sender, changed(report, LOST_AT, ">Q", lost_packets << 32 | bursts))
    return peers


@pytest.mark.parametrize(("packets", "bursts", "copies"), [(0, 0, 1), (8, 6, 1), (8, 5, 2)])
def test_a_probe_leaves_in_two_copies_if_losses_come_in_bursts(packets, bursts, copies):
    """With more than 1.5 packets in a burst. The copy takes another path, and names the first's."""
    peers = known_losses(packets, bursts)
    probes = of_kind(peers.begin(2), PATH_PROBE)
    assert len({path(each) for each in probes}) == len(probes) == copies
    if copies == 2:
        first, copy = probes
        words = struct.unpack(f">{(copy.reported['length'] - 24) // 4}I", copy.body[24:])
        assert path(first) << 24 | first.reported["number"] + 1 in words
        assert copy.reported["attempt"] == 0


def test_neither_a_repeated_probe_nor_one_on_the_only_path_has_a_copy():
    assert len(of_kind(known_losses(8, 5, paths=1).begin(2), PATH_PROBE)) == 1
    peers = known_losses(8, 5)
    assert len(of_kind(peers.begin(2), PATH_PROBE)) == 2
    again = of_kind(peers.later(peers.sender, 16 * BASE_RTT_NS), PATH_PROBE)
    attempts = [each.reported["attempt"] for each in again]
    assert attempts == list(range(1, len(attempts) + 1)) != []


def test_an_answer_to_the_first_of_two_copies_postpones_the_repeated_probes():
    repeated_ns = []
    for answers in (False, True):
        peers = known_losses(8, 5)
        *data, first, _ = peers.begin(2)
        *_, nack = nacks(peers.hand(peers.receiver, *data[:-1], first))
        begin_ns = peers.now_ns
        peers.later(peers.sender, BASE_RTT_NS // 2)
        if answers:
            peers.hand(peers.sender, nack)
        while not of_kind(peers.later(peers.sender, 1_000), PATH_PROBE):
            assert peers.now_ns < begin_ns + 16 * BASE_RTT_NS
        repeated_ns.append(peers.now_ns - begin_ns)
    assert repeated_ns[1] >= repeated_ns[0] + BASE_RTT_NS // 2


def test_a_repeated_probe_takes_the_path_with_the_fewest_packets_on_their_way():
    """Only a path that is not the last one has brought all of its packets, as a report shows."""
    peers = Peers(16, paths=4, report_least_interval_ns=1_000)
    peers.post()
    sent = []
    while frame := peers.sender.poll_frame(peers.now_ns):
        sent.append(Sent(frame, _native.decode_frame(frame, True)))
        peers.now_ns += 100
    *data, probe = sent
    whole = path(data[1])
    assert path(probe) != whole
    found = peers.hand(peers.receiver, *data[:4], data[5], data[9], data[13])
    found += peers.later(peers.receiver, 3 * BASE_RTT_NS)
    peers.hand(peers.sender, of_kind(found, REPORT)[-1])
    again = of_kind(peers.later(peers.sender, 16 * BASE_RTT_NS), PATH_PROBE)
    assert [each.reported["attempt"] for each in again][:2] == [1, 2]
    assert {path(each) for each in again} == {whole}


def test_a_probe_that_names_a_path_beyond_all_is_refused():
    peers = Peers(16, paths=4)
    probe = peers.begin(1)[-1]
    changed_ = changed(probe, 24, ">I", 16 << 24)
    peers.hand(peers.receiver, changed_)
    assert peers.receiver.counters()["rx_bad_header"] == 1


def test_a_probe_is_repeated_after_five_quarters_of_a_round_trip():
    peers = Peers(8)
    begin_ns = peers.now_ns
    assert len(of_kind(peers.begin(1), PATH_PROBE)) == 1
    while not of_kind(peers.later(peers.sender, 1_000), PATH_PROBE):
        assert peers.now_ns < begin_ns + 4 * BASE_RTT_NS
    assert peers.now_ns == begin_ns + BASE_RTT_NS * 5 // 4


# ---------------------------------------------------------------- what answers a probe


def probed_twice():
    """Of two messages the tail of the first is lost, and both probes; the NACK of the first."""
    peers = Peers(8)
    *first, _, probe = peers.begin(1)
    [nack] = nacks(peers.hand(peers.receiver, *first, probe))[:1]
    assert len(of_kind(peers.begin(2), PATH_PROBE)) == 1
    return peers, nack


def repeated(peers):
    return [
        each.reported["attempt"]
        for each in of_kind(peers.later(peers.sender, 4 * BASE_RTT_NS), PATH_PROBE)
    ]


def test_an_answer_to_an_earlier_probe_does_not_end_the_repeats():
    peers, nack = probed_twice()
    peers.hand(peers.sender, nack)
    assert repeated(peers)[:1] == [1]


@pytest.mark.parametrize("probe", [1, 2])
def test_an_answer_to_this_probe_or_a_later_one_postpones_them(probe):
    """The answer does not end the repeated probes. The packets that the answer names may still
    arrive, and then the acknowledgement may be lost."""
    peers, nack = probed_twice()
    soon_ns = BASE_RTT_NS * 9 // 10
    peers.later(peers.sender, soon_ns)
    peers.hand(peers.sender, changed(nack, PROBE_AT, ">H", probe))
    assert of_kind(peers.later(peers.sender, soon_ns), PATH_PROBE) == []
    assert repeated(peers)[:1] == [1]


def test_a_probe_that_was_overtaken_is_not_the_newest():
    """The NACK that follows names the later one."""
    peers = Peers(8)
    *first, lost, earlier = peers.begin(1)
    later = peers.begin(2)[-1]
    peers.hand(peers.receiver, *first, later)
    [nack] = nacks(peers.hand(peers.receiver, earlier))[-1:]
    assert lost.reported["kind"] == DATA
    assert control.decode(nack.body[: nack.reported["length"]]).newest_probe == 1


def test_nacks_name_all_messages_in_turn_when_one_has_no_room_for_them():
    """Twenty messages lack their second packet; a NACK has room for eight."""
    peers, messages, named = Peers(3), 20, collections.Counter()
    for number in range(messages):
        first, _, third, *_ = of_kind(peers.begin(number), DATA)
        for nack in nacks(peers.hand(peers.receiver, first, third)):
            words = control.decode(nack.body[: nack.reported["length"]]).words
            named.update({id_ for id_, _, bits in words if bits})
    assert len(named) >= messages - 1  # the NACK of the last may name others


# ---------------------------------------------------------------- what a repeated probe asks


def test_a_probe_names_the_oldest_message_whatever_ids_were_left_out():
    """Ids of a slot that stays in use are passed over: the oldest lies further back than slots."""
    peers = Peers(1, message_slots=4)
    for number in range(12):
        sent = peers.begin(number)
        posted = [each for each in peers.sender.take_events() if each.kind.name == "SEND_POSTED"]
        [probe] = of_kind(sent, PATH_PROBE)
        assert probe.reported["message_id"] == 0
        if number:
            peers.sender.complete_send(posted[0].handle, STATUS_SUCCESS)
    [data] = of_kind(sent, DATA)
    assert data.reported["message_id"] > 12


def test_a_repeated_probe_has_sixteen_messages_acknowledged_again_the_oldest_first():
    peers = Peers(1)
    sent = [each for number in range(20) for each in peers.begin(number)]
    peers.hand(peers.receiver, *of_kind(sent, DATA))
    peers.receiver.take_events()
    [again] = of_kind(peers.later(peers.sender, 2 * BASE_RTT_NS), PATH_PROBE)[:1]
    peers.hand(peers.receiver, again)
    late = [each.id for each in peers.receiver.take_events() if each.kind.name == "LATE_PACKET"]
    assert late == list(range(16))


def test_what_is_reported_alone_waits_for_four_round_trips_at_most():
    """The sender's timers wait for reports: in a long queue packets come one by one for long."""
    peers = Peers(64, report_least_interval_ns=1_000)
    data = of_kind(peers.begin(1), DATA)
    for each in data[:4]:
        assert not peers.hand(peers.receiver, each)
        if each is not data[3]:
            assert not peers.later(peers.receiver, BASE_RTT_NS)
    assert not peers.later(peers.receiver, BASE_RTT_NS // 2)
    assert kinds(peers.later(peers.receiver, BASE_RTT_NS // 2)) == [REPORT]
