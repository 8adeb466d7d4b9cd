# SPDX-License-Identifier: GPL-2.0-or-later
"""Failovers drawn from seeds: workloads, cuts, losses, delays, duplicates, old packets.

Two hosts talk over two rails. What a seed draws fails; what must hold is checked by `work`: each
notification once and in order, each WRITE before its notification and never after it, each
addition once; or an error, where one must surface. Every seed ends within a computed time.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from softroce_lab.experiment.fuzz.failover.rig import DETECTION_NS, SETTINGS, Rig
from softroce_lab.experiment.fuzz.failover.work import (
    BOUND_NS,
    FA,
    SI,
    WI,
    BrokenError,
    Case,
    Op,
    R,
    S,
    W,
)
from softroce_lab.transports.shift import Sender

_CONTROL_NS = 8 * 4 * (4096 << 3)
_HARMLESS = (W, WI, S, SI, R)
_CERTAIN = 2**64
_OLD_EVERY_NS = 16_000
BOTH = 2  # directions


class Change(NamedTuple):
    """A cable changes: from then on it is down, or up, or carries so many packets more."""

    at_ns: int
    rail: int
    direction: int  # 0, 1, or both
    what: bool | int


@dataclasses.dataclass(frozen=True, slots=True)
class Drawn:
    """What a seed means, or a file (case.py)."""

    seed: int  # of the cables' losses and delays
    only_harmless: bool
    requests: list[list[Op]]  # of each host
    at_once: int
    receive_every: int
    backup_fails: bool
    old_packets: bool
    delay_ns: int
    jitter_ns: int
    duplicate: float
    loss_on_backup: float
    changes: list[Change]  # by time
    later: list[tuple[int, list[list[Op]]]]
    """Requests that are posted later, by time: the fence of a failback is among them."""

    @classmethod
    def of_seed(cls, seed: int) -> Drawn:
        """As the seed draws it."""
        draw = random.Random(seed)  # noqa: S311 - not for secrets
        harmless = draw.random() < 0.6
        ops = [_ops(draw, draw.randrange(1, 24), harmless)]
        ops.append(_ops(draw, draw.randrange(0, 10), harmless))
        at_once = draw.randrange(1, 8)
        receive_every = draw.choice([1, 1, 3, 10])
        backup_fails = draw.random() < 0.15
        old_packets = draw.random() < 0.4
        delay_ns = draw.choice([500, 1000, 1000, 5000, 15_000])
        jitter_ns = draw.choice([0, 0, 0, 3000])
        duplicate = draw.choice([0.0, 0.0, 0.05])
        control_loss = draw.choice([0.0, 0.0, 0.02])
        changes = _changes(draw, backup_fails)
        bursts = _bursts(draw, changes[-1].at_ns, harmless)
        return cls(
            seed, harmless, ops, at_once, receive_every, backup_fails, old_packets, delay_ns,
            jitter_ns, duplicate, control_loss, changes, bursts,
        )  # fmt: skip

    @property
    def bound_ns(self) -> int:
        """Each cut may cost a detection, a handshake and what is repeated."""
        last = max((change.at_ns for change in self.changes), default=0) + 1_000_000
        failures = len(self.changes) + len(self.later) + 1
        each = BOUND_NS + _CONTROL_NS + SETTINGS.drain_timeout_ns
        found = last + failures * each + SETTINGS.handshake_timeout_ns
        return found * (4 if self.loss_on_backup else 1)

    def features(self) -> Iterator[str]:
        """What it has, whatever comes of it."""
        talks = itertools.chain(self.requests, *(more for _, more in self.later))
        ops = list(itertools.chain.from_iterable(talks))
        drawn = {
            "harmless requests alone": self.only_harmless,
            "backup fails": self.backup_fails,
            "old packets": self.old_packets,
            "jitter": self.jitter_ns,
            "duplicates": self.duplicate,
            "loss on the backup": self.loss_on_backup,
            "atomics": any(op.kind == FA for op in ops),
            "requests marked once": any(op.once for op in ops),
            "packets carried after the cut": any(type(each.what) is int for each in self.changes),
            "more requests later": self.later,
        }
        yield from (name for name, met in drawn.items() if met)


def _ops(draw: random.Random, count: int, only_harmless: bool) -> list[Op]:
    kinds = _HARMLESS if only_harmless else (*_HARMLESS, FA)
    made = []
    for number in range(count):
        # The peer's memory is free again when it is notified: that must not take too long.
        kind = draw.choice(kinds if number % 4 else (WI, S, SI))
        longest = 1024 if kind in (S, SI) else 2048
        length = 8 if kind == FA else draw.choice([0, 1, 64, 700, 1500, longest])
        once = not only_harmless and draw.random() < 0.05
        signaled = draw.random() < 0.7 or number % 4 == 0  # sources are free when that is done
        made.append(Op(kind, min(length, longest), signaled, once))
    return [*made, Op(SI, 8)] if made else []


def _changes(draw: random.Random, backup_fails: bool) -> list[Change]:
    """By time."""
    made = []
    at = draw.randrange(0, 40_000)
    for _ in range(draw.randrange(1, 6)):
        side = draw.choice([0, 1, 2])
        what = draw.choice([True, True, draw.randrange(0, 12)])
        made.append(Change(at, 0, side, what))
        at += draw.choice([5_000, 60_000, 300_000, 900_000])
        made.append(Change(at, 0, BOTH, False))
        at += draw.choice([20_000, 200_000, 700_000])
    if backup_fails:
        made.append(Change(draw.randrange(0, at), 1, draw.choice([0, 1, 2]), True))
    return sorted(made, key=lambda change: change.at_ns)


def _bursts(
    draw: random.Random, last_ns: int, only_harmless: bool
) -> list[tuple[int, list[list[Op]]]]:
    count = draw.choice([0, 2, 4, 8])
    times = sorted(draw.randrange(0, last_ns + 1_000_000) for _ in range(count))
    return [
        (at, [_ops(draw, draw.randrange(0, 8), only_harmless) for _ in range(2)]) for at in times
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a seed came to."""

    moves: int  # of both ends, from one NIC to the other
    failed: bool  # an error surfaced
    features: frozenset[str]


def run(drawn: Drawn) -> Outcome:
    """BrokenError if exactly-once, order, memory or the bound do not hold."""
    # With loss on the backup a retry more: two losses in a row are then no failure of it.
    rig = Rig(seed=drawn.seed, retry_cnt=7 if drawn.loss_on_backup else 1)
    _shape(rig, drawn)
    case = Case(rig, drawn.requests, drawn.at_once, drawn.receive_every)
    _go(rig, case, drawn)
    rig.run(2 * DETECTION_NS)
    case.poll()
    failed = case.failed or any(end.state is Sender.FAILED for end in rig.ends)
    if failed and drawn.only_harmless and not drawn.backup_fails:
        raise BrokenError("an error surfaced although nothing demands one")
    for talk in case.talks:
        if talk.failed or (talk.is_over and not failed):
            talk.check_end()
    _check_failbacks(rig)
    epochs = [end.qp.epoch for end in rig.ends]
    rig.close()
    features = {*drawn.features(), *_came_to(max(epochs), failed)}
    return Outcome(sum(epochs), failed, frozenset(features))


_GIVEN_UP = ("the failback took too long", "the peer gave up the failback")


def _check_failbacks(rig: Rig) -> None:
    """Even epochs begin when both ends have drained: nothing is in flight then.

    An end that gave the failback up posts again, and may learn later that its peer had moved.
    """
    for end in rig.ends:
        events = [] if end.backup is None else end.backup.events
        gave_up = {event.epoch + 1 for event in events if event.why in _GIVEN_UP}
        for event in events:
            in_flight = event.consumed or event.resubmitted or "may not be repeated" in event.why
            begins = event.epoch and event.epoch % 2 == 0 and event.epoch not in gave_up
            if in_flight and begins:
                raise BrokenError(f"a failback with requests in flight: {event}")


def _came_to(epoch: int, failed: bool) -> Iterator[str]:
    if epoch >= 1:
        yield "failover"
    if epoch >= 2:
        yield "failback"
    if epoch >= 3:
        yield "failover after failback"
    if failed:
        yield "surfaced error"


def _go(rig: Rig, case: Case, drawn: Drawn) -> None:
    """Until both ends are done, or an error has surfaced, and all changes have happened."""
    old: list[list[Any]] = [[], []]
    left, bursts = list(drawn.changes), list(drawn.later)
    while left or bursts or not (case.is_over or case.stopped):
        if rig.now_ns > drawn.bound_ns:
            raise BrokenError(f"not over after {drawn.bound_ns} ns")
        while left and left[0].at_ns <= rig.now_ns:
            _apply(rig, left.pop(0))
        while bursts and (bursts[0][0] <= rig.now_ns or case.failed):
            _, more = bursts.pop(0)
            if not case.failed:
                case.extend(*more)
        case.step()
        if drawn.old_packets and rig.now_ns % _OLD_EVERY_NS == 0:
            for pair, frames in zip(rig.pairs, old, strict=True):
                _repeat_old(pair, frames)


def _apply(rig: Rig, change: Change) -> None:
    directions = (0, 1) if change.direction == BOTH else (change.direction,)
    for direction in directions:
        cable = rig.pairs[change.rail].cable(direction)
        if isinstance(change.what, bool):
            cable.down, cable.carries = change.what, _CERTAIN - 1
        else:
            cable.carries = change.what


def _shape(rig: Rig, drawn: Drawn) -> None:
    for rail, pair in enumerate(rig.pairs):
        for side in range(2):
            cable = pair.cable(side)
            cable.delay_ns = drawn.delay_ns
            cable.jitter_ns = drawn.jitter_ns if rail == 0 else 0
            cable.duplicate = int(drawn.duplicate * _CERTAIN) if rail == 0 else 0
            cable.loss = int(drawn.loss_on_backup * _CERTAIN) if rail == 1 else 0
        if drawn.old_packets:
            pair.keep_sent()


def _repeat_old(pair: Any, frames: list[Any]) -> None:
    """Some of all that a rail has ever carried comes again."""
    frames += pair.take_sent()
    for _, side, frame in frames[:: max(len(frames) // 8, 1)]:
        pair.inject(1 - side, frame)
    pair.take_sent()
