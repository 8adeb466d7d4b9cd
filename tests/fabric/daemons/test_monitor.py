# SPDX-License-Identifier: GPL-2.0-or-later
"""softroce-monitor with real rings: drop records reach their file, all of them.

Captures: test_capture.py.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from softroce_lab import topology
from softroce_lab.errors import RunError
from softroce_lab.fabric.daemons import monitor
from softroce_lab.paths import TOPOLOGIES
from softroce_lab.plan.effects import CERTAIN, Fault, RandomLoss
from softroce_lab.telemetry.drops import read_drops
from tests.fabric.xdp_rig import Rig, directed_links, lab_header, listening, number, roce

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def shared_rig(tmp_path_factory) -> Iterator[Rig]:
    plan = topology.load(TOPOLOGIES / "leaf-spine.yaml")
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
def rig(shared_rig, tmp_path) -> Rig:
    shared_rig.refresh()
    with monitoring(shared_rig, tmp_path):  # takes away what an earlier test left in the rings
        monitor.sync(tmp_path, TIMEOUT_S)
    for name in (monitor.DROPS, monitor.SOCKET):
        (tmp_path / name).unlink(missing_ok=True)
    return shared_rig


def uplink(rig: Rig) -> int:
    return next(link for link, near, _ in directed_links(rig.plan.links) if near.node == "h1")


def cut(link: int, rule_id: int = 3) -> Fault:
    return Fault("cut", rule_id, link, "identity", 1, RandomLoss(CERTAIN))


def send(rig: Rig, count: int, **fields: int) -> None:
    ends = rig.address("h1"), rig.address("h3")
    frames = [
        roce(*ends, sport=0xC003, psn=0xABC000 + index, lab=lab_header(index=index, **fields))
        for index in range(count)
    ]
    with listening(rig, "h3"):
        rig.carry("h1", "h3", frames)


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


def test_a_drop_that_nobody_drains_is_counted(rig, tmp_path):
    rig.xdp.set_faults([cut(uplink(rig))])
    send(rig, 17_000)  # 56 bytes and a header of 8 each, into 1 MiB
    with monitoring(rig, tmp_path):
        monitor.sync(tmp_path, TIMEOUT_S)
    drops = read_drops(tmp_path / monitor.DROPS)
    assert rig.total("injected_rx") == 17_000
    assert rig.total("drop_log_lost") > 0
    assert len(drops) + rig.total("drop_log_lost") == 17_000


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


def test_an_idle_monitor_notices_that_it_was_stopped(rig, tmp_path):
    """While somebody is connected; it may have had 100 ms to sleep."""
    with monitoring(rig, tmp_path) as process, monitor.Connection(tmp_path, TIMEOUT_S):
        monitor.sync(tmp_path, TIMEOUT_S)  # it has seen who is connected
        stopped_ns = time.monotonic_ns()
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.4)
        process.send_signal(signal.SIGCONT)
        begin_ns, end_ns = max(
            monitor.sync(tmp_path, TIMEOUT_S).pauses, key=lambda pause: pause[1] - pause[0]
        )
    assert abs(begin_ns - stopped_ns) <= 0.2e9
    assert end_ns >= stopped_ns + 0.4e9


def test_sync_is_bounded_when_there_is_no_monitor(tmp_path):
    began = time.monotonic()
    with pytest.raises(RunError, match="monitor did not answer"):
        monitor.sync(tmp_path, 0.2)
    assert time.monotonic() - began < 30  # a slow machine; unbounded it is TIMEOUT_S or for ever


def test_sync_is_bounded_when_the_monitor_hangs(rig, tmp_path):
    with monitoring(rig, tmp_path) as process:
        monitor.sync(tmp_path, TIMEOUT_S)
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(RunError, match="monitor did not answer"):
            monitor.sync(tmp_path, 0.2)
