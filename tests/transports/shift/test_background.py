# SPDX-License-Identifier: GPL-2.0-or-later
"""Backups that are made in the background: by hand here, by the Pump on the real clock."""

import threading
import time

from softroce_lab.experiment.fuzz.failover.rig import DETECTION_NS, SETTINGS, Rig
from softroce_lab.experiment.fuzz.failover.work import Case
from softroce_lab.transports.shift import Pump, Sender, Settings
from softroce_lab.verbs.enums import (
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR,
    IBV_WR_RDMA_WRITE,
)


def work(rig):
    for _ in range(2):  # the second time each finds what the other has published
        for end in rig.ends:
            while end.backup.work():
                continue


def test_a_backup_that_is_made_later_is_as_good():
    rig = Rig(in_background=True)
    assert not any(end.qp.backup_ready for end in rig.ends)
    work(rig)
    assert all(end.qp.backup_ready and end.backup.tasks == 0 for end in rig.ends)
    rig.cut()
    case = Case(rig)
    case.run()
    assert not case.failed
    rig.close()


def test_a_failure_before_the_backup_is_ready_surfaces():
    rig = Rig(in_background=True)
    a = rig.ends[0]
    rig.cut()
    a.receive(8, 40000, wr_id=3)
    for wr_id in (1, 2):
        a.post(IBV_WR_RDMA_WRITE, 8, 0, to=8, wr_id=wr_id)
    rig.run(2 * DETECTION_NS)
    assert [(wc.wr_id, wc.status) for wc in a.poll()] == [
        (1, IBV_WC_RETRY_EXC_ERR), (2, IBV_WC_WR_FLUSH_ERR), (3, IBV_WC_WR_FLUSH_ERR)
    ]  # fmt: skip
    assert a.state is Sender.FAILED
    work(rig)  # nobody minds
    rig.close()


def test_a_pump_makes_backups_and_drives_a_failover():
    """The program only runs its clock and polls, however late threads are by that clock."""
    patient = Settings(
        handshake_timeout_ns=3600 * 10**9,
        probe_interval_ns=SETTINGS.probe_interval_ns,
        most_probe_interval_ns=SETTINGS.most_probe_interval_ns,
        drain_timeout_ns=SETTINGS.drain_timeout_ns,
    )
    rig = Rig(in_background=True, settings=patient)
    a, b = rig.ends
    with Pump(a.backup) as first, Pump(b.backup) as second:
        until = time.monotonic() + 10
        while not all(end.qp.backup_ready for end in rig.ends) and time.monotonic() < until:
            time.sleep(0.005)
        rig.cut()
        a.post(IBV_WR_RDMA_WRITE, 8, 0, to=8, wr_id=1)
        done = []
        while not done and time.monotonic() < until:
            with a.backup.hold(), b.backup.hold():  # a Pair is of one thread at a time
                for pair in rig.pairs:
                    pair.run(pair.now_ns + 2000)
            done = a.cq.poll(8)[1]
        assert [(wc.wr_id, wc.status) for wc in done] == [(1, IBV_WC_SUCCESS)]
    assert first.error is second.error is None
    assert threading.active_count() < 20
    rig.close()


def test_a_pump_that_fails_says_why_and_lets_errors_surface(monkeypatch):
    """Nobody would take failures any more: programs must not wait for ever."""
    rig = Rig()
    a = rig.ends[0]
    a.receive(8, 40000, wr_id=3)

    def mistake():
        raise ValueError("a mistake")

    with Pump(a.backup) as pump:
        assert pump.error is None
        monkeypatch.setattr(a.backup, "advance", mistake)
        a.backup.wake()
        until = time.monotonic() + 10
        while a.state is not Sender.FAILED and time.monotonic() < until:
            time.sleep(0.001)
        assert a.state is Sender.FAILED
    assert isinstance(pump.error, ValueError)
    assert "a mistake" in a.backup.events[-1].why
    monkeypatch.undo()
    assert [(wc.wr_id, wc.status) for wc in a.poll()] == [(3, IBV_WC_WR_FLUSH_ERR)]
    rig.close()
