# SPDX-License-Identifier: GPL-2.0-or-later
"""Many seeds of failovers, over processes, added up as they come; and what fails, made smaller."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from softroce_lab.experiment.fuzz import pool
from softroce_lab.experiment.fuzz.failover import draw
from softroce_lab.experiment.fuzz.failover.draw import Change, Drawn, Outcome
from softroce_lab.experiment.fuzz.failover.work import Op

_EXPECTED = (
    "failover", "failback", "failover after failback", "surfaced error", "backup fails",
    "old packets", "jitter", "duplicates", "loss on the backup", "atomics", "requests marked once",
    "more requests later",
    "packets carried after the cut", "harmless requests alone",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """One seed: what it came to, or which invariant failed."""

    seed: int
    outcome: Outcome | None
    what: str = ""
    drawn: Drawn | None = None  # what was run, of one that broke; None: its process was lost
    file: str | None = None  # that it came from

    @property
    def replay(self) -> str:
        """The command that shows it again."""
        if self.file is not None:
            return shlex.join(["lab", "fuzz", "failover", "--case", self.file])
        return f"lab fuzz failover --seed {self.seed} --seeds 1"


@dataclasses.dataclass(slots=True)
class Campaign(pool.Campaign):
    """Of failovers."""

    moves: int = 0
    surfaced: int = 0

    def add(self, seen: Seen) -> None:
        """One more."""
        self.seeds += 1
        if seen.outcome is None:
            self.violations.append(seen)
            return
        self.moves += seen.outcome.moves
        self.surfaced += seen.outcome.failed
        self.features.update(seen.outcome.features)

    @property
    def coverage(self) -> dict[str, float]:
        """In what share of the seeds each thing was met."""
        return self.shares(_EXPECTED)

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "seeds": self.seeds,
            "moves": self.moves,
            "surfaced": self.surfaced,
            "violations": [
                {"seed": each.seed, "what": each.what, "replay": each.replay}
                for each in self.violations
            ],
            "coverage": self.coverage,
        }


def run_seed(seed: int) -> Seen:
    """A seed."""
    return run_drawn(Drawn.of_seed(seed))


def run_drawn(drawn: Drawn, file: str | None = None) -> Seen:
    """What a seed means, or a file; whatever is raised is a violation."""
    try:
        return Seen(drawn.seed, draw.run(drawn))
    except Exception as error:  # a bug of ours is what this is for
        return Seen(drawn.seed, None, f"{type(error).__name__}: {error}", drawn, file)


@dataclasses.dataclass(frozen=True, slots=True)
class _Failovers:
    def run(self, seed: int) -> Seen:
        return run_seed(seed)

    def lost(self, seed: int, what: str) -> Seen:
        return Seen(seed, None, what)


def campaign(
    seeds: Iterable[int],
    jobs: int,
    *,
    until: Callable[[], bool] = lambda: False,
    progress: Callable[[Campaign], None] = lambda _: None,
) -> Campaign:
    """All seeds, or as many as come before `until` is true or the user interrupts."""
    return Campaign().gather(pool.over(seeds, _Failovers(), jobs), until, progress)


# --- Smaller ---------------------------------------------------------------------------------

_MOST_TRIES = 400


def shrink(violation: Seen, say: Callable[[str], None] = lambda _: None) -> Seen:
    """As `fuzz.seeds.shrink`; `violation` unchanged if nothing smaller fails alike."""

    def smaller(best: Seen) -> Iterator[Seen | None]:
        for candidate in _simpler(best.drawn):
            found = run_drawn(candidate, violation.file)
            fails = found.outcome is None and _manner(found) == _manner(violation)
            if fails:
                say(f"smaller: {_size(candidate)} requests and changes")
            yield found if fails else None

    return pool.smallest(violation, smaller, _MOST_TRIES)


_OWN_WORDS = ("not over", "an error surfaced", "a failback with")


def _manner(seen: Seen) -> str:
    """What failed: time, an error, a failback, or what was delivered, whichever request it was."""
    kind, _, what = seen.what.partition(": ")
    return next((f"{kind}: {each}" for each in _OWN_WORDS if what.startswith(each)), kind)


def _size(drawn: Drawn) -> int:
    ops = [*drawn.requests, *(each for _, both in drawn.later for each in both)]
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
    for number in range(len(drawn.later)):
        yield dataclasses.replace(drawn, later=_without(drawn.later, number))
    for number, (at, both) in enumerate(drawn.later):
        for fewer in _fewer_of_either(both):
            more = [*drawn.later[:number], (at, fewer), *drawn.later[number + 1 :]]
            yield dataclasses.replace(drawn, later=more)
    for fewer in _fewer_of_either(drawn.requests):
        yield dataclasses.replace(drawn, requests=fewer)


def _less_broken(drawn: Drawn) -> Iterator[Drawn]:
    if drawn.backup_fails:
        primary = [each for each in drawn.changes if each.rail == 0]
        yield dataclasses.replace(drawn, backup_fails=False, changes=primary)
    for number, each in enumerate(drawn.changes):
        if each.rail == 0 and _is_cut(each):  # with what mends it, which comes next
            yield dataclasses.replace(drawn, changes=_without_pair(drawn.changes, number))


_PLAIN: Mapping[str, Any] = {
    "old_packets": False, "jitter_ns": 0, "duplicate": 0.0, "loss_on_backup": 0.0, "at_once": 1,
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
