# SPDX-License-Identifier: GPL-2.0-or-later
"""softroce-monitor with real rings: drop records and captures reach their files, all of them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from softroce_lab.errors import RunError
from softroce_lab.fabric import monitor, syscalls
from softroce_lab.faults.effects import CERTAIN, Fault, RandomLoss
from softroce_lab.paths import TOPOLOGIES
from softroce_lab.telemetry.drops import KIND_NONE, read_captures, read_drops
from softroce_lab.topology import loader
from tests.fabric.xdp_rig import Rig, directed_links, lab_header, listening, number, roce

TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def shared_rig(tmp_path_factory) -> Iterator[Rig]:
    plan = loader.load(TOPOLOGIES / "leaf-spine.yaml")
    rig = Rig(plan, "generic", tmp_path_factory.mktemp("xdp"))
    yield rig
    rig.close()


@contextlib.contextmanager
def monitoring(rig: Rig, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(monitor.argv(rig.bpffs, directory))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def small(tmp_path) -> Iterator[Path]:
    """A file system of 512 KiB in memory."""
    folder = tmp_path / "small"
    folder.mkdir()
    syscalls.mount("small", str(folder), "tmpfs", 0, "size=512k")
    yield folder
    syscalls.umount(str(folder))


@pytest.fixture
def rig(shared_rig, tmp_path) -> Rig:
    shared_rig.refresh()
    with monitoring(shared_rig, tmp_path):  # takes away what an earlier test left in the rings
        monitor.sync(tmp_path, TIMEOUT_S)
    for name in (monitor.DROPS, monitor.CAPTURE, monitor.SOCKET):
        (tmp_path / name).unlink(missing_ok=True)
    return shared_rig


def uplink(rig: Rig) -> int:
    return next(link for link, near, _ in directed_links(rig.plan.links) if near.node == "h1")


def cut(link: int, rule_id: int = 3) -> Fault:
    return Fault("cut", rule_id, link, "identity", 1, RandomLoss(CERTAIN))


def send(rig: Rig, count: int, **fields: int) -> None:
    with listening(rig, "h3"), rig.tap("h1") as sender:
        for index in range(count):
            header = lab_header(index=index, **fields)
            psn, sport = 0xABC000 + index, 0xC003
            sender.send(
                roce(rig.address("h1"), rig.address("h3"), sport=sport, psn=psn, lab=header)
            )
        rig.settle()


def test_a_drop_record_says_what_was_lost_where_when_and_why(rig, tmp_path):
    link = uplink(rig)
    rig.xdp.set_faults([cut(link)])
    began_ns = time.monotonic_ns()
    with monitoring(rig, tmp_path):
        send(rig, 4, operation=1, step=2, message=3, attempt=5)
        sizes = monitor.sync(tmp_path, TIMEOUT_S)
        drops = read_drops(tmp_path / monitor.DROPS)
    assert sizes.drops_bytes == 16 + 4 * drops.itemsize
    assert list(drops["index"]) == [0, 1, 2, 3]
    assert list(drops["psn"]) == [0xABC000 + i for i in range(4)]
    expected = {
        "directed_link": link,
        "rule_id": 3,
        "src": number(rig.address("h1")),
        "dst": number(rig.address("h3")),
        "operation": 1,
        "step": 2,
        "message": 3,
        "attempt": 5,
        "kind": 0,
        "sport": 0xC003,
        "qpn": 17,
        "length": len(roce("10.0.0.1", "10.0.0.2")),
    }
    for field, value in expected.items():
        assert set(drops[field]) == {value}, field
    assert np.all(np.diff(drops["time_ns"].astype(np.int64)) >= 0)
    assert began_ns < drops["time_ns"][0] <= drops["time_ns"][-1] < time.monotonic_ns()


def test_a_frame_without_headers_of_ours_is_recorded_too(rig, tmp_path):
    rig.xdp.set_faults([cut(uplink(rig))])
    frame = roce(rig.address("h1"), rig.address("h3"), dport=9999)
    with monitoring(rig, tmp_path), rig.tap("h1") as sender:
        sender.send(frame)
        rig.settle()
        monitor.sync(tmp_path, TIMEOUT_S)
        (drop,) = read_drops(tmp_path / monitor.DROPS)
    assert drop["kind"] == KIND_NONE
    assert [drop[field] for field in ("psn", "qpn", "message", "index", "attempt")] == [0] * 5
    assert drop["length"] == len(frame)


def test_reading_a_span_of_time(rig, tmp_path):
    rig.xdp.set_faults([cut(uplink(rig))])
    with monitoring(rig, tmp_path):
        send(rig, 3)
        middle_ns = time.monotonic_ns()
        send(rig, 2)
        monitor.sync(tmp_path, TIMEOUT_S)
        path = tmp_path / monitor.DROPS
        assert len(read_drops(path, until_ns=middle_ns)) == 3
        assert len(read_drops(path, since_ns=middle_ns)) == 2
        assert len(read_drops(path, since_ns=middle_ns, until_ns=middle_ns)) == 0


def test_a_capture_shows_passed_and_dropped_packets_as_they_are_on_the_link(rig, tmp_path):
    leaf_up = [link for link, near, far in directed_links(rig.plan.links)
               if near.node.startswith("leaf") and far.node.startswith("spine")]  # fmt: skip
    half = RandomLoss(2**63)
    rig.xdp.set_faults([Fault("half", 9, link, "identity", 77, half) for link in leaf_up])
    for link in leaf_up:
        rig.xdp.capture(link, 90)
    with monitoring(rig, tmp_path):
        send(rig, 60)
        monitor.sync(tmp_path, TIMEOUT_S)
        drops = read_drops(tmp_path / monitor.DROPS)
        packets = list(read_captures(tmp_path / monitor.CAPTURE))
    ours = [packet for packet in packets if packet.data[42:44] != b""]
    assert len(ours) == 60
    assert {packet.rule_id for packet in ours} == {None, 9}
    assert sum(packet.rule_id == 9 for packet in ours) == len(drops)
    assert {len(packet.data) for packet in ours} == {90}
    assert {packet.length for packet in ours} == {len(roce("10.0.0.1", "10.0.0.2"))}
    macs = {near.mac for link, near, _ in directed_links(rig.plan.links) if link in leaf_up}
    assert {packet.data[6:12].hex(":") for packet in ours} <= macs
    assert {packet.data[22] for packet in ours} == {63}


def test_capture_ends_when_told_to(rig, tmp_path):
    link = uplink(rig)
    rig.xdp.capture(link)
    send(rig, 2)
    rig.xdp.capture(link, 0)
    send(rig, 2)
    with monitoring(rig, tmp_path):
        monitor.sync(tmp_path, TIMEOUT_S)
    assert len(list(read_captures(tmp_path / monitor.CAPTURE))) == 2


def test_whole_frames_can_be_captured(rig, tmp_path):
    rig.xdp.capture(uplink(rig), 4096)
    frame = roce(rig.address("h1"), rig.address("h3"), size=2000)
    with monitoring(rig, tmp_path), rig.tap("h1") as sender, listening(rig, "h3"):
        sender.send(frame)
        rig.settle()
        monitor.sync(tmp_path, TIMEOUT_S)
    (packet,) = read_captures(tmp_path / monitor.CAPTURE)
    assert packet.data == frame


def test_a_capture_that_nobody_drains_is_counted(rig, tmp_path):
    rig.xdp.capture(uplink(rig), 4096)
    frame = roce(rig.address("h1"), rig.address("h3"), size=2000)
    with rig.tap("h1") as sender, listening(rig, "h3"):
        for _ in range(2300):
            sender.send(frame)
        rig.settle()
    with monitoring(rig, tmp_path):
        monitor.sync(tmp_path, TIMEOUT_S)
    captured = len(list(read_captures(tmp_path / monitor.CAPTURE)))
    assert rig.total("capture_lost") > 0
    assert captured + rig.total("capture_lost") == 2300


def test_a_drop_that_nobody_drains_is_counted(rig, tmp_path):
    rig.xdp.set_faults([cut(uplink(rig))])
    send(rig, 17_000)  # 56 bytes and a header of 8 each, into 1 MiB
    with monitoring(rig, tmp_path):
        monitor.sync(tmp_path, TIMEOUT_S)
    drops = read_drops(tmp_path / monitor.DROPS)
    assert rig.total("injected_rx") == 17_000
    assert rig.total("drop_log_lost") > 0
    assert len(drops) + rig.total("drop_log_lost") == 17_000


def test_files_take_a_quarter_of_a_small_file_system_and_losses_are_counted(rig, small):
    link = uplink(rig)
    rig.xdp.set_faults([cut(link)])
    rig.xdp.capture(link, 128)
    with monitoring(rig, small):
        monitor.sync(small, TIMEOUT_S)
        send(rig, 3000)  # 164 KiB of drop records, 445 KiB of captures
        done = monitor.sync(small, TIMEOUT_S)
        assert monitor.sync(small, TIMEOUT_S) == done
    drops = len(read_drops(small / monitor.DROPS))
    captures = len(list(read_captures(small / monitor.CAPTURE)))
    assert (drops + done.drops_lost, captures + done.captures_lost) == (3000, 3000)
    for size, name in (
        (done.drops_bytes, monitor.DROPS),
        (done.capture_bytes, monitor.CAPTURE),
    ):
        assert size == (small / name).stat().st_size
        assert 100 << 10 < size <= 128 << 10


def test_a_full_file_system_loses_records_and_not_the_monitor(rig, small):
    rig.xdp.set_faults([cut(uplink(rig))])
    with monitoring(rig, small):
        monitor.sync(small, TIMEOUT_S)
        filler = small / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        send(rig, 200)
        full = monitor.sync(small, TIMEOUT_S)
        whole = len(read_drops(small / monitor.DROPS))
        assert full.drops_lost > 0
        assert whole + full.drops_lost == 200
        assert full.drops_bytes == (small / monitor.DROPS).stat().st_size == 16 + 56 * whole
        filler.unlink()
        send(rig, 10)
        assert monitor.sync(small, TIMEOUT_S).drops_lost == full.drops_lost
    assert len(read_drops(small / monitor.DROPS)) == whole + 10


def test_sigterm_drains_first(rig, tmp_path):
    rig.xdp.set_faults([cut(uplink(rig))])
    with monitoring(rig, tmp_path) as process:
        monitor.sync(tmp_path, TIMEOUT_S)
        send(rig, 50)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    assert len(read_drops(tmp_path / monitor.DROPS)) == 50
    assert not (tmp_path / monitor.SOCKET).exists()


def test_a_second_monitor_goes_on_with_the_files(rig, tmp_path):
    rig.xdp.set_faults([cut(uplink(rig))])
    for _ in range(2):
        with monitoring(rig, tmp_path):
            send(rig, 5)
            monitor.sync(tmp_path, TIMEOUT_S)
    assert len(read_drops(tmp_path / monitor.DROPS)) == 10


def test_an_idle_monitor_sleeps(rig, tmp_path):
    with monitoring(rig, tmp_path) as process:
        monitor.sync(tmp_path, TIMEOUT_S)
        switches = Path(f"/proc/{process.pid}/status")

        def slept() -> int:
            fields = dict(line.split(":", 1) for line in switches.read_text().splitlines())
            return int(fields["voluntary_ctxt_switches"])

        time.sleep(0.1)
        before = slept()
        time.sleep(1)
        assert slept() == before


def test_sync_is_bounded_when_there_is_no_monitor(tmp_path):
    began = time.monotonic()
    with pytest.raises(RunError, match="monitor did not drain"):
        monitor.sync(tmp_path, 0.2)
    assert time.monotonic() - began < 2


def test_sync_is_bounded_when_the_monitor_hangs(rig, tmp_path):
    with monitoring(rig, tmp_path) as process:
        monitor.sync(tmp_path, TIMEOUT_S)
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(RunError, match="monitor did not drain"):
            monitor.sync(tmp_path, 0.2)


def test_a_dead_monitors_last_words_are_in_the_error(tmp_path):
    (tmp_path / monitor.LOG).write_text("one\ntwo\nthree\nfour\n")
    with pytest.raises(RunError, match="it said: two / three / four"):
        monitor.sync(tmp_path, 0.05)


def test_a_monitor_without_a_fabric_says_what_is_missing(tmp_path):
    argv = monitor.argv(tmp_path, tmp_path)
    result = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    assert result.returncode == 1
    assert "drops" in result.stderr
    assert "No such file" in result.stderr
