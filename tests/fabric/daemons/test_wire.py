# SPDX-License-Identifier: GPL-2.0-or-later
"""The wire stage itself, behind real ports: h1 - s1 - h2."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from pyroute2 import IPRoute

from softroce_lab import topology
from softroce_lab.errors import RunError
from softroce_lab.fabric.daemons import wire
from softroce_lab.fabric.daemons.wire import WireStage
from softroce_lab.fabric.daemons.wire_layout import LinkFigures
from softroce_lab.fabric.ledger.identity import ProcessIdentity
from softroce_lab.plan.effects import CERTAIN, Cut, Fault
from tests.fabric.xdp_rig import Rig, directed_links, lab_header, listening, roce
from tests.labs import eventually
from tests.wire.shapes import delay, fault, queue

DELAY_NS = 20_000_000
COUNT = 20
DSCP, LAST_HOP_DSCP = 47, 43


class Wired:
    """A rig with a stage of its own."""

    def __init__(self, directory: Path, mode: str) -> None:
        self.rig = Rig(topology.load("two-hosts"), mode, directory)
        plan = self.rig.plan
        self.links = {f"{near.node}->{far.node}": n for n, near, far in directed_links(plan.links)}
        self.downlinks = {  # ifindex at its end -> link
            far.ifindex: n
            for n, _, far in directed_links(plan.links)
            if plan.node(far.node).is_host
        }
        self.log = directory / wire.LOG
        frames, ready = wire.pool(2, 48_000)
        with self.log.open("wb") as log:
            argv = wire.argv(self.rig.bpffs, directory, frames, ready)
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        # As in a lab, whose ledger has it: a busy machine may stop it before it listens.
        recorded = [ProcessIdentity.of(self.process.pid)]
        with mock.patch.object(wire, "_recorded", return_value=recorded):
            self.stage = WireStage(directory)
        links = wire.links_of(plan)
        for port in wire.ports_for(plan, range(4)):
            self.stage.open_port(port, links[port.ifindex], self.rig.namespaces[port.node])

    def close(self) -> None:
        self.stage.close()
        self.process.terminate()
        assert self.process.wait(60) in (0, -9)
        self.rig.close()

    def arm(self, **effects) -> None:
        """Effects by link, "h1_s1" for h1->s1: first to the stage, then to XDP."""
        faults: list[Fault] = []
        for link, effect in effects.items():
            number = self.links[link.replace("_", "->")]
            placed = dataclasses.replace(fault(effect), directed_link=number)
            self.stage.shape(number, [placed])
            faults.append(placed)
        self.rig.xdp.set_faults(faults)

    def send(self, count: int = COUNT) -> list[bytes]:
        """From h1 to h2; returns what arrived."""
        addresses = self.rig.address("h1"), self.rig.address("h2")
        frames = [
            roce(*addresses, psn=index, lab=lab_header(index=index)) for index in range(count)
        ]
        with listening(self.rig, "h2"):
            return self.rig.carry("h1", "h2", frames, self.at_rest)

    def at_rest(self) -> bool:
        """Whether the stage took all that XDP gave it, and all that it let go has arrived."""
        counters, ports = self.rig.counters(), self.stage.ports(self.rig.plan)
        given = sum(count.to_wire for count in counters.values())
        taken = sum(port.received + port.lost_by_emulator for port in ports.values())
        released = sum(self.stage.link(number).released for number in self.downlinks.values())
        arrived = sum(counters[ifindex].rx_packets for ifindex in self.downlinks)
        return given == taken and not self.stage.figures().held and arrived >= released

    def figures(self, link: str) -> LinkFigures:
        return self.stage.link(self.links[link])


@pytest.fixture(params=["generic", "native"])
def wired(request, tmp_path) -> Iterator[Wired]:
    wired = Wired(tmp_path, request.param)
    yield wired
    wired.close()


@pytest.fixture
def once(tmp_path) -> Iterator[Wired]:
    wired = Wired(tmp_path, "generic")
    yield wired
    wired.close()


def accounted(figures: LinkFigures) -> int:
    lost = figures.dropped_limit + figures.gone + figures.lost_port_down + figures.tx_failed
    return figures.released + lost + figures.held + figures.waiting_packets


def test_both_links_of_a_path_delay_and_lose_nothing(wired):
    wired.arm(h1_s1=delay(DELAY_NS), s1_h2=delay(DELAY_NS))
    assert len(wired.send()) == COUNT
    for link in ("h1->s1", "s1->h2"):
        figures = wired.figures(link)
        assert figures.arrived == figures.released_roce == accounted(figures) == COUNT
        assert figures.residence.percentile(1) >= DELAY_NS * 15 / 16


def test_frames_keep_their_order_and_their_bytes(wired):
    wired.arm(s1_h2=delay(DELAY_NS, 5_000_000, "normal"))
    arrived = wired.send(200)
    stamps = [frame[14 + 20 + 8 + 8 : 14 + 20 + 8 + 12] for frame in arrived]
    assert stamps == [index.to_bytes(4, "big") for index in range(200)]
    assert wired.figures("s1->h2").overtaken == 0


def test_a_full_queue_drops_and_says_so(once):
    once.arm(s1_h2=queue(100_000, limit_packets=5))  # 21 ms a frame
    arrived = once.send()
    figures = once.figures("s1->h2")
    assert figures.most_waiting_packets == 5
    assert figures.arrived == accounted(figures) == COUNT
    assert figures.dropped_limit >= COUNT - 12  # the queue drains a little while they come
    assert len(arrived) <= figures.released


def test_a_trimmed_frame_says_that_the_last_hop_cut_it(once):
    once.arm(s1_h2=queue(100_000, limit_packets=5, trim=True))  # 21 ms a frame
    headers = [frame for frame in once.send() if frame[15] >> 2 == LAST_HOP_DSCP]
    assert len(headers) == once.figures("s1->h2").trimmed > 3


@pytest.mark.parametrize(
    ("rules", "where", "dscp"),
    [
        (("h1_s1",), "h1->s1", DSCP),
        (("s1_h2",), "s1->h2", LAST_HOP_DSCP),
        (("h1_s1", "s1_h2"), "h1->s1", DSCP),
    ],
)
def test_a_rule_cuts_a_frame_on_the_first_link_that_has_one(once, rules, where, dscp):
    once.arm(**dict.fromkeys(rules, Cut(CERTAIN)))
    arrived = once.send()
    assert len(arrived) == COUNT
    assert {frame[15] >> 2 for frame in arrived} == {dscp}
    for link in ("h1->s1", "s1->h2"):
        figures, cut = once.figures(link), COUNT * (link == where)
        assert figures.trimmed == cut
        assert sum(hit.hits for hit in once.rig.xdp.hits().get(once.links[link], ())) == cut


def test_a_port_that_disappears_costs_its_own_frames_only(once):
    long_ns = 12 * DELAY_NS  # the port goes while all frames are on the way, on a busy machine, too
    once.arm(s1_h2=delay(long_ns), s1_h1=delay(DELAY_NS))
    gone = once.rig.plan.node("h2").ports[0]
    with once.rig.tap("h1") as out, once.rig.enter("h2"), IPRoute() as ip:
        addresses = once.rig.address("h1"), once.rig.address("h2")
        for index in range(COUNT):
            out.send(roce(*addresses, lab=lab_header(index=index)))
        ip.link("del", index=gone.ifindex)
    assert eventually(lambda: once.stage.figures().held == 0)
    figures = once.figures("s1->h2")
    assert figures.lost_port_down == COUNT == accounted(figures)
    port = next(p for p in once.rig.plan.node("s1").ports if once.stage.port(p.ifindex).is_gone)
    assert once.stage.port(port.ifindex).lost_port_down == COUNT
    assert once.process.poll() is None
    assert once.figures("s1->h1").arrived == 0


def test_an_idle_stage_notices_that_it_was_stopped(once):
    """While somebody is connected; it may have had 100 ms to sleep."""
    stopped_ns = time.monotonic_ns()
    once.process.send_signal(signal.SIGSTOP)
    time.sleep(0.4)
    once.process.send_signal(signal.SIGCONT)
    begin_ns, end_ns = max(once.stage.pauses(), key=lambda pause: pause[1] - pause[0])
    assert abs(begin_ns - stopped_ns) <= 0.2e9
    assert end_ns >= stopped_ns + 0.4e9


def test_a_dead_stage_is_named(once):
    once.process.kill()
    once.process.wait(60)
    once.log.write_text("out of luck\n")
    with pytest.raises(RunError, match=r"wire stage does not answer.*it said: out of luck"):
        once.stage.figures()


@pytest.fixture
def bound(tmp_path):
    """A stage's socket before it listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.bind(str(tmp_path / wire.SOCKET))
        yield made


def test_a_recorded_stage_may_take_long_to_listen(bound, tmp_path, monkeypatch):
    """A busy machine may stop it between two system calls."""
    monkeypatch.setattr(wire, "_recorded", lambda _: [ProcessIdentity.of(os.getpid())])
    later = threading.Timer(1.0, bound.listen)
    later.start()
    with WireStage(tmp_path, timeout_s=60):
        later.join()


def test_one_without_a_record_that_does_not_listen_is_dead(bound, tmp_path):
    begun = time.monotonic()
    with pytest.raises(RunError, match="wire stage does not answer"):
        WireStage(tmp_path, timeout_s=20)
    assert time.monotonic() - begun < 10


def test_links_and_ports_that_are_not_there_are_refused(once):
    for ask in (lambda: once.stage.link(99), lambda: once.stage.port(9)):
        with pytest.raises(RunError, match="no such link or port"):
            ask()
