# SPDX-License-Identifier: GPL-2.0-or-later
"""A ShiftQP's machine whose failover is decided elsewhere: the order of steps, and what is done.

Each step takes time, as modifying a queue pair of a NIC does. So a wrong order has consequences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from softroce_lab.shift.classes import Classes, classify
from softroce_lab.shift.machine import PSN_GAP, RETRY_EXC, Machine
from softroce_lab.shift.messages import PSN_MASK, Kind, Message
from softroce_lab.shift.states import Receiver, Sender, Settings

STEPS = ("stop", "receives", "move")
STEP_NS = 20_000
"""How long a step takes [D]."""


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about the requests in flight, and what is right."""

    at_ns: int
    requests: tuple[int, ...]  # in flight, by number, in their order
    executed: int  # notifications that the peer counts
    done: tuple[int, ...]
    again: tuple[int, ...] | None  # None: the failure surfaces
    expected: Classes


class Way(Protocol):
    """Who decides. Requests are meant by their places."""

    def on_failure(self, host: int) -> Sequence[str]:
        """The steps, in their order."""

    def on_move(
        self, host: int, unfinished: Sequence[Any], executed: int
    ) -> tuple[Sequence[int], Sequence[int] | None]:
        """Places of what is done, and of what is posted again, in that order."""


@dataclasses.dataclass(slots=True)
class Hooks:
    """What a decided machine needs of the world around it."""

    host: int
    way: Way
    count: Callable[[], int]  # notifications that the application has taken
    after_step: Callable[[int], None]  # what the network does meanwhile
    note: Callable[[int, str], None]


class Decided(Machine):
    """One end. `decisions` has what was decided."""

    def __init__(self, face: Any, qp_num: int, settings: Settings, hooks: Hooks) -> None:
        super().__init__(face, qp_num, settings, signal_all=False)
        self._hooks = hooks
        self._todo: list[str] = []
        self._step_at_ns: int | None = None
        self._stopped = True
        self._answer: Message | None = None
        self._receives: list[Any] = []
        self._now_ns = 0
        self.decisions: list[Decision] = []
        self.broken: Exception | None = None  # of the way

    # ---------------------------------------------------------------- steps

    def _move(self, why: str, now_ns: int) -> None:
        self.plain = False
        self._left = self.path
        self.epoch += 1
        self._waiting, self._stopped, self._receives = True, False, []
        self._answer = None
        self._own_psn = PSN_GAP
        self._probe_at_ns = None
        self._deadline_ns = now_ns + self.settings.handshake_timeout_ns
        self._enter_receiver(Receiver.FALLBACK, why, now_ns, 0)
        self._enter(Sender.FALLBACK, why, now_ns)
        self._hooks.note(now_ns, why)
        try:
            self._todo = list(self._hooks.way.on_failure(self._hooks.host))
        except Exception as error:
            self._break(error, now_ns)
            return
        self._step(now_ns)

    def _break(self, error: Exception, now_ns: int) -> None:
        self.broken, self._todo, self._step_at_ns = error, [], None
        self._surface("the policy failed", now_ns)

    def _step(self, now_ns: int) -> None:
        self._step_at_ns = None
        if self._todo:
            step = self._todo.pop(0)
            self._hooks.note(now_ns, f"step {step!r}")
            {"stop": self._stop, "receives": self._post_all, "move": self._tell}[step]()
            self._hooks.after_step(self._hooks.host)
            self._step_at_ns = now_ns + STEP_NS
            return
        self._resolve_if_ready(now_ns)

    def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        left = self._face.leave(self._left)
        self._received += left.received
        self._executed += left.notified
        self._unresolved = list(left.sends)
        self._receives = list(left.receives)
        self._own_psn = (left.next_psn + PSN_GAP) & PSN_MASK

    def _post_all(self) -> None:
        receives, self._receives = self._receives, []
        self._post_moved(receives)

    def _tell(self) -> None:
        count = self._received if self._stopped else self._hooks.count()
        self._face.tell(Message(Kind.MOVE, self.epoch, count, self._own_psn))

    # ---------------------------------------------------------------- the peer, and time

    def _handle_move(self, message: Message, now_ns: int) -> None:
        if message.epoch == self.epoch + 1 and not self._waiting:
            self._move("the peer has moved", now_ns)
        if self.sender is Sender.FAILED:
            return
        if message.epoch != self.epoch or not self._waiting:
            self._surface(f"the peer moved to epoch {message.epoch}", now_ns)
            return
        self._answer = message
        self._resolve_if_ready(now_ns)

    def _peer_failed(self, message: Message, now_ns: int) -> None:
        if self._waiting:
            self._stop()
        self._todo, self._step_at_ns = [], None
        super()._peer_failed(message, now_ns)

    def _resolve_if_ready(self, now_ns: int) -> None:
        if self._answer is None or self._todo or self._step_at_ns is not None:
            return
        self._stop()
        answer, self._answer = self._answer, None
        self._now_ns = now_ns
        self._hooks.note(now_ns, f"the peer counts {answer.received} notifications")
        try:
            self._resolve(answer, now_ns)
        except _BrokenError as error:
            self._break(error.why, now_ns)

    def next_time_ns(self) -> int | None:
        """As of a machine; a step counts, too."""
        times = [each for each in (super().next_time_ns(), self._step_at_ns) if each is not None]
        return min(times, default=None)

    def advance(self, now_ns: int) -> None:
        """What is due."""
        if self._step_at_ns is not None and now_ns >= self._step_at_ns:
            self._step(now_ns)
        super().advance(now_ns)

    # ---------------------------------------------------------------- decisions

    def _classify(self, move: Message) -> Classes:
        executed = move.received - self._executed
        expected = classify(self._unresolved, executed)
        if move.kind is not Kind.MOVE:
            return expected  # the peer surfaced an error: nobody is asked
        try:
            done, again = self._hooks.way.on_move(self._hooks.host, self._unresolved, executed)
        except Exception as error:
            raise _BrokenError(error) from error
        requests = [each.request for each in self._unresolved]
        numbers = tuple(each.wr_id for each in requests)
        made = Decision(
            self._now_ns, numbers, executed, tuple(numbers[i] for i in done),
            None if again is None else tuple(numbers[i] for i in again), expected,
        )  # fmt: skip
        self.decisions.append(made)
        consumed = [requests[i] for i in done]
        if again is not None:
            return Classes(consumed, [requests[i] for i in again], None)
        left = [each for place, each in enumerate(self._unresolved) if place not in set(done)]
        self._unresolved = [*[self._unresolved[i] for i in done], *left]
        culprit = next(iter(left), None)
        return Classes(consumed, [], None if culprit is None else culprit.request)

    def _surface(
        self, why: str, now_ns: int, more: Sequence[Any] = (), *, status: int = RETRY_EXC
    ) -> None:
        if self._waiting:
            self._stop()
        self._todo, self._step_at_ns = [], None
        self._hooks.note(now_ns, f"an error surfaces: {why}")
        super()._surface(why, now_ns, more, status=status)


class _BrokenError(Exception):
    """The way failed while it was asked."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why
