# SPDX-License-Identifier: GPL-2.0-or-later
"""Captures with real rings and the real monitor: what was sent is in the file, all of it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from softroce_lab.errors import RunError
from softroce_lab.fabric.bpf import libbpf as bpf
from softroce_lab.fabric.daemons import monitor
from softroce_lab.fabric.faults import add_rule_texts
from softroce_lab.fabric.observe.capture import Capture
from softroce_lab.plan import locate
from softroce_lab.plan.effects import CERTAIN, Corrupt, Fault, RandomLoss
from softroce_lab.telemetry import capture_file
from tests.fabric.daemons.test_monitor import TIMEOUT_S, monitoring
from tests.fabric.xdp_rig import Rig, directed_links, lab_header, listening, roce

PATIENCE_S = 20.0
SLACK_NS = 10**9  # somebody may set the machine's clock


@pytest.fixture
def rig(shared_rig, tmp_path) -> Iterator[Rig]:
    """With a monitor in `tmp_path`, and nothing of an earlier test in the rings."""
    shared_rig.refresh()
    with monitoring(shared_rig, tmp_path):
        monitor.sync(tmp_path, TIMEOUT_S)
        yield shared_rig


def link(rig: Rig, name: str) -> dict[int, str]:
    return {number: each for number, each in locate.arrows(rig.plan).items() if each == name}


def frames(rig: Rig, count: int, size: int = 200) -> list[bytes]:
    ends = rig.address("h1"), rig.address("h2")
    return [
        roce(*ends, psn=index, lab=lab_header(message=3, index=index, count=count), size=size)
        for index in range(count)
    ]


def send(rig: Rig, count: int, size: int = 200) -> list[bytes]:
    """What was sent."""
    sent = frames(rig, count, size)
    with listening(rig, "h2"):
        rig.carry("h1", "h2", sent)
    return sent


@contextlib.contextmanager
def capturing(directory: Path, links: dict[int, str], path: Path, **options: int):
    with path.open("wb") as file:
        capture = Capture(directory, links, file.fileno(), **options)
    with capture:
        yield capture


def snaps(rig: Rig) -> dict[int, int]:
    """What the XDP programs are to copy of each link that is captured."""
    with contextlib.closing(bpf.Map.pinned(rig.bpffs / "taps")) as taps:
        values = {
            number: int.from_bytes(taps.get(number.to_bytes(4, "little"))[:4], "little")
            for number, _, _ in directed_links(rig.plan.links)
        }
    return {number: value for number, value in values.items() if value}


def comments(found: capture_file.Capture) -> list[str | None]:
    rows = found.packets["comment"].tolist()
    return [found.comments[row] if row >= 0 else None for row in rows]


def test_every_packet_that_was_sent_is_in_the_capture(rig, tmp_path):
    links = link(rig, "h1->s1") | link(rig, "s1->h2")
    path = tmp_path / "trace.pcapng"
    begin_ns = time.time_ns() - SLACK_NS
    with capturing(tmp_path, links, path) as capture:
        sent = send(rig, 200)
        figures = capture.end()
    found = capture_file.read(path)
    assert not found.notes
    assert [each.name for each in found.interfaces] == ["h1->s1", "s1->h2"]
    assert [(each.received, each.dropped) for each in found.interfaces] == [(200, 0)] * 2
    assert [(each.received, each.missed) for each in figures.interfaces] == [(200, 0)] * 2
    rows = found.packets
    uplink = rows[rows["interface"] == 0]
    assert [found.frame(number) for number in uplink["number"].tolist()] == sent
    for interface in (0, 1):
        assert rows[rows["interface"] == interface]["lab_index"].tolist() == list(range(200))
    assert begin_ns < rows["time_ns"][0] <= rows["time_ns"][-1] < time.time_ns() + SLACK_NS


def test_what_was_dropped_is_there_and_says_why(rig, tmp_path):
    (number,) = link(rig, "s1->h2")
    faults = [
        Fault("half", 9, number, "identity", 77, RandomLoss(2**63)),
        Fault("noise", 10, number, "index", 78, Corrupt(2**62)),
    ]
    add_rule_texts(faults, tmp_path)
    rig.xdp.set_faults(faults)
    path = tmp_path / "trace.pcapng"
    with capturing(tmp_path, link(rig, "s1->h2"), path, snap_bytes=90) as capture:
        sent = send(rig, 300)
        capture.end()
    found = capture_file.read(path)
    output = comments(found)
    assert len(output) == 300
    dropped, corrupted = "dropped: random 50%, rule half", "corrupted: 25%, rule noise"
    assert set(output) == {None, dropped, corrupted}
    assert output.count(dropped) == rig.total("injected_tx")
    assert output.count(corrupted) == rig.total("corrupted")
    assert {*found.packets["captured"].tolist()} == {90}
    assert {*found.packets["length"].tolist()} == {len(sent[0])}
    beginnings = [frame[14 + 12 : 90] for frame in sent]  # behind MACs, TTL and checksum
    assert [found.frame(n)[26:] for n in found.packets["number"].tolist()] == beginnings


def test_rules_that_come_while_a_capture_runs_are_known_by_name(rig, tmp_path):
    (number,) = link(rig, "s1->h2")
    path = tmp_path / "trace.pcapng"
    with capturing(tmp_path, link(rig, "s1->h2"), path) as capture:
        for rule_id in range(3):
            faults = [Fault(f"cut-{rule_id}", rule_id, number, "index", 1, RandomLoss(CERTAIN))]
            add_rule_texts(faults, tmp_path)
            rig.xdp.set_faults(faults)
            send(rig, 2)
        rig.xdp.set_faults([Fault("?", 70, number, "index", 1, RandomLoss(CERTAIN))])
        send(rig, 1)
        rig.xdp.clear_faults()
        send(rig, 1)
        capture.end()
    output = [f"dropped: random 100%, rule cut-{n}" for n in (0, 0, 1, 1, 2, 2)]
    assert comments(capture_file.read(path)) == [*output, "dropped: rule 70", None]


def test_two_captures_of_one_link_have_each_what_it_asked_for(rig, tmp_path):
    links = link(rig, "s1->h2")
    (number,) = links
    first, second = tmp_path / "1.pcapng", tmp_path / "2.pcapng"
    with capturing(tmp_path, links, first, snap_bytes=70) as short:
        send(rig, 3)
        assert snaps(rig) == {number: 70}
        with capturing(tmp_path, links, second) as whole:
            assert snaps(rig) == {number: 4096}
            sent = send(rig, 4)
            whole.end()
        assert snaps(rig) == {number: 70}
        send(rig, 2)
        short.end()
    assert snaps(rig) == {}
    assert capture_file.read(first).packets["captured"].tolist() == [70] * 9
    assert capture_file.read(second).packets["captured"].tolist() == [len(sent[0])] * 4


def test_it_ends_by_itself_after_so_many_packets(rig, tmp_path):
    path = tmp_path / "trace.pcapng"
    with capturing(tmp_path, link(rig, "s1->h2"), path, most_packets=5) as capture:
        assert capture.wait(0) is None
        send(rig, 25)
        figures = capture.wait(PATIENCE_S)
        assert figures is not None
        assert figures.captured == 5
        assert capture.end() == figures
        assert capture.figures() == figures
    assert capture_file.read(path).packets["lab_index"].tolist() == [0, 1, 2, 3, 4]
    assert snaps(rig) == {}


def test_captures_are_whole_when_the_monitor_is_told_to_end(shared_rig, tmp_path):
    shared_rig.refresh()
    path = tmp_path / "trace.pcapng"
    with monitoring(shared_rig, tmp_path) as process:
        monitor.sync(tmp_path, TIMEOUT_S)
        with capturing(tmp_path, link(shared_rig, "s1->h2"), path) as capture:
            send(shared_rig, 6)
            process.send_signal(signal.SIGTERM)
            figures = capture.wait(PATIENCE_S)
            assert figures is not None
            assert (figures.captured, figures.error) == (6, 0)
            assert process.wait(TIMEOUT_S) == 0
    found = capture_file.read(path)
    assert (len(found.packets), found.interfaces[0].received) == (6, 6)


def test_a_capture_that_fills_its_file_system_ends_whole_and_says_so(rig, tmp_path, small):
    links = link(rig, "h1->s1") | link(rig, "s1->h2")
    path = small / "trace.pcapng"
    with capturing(tmp_path, links, path) as capture:
        for _ in range(10):
            send(rig, 40, size=2000)
        figures = capture.wait(PATIENCE_S)
        assert figures is not None
        assert figures.error == errno.ENOSPC
    assert snaps(rig) == {}
    found = capture_file.read(path)
    assert not found.notes
    assert [(i.received, i.dropped) for i in found.interfaces] == [
        (each.received, each.missed) for each in figures.interfaces
    ]
    assert len(found.packets) == figures.captured > 150
    assert figures.missed > 0


def test_what_the_ring_cannot_hold_is_counted(shared_rig, tmp_path):
    """A monitor that does not come for a while: what it finds then and what is lost make all."""
    shared_rig.refresh()
    before = shared_rig.xdp.missed()
    path = tmp_path / "trace.pcapng"
    with monitoring(shared_rig, tmp_path) as process:
        monitor.sync(tmp_path, TIMEOUT_S)
        with capturing(tmp_path, link(shared_rig, "s1->h2"), path) as capture:
            process.send_signal(signal.SIGSTOP)
            send(shared_rig, 4500, size=2000)
            process.send_signal(signal.SIGCONT)
            figures = capture.end()
    (interface,) = figures.interfaces
    assert interface.received == 4500
    assert interface.missed == shared_rig.total("capture_lost") > 0
    (directed,) = link(shared_rig, "s1->h2")
    before[directed] += interface.missed
    assert shared_rig.xdp.missed() == before
    found = capture_file.read(path)
    assert len(found.packets) == figures.captured
    assert [(i.received, i.dropped) for i in found.interfaces] == [(4500, interface.missed)]


def piped(rig: Rig, directory: Path, **options: int) -> tuple[Capture, int]:
    """A capture into a pipe, and the end to read from."""
    source, sink = os.pipe()
    capture = Capture(directory, link(rig, "s1->h2"), sink, **options)
    os.close(sink)
    return capture, source


def all_of(source: int) -> bytes:
    with open(source, "rb") as pipe:
        return pipe.read()


def test_a_slow_reader_of_a_pipe_is_waited_for_by_nobody(rig, tmp_path):
    capture, source = piped(rig, tmp_path)
    for _ in range(6):
        send(rig, 500, size=2000)  # 6 MB, of which pipe and monitor hold 1 and 4 MiB
    waiting = capture.figures()
    assert waiting.missed > 0
    monitor.sync(tmp_path, TIMEOUT_S)  # it serves others meanwhile
    (tmp_path / "trace.pcapng").write_bytes(read_while_ending(capture, source))
    found = capture_file.read(tmp_path / "trace.pcapng")
    assert not found.notes
    assert (found.interfaces[0].received, found.interfaces[0].dropped) == (3000, waiting.missed)
    assert len(found.packets) == 3000 - waiting.missed > 1500


def read_while_ending(capture: Capture, source: int) -> bytes:
    import threading

    data: list[bytes] = []
    reader = threading.Thread(target=lambda: data.append(all_of(source)))
    reader.start()
    capture.end()
    capture.close()
    reader.join(PATIENCE_S)
    return data[0]


def test_a_reader_that_goes_away_in_the_middle_of_a_packet(rig, tmp_path):
    capture, source = piped(rig, tmp_path)
    path = tmp_path / "trace.pcapng"
    with capture, capturing(tmp_path, link(rig, "s1->h2"), path) as other:
        send(rig, 800, size=2000)  # of which the pipe takes 1 MiB
        monitor.sync(tmp_path, TIMEOUT_S)
        os.close(source)
        send(rig, 3)
        figures = capture.wait(PATIENCE_S)
        assert figures is not None
        assert figures.error == errno.EPIPE
        assert figures.captured < 800 <= figures.captured + figures.missed <= 803
        assert other.end().captured == 803


def test_what_makes_no_sense_is_refused_and_harms_nobody(rig, tmp_path):
    with (tmp_path / "trace.pcapng").open("wb") as file, pytest.raises(RunError, match="Invalid"):
        Capture(tmp_path, {4711: "far->away"}, file.fileno())
    with (tmp_path / "trace.pcapng").open("rb") as file, pytest.raises(RunError, match="Bad file"):
        Capture(tmp_path, link(rig, "s1->h2"), file.fileno())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.connect(str(tmp_path / monitor.SOCKET))
        stranger.send(b"hello")
        stranger.settimeout(TIMEOUT_S)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(100) == b""
    with monitor.Connection(tmp_path) as connection:
        connection.send(monitor.Word.END)
        assert connection.receive().error == errno.EINVAL
    monitor.sync(tmp_path, TIMEOUT_S)
