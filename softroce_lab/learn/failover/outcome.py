# SPDX-License-Identifier: GPL-2.0-or-later
"""A run whose failover a submission decides, and what is wrong with it, in words for its author."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from softroce_lab import units
from softroce_lab.experiment.transports.policy_call import PolicyError
from softroce_lab.learn.crew import POLICY, Crew
from softroce_lab.learn.failover import run, scene
from softroce_lab.learn.failover.machine import STEPS, Decision
from softroce_lab.learn.failover.rig import OPCODES
from softroce_lab.learn.failover.scene import Asked, Scene
from softroce_lab.shift.classes import SEND_ONCE

_MOST_STEPS, _MOST_AGAIN = 16, 64
_KIND_OF = {int(opcode): kind for kind, opcode in OPCODES.items()}


class Remote:
    """The submission's failover, in a process for each host."""

    def __init__(self, crew: Crew) -> None:
        self._members = [crew.member(host) for host in range(2)]
        for member in self._members:
            member.begin({})
        self.steps: list[str] | None = None  # of the host that was asked last

    def on_failure(self, host: int) -> Sequence[str]:
        """Steps, all of which there are."""
        found = self._members[host].call(["on_failure"], None)
        if len(found) > _MOST_STEPS or not all(isinstance(each, str) for each in found):
            raise PolicyError(POLICY, None, "on_failure returned no list of steps")
        unknown = next((each for each in found if each not in STEPS), None)
        if unknown is not None:
            hint = f"the steps: {', '.join(STEPS)}"
            why = f"on_failure returned {unknown[:40]!r}, which is no step; {hint}"
            raise PolicyError(POLICY, None, why)
        self.steps = found
        return found

    def on_move(
        self, host: int, unfinished: Sequence[Any], executed: int
    ) -> tuple[Sequence[int], Sequence[int] | None]:
        """Places, all of which there are."""
        written = [_plain(each.request, each.begun) for each in unfinished]
        found = self._members[host].call(["on_move", written, executed], None)
        try:
            done, again = found
            places = range(len(unfinished))
            every = [*done, *(again or ())]
            if all(isinstance(each, int) and each in places for each in every) and (
                len(set(done)) == len(done) and len(every) <= _MOST_AGAIN
            ):
                return list(done), None if again is None else list(again)
        except (TypeError, ValueError):
            pass
        raise PolicyError(POLICY, None, "on_move returned no two lists of requests: done, again")


def _plain(request: Any, begun: bool) -> dict[str, Any]:
    kind = _KIND_OF[int(request.opcode)]
    return {
        "number": request.wr_id,
        "kind": kind,
        "bytes": sum(each.length for each in request.sources),
        "notifies": kind in scene.NOTIFYING,
        "once": bool(request.send_flags & SEND_ONCE),
        "begun": bool(begun),
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """A submission's run of one scene."""

    written: Mapping[str, Any]
    seed: int
    error: PolicyError | None
    seen: run.Seen
    problems: list[str]

    def failure(self) -> str | None:
        """Why there was no run."""
        return None if self.error is None else str(self.error)

    def same_as(self, other: Outcome) -> bool:
        """Whether both went alike."""
        return (self.seen.lines, str(self.error)) == (other.seen.lines, str(other.error))


def of_policy(written: Mapping[str, Any], seed: int, crew: Crew) -> Outcome:
    """A run of the submission of this crew."""
    played = scene.read(written)
    try:
        way = Remote(crew)
        seen = run.run(played, way)
    except PolicyError as error:
        return Outcome(written, seed, error, run.Seen(), [])
    if seen.broken is not None:
        if not isinstance(seen.broken, PolicyError):
            raise seen.broken
        return Outcome(written, seed, seen.broken, seen, [])
    return Outcome(written, seed, None, seen, _problems(played, way.steps, seen))


# --- What is wrong ---------------------------------------------------------------------------


def _problems(played: Scene, steps: Sequence[str] | None, seen: run.Seen) -> list[str]:
    """The reasons first, then what came of them."""
    reasons = [] if steps is None else _order(steps)
    for decision in seen.decisions:
        reasons += _decided(played, decision)
    if not reasons and not seen.wrong and seen.succeeded < len(played.requests):
        expected = all(each.expected.culprit is not None for each in seen.decisions)
        if not seen.decisions or not expected:
            reasons.append(f"{len(played.requests) - seen.succeeded} requests did not end well")
    worst = [each for each in seen.wrong if "twice" in each or "again" in each] or seen.wrong
    consequences = [f"so {worst[0]}"] if reasons and worst else worst[:1]
    return [*reasons[:1], *consequences]


def _order(steps: Sequence[str]) -> list[str]:
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
    stop, receives, move = (steps.index(each) for each in STEPS)
    if move < stop:
        why = "the failed queue pair still executes what arrives late: the count in MOVE is too low"
        return [f"{given}. When MOVE is sent before the stop, {why}"]
    if move < receives:
        return [f"{given}. The peer sends as soon as it has MOVE, and no receive is posted yet"]
    if receives < stop:
        return [f"{given}. Before the stop the receives still belong to the failed queue pair"]
    return []


def _decided(played: Scene, made: Decision) -> list[str]:
    """What is wrong with a decision of on_move."""
    where = (
        f"at {units.format_duration(made.at_ns)}, in on_move: h2 counts {made.executed} of the "
        f"notifications in flight"
    )
    done = {each.wr_id for each in made.expected.consumed}
    culprit = made.expected.culprit
    wrong = _wrong(played.requests, made, done, None if culprit is None else culprit.wr_id)
    return [] if wrong is None else [f"{where}. {wrong}"]


def _wrong(
    requests: Sequence[Asked], made: Decision, done: set[int], culprit: int | None
) -> str | None:
    again = made.again
    for number in again or ():
        if number in done:
            return (
                f"{requests[number]} was posted again, although it was executed: RC executes in "
                "order, and h2 has counted it, or a notification behind it"
            )
    for number in made.done:
        if number not in done:
            return f"{requests[number]} was called done, and nobody knows whether it was executed"
    if culprit is not None:
        what = requests[culprit]
        if culprit in made.done:
            return f"{what} was called done, and its result is lost: the failure has to surface"
        if again is not None:
            return (
                f"{what} must not be executed twice, and nobody knows whether it was executed "
                "once: the failure has to surface (again = None)"
            )
        return None
    rest = [number for number in made.requests if number not in done]
    if again is None:
        why = "everything left may be posted again" if rest else "everything is done"
        return f"the failure surfaced, although {why}"
    return _left_out(requests, made, done, rest)


def _left_out(
    requests: Sequence[Asked], made: Decision, done: set[int], rest: Sequence[int]
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
