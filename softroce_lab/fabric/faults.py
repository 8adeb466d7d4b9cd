# SPDX-License-Identifier: GPL-2.0-or-later
"""The faults of a lab that is up: set, changed while traffic runs, begun again.

Three parts of a lab act on them: the XDP programs decide, the wire stage holds frames, and the
switches' routes avoid links that are down. They change in an order that loses no frame: sockets and
shapes are there before XDP hands over the first frame, and stay until it hands over no more.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from softroce_lab.errors import EnvironmentLackError, RunError, UserError
from softroce_lab.fabric import fault_lock, interrupts, lacks
from softroce_lab.fabric.bpf.xdp import XdpFabric
from softroce_lab.fabric.daemons import wire
from softroce_lab.fabric.daemons.wire import WireStage
from softroce_lab.fabric.fault_lock import changing
from softroce_lab.fabric.ledger import planfile
from softroce_lab.fabric.net import netns, port_queue
from softroce_lab.faults.check import ETHERNET_BYTES
from softroce_lab.faults.text import comments
from softroce_lab.plan.effects import Down, Fault, Queue, Window
from softroce_lab.plan.plan import Plan, with_digest
from softroce_lab.topology import routing

_HOST_PORT_FRAMES = 1000  # that wait at the stage; PortPace and port_queue.py stay far below
RULE_TEXTS = "rules.txt"  # what rules do, in words, by their ids
FILES = (fault_lock.FILE, planfile.FILE, planfile.NEXT, RULE_TEXTS)

Namespace = Callable[[str], AbstractContextManager[int]]  # node -> descriptor of its namespace


def shaped(plan: Plan) -> dict[int, list[Fault]]:
    """The faults of each directed link that needs the wire stage, as the stage applies them."""
    uplinks = _uplinks(plan)
    found: dict[int, list[Fault]] = {}
    for fault in plan.faults:
        if fault.is_staged:
            applied = _at_host(fault) if fault.directed_link in uplinks else fault
            found.setdefault(fault.directed_link, []).append(applied)
    return found


def _uplinks(plan: Plan) -> set[int]:
    hosts = {node.name for node in plan.hosts}
    return {number for number, sender, _ in plan.halves if sender.node in hosts}


def _at_host(fault: Fault) -> Fault:
    """A host waits for its own port, so only the rate counts there."""
    if not isinstance(fault.effect, Queue):
        return fault
    queue = Queue(fault.effect.rate_bps, None, _HOST_PORT_FRAMES, None, None, trim=False)
    return replace(fault, effect=queue)


def uplink_rates(plan: Plan) -> dict[int, int]:
    """The rate of each directed link that begins at a host, bits a second; windows do not count."""
    uplinks = _uplinks(plan)
    lasting = [fault for fault in plan.faults if fault.window.always]
    return {
        fault.directed_link: fault.effect.rate_bps
        for fault in lasting
        if isinstance(fault.effect, Queue) and fault.directed_link in uplinks
    }


def downs(plan: Plan) -> set[tuple[int, Window]]:
    return {(f.directed_link, f.window) for f in plan.faults if isinstance(f.effect, Down)}


def down_links(plan: Plan, now_ns: int) -> set[int]:
    return {directed // 2 for directed, window in downs(plan) if window.acts(now_ns)}


def next_turn_ns(plan: Plan, now_ns: int) -> int | None:
    """The next moment of the timeline at which a link goes down or comes up; None: never."""
    turns = (window.next_change_ns(now_ns) for _, window in downs(plan))
    return min((turn for turn in turns if turn is not None), default=None)


def moved_by_time(before: Plan, after: Plan) -> list[str]:
    """The rules of `after` alone by which links go down or come up at some moment."""
    known = {fault.rule for fault in before.faults}
    added = [fault for fault in after.faults if fault.rule not in known]
    timed = [each for each in added if isinstance(each.effect, Down) and not each.window.always]
    return list(dict.fromkeys(fault.rule for fault in timed))


@dataclass(frozen=True, slots=True)
class FaultControl:
    """Hold of the parts of one lab that act on faults. RunError if one that it needs is dead."""

    directory: Path
    xdp: XdpFabric
    namespace: Namespace
    say: Callable[[str], None] = lambda _: None  # receives messages for the user

    def change(self, alter: Callable[[Plan], Plan], clock: Callable[[], int]) -> Plan:
        """Let the lab's faults be those of what `alter` makes of its plan, which is returned.

        `clock` reads CLOCK_MONOTONIC. Ctrl-C waits until a change is made. UserError if the plan
        cannot be had, EnvironmentLackError if the machine cannot shape links: nothing changes then.
        RunError if the lab went down.
        """
        with changing(self.directory):
            self._undo_begun(clock)
            before = planfile.read(self.directory)
            after = alter(before)
            numbered = renumbered(after.faults, before.faults, self.directory)
            after = with_digest(replace(after, faults=tuple(numbered)))
            with interrupts.held():
                planfile.begin(after, self.directory)
                add_rule_texts(after.faults, self.directory)
                try:
                    self._apply(before, after, clock)
                except (UserError, EnvironmentLackError):
                    planfile.abandon(self.directory)
                    raise
                planfile.commit(self.directory)
        return after

    def restart(self, epoch_ns: int) -> None:
        """Let all faults begin again: streams, counts, and the timeline, at `epoch_ns`."""
        with changing(self.directory):
            self._undo_begun(lambda: epoch_ns)
            plan = planfile.read(self.directory)
            if shaped(plan):
                with WireStage(self.directory) as stage:
                    stage.set_epoch(epoch_ns)
            self.xdp.restart(epoch_ns)
            if downs(plan):
                self._reroute(plan, lambda: epoch_ns)

    def _undo_begun(self, clock: Callable[[], int]) -> None:
        """Undo what a change that was broken off may have done.

        Its progress is unknown, so all that it may have changed is set again. Its shapes go
        first, for those of the plan may need their room; a stage that is dead has none.
        """
        lost = planfile.begun(self.directory)
        if lost is None:
            return
        plan = planfile.read(self.directory)
        there, wanted = shaped(lost), shaped(plan)
        differ = [n for n in {**there, **wanted} if there.get(n) != wanted.get(n)]
        with interrupts.held():
            if differ:
                self._forget_all(differ)
                with contextlib.suppress(RunError), WireStage(self.directory) as stage:
                    self._shape(stage, {}, {n: wanted[n] for n in differ if n in wanted})
            self.xdp.set_faults(plan.faults)
            self._hold_kernels(uplink_rates(lost), uplink_rates(plan), plan)
            if downs(plan) or downs(lost):
                self._reroute(plan, clock)
            planfile.begin(plan, self.directory)  # renamed as well: its followers read it again
            planfile.commit(self.directory)

    def _apply(self, before: Plan, after: Plan, clock: Callable[[], int]) -> None:
        old, new = shaped(before), shaped(after)
        gone = old.keys() - new.keys()
        if any(faults != old.get(directed) for directed, faults in new.items()):
            lacks.need(lacks.AF_XDP)
            with WireStage(self.directory) as stage:
                stage.set_epoch(self.xdp.timeline.epoch_ns)
                self._serve(stage, after, new.keys() - old.keys())
                self._shape(stage, old, new)
                self.xdp.set_faults(after.faults)
                self._forget(stage, gone)
        else:
            self.xdp.set_faults(after.faults)
            if gone:
                self._forget_all(gone)
        self._hold_kernels(uplink_rates(before), uplink_rates(after), after)
        if downs(before) != downs(after):
            self._reroute(after, clock)

    def _hold_kernels(self, old: dict[int, int], new: dict[int, int], plan: Plan) -> None:
        """Let what the kernel sends at hosts wait for their links, where their rates differ."""
        for directed in old.keys() | new.keys():
            if old.get(directed) == new.get(directed):
                continue
            _, sender, _ = plan.halves[directed]
            try:
                with self.namespace(sender.node) as fd, netns.entered(fd):
                    frame_bytes = plan.mtu + ETHERNET_BYTES
                    port_queue.hold(sender.ifindex, new.get(directed), frame_bytes)
            except OSError as error:
                what = f"{sender.node}:{sender.name} does not hold back what its kernel sends"
                self.say(f"{what}: {error.strerror}")

    def _reroute(self, plan: Plan, clock: Callable[[], int]) -> None:
        """Lead routes around the links that are down at this moment of the timeline."""
        now_ns = max(clock() - self.xdp.timeline.epoch_ns, 0)
        self.xdp.set_routes(plan, routing.around(plan, down_links(plan, now_ns)))

    def _serve(self, stage: WireStage, plan: Plan, links: set[int]) -> None:
        """Give the stage sockets wherever frames of these links may come from or go to."""
        ends = wire.links_of(plan)
        for port in wire.ports_for(plan, links):
            with self.namespace(port.node) as fd:
                if not stage.open_port(port, ends[port.ifindex], fd):
                    self.say(f"{port.node}:{port.name} is gone; its frames are not shaped")

    def _shape(
        self, stage: WireStage, old: dict[int, list[Fault]], new: dict[int, list[Fault]]
    ) -> None:
        """Set every shape that differs at the stage, or none of them if one is refused."""
        reported: list[int] = []
        try:
            for directed, faults in new.items():
                if faults != old.get(directed):
                    stage.shape(directed, faults)
                    reported.append(directed)
        except BaseException:
            for directed in reported:
                stage.shape(directed, old.get(directed, ()))
            raise

    @staticmethod
    def _forget(stage: WireStage, links: Iterable[int]) -> None:
        """Let frames of these links pass on at once, for XDP hands over no more."""
        for directed in links:
            stage.shape(directed, ())

    def _forget_all(self, links: Iterable[int]) -> None:
        with contextlib.suppress(RunError), WireStage(self.directory) as stage:
            self._forget(stage, links)


# --- The file from which the monitor comments packets ------------------------------------------
#
# It only grows, a line for each range of ids with the same text:
#
#     FIRST LAST <tab> text [<tab> text of what a gemodel does in its bad state]
#
# An id names the same rule as long as the lab exists, for records of it may be under way when
# faults change. The file is written before any of its rules acts.

_TAIL_BYTES = 4096  # more than the last line has


def free_rule_id(directory: Path) -> int:
    """Above the ids of all rules that the lab ever had."""
    try:
        with (directory / RULE_TEXTS).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return 0
    return 1 + int(lines[-1].split(maxsplit=2)[1]) if lines else 0


def add_rule_texts(faults: Iterable[Fault], directory: Path) -> None:
    """Write the texts of these rules that are not in the file yet."""
    free = free_rule_id(directory)
    fresh = sorted((f for f in faults if f.rule_id >= free), key=lambda fault: fault.rule_id)
    lines = "".join(f"{first} {last}\t{words}\n" for first, last, words in _ranges(fresh))
    with (directory / RULE_TEXTS).open("ab", buffering=0) as file:
        end = file.tell()
        if file.write(lines.encode()) != len(lines.encode()):  # no one finds a torn line
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory / RULE_TEXTS))


def renumbered(faults: Iterable[Fault], kept: Iterable[Fault], directory: Path) -> list[Fault]:
    """`faults` of which those that are not `kept` have ids that no rule of the lab ever had."""
    each, known, free = list(faults), set(kept), free_rule_id(directory)
    fresh = sorted({fault.rule_id for fault in each if fault not in known})
    if not fresh or fresh[0] >= free:
        return each
    ids = dict(zip(fresh, itertools.count(free)))
    return [
        fault if fault in known else replace(fault, rule_id=ids[fault.rule_id]) for fault in each
    ]


def _ranges(faults: Iterable[Fault]) -> Iterator[tuple[int, int, str]]:
    for words, run in itertools.groupby(faults, key=lambda fault: "\t".join(comments(fault))):
        ids = [fault.rule_id for fault in run]
        yield ids[0], ids[-1], words
