# SPDX-License-Identifier: GPL-2.0-or-later
"""A run whose failover a submission decides, and what is wrong with it, in words for its author."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from softroce_lab import units
from softroce_lab.experiment.transports.policy_call import PolicyError
from softroce_lab.learn.failover import run, scene
from softroce_lab.learn.failover.machine import STEPS, Decision
from softroce_lab.learn.failover.scene import PostedRequest, Scene
from softroce_lab.learn.isolation import POLICY, Workers
from softroce_lab.learn.picture import Picture, draw_events
from softroce_lab.transports.shift import SEND_ONCE

_MAX_STEPS, _MAX_AGAIN = 16, 64
_KINDS = {int(opcode): kind for kind, opcode in run.OPCODES.items()}


class RemoteWay:
    """The submission's failover, in a process for each host. `steps`: the last order it gave."""

    def __init__(self, workers: Workers) -> None:
        self._workers = [workers.get(host) for host in range(2)]
        for worker in self._workers:
            worker.begin({})
        self.steps: list[str] | None = None

    def on_failure(self, host: int) -> Sequence[str]:
        """Steps; PolicyError for one that there is not."""
        steps = self._workers[host].call(["on_failure"], _answer_nothing)
        if len(steps) > _MAX_STEPS or not all(isinstance(step, str) for step in steps):
            raise PolicyError(POLICY, None, "on_failure returned no list of steps")
        unknown = next((step for step in steps if step not in STEPS), None)
        if unknown is not None:
            known = f"the steps: {', '.join(STEPS)}"
            why = f"on_failure returned {unknown[:40]!r}, which is no step; {known}"
            raise PolicyError(POLICY, None, why)
        self.steps = steps
        return steps

    def on_move(
        self, host: int, unfinished: Sequence[Any], executed: int
    ) -> tuple[Sequence[int], Sequence[int] | None]:
        """Places; PolicyError for one that there is not."""
        requests = [_as_document(each.request, each.begun) for each in unfinished]
        answer = self._workers[host].call(["on_move", requests, executed], _answer_nothing)
        try:
            done, again = answer
            places = [*done, *(again or ())]
            known = all(isinstance(i, int) and 0 <= i < len(unfinished) for i in places)
            if known and len(set(done)) == len(done) and len(places) <= _MAX_AGAIN:
                return list(done), None if again is None else list(again)
        except (TypeError, ValueError):
            pass
        raise PolicyError(POLICY, None, "on_move returned no two lists of requests: done, again")


def _answer_nothing(_: object, __: object) -> None:
    """A failover has nothing to ask."""


def _as_document(request: Any, begun: bool) -> dict[str, Any]:
    kind = _KINDS[int(request.opcode)]
    return {
        "number": request.wr_id,
        "kind": kind,
        "bytes": sum(sge.length for sge in request.sources),
        "notifies": kind in scene.NOTIFYING,
        "once": bool(request.send_flags & SEND_ONCE),
        "begun": bool(begun),
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """A submission's run of one scene. `problems`: what the author has to know, the worst first."""

    written: Mapping[str, Any]
    seed: int
    error: PolicyError | None
    result: run.Result
    problems: list[str]

    def failure(self) -> str | None:
        """Why there was no run."""
        return None if self.error is None else str(self.error)

    def same_as(self, other: Outcome) -> bool:
        """Whether both went alike."""
        events, more = self.result.events, other.result.events
        return (events, str(self.error)) == (more, str(other.error))

    def draw(self, title: str) -> Picture | None:
        """A picture of the run; None if there was none."""
        return draw_events(self.result.events, title)


def run_policy(written: Mapping[str, Any], seed: int, workers: Workers) -> Outcome:
    """A run of the submission of these workers."""
    played = scene.read(written)
    try:
        way = RemoteWay(workers)
        result = run.run(played, way)
    except PolicyError as error:
        return Outcome(written, seed, error, run.Result(), [])
    if isinstance(result.broken, PolicyError):
        return Outcome(written, seed, result.broken, result, [])
    if result.broken is not None:
        raise result.broken
    return Outcome(written, seed, None, result, _list_problems(played, way.steps, result))


# --- What is wrong ---------------------------------------------------------------------------


def _list_problems(played: Scene, steps: Sequence[str] | None, result: run.Result) -> list[str]:
    """The first reason, then its worst consequence."""
    reasons = [] if steps is None else _judge_order(steps)
    for decision in result.decisions:
        reasons += _judge_decision(played, decision)
    failed = len(played.requests) - result.succeeded
    if not reasons and not result.wrong and failed:
        surfaces = all(made.culprit is not None for made in result.decisions)
        if not result.decisions or not surfaces:
            reasons.append(f"{failed} requests did not end well")
    worst = [text for text in result.wrong if "twice" in text or "again" in text] or result.wrong
    consequences = [f"so {worst[0]}"] if reasons and worst else worst[:1]
    return [*reasons[:1], *consequences]


def _judge_order(steps: Sequence[str]) -> list[str]:
    """What is wrong with an order of steps, and why it matters."""
    given = f"on_failure returned {', '.join(steps) or 'no steps'}"
    missing = {
        "stop": "the failed queue pair stays in service, and executes what arrives late",
        "receives": "the peer's messages find no receive on the other NIC",
        "move": "the peer waits, and never learns what was executed here",
    }
    for step, why in missing.items():
        if step not in steps:
            return [f"{given}, without {step!r}: {why}"]
    if len(steps) != len(set(steps)):
        return [f"{given}: each step is done once"]
    stop, receives, move = (steps.index(step) for step in STEPS)
    if move < stop:
        why = "the failed queue pair still executes what arrives late: the count in MOVE is too low"
        return [f"{given}. When MOVE is sent before the stop, {why}"]
    if move < receives:
        return [f"{given}. The peer sends as soon as it has MOVE, and no receive is posted yet"]
    if receives < stop:
        return [f"{given}. Before the stop the receives still belong to the failed queue pair"]
    return []


def _judge_decision(played: Scene, made: Decision) -> list[str]:
    """What is wrong with a decision of on_move."""
    wrong = _wrong(played.requests, made)
    at = units.format_duration(made.at_ns)
    where = f"at {at}, in on_move: h2 counts {made.executed} of the notifications in flight"
    return [] if wrong is None else [f"{where}. {wrong}"]


def _wrong(requests: Sequence[PostedRequest], made: Decision) -> str | None:
    again, done, culprit = made.again, set(made.right), made.culprit
    for number in again or ():
        if number in done:
            return (
                f"{requests[number]} was posted again, although it was executed: RC executes in "
                "order, and h2 has counted it, or a notification behind it"
            )
    for number in made.done:
        if number < max(done, default=0) and requests[number].kind in ("READ", "ADD"):
            return f"{requests[number]} was called done, and its result is lost"
        if number not in done:
            return f"{requests[number]} was called done, and nobody knows whether it was executed"
    if culprit is not None:
        what = requests[culprit]
        if again is not None:
            return (
                f"{what} must not be executed twice, and may have been executed "
                "once: the failure has to surface (again = None)"
            )
        return None
    rest = [number for number in made.requests if number not in done]
    if again is None:
        why = "everything left may be posted again" if rest else "everything is done"
        return f"the failure surfaced, although {why}"
    return _left_out(requests, made, done, rest)


def _left_out(
    requests: Sequence[PostedRequest], made: Decision, done: set[int], rest: Sequence[int]
) -> str | None:
    again = list(made.again or ())
    for number in made.requests:
        if number in done and number not in made.done:
            return f"{requests[number]} was executed, and is in neither list: it never ends"
        if number in rest and number not in again:
            return f"{requests[number]} may be posted again, and is in neither list: it never ends"
    for place, number in enumerate(rest):
        if again[place] != number:
            wrong = requests[again[place]]
            return (
                f"{wrong} was posted again before {requests[number]}: the order of posting is "
                "what tells h2 that bytes are there when it is notified"
            )
    return None if len(again) == len(rest) else f"{requests[again[-1]]} was posted again twice"
