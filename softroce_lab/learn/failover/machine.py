# SPDX-License-Identifier: GPL-2.0-or-later
"""A ShiftQP's machine that asks a `Way` for the order of its steps and for what is done.

Each step takes time, as modifying a queue pair of a NIC does, so a wrong order has consequences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

from softroce_lab.transports.shift.machine import PSN_GAP, RETRY_EXC, Machine
from softroce_lab.transports.shift.protocol import (
    PSN_MASK,
    Classes,
    Kind,
    Message,
    ProtocolError,
    Receiver,
    Sender,
    Settings,
    classify,
)

STEPS = ("stop", "receives", "move")
STEP_NS = 20_000
"""How long a step takes [D]."""


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about the requests in flight, by number, and what is right."""

    at_ns: int
    requests: tuple[int, ...]  # in flight, in their order
    executed: int  # notifications that the peer counts
    done: tuple[int, ...]
    again: tuple[int, ...] | None  # None: the failure surfaces
    expected: Classes


class Way(Protocol):
    """Who decides. `on_move` names requests by their places among the unfinished ones."""

    def on_failure(self, host: int) -> Sequence[str]:
        """The steps, in their order."""

    def on_move(
        self, host: int, unfinished: Sequence[Any], executed: int
    ) -> tuple[Sequence[int], Sequence[int] | None]:
        """Places of what is done, and of what is posted again, in that order."""


class World(Protocol):
    """What a machine needs of the run around it."""

    way: Way

    def count_notifications(self, host: int) -> int:
        """How many notifications the application has taken."""

    def deliver_late(self, host: int) -> None:
        """Let the network deliver what it held, after a step of this host."""

    def note(self, host: int, text: str, at_ns: int | None = None) -> None:
        """Write down what happens."""


class AskingMachine(Machine):
    """One end. `decisions` lists what was decided; `broken` is the way's exception."""

    def __init__(self, face: Any, qp_num: int, settings: Settings, world: World, host: int) -> None:
        super().__init__(face, qp_num, settings, signal_all=False)
        self._world, self._host = world, host
        self._todo: list[str] = []
        self._step_at_ns: int | None = None
        self._stopped = True
        self._answer: Message | None = None
        self._receives: list[Any] = []
        self._chosen: Classes | None = None
        self.decisions: list[Decision] = []
        self.broken: Exception | None = None

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
        self._world.note(self._host, why, now_ns)
        try:
            self._todo = list(self._world.way.on_failure(self._host))
        except Exception as error:
            self._break(error, now_ns)
            return
        self._step(now_ns)

    def _break(self, error: Exception, now_ns: int) -> None:
        self.broken = error
        self._surface("the policy failed", now_ns)

    def _step(self, now_ns: int) -> None:
        self._step_at_ns = None
        if not self._todo:
            self._resolve_if_ready(now_ns)
            return
        step = self._todo.pop(0)
        self._world.note(self._host, f"step {step!r}", now_ns)
        {"stop": self._stop, "receives": self._post_all, "move": self._tell}[step]()
        self._world.deliver_late(self._host)
        self._step_at_ns = now_ns + STEP_NS

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
        counted = self._world.count_notifications(self._host)
        count = self._received if self._stopped else counted
        self._face.tell(Message(Kind.MOVE, self.epoch, count, self._own_psn))

    def _end_steps(self) -> None:
        if self._waiting:
            self._stop()
        self._todo, self._step_at_ns = [], None

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
        self._end_steps()
        super()._peer_failed(message, now_ns)

    def _surface(
        self, why: str, now_ns: int, more: Sequence[Any] = (), *, status: int = RETRY_EXC
    ) -> None:
        self._end_steps()
        self._world.note(self._host, f"an error surfaces: {why}", now_ns)
        super()._surface(why, now_ns, more, status=status)

    def next_time_ns(self) -> int | None:
        """The next step counts, too."""
        times = [at for at in (super().next_time_ns(), self._step_at_ns) if at is not None]
        return min(times, default=None)

    def advance(self, now_ns: int) -> None:
        """Do what is due."""
        if self._step_at_ns is not None and now_ns >= self._step_at_ns:
            self._step(now_ns)
        super().advance(now_ns)

    # ---------------------------------------------------------------- decisions

    def _resolve_if_ready(self, now_ns: int) -> None:
        if self._answer is None or self._todo or self._step_at_ns is not None:
            return
        self._stop()
        answer, self._answer = self._answer, None
        self._world.note(self._host, f"the peer counts {answer.received} notifications", now_ns)
        try:
            self._chosen = self._ask(answer.received - self._executed, now_ns)
        except ProtocolError as error:
            self._surface(str(error), now_ns)
        except Exception as error:
            self._break(error, now_ns)
        else:
            self._resolve(answer, now_ns)

    def _ask(self, executed: int, now_ns: int) -> Classes:
        expected = classify(self._unresolved, executed)
        done, again = self._world.way.on_move(self._host, self._unresolved, executed)
        requests = [unfinished.request for unfinished in self._unresolved]
        numbers = tuple(request.wr_id for request in requests)
        made = Decision(
            now_ns, numbers, executed, tuple(numbers[i] for i in done),
            None if again is None else tuple(numbers[i] for i in again), expected,
        )  # fmt: skip
        self.decisions.append(made)
        consumed = [requests[i] for i in done]
        if again is not None:
            return Classes(consumed, [requests[i] for i in again], None)
        left = [unfinished for i, unfinished in enumerate(self._unresolved) if i not in set(done)]
        self._unresolved = [*[self._unresolved[i] for i in done], *left]
        return Classes(consumed, [], left[0].request if left else None)

    def _classify(self, move: Message) -> Classes:
        if move.kind is Kind.MOVE and self._chosen is not None:
            return self._chosen
        return super()._classify(move)  # the peer surfaced an error: nobody is asked
