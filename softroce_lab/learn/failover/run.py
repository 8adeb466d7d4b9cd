# SPDX-License-Identifier: GPL-2.0-or-later
"""One run: h1 posts its requests, a NIC dies, and what both programs see is written down."""

from __future__ import annotations

import dataclasses
import re
import socket
import weakref
from collections.abc import Sequence
from typing import Any

from softroce_lab import units
from softroce_lab._native import shift
from softroce_lab.experiment.fuzz.failover.rig import Rig
from softroce_lab.experiment.fuzz.failover.work import FA, REUSED, SLOT, SOURCES, WI, R, S, W
from softroce_lab.learn.failover.machine import STEPS, Asker, Decision, Way
from softroce_lab.learn.failover.scene import MAX_REQUESTS, WRITING, PostedRequest, Scene
from softroce_lab.learn.picture import Event
from softroce_lab.transports.shift import SEND_ONCE, Settings
from softroce_lab.verbs import WC
from softroce_lab.verbs.enums import IBV_SEND_SIGNALED, IBV_WC_SUCCESS, IBV_WC_WITH_IMM

OPCODES = {"WRITE": W, "WRITE_IMM": WI, "SEND": S, "READ": R, "ADD": FA}
# Places in a host's memory. A request has a slot by its number, at both hosts.
_RECEIVES = 65536
_COUNTER = _RECEIVES + MAX_REQUESTS * SLOT
_TO_READ = _COUNTER + SLOT
_READ_VALUE = 0x33
_STEP_NS = 2_000
_LAST_NS = 400_000  # after everything has ended: late packets arrive in this time
_SETTINGS = Settings(handshake_timeout_ns=5_000_000, probe_interval_ns=1_000_000_000)


@dataclasses.dataclass(slots=True)
class Result:
    """What came of a run. `wrong`: what memory and completions show that must not be."""

    events: list[Event] = dataclasses.field(default_factory=list)
    wrong: list[str] = dataclasses.field(default_factory=list)
    notified: list[int] = dataclasses.field(default_factory=list)  # requests, as h2 saw them
    ended: dict[int, int] = dataclasses.field(default_factory=dict)  # status, by request
    added: int = 0
    detected_ns: int | None = None  # from the first post to the failure at h1
    gap_ns: int | None = None  # from there to the next good completion
    decisions: list[Decision] = dataclasses.field(default_factory=list)  # of h1
    consumed: int = 0  # requests
    resubmitted: int = 0
    broken: Exception | None = None

    @property
    def succeeded(self) -> int:
        """How many requests ended well."""
        return sum(status == IBV_WC_SUCCESS for status in self.ended.values())

    @property
    def notified_twice(self) -> int:
        """Notifications beyond the first of a request."""
        return len(self.notified) - len(set(self.notified))

    def document(self) -> dict[str, object]:
        """The figures, for `--json`."""
        names = ("succeeded", "notified", "notified_twice", "added", "detected_ns", "gap_ns",
                 "consumed", "resubmitted", "wrong")  # fmt: skip
        return {name: getattr(self, name) for name in names}


def run(scene: Scene, way: Way | None = None, *, with_backup: bool = True) -> Result:
    """Run a scene. `way` decides; None: SHIFT's own machine does, or there is no backup."""
    made = _Run(scene, way, with_backup)
    with made:
        made.go()
    return made.result


class _Run(Rig):
    def __init__(self, scene: Scene, way: Way | None, with_backup: bool) -> None:
        super().__init__(
            shift=with_backup, settings=_SETTINGS, delay_ns=scene.delay_ns, timeout=scene.timeout,
            retry_cnt=scene.retries, rnr_retry=0,
        )  # fmt: skip
        self.scene, self.result, self._asks = scene, Result(), way is not None
        self.sender, self.receiver = self.ends
        if way is not None:
            self.way = way
            world: Any = weakref.proxy(self)
            self.askers = [Asker(world, end.which) for end in self.ends]
            for end, asker in zip(self.ends, self.askers, strict=True):
                end.qp.native.decide_by(asker)
        self.receiver.memory[_TO_READ : _TO_READ + SLOT] = _READ_VALUE
        self.notifying = [request for request in scene.requests if request.notifies]
        self._receives = 0
        self._held: list[bytes] = []
        self._sent = 0
        self.pairs[0].keep_sent()
        dying = 1 if scene.dies == "acknowledgements" else 0
        self.pairs[0].cable(dying).carries = scene.after

    # ---------------------------------------------------------------- for the machines

    def count_notifications(self, host: int) -> int:
        """How many notifications the application of a host has taken."""
        return len(self.result.notified) if host else 0

    def deliver_late(self, host: int) -> None:
        """A switch delivers to h2 what it held, if it does so in this scene."""
        for _, side, frame in self.pairs[0].take_sent():
            if side == 0:
                self._sent += 1
                if self._sent > self.scene.after:
                    self._held.append(bytes(frame))
        if self.scene.dies == "late" and host == 1:
            for held in self._held:
                self.pairs[0].inject(1, held)

    def note(self, host: int, text: str, at_ns: int | None = None) -> None:
        """Write down what happens at a host."""
        self.result.events.append(Event(self.now_ns if at_ns is None else at_ns, host, text))

    def break_off(self, error: Exception) -> None:
        """The way failed; its first exception counts."""
        self.result.broken = self.result.broken or error

    # ---------------------------------------------------------------- while it runs

    def go(self) -> None:
        """Run until every request has ended, or none will end any more."""
        for _ in self.notifying:
            self._post_receive()
        for request in self.scene.requests:
            self._post(request)
        detection_ns = (4096 << self.scene.timeout) * 4 * (self.scene.retries + 1)
        until_ns = 3 * detection_ns + 2_000_000
        is_over = False
        while self.now_ns < until_ns:
            self.pass_time(_STEP_NS)
            self._poll()  # before what is due: what applications have taken is counted
            self.advance()
            moves = self.sender.backup is not None and not self.sender.qp.plain
            if moves and self.result.detected_ns is None:
                self.result.detected_ns = self.now_ns
            if not is_over and len(self.result.ended) == len(self.scene.requests):
                is_over, until_ns = True, min(until_ns, self.now_ns + _LAST_NS)
        self._poll()
        self._check()
        self._count()

    def _post(self, request: PostedRequest) -> None:
        """h1 posts a request; its bytes tell its number."""
        source = _source(request)
        if request.kind not in ("READ", "ADD"):
            self.sender.memory[source] = _value(request)
        flags = IBV_SEND_SIGNALED | (SEND_ONCE if request.once else 0)
        to = {"ADD": _COUNTER, "READ": _TO_READ}.get(request.kind, _target(request).start)
        self.sender.post(
            OPCODES[request.kind], request.length_bytes, source.start, to=to, wr_id=request.number,
            imm=socket.htonl(request.number), flags=flags,
        )  # fmt: skip

    def _post_receive(self) -> None:
        """h2 posts a receive. It is there in time or the request fails: nothing is retried."""
        at = _RECEIVES + self._receives % MAX_REQUESTS * SLOT
        self.receiver.receive(SLOT, at, wr_id=self._receives)
        self._receives += 1

    def _number_of(self, completion: WC) -> int:
        """The request that a completed receive was notified of."""
        if completion.wc_flags & IBV_WC_WITH_IMM:
            return int(socket.ntohl(completion.imm_data))
        return int(self.receiver.memory[_RECEIVES + completion.wr_id % MAX_REQUESTS * SLOT]) - 1

    def _poll(self) -> None:
        result = self.result
        for completion in self.sender.poll():
            number, good = completion.wr_id, completion.status == IBV_WC_SUCCESS
            request = self.scene.requests[number]
            if number in result.ended:
                result.wrong.append(f"{request} ended twice at h1")
            if result.ended and number < max(result.ended):
                result.wrong.append(f"{request} ended at h1 after a later one")
            result.ended[number] = int(completion.status)
            self.note(0, f"{request} ends: {'success' if good else completion.status.name}")
            if not good and result.detected_ns is None:
                result.detected_ns = self.now_ns
            if good and result.detected_ns is not None and result.gap_ns is None:
                result.gap_ns = self.now_ns - result.detected_ns
        for completion in self.receiver.poll():
            if completion.status == IBV_WC_SUCCESS:
                self._take_notification(self._number_of(completion))

    def _take_notification(self, number: int) -> None:
        """h2 looks at what it was notified of, and uses the memory for something else."""
        result, request = self.result, self.scene.requests[number]
        self._post_receive()  # as many as before
        self.note(1, f"notified of {request}")
        if number in result.notified:
            result.wrong.append(f"h2 was notified twice of {request}")
            result.notified.append(number)
            return
        missing = [
            before
            for before in self.notifying
            if before.number < number and before.number not in result.notified
        ]
        if missing:
            result.wrong.append(f"h2 was notified of {request} before {missing[0]}")
        result.notified.append(number)
        for write in self._writes_until(number):
            if not (self.receiver.memory[_target(write)] == _value(write)).all():
                result.wrong.append(
                    f"h2 was notified of {request}, and the bytes of {write} were not there"
                )
            self.receiver.memory[_target(write)] = REUSED

    def _writes_until(self, number: int) -> list[PostedRequest]:
        """WRITEs between the notification before and this one, itself included."""
        before = [request.number for request in self.notifying if request.number < number]
        first = max(before, default=-1) + 1
        requests = self.scene.requests[first : number + 1]
        return [request for request in requests if request.kind in WRITING]

    # ---------------------------------------------------------------- at the end

    def _check(self) -> None:
        result = self.result
        reused = {
            write.number for number in result.notified for write in self._writes_until(number)
        }
        done_adds = 0
        for request in self.scene.requests:
            well = result.ended.get(request.number) == IBV_WC_SUCCESS
            if request.number not in result.ended and self._asks:
                result.wrong.append(f"{request} never ended at h1")
            if request.kind in WRITING:
                self._check_write(request, request.number in reused, well)
            if well and request.notifies and request.number not in result.notified:
                result.wrong.append(f"{request} ended well at h1, and h2 was never notified of it")
            read = self.sender.memory[_source(request)]
            if well and request.kind == "READ" and not (read == _READ_VALUE).all():
                result.wrong.append(f"{request} ended well at h1, and its result is not there")
            done_adds += well and request.kind == "ADD"
        counter = self.receiver.memory[_COUNTER : _COUNTER + 8]
        result.added = int.from_bytes(counter.tobytes(), "little")
        adds = sum(request.kind == "ADD" for request in self.scene.requests)
        if result.added > adds:
            result.wrong.append(f"{result.added} additions were executed, of {adds} requests")
        elif result.added < done_adds:
            counts = f"{done_adds} ADDs ended well at h1, and {result.added} were executed"
            result.wrong.append(counts)

    def _check_write(self, request: PostedRequest, reused: bool, well: bool) -> None:
        wanted = REUSED if reused else _value(request)
        if (self.receiver.memory[_target(request)] == wanted).all():
            return
        if reused:
            self.result.wrong.append(f"{request} wrote again into memory that h2 had reused")
        elif well:
            self.result.wrong.append(f"{request} ended well at h1, and its bytes are not at h2")

    def _count(self) -> None:
        if self._asks:
            self.result.decisions = self.askers[0].decisions
        if self.sender.backup is not None:
            for event in self.sender.backup.events:
                self.result.consumed += event.consumed
                self.result.resubmitted += event.resubmitted


def _source(request: PostedRequest) -> slice:
    """Where the bytes of a request are at h1."""
    at = SOURCES + request.number * SLOT
    return slice(at, at + request.length_bytes)


def _target(request: PostedRequest) -> slice:
    """Where a WRITE puts its bytes at h2."""
    at = request.number * SLOT
    return slice(at, at + request.length_bytes)


def _value(request: PostedRequest) -> int:
    """The byte that a request writes everywhere."""
    return request.number + 1


# --- Three ways to meet the same failure -----------------------------------------------------


class RepeatsAll:
    """Posts everything again, and asks nobody."""

    def on_failure(self, _: int) -> Sequence[str]:
        """The right order."""
        return STEPS

    def on_move(
        self, _: int, unfinished: Sequence[Any], __: int
    ) -> tuple[Sequence[int], Sequence[int] | None]:
        """Nothing is done, whatever the peer counts."""
        return [], range(len(unfinished))


class Shift(RepeatsAll):
    """Decides by SHIFT's classes."""

    def on_move(
        self, _: int, unfinished: Sequence[Any], executed: int
    ) -> tuple[Sequence[int], Sequence[int] | None]:
        """What the peer counts is done; the rest is posted again, if it may be."""
        done, again, culprit = shift.classify(unfinished, executed)
        return done, again if culprit is None else None


def compare_ways(scene: Scene) -> dict[str, Result]:
    """The result of each way, by its name."""
    ways: dict[str, Way | None] = {"no backup": None, "repeat all": RepeatsAll(), "SHIFT": Shift()}
    return {name: run(scene, way, with_backup=way is not None) for name, way in ways.items()}


def tabulate(results: Sequence[Result], scene: Scene) -> list[tuple[str, list[str]]]:
    """A table: a row's name, and a cell for each result."""
    count = len(scene.requests)
    notifying = sum(request.notifies for request in scene.requests)
    rows = [
        ("requests that ended well", [f"{one.succeeded} of {count}" for one in results]),
        ("notifications at h2", [f"{len(one.notified)} of {notifying}" for one in results]),
        ("notified twice", [str(one.notified_twice) for one in results]),
        ("memory wrong", [str(sum("memory" in text for text in one.wrong)) for one in results]),
        ("detected after", [_time(one.detected_ns) for one in results]),
        ("first good completion after that", [_time(one.gap_ns) for one in results]),
        ("called done", [str(one.consumed) for one in results]),
        ("posted again", [str(one.resubmitted) for one in results]),
    ]
    if any(request.kind == "ADD" for request in scene.requests):
        rows.insert(3, ("additions executed", [str(one.added) for one in results]))
    return rows


def _time(ns: int | None) -> str:
    return "-" if ns is None else units.format_duration(ns)


def first_of_each_kind(wrong: Sequence[str]) -> list[str]:
    """Texts without those that differ from an earlier one by their requests only."""
    first: dict[str, str] = {}
    for text in wrong:
        first.setdefault(re.sub(r"request \d+ \([^)]*\)", "", text), text)
    return list(first.values())
