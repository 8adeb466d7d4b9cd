# SPDX-License-Identifier: GPL-2.0-or-later
"""Paths whose control packets are lost: what probes count, and when a path takes another port."""

import pytest

from softroce_lab import _native
from softroce_lab.transports import control
from tests import control_bodies
from tests.native import frames
from tests.native.by_hand import BASE_RTT_NS, Sent
from tests.native.test_path_control import (
    DATA,
    PATH_PROBE,
    REPORT,
    Peers,
    changed,
    kinds,
    nacks,
    of_kind,
)
from tests.native.test_path_marks import marked
from tests.transports.pair_rig import MILLISECOND_NS

PATHS = 2
SRTT_AT = 36 - frames.LAB  # in the header, from the body back; below 2048 ns
COUNTS_AT, COUNTS = 4, 16
FIXED = COUNTS_AT + COUNTS + 4  # the id of the sender's next message
CNP = 0x81
KEEPALIVE = control_bodies.encode(control.Keepalive(()))
TRIAL_NS = 64 * BASE_RTT_NS


class Ports(Peers):
    """The receiver sends control packets, and the test tells it by probes which have arrived."""

    def __init__(self, srtt_ns=0, **settings):
        super().__init__(8, paths=PATHS, **settings)
        sent = self.begin(1)
        [self.probe] = of_kind(sent, PATH_PROBE)
        self.data = [changed(each, SRTT_AT, ">H", srtt_ns) for each in of_kind(sent, DATA)]
        self.hand(self.receiver, *self.data)  # nothing is missing

    def control_ports(self, packets):
        """The ports of so many control packets, which leave at once."""
        for _ in range(packets):
            self.receiver.control(0, KEEPALIVE)
        return [each.reported["path"] for each in self.all_out(self.receiver)]

    def tell(self, *counts, newest_ns=None):
        """A probe with these counts; `newest_ns`: when the newest left, else by now."""
        probe = changed(self.probe, 0, ">I", self.now_ns if newest_ns is None else newest_ns)
        for path, count in enumerate(counts):
            probe = changed(probe, COUNTS_AT + path, "B", count % 256)
        self.hand(self.receiver, probe)

    def moved(self):
        return self.receiver.counters().get("tx_path_moved", 0)


def with_body(probe, body):
    """A probe with another body, of any length."""
    at = frames.layout(probe.frame).bth_at
    numbers = {name: probe.reported[name] for name in ("path", "number", "message", "message_id")}
    frame = frames.Frame(
        destination_qp=int.from_bytes(probe.frame[at + 5 : at + 8], "big"),
        qkey=int.from_bytes(probe.frame[at + frames.BTH : at + frames.BTH + 4], "big"),
        source_qp=int.from_bytes(probe.frame[at + frames.BTH + 5 : at + frames.BTH + 8], "big"),
        lab=frames.Lab(kind=PATH_PROBE, length=len(body), **numbers),
        payload=body,
    ).encode()
    return Sent(frame, _native.decode_frame(frame, True))


def source_ports(sent):
    """Of CNPs, less that of path 0."""
    found = set()
    for frame in (each.frame for each in sent):
        at = frames.layout(frame)
        if frame[at.bth_at] == CNP:
            found.add(int.from_bytes(frame[at.udp_at : at.udp_at + 2], "big") - frames.SPORT_BASE)
    return found


@pytest.fixture
def ports():
    return Ports()


# ---------------------------------------------------------------- who sends control packets


@pytest.mark.parametrize(("packets", "moves"), [(2, 0), (3, 1)])
def test_a_path_is_dead_after_three_control_packets(ports, packets, moves):
    """All on path 0 arrive; of those on path 1 none. While that is in doubt, path 0 goes first."""
    assert ports.control_ports(2 * packets) == [0, 1] * packets
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(packets, 0)
    assert ports.moved() == moves
    assert ports.control_ports(2) == [0, 17 if moves else 0]


@pytest.mark.parametrize(("srtt_ns", "slack_ns"), [(0, BASE_RTT_NS), (2_000, 2_000)])
def test_what_has_arrived_must_have_left_a_round_trip_after_the_third(srtt_ns, slack_ns):
    """SRTT of the sender of data. The first two are older. When the probe comes does not matter."""
    ports = Ports(srtt_ns)
    ports.control_ports(4)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.control_ports(2)
    third_ns = ports.now_ns
    ports.now_ns += 9 * BASE_RTT_NS
    ports.tell(1, 0, newest_ns=third_ns + slack_ns - 1)
    assert ports.moved() == 0
    ports.tell(2, 0, newest_ns=third_ns + slack_ns)
    assert ports.moved() == 1


def test_an_arrival_clears_the_path(ports):
    ports.control_ports(4)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(2, 1)
    ports.control_ports(4)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(4, 1)
    assert ports.moved() == 0
    assert sorted(ports.control_ports(4)) == [0, 0, 0, 1]  # path 1 has two in doubt
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(7, 1)
    assert ports.moved() == 1


def test_where_no_control_packet_arrives_no_path_is_dead(ports):
    ports.control_ports(12)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(0, 0)
    assert ports.moved() == 0


def test_an_overtaken_probe_says_nothing(ports):
    """What it knows is older than the packets."""
    ports.tell(1, 1)
    early_ns = ports.now_ns
    ports.control_ports(6)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(2, 1, newest_ns=early_ns)
    ports.tell(1, 1, newest_ns=early_ns)
    assert ports.moved() == 0


def test_a_timestamp_from_the_future_says_nothing(ports):
    """It is older than half a turn of the clock."""
    ports.control_ports(6)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(3, 0, newest_ns=ports.now_ns + BASE_RTT_NS)
    assert ports.moved() == 0


@pytest.mark.parametrize(("sent", "arrived", "moves"), [(127, 0, 1), (256, 256, 0), (300, 0, 0)])
def test_counts_that_have_wrapped_are_not_taken_for_none(ports, sent, arrived, moves):
    """256 more packets look as none. With the next probe a dead path shows."""
    ports.control_ports(2 * sent)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(sent + 1, arrived)
    assert ports.moved() == moves
    ports.control_ports(6)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(sent + 4, arrived)
    assert ports.moved() == moves + 1


def test_a_path_begins_anew_on_its_next_port(ports):
    """Control packets that were lost on the old port do not count as losses on the new one."""
    ports.control_ports(6)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(3, 0)
    ports.control_ports(4)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(5, 0)
    assert ports.moved() == 1
    ports.control_ports(4)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(8, 0)
    assert ports.control_ports(2) == [0, 33]


@pytest.mark.parametrize("carries", [True, False])
def test_the_first_port_is_tried_again_and_left_after_one_packet(ports, carries):
    ports.control_ports(6)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(3, 0)
    assert ports.control_ports(2) == [0, 17]
    ports.now_ns += TRIAL_NS
    ports.tell(4, 1)
    assert ports.control_ports(2) == [0, 1]
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(5, 2 if carries else 1)
    assert ports.control_ports(2) == [0, 1 if carries else 17]


def test_a_cnp_takes_the_port_of_its_path():
    ports = Ports(congestion_control="dcqcn")
    assert source_ports(ports.hand(ports.receiver, marked(ports.data[0]))) <= {0, 1}
    ports.control_ports(6)
    ports.now_ns += 2 * BASE_RTT_NS
    ports.tell(3, 0)
    found = set()
    for _ in range(4):
        ports.now_ns += MILLISECOND_NS
        found |= source_ports(ports.hand(ports.receiver, marked(ports.data[0])))
    assert found == {0, 17}


# ---------------------------------------------------------------- who receives them


def test_a_probe_counts_control_packets_by_path():
    """Reports, NACKs and other control messages, on any port of the path; not data."""
    peers = Peers(64, paths=PATHS, report_least_interval_ns=1_000)
    data = of_kind(peers.begin(1), DATA)
    sent = peers.hand(peers.receiver, data[0], data[4], data[8])  # two gaps on path 0
    peers.receiver.control(0, KEEPALIVE)
    sent += peers.later(peers.receiver, 10 * BASE_RTT_NS)
    counts = [0] * COUNTS
    for each in sent:
        counts[each.reported["path"]] += 1
    assert sum(counts) >= 3
    assert of_kind(sent, REPORT) or any(len(each.body) > each.reported["length"] for each in sent)
    found = peers.hand(peers.sender, *sent)
    probes = of_kind(found + peers.later(peers.sender, 10 * BASE_RTT_NS), PATH_PROBE)
    assert list(probes[-1].body[COUNTS_AT : COUNTS_AT + COUNTS]) == counts
    stamps = [each.reported["stamp_ns"] for each in sent]
    assert int.from_bytes(probes[-1].body[:COUNTS_AT], "big") == max(stamps)


@pytest.mark.parametrize(
    ("arrive", "probes"), [((0, 3), 0), ((0, 4), 1), ((3,), 1), ((2, 1, 4), 0)]
)
def test_a_sender_that_misses_three_reports_probes_at_once(arrive, probes):
    """Although it sends on. A report that is only late is not missing."""
    peers = Peers(4096, paths=PATHS, window_packets=256)
    peers.begin(1)
    for _ in range(5):
        peers.receiver.control(0, KEEPALIVE)
    sent = peers.all_out(peers.receiver)
    found = peers.hand(peers.sender, *(sent[number] for number in arrive))
    assert len(of_kind(found, PATH_PROBE)) == probes


def test_a_probe_is_enough_until_three_more_are_missing():
    """A NACK has a number of another kind."""
    peers = Peers(4096, paths=PATHS, window_packets=256)
    data = of_kind(peers.begin(1), DATA)
    [nack] = nacks(peers.hand(peers.receiver, data[0], data[4]))
    for _ in range(8):
        peers.receiver.control(0, KEEPALIVE)
    sent = peers.all_out(peers.receiver)
    found = [peers.hand(peers.sender, each) for each in (sent[0], nack, sent[4])]
    assert [kinds(each).count(PATH_PROBE) for each in found] == [0, 0, 1]
    peers.hand(peers.receiver, of_kind(found[0] + found[1], DATA)[-1])
    for _ in range(2):
        peers.receiver.control(0, KEEPALIVE)  # the first with a report, which opens the window
    found = kinds(peers.hand(peers.sender, *sent[5:], *peers.all_out(peers.receiver)))
    assert DATA in found
    assert PATH_PROBE not in found


@pytest.mark.parametrize(
    "body",
    [b"", bytes(16), bytes(23), bytes(25), bytes(26), bytes(92), bytes(FIXED) + b"\x10\0\0\0"],
)
def test_a_malformed_probe_is_refused(ports, body):
    """Too short, too long, a cut path, a path that is none."""
    before = ports.receiver.counters().get("rx_bad_header", 0)
    ports.hand(ports.receiver, with_body(ports.probe, body))
    assert ports.receiver.counters().get("rx_bad_header", 0) == before + 1
    assert not ports.receiver.counters().get("rx_probe", 0)
    ports.hand(ports.receiver, with_body(ports.probe, bytes(FIXED)))
    assert ports.receiver.counters()["rx_probe"] == 1


# ---------------------------------------------------------------- who sends data


def sent_at_different_times(peers):
    """Data packets that the sender may send now, one each 100 ns."""
    sent = []
    while (frame := peers.sender.poll_frame(peers.now_ns)) is not None:
        sent.append(Sent(frame, _native.decode_frame(frame, True)))
        peers.now_ns += 100
    return of_kind(sent, DATA)


@pytest.mark.parametrize(("queues", "moves"), [((2, 2), 0), ((2, 6), 2)])
def test_a_path_that_carries_less_than_its_share_takes_another_port(queues, moves):
    """So many packets of each path always wait in a queue on their way. 64 packets are compared."""
    peers = Peers(150, paths=PATHS, window_packets=16)
    peers.post()
    waiting, sent = [[], []], sent_at_different_times(peers)
    while sent:
        arrive = []
        for path, queued in enumerate(queues):
            waiting[path] += [each for each in sent if each.reported["path"] % 16 == path]
            leave = max(len(waiting[path]) - queued, 0)
            arrive += waiting[path][:leave]
            del waiting[path][:leave]
        arrive.sort(key=lambda each: each.reported["index"])
        for report in of_kind(peers.hand(peers.receiver, *arrive), REPORT):
            peers.sender.handle_frame(report.frame, peers.now_ns)
        sent = sent_at_different_times(peers)
    assert peers.sender.counters().get("tx_path_moved", 0) == moves
