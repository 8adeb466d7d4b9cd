# SPDX-License-Identifier: GPL-2.0-or-later
"""One run: h1 posts its requests, a NIC dies, and what both programs see is written down."""

from __future__ import annotations

import dataclasses
import re
import socket
from collections.abc import Sequence
from typing import Any

from softroce_lab import units
from softroce_lab.learn.failover import rig as two_hosts
from softroce_lab.learn.failover.machine import Decided, Decision, Hooks, Way
from softroce_lab.learn.failover.rig import Rig, value
from softroce_lab.learn.failover.scene import Asked, Scene
from softroce_lab.rnic.enums import IBV_WC_SUCCESS, IBV_WC_WITH_IMM

REUSED = 0xEE
_STEP_NS = 2_000
_LAST_NS = 400_000  # after all has ended: what comes late comes now


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """Something that happened."""

    at_ns: int
    host: int
    text: str


@dataclasses.dataclass(slots=True)
class Seen:
    """What came of a run. `wrong`: what memory and completions show that must not be."""

    lines: list[Line] = dataclasses.field(default_factory=list)
    wrong: list[str] = dataclasses.field(default_factory=list)
    notified: list[int] = dataclasses.field(default_factory=list)  # requests, as h2 was
    ended: dict[int, int] = dataclasses.field(default_factory=dict)  # status, by request
    added: int = 0
    detected_ns: int | None = None  # from the first post to the failure at h1
    gap_ns: int | None = None  # from then to the next good completion
    decisions: list[Decision] = dataclasses.field(default_factory=list)  # of h1
    consumed: int = 0  # requests
    resubmitted: int = 0
    broken: Exception | None = None

    @property
    def succeeded(self) -> int:
        """Requests that ended well."""
        return sum(status == IBV_WC_SUCCESS for status in self.ended.values())

    @property
    def twice(self) -> int:
        """Notifications beyond the first of a request."""
        return len(self.notified) - len(set(self.notified))


def run(scene: Scene, way: Way | None = None, *, with_backup: bool = True) -> Seen:
    """`way` decides; None: SHIFT does, or there is no backup."""
    made = _Run(scene, way, with_backup)
    with made.rig:
        made.go()
    return made.seen


class _Run:
    def __init__(self, scene: Scene, way: Way | None, with_backup: bool) -> None:
        self.scene, self.way, self.seen = scene, way, Seen()
        hooks = None if way is None else self._hooks
        self.rig = Rig(scene, hooks, with_backup=with_backup)
        self.sender, self.receiver = self.rig.ends
        self.receives = 0
        self.notifying = [each for each in scene.requests if each.notifies]

    def _hooks(self, host: int) -> Hooks:
        assert self.way is not None  # noqa: S101 - it is asked for only then
        return Hooks(
            host, self.way, lambda: len(self.seen.notified) if host else 0,
            lambda who: self.rig.deliver_late(who),
            lambda at_ns, text: self._note(host, text, at_ns),
        )  # fmt: skip

    def _note(self, host: int, text: str, at_ns: int | None = None) -> None:
        self.seen.lines.append(Line(self.rig.now_ns if at_ns is None else at_ns, host, text))

    def go(self) -> None:
        """Until all has ended, or ends no more."""
        for _ in self.notifying:
            self._post_receive()
        for each in self.scene.requests:
            self.sender.post(each, self.receiver)
        detection_ns = (4096 << self.scene.timeout) * 4 * (self.scene.retries + 1)
        until = 3 * detection_ns + 2_000_000
        over_ns: int | None = None
        while self.rig.now_ns < until and (over_ns is None or self.rig.now_ns < over_ns):
            self.rig.pass_time(_STEP_NS)
            self._poll()  # before what is due: what applications have taken is counted
            self.rig.advance()
            self._watch()
            if over_ns is None and len(self.seen.ended) == len(self.scene.requests):
                over_ns = self.rig.now_ns + _LAST_NS
        self._poll()
        self._finish()

    def _post_receive(self) -> None:
        self.receiver.post_receive(self.receives)
        self.receives += 1

    # ---------------------------------------------------------------- while it runs

    def _watch(self) -> None:
        machine = self.sender.machine
        if self.seen.detected_ns is None and machine is not None and not machine.plain:
            self.seen.detected_ns = self.rig.now_ns

    def _poll(self) -> None:
        for wc in self.sender.poll():
            good = wc.status == IBV_WC_SUCCESS
            asked = self.scene.requests[wc.wr_id]
            if wc.wr_id in self.seen.ended:
                self.seen.wrong.append(f"{asked} ended twice at h1")
            if self.seen.ended and wc.wr_id < max(self.seen.ended):
                self.seen.wrong.append(f"{asked} ended at h1 after a later one")
            self.seen.ended[wc.wr_id] = int(wc.status)
            self._note(0, f"{asked} ends: {'success' if good else wc.status.name}")
            if not good and self.seen.detected_ns is None:
                self.seen.detected_ns = self.rig.now_ns
            if good and self.seen.detected_ns is not None and self.seen.gap_ns is None:
                self.seen.gap_ns = self.rig.now_ns - self.seen.detected_ns
        for wc in self.receiver.poll():
            if wc.status == IBV_WC_SUCCESS:
                self._notified(wc)

    def _notified(self, wc: Any) -> None:
        """h2 looks at what it was notified of, and uses the memory for something else."""
        self._post_receive()  # as many as before
        number = self._which(wc)
        asked = self.scene.requests[number]
        self._note(1, f"notified of {asked}")
        if number in self.seen.notified:
            self.seen.wrong.append(f"h2 was notified twice of {asked}")
            self.seen.notified.append(number)
            return
        before = [each for each in self.notifying if each.number < number]
        missing = [each for each in before if each.number not in self.seen.notified]
        if missing:
            self.seen.wrong.append(f"h2 was notified of {asked} before {missing[0]}")
        self.seen.notified.append(number)
        for each in self._written_before(number):
            place = self._slot(each)
            if not (self.receiver.memory[place] == value(each.number)).all():
                self.seen.wrong.append(
                    f"h2 was notified of {asked}, and the bytes of {each} were not there"
                )
            self.receiver.memory[place] = REUSED

    def _which(self, wc: Any) -> int:
        if wc.wc_flags & IBV_WC_WITH_IMM:
            return int(socket.ntohl(wc.imm_data))
        buffer = wc.wr_id % two_hosts.BUFFERS
        at = two_hosts.RECEIVES + buffer * two_hosts.SLOT_BYTES
        return int(self.receiver.memory[at]) - 1

    def _written_before(self, number: int) -> list[Asked]:
        """WRITEs between the notification before and this one, itself included."""
        first = max((each.number + 1 for each in self.notifying if each.number < number), default=0)
        return [
            each
            for each in self.scene.requests[first : number + 1]
            if each.kind in ("WRITE", "WRITE_IMM")
        ]

    def _slot(self, asked: Asked) -> slice:
        at = asked.number * two_hosts.SLOT_BYTES
        return slice(at, at + asked.length_bytes)

    # ---------------------------------------------------------------- at the end

    def _finish(self) -> None:
        seen = self.seen
        reused = {
            each.number for number in set(seen.notified) for each in self._written_before(number)
        }
        for each in self.scene.requests:
            if each.number not in seen.ended and self.way is not None:
                seen.wrong.append(f"{each} never ended at h1")
            if each.kind in ("WRITE", "WRITE_IMM"):
                self._check_written(each, each.number in reused)
            if self._well(each) and each.notifies and each.number not in seen.notified:
                seen.wrong.append(f"{each} ended well at h1, and h2 was never notified of it")
            if self._well(each) and each.kind == "READ":
                self._check_read(each)
        self._check_added()
        self._count()

    def _well(self, asked: Asked) -> bool:
        return self.seen.ended.get(asked.number) == IBV_WC_SUCCESS

    def _check_written(self, asked: Asked, reused: bool) -> None:
        wanted = REUSED if reused else value(asked.number)
        if (self.receiver.memory[self._slot(asked)] == wanted).all():
            return
        if reused:
            self.seen.wrong.append(f"{asked} wrote again into memory that h2 had reused")
        elif self._well(asked):
            self.seen.wrong.append(f"{asked} ended well at h1, and its bytes are not at h2")

    def _check_read(self, asked: Asked) -> None:
        at = two_hosts.SOURCES + asked.number * two_hosts.SLOT_BYTES
        got = self.sender.memory[at : at + asked.length_bytes]
        if not (got == two_hosts.READ_VALUE).all():
            self.seen.wrong.append(f"{asked} ended well at h1, and its result is not there")

    def _check_added(self) -> None:
        seen, at = self.seen, two_hosts.COUNTER
        adds = [each for each in self.scene.requests if each.kind == "ADD"]
        seen.added = int.from_bytes(self.receiver.memory[at : at + 8].tobytes(), "little")
        done = sum(self._well(each) for each in adds)
        if seen.added > len(adds):
            seen.wrong.append(f"{seen.added} additions were executed, of {len(adds)} requests")
        elif seen.added < done:
            seen.wrong.append(f"{done} ADDs ended well at h1, and {seen.added} were executed")

    def _count(self) -> None:
        machine = self.sender.machine
        if isinstance(machine, Decided):
            self.seen.decisions = machine.decisions
        for end in self.rig.ends:
            broken = getattr(end.machine, "broken", None)
            self.seen.broken = self.seen.broken or broken
        if self.sender.backup is not None:
            for event in self.sender.backup.events:
                self.seen.consumed += event.consumed
                self.seen.resubmitted += event.resubmitted


def kinds(wrong: Sequence[str]) -> list[str]:
    """The first of each kind: texts that differ by their requests alone are of one."""
    first: dict[str, str] = {}
    for text in wrong:
        first.setdefault(re.sub(r"request \d+ \([^)]*\)", "", text), text)
    return list(first.values())


def in_words(lines: Sequence[Line], most: int) -> list[str]:
    """The lines in words, those of h1 and h2 in the order of time; at most so many."""
    shown = [
        f"{units.format_duration(each.at_ns)}  h{each.host + 1}  {each.text}"
        for each in sorted(lines, key=lambda line: line.at_ns)
    ]
    if len(shown) <= most:
        return shown
    return [*shown[: most - 1], f"... {len(shown) - most + 1} more"]
