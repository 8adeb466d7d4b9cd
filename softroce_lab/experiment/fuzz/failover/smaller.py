# SPDX-License-Identifier: GPL-2.0-or-later
"""The smallest case found for which the same invariant fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from softroce_lab.experiment.fuzz.failover import campaign
from softroce_lab.experiment.fuzz.failover.campaign import Seen
from softroce_lab.experiment.fuzz.failover.draw import Change, Drawn
from softroce_lab.experiment.fuzz.failover.work import Op

_MOST_TRIES = 400


def shrink(violation: Seen, say: Callable[[str], None] = lambda _: None) -> Seen:
    """As `fuzz.seeds.shrink`; `violation` unchanged if nothing smaller fails alike."""
    best, left = violation, _MOST_TRIES
    smaller = best.drawn is not None
    while smaller and left > 0:
        smaller = False
        for candidate in _simpler(best.drawn):
            left -= 1
            found = campaign.run_drawn(candidate)
            if found.outcome is None and _manner(found) == _manner(violation):
                best, smaller = dataclasses.replace(found, file=violation.file), True
                say(f"smaller: {_size(candidate)} requests and changes")
                break
            if left <= 0:
                break
    return best


_OWN_WORDS = ("not over", "an error surfaced", "a failback with")


def _manner(seen: Seen) -> str:
    """What failed: time, an error, a failback, or what was delivered, whichever request it was."""
    kind, _, what = seen.what.partition(": ")
    return next((f"{kind}: {each}" for each in _OWN_WORDS if what.startswith(each)), kind)


def _size(drawn: Drawn) -> int:
    ops = [*drawn.ops, *(each for _, both in drawn.bursts for each in both)]
    return sum(map(len, ops)) + len(drawn.changes)


def _simpler(drawn: Drawn | None) -> Iterator[Drawn]:
    """Each a step smaller: less that fails, fewer requests, plainer cables."""
    if drawn is None:
        return
    yield from _less_posted(drawn)
    yield from _less_broken(drawn)
    for field, plain in _PLAIN.items():
        if getattr(drawn, field) != plain:
            yield dataclasses.replace(drawn, **{field: plain})


def _less_posted(drawn: Drawn) -> Iterator[Drawn]:
    for number in range(len(drawn.bursts)):
        yield dataclasses.replace(drawn, bursts=_without(drawn.bursts, number))
    for number, (at, both) in enumerate(drawn.bursts):
        for fewer in _fewer_of_either(both):
            more = [*drawn.bursts[:number], (at, fewer), *drawn.bursts[number + 1 :]]
            yield dataclasses.replace(drawn, bursts=more)
    for fewer in _fewer_of_either(drawn.ops):
        yield dataclasses.replace(drawn, ops=fewer)


def _less_broken(drawn: Drawn) -> Iterator[Drawn]:
    if drawn.backup_fails:
        primary = [each for each in drawn.changes if each.rail == 0]
        yield dataclasses.replace(drawn, backup_fails=False, changes=primary)
    for number, each in enumerate(drawn.changes):
        if each.rail == 0 and _is_cut(each):  # with what mends it, which comes next
            yield dataclasses.replace(drawn, changes=_without_pair(drawn.changes, number))


_PLAIN: Mapping[str, Any] = {
    "old_packets": False, "jitter_ns": 0, "duplicate": 0.0, "control_loss": 0.0, "at_once": 1,
    "receive_every": 1, "delay_ns": 1000,
}  # fmt: skip


def _without(
    entries: list[tuple[int, list[list[Op]]]], at: int
) -> list[tuple[int, list[list[Op]]]]:
    return [*entries[:at], *entries[at + 1 :]]


def _is_cut(change: Change) -> bool:
    return change.what is not False


def _without_pair(changes: list[Change], at: int) -> list[Change]:
    mends = next(
        (
            n
            for n in range(at + 1, len(changes))
            if changes[n].rail == 0 and not _is_cut(changes[n])
        ),
        None,
    )
    return [each for n, each in enumerate(changes) if n not in (at, mends)]


def _fewer_of_either(both: list[list[Op]]) -> Iterator[list[list[Op]]]:
    for host, ops in enumerate(both):
        for fewer in _fewer(ops):
            yield [fewer if n == host else each for n, each in enumerate(both)]


def _fewer(ops: list[Op]) -> Iterator[list[Op]]:
    """The first of them, and the last one, which notifies: every fourth does (draw.py)."""
    for count in (0, len(ops) // 2, len(ops) - 2):
        if 0 < count < len(ops) - 1:
            yield [*ops[:count], ops[-1]]
    if ops:
        yield []
