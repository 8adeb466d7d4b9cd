# SPDX-License-Identifier: GPL-2.0-or-later
"""A lab on this machine: brought up from a plan, opened again by name, taken down."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

from softroce_lab.errors import LabError, UserError
from softroce_lab.fabric import (
    fault_lock,
    faults,
    guests,
    interrupts,
    lacks,
    mounted,
    probe,
    runtime,
)
from softroce_lab.fabric.bpf.xdp import Mode as XdpMode
from softroce_lab.fabric.bpf.xdp import XdpFabric
from softroce_lab.fabric.daemons import control_plane, monitor, wire
from softroce_lab.fabric.faults import FaultControl
from softroce_lab.fabric.guests import Guest
from softroce_lab.fabric.ledger import planfile, process, removal
from softroce_lab.fabric.ledger.ledger import Ledger, no_step
from softroce_lab.fabric.net import host, links, netns
from softroce_lab.fabric.rights import needing_room, needing_root
from softroce_lab.paths import need_live
from softroce_lab.plan.plan import Node, Plan
from softroce_lab.telemetry import counters_file
from softroce_lab.topology import limits

Mode = Literal["auto", "native", "generic"]
Say = Callable[[str], None]


def _silent(_: str) -> None:
    """Discard the message."""


class Lab:
    """A lab that is up, held by this process: no one else changes it until it is closed."""

    def __init__(self, plan: Plan, ledger: Ledger) -> None:
        """Use `up` or `Lab.open`."""
        self.plan = plan
        self.ledger = ledger
        self._namespaces: dict[str, int] = {}  # node -> descriptor
        self._xdp: XdpFabric | None = None

    @classmethod
    def open(cls, name: str) -> Lab:
        """Hold the lab called `name`, which is up. UserError, LabBusyError."""
        ledger = Ledger.resume(runtime.existing(name))
        try:
            if ledger.history.state != "up":
                raise UserError(
                    f"the lab {name} is not up", hint="remove what is left: lab doctor --clean"
                )
            lab = cls(planfile.read(ledger.directory), ledger)
            lab._open_namespaces()
        except BaseException:
            ledger.close()
            raise
        return lab

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def directory(self) -> Path:
        return self.ledger.directory

    @property
    def bpffs(self) -> Path:
        return self.directory / runtime.BPFFS

    @property
    def mode(self) -> XdpMode:
        mode: XdpMode = self.ledger.history.state_facts["xdp"]
        return mode

    @property
    def lacks(self) -> tuple[str, ...]:
        """Capabilities that the lab does without (lacks.py)."""
        return tuple(self.ledger.history.state_facts["lacks"])

    @property
    def token(self) -> int:
        """The lab's number, 64 random bits."""
        return self.ledger.history.token

    @property
    def xdp(self) -> XdpFabric:
        """The XDP programs' maps: counters and faults."""
        if self._xdp is None:
            self._xdp = XdpFabric.open(self.bpffs)
        return self._xdp

    @property
    def faults(self) -> FaultControl:
        @contextlib.contextmanager
        def namespace(node: str) -> Iterator[int]:
            yield self._namespaces[node]

        return FaultControl(self.directory, self.xdp, namespace)

    def present_plan(self) -> Plan:
        """The plan as it is now: others may have changed its faults. LabError."""
        return planfile.read(self.directory)

    def set_faults(self, plan: Plan) -> None:
        """Let the faults be those of `plan`, which differs from the lab's in nothing else."""
        self.plan = self.faults.change(lambda _: plan, time.monotonic_ns)
        if faults.next_turn_ns(plan, -1) is not None:
            self._start_control_plane()

    def namespace(self, node: str) -> int:
        """A descriptor of the node's network namespace, open as long as the lab is."""
        return self._namespaces[node]

    @contextlib.contextmanager
    def enter(self, node: str) -> Iterator[None]:
        """The calling thread works in the node's network namespace."""
        with netns.entered(self._namespaces[node]):
            yield

    def drained(self, timeout_s: float) -> monitor.Drained:
        """What the monitor has written once all that happened before is in its files.

        RunError as of `monitor.sync`. Without ring buffers there is no monitor.
        """
        if lacks.RING_BUFFERS in self.lacks:
            return monitor.Drained(0, 0)
        return monitor.sync(self.directory, timeout_s)

    def resume(self) -> None:
        """Let the wire stage and the monitor run again, if somebody stopped them."""
        for entry in self.ledger.history.of_kind("process"):
            known = process.recorded(entry)
            if known is not None and entry.facts["role"] in (wire.ROLE, monitor.ROLE):
                known.signal(signal.SIGCONT)

    def spawn(
        self, argv: Sequence[str], *, role: str, node: str, **options: Unpack[process.Options]
    ) -> process.Process:
        """Run a program in a node's namespace, as `process.spawn` with its `options` does."""
        fd = self._namespaces[node]
        return process.spawn(self.ledger, argv, role=role, netns_fd=fd, **options)

    def guest(self, node: str) -> Guest:
        """The guest `node`, to run commands in. UserError if it is none."""
        return guests.reach(
            self.plan,
            node,
            lambda: self.ledger.history.of_kind("process"),
            lambda: self._namespaces[node],
            self.directory,
        )

    def boot(self, node: str, say: Say = _silent) -> None:
        """Boot a guest again, whether it runs or is dead. UserError, RunError."""
        role = guests.role(self.guest(node).node)
        means = guests.prepare(self.plan, say)
        for entry in self.ledger.history.of_kind("process"):
            if entry.facts["role"] == role:
                removal.end_process(entry)
                self.ledger.strike(entry.id)
        again = self.plan.node(node)
        self._start_guest(again, means, say)
        guests.kind(again.kind).await_ready([self.guest(node)], lambda: None)

    def close(self) -> None:
        """Let go of the lab, which stays up."""
        self._close_handles()
        self.ledger.close()

    def down(self, say: Say = _silent) -> None:
        """Take the lab away, whatever state it is in. An interrupt waits until that is done."""
        with interrupts.held():
            self._close_handles()  # or what they stand for would outlive its name
            removal.remove(self.ledger, say)

    def _close_handles(self) -> None:
        if self._xdp is not None:
            self._xdp.close()
            self._xdp = None
        while self._namespaces:
            os.close(self._namespaces.popitem()[1])

    def _open_namespaces(self) -> None:
        for entry in self.ledger.history.of_kind("netns"):
            fd = netns.opened(entry.facts["name"], removal.identity_of(entry))
            if fd is None:
                raise LabError(
                    f"the namespace {entry.facts['name']} of the lab {self.plan.name} is gone",
                    hint=f"somebody removed it; lab down {self.plan.name}",
                )
            self._namespaces[entry.facts["node"]] = fd

    def _realise(
        self, mode: Mode, means: Mapping[str, Any], say: Say, check: Callable[[], None]
    ) -> None:
        missing = lacks.found()
        for capability in missing:
            say(f"without {capability}: {lacks.PRICES[capability]}")
        netns.prepare_directory()
        netns.refuse_taken(node.namespace for node in self.plan.nodes)
        self._write_plan()
        self._make_statistics()
        self._mount("bpffs", runtime.BPFFS)
        self._mount("tmpfs", host.DIRECTORY)
        say(f"{len(self.plan.nodes)} namespaces, {len(self.plan.links)} links")
        for node in self.plan.nodes:
            self._make_namespace(node.name, node.namespace)
        self._make_links()
        self._start_guests(means, say)
        say("XDP programs")
        records = lacks.RING_BUFFERS not in missing
        self._xdp = XdpFabric.attach(
            self.plan, self.enter, self.bpffs, self.token, mode, records=records
        )
        say("probes")
        probe.prove(self.plan, self._namespaces, self.token, self._xdp.probe_seen, check)
        if records:
            self._start_monitor()
        if lacks.AF_XDP not in missing:
            self._start_wire()
        self._await_guests(say, check)
        self.set_faults(self.plan)
        self.faults.restart(time.monotonic_ns())
        self.ledger.enter_state("up", xdp=self._xdp.mode, lacks=missing)

    def _write_plan(self) -> None:
        for name in faults.FILES:
            self.ledger.announce("file", name=name)
        fault_lock.create(self.directory)
        planfile.write(dataclasses.replace(self.plan, faults=()), self.directory)

    def _make_statistics(self) -> None:
        self.ledger.announce("statistics", name=counters_file.DIRECTORY)
        (self.directory / counters_file.DIRECTORY).mkdir(mode=0o700)

    def _mount(self, entry: str, name: str) -> None:
        source = f"softroce_lab-{self.token:016x}"
        self.ledger.announce(entry, name=name, source=source)
        mounted.mount(self.directory / name, removal.FILE_SYSTEMS[entry], source)

    def _make_namespace(self, node: str, name: str) -> None:
        fd = self._namespaces[node] = netns.create()
        name_file = netns.unlinked_name()
        try:
            identity = netns.identify(fd, name_file)
            self.ledger.announce("netns", node=node, name=name, **dataclasses.asdict(identity))
            netns.publish(name, fd, name_file)
        finally:
            os.close(name_file)
        host.create(self.directory / host.DIRECTORY / node, node)

    def _make_links(self) -> None:
        for node in self.plan.nodes:
            with self.enter(node.name):
                links.silence(node)
        names = {node.name: node.namespace for node in self.plan.nodes}
        for link in self.plan.links:
            ends = [(names[port.node], port.ifindex, port.name) for port in (link.a, link.b)]
            self.ledger.announce("link", index=link.index, ends=ends)
        behind_bridges = {node.name for node in self.plan.guests}
        links.create(self.plan.links, self.plan.mtu, self._namespaces, behind_bridges)
        gateways = links.gateways(self.plan)
        for node in self.plan.nodes:
            with self.enter(node.name):
                links.configure(node, gateways)

    def _start_guests(self, means: Mapping[str, Any], say: Say) -> None:
        for node in self.plan.guests:
            for name in guests.kind(node.kind).files(node.name):
                self.ledger.announce("file", name=name)
            self._start_guest(node, means, say)

    def _start_guest(self, node: Node, means: Mapping[str, Any], say: Say) -> None:
        kind, boots = guests.kind(node.kind), means[node.kind]
        say(f"{node.name}: {kind.described(node, boots)}")
        kind.start(self.ledger, self.plan, node, self._namespaces[node.name], boots)

    def _await_guests(self, say: Say, check: Callable[[], None]) -> None:
        by_kind = collections.defaultdict(list)
        for node in self.plan.guests:
            by_kind[node.kind].append(self.guest(node.name))
        for name, started in by_kind.items():
            say("waiting for " + ", ".join(guest.node for guest in started))
            guests.kind(name).await_ready(started, check)

    def _start_monitor(self) -> None:
        argv = monitor.argv(self.bpffs, self.directory)
        for name in monitor.FILES:
            self.ledger.announce("file", name=name)
        with (self.directory / monitor.LOG).open("wb") as log:
            process.spawn(self.ledger, argv, role=monitor.ROLE, stdout=log, stderr=log)

    def _start_control_plane(self) -> None:
        roles = [entry.facts["role"] for entry in self.ledger.history.of_kind("process")]
        if "routes" in roles:
            return
        self.ledger.announce("file", name=control_plane.LOG)
        argv = control_plane.argv(self.bpffs, self.directory)
        with (self.directory / control_plane.LOG).open("wb") as log:
            process.spawn(self.ledger, argv, role="routes", stdout=log, stderr=log)

    def _start_wire(self) -> None:
        shaped = faults.shaped(self.plan)
        ports = len(wire.ports_for(self.plan, shaped))
        all_ports = len(wire.ports_for(self.plan, range(2 * len(self.plan.links))))
        frames = wire.frames_needed(shaped)
        pool = wire.pool(ports, frames, spare_ports=all_ports - ports)
        argv = wire.argv(self.bpffs, self.directory, *pool)
        for name in wire.FILES:
            self.ledger.announce("file", name=name)
        with (self.directory / wire.LOG).open("wb") as log:
            process.spawn(self.ledger, argv, role=wire.ROLE, stdout=log, stderr=log)


def up(
    plan: Plan,
    *,
    mode: Mode = "auto",
    ephemeral: bool = False,
    say: Say = _silent,
    on_step: Callable[[], None] = no_step,
) -> Lab:
    """Bring the plan up and prove every link; what fails undoes everything it made.

    An `ephemeral` lab belongs to this process: `lab doctor --clean` removes it once that is gone.
    `say` receives progress messages; `on_step` is called between any two acts.
    UserError (the lab or one of its names is there already), EnvironmentLackError, RunError (a
    link is dead, or /run is full), KeyboardInterrupt (after undoing).
    """
    limits.check(plan)
    if not plan.routes and any(node.kind == "switch" for node in plan.nodes):
        what = f"{plan.name} was resolved without routes, its switches would forward nothing"
        raise UserError(what, hint="an experiment whose clock is real has them")
    need_live()
    with needing_root():
        means = guests.prepare(plan, say)
    made: list[Lab] = []
    try:
        with interrupts.held() as check:
            made.append(_begun(plan, mode, means, ephemeral, say, on_step, check))
        return made[0]
    except KeyboardInterrupt:  # also after the last act, before the lab is the caller's
        for lab in made:
            lab.down(say)
        _say_removed(plan, say)
        raise


def _begun(
    plan: Plan,
    mode: Mode,
    means: Mapping[str, Any],
    ephemeral: bool,
    say: Say,
    on_step: Callable[[], None],
    check: Callable[[], None],
) -> Lab:
    """A lab that is up, or nothing at all."""

    def step() -> None:
        on_step()
        check()

    with needing_root(), needing_room(runtime.DIRECTORY):
        lab = Lab(plan, runtime.claim(plan.name, ephemeral=ephemeral, say=say, on_step=step))
    try:
        lab.ledger.enter_state("starting")
        with needing_root(), needing_room(lab.directory):
            lab._realise(mode, means, say, check)
    except BaseException:
        lab.ledger.on_step = on_step  # a second interrupt waits
        lab.down(say)
        raise
    lab.ledger.on_step = no_step
    return lab


@contextlib.contextmanager
def owned(plan: Plan, *, mode: Mode = "auto", say: Say = _silent) -> Iterator[Lab]:
    """A lab of this process's own for a `with` block; whatever ends that, it is gone afterwards.

    What it raises is what `up` and `down` raise.
    """
    lab: Lab | None = None
    try:
        with interrupts.held():  # or a running lab might have no owner
            lab = up(plan, mode=mode, ephemeral=True, say=say)
        yield lab
    except KeyboardInterrupt:
        if lab is not None:
            lab.down(say)
            lab = None
            _say_removed(plan, say)
        raise
    finally:
        if lab is not None:
            lab.down(say)


def _say_removed(plan: Plan, say: Say) -> None:
    say(f"interrupted; the lab {plan.name} is removed")
