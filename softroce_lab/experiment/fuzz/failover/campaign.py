# SPDX-License-Identifier: GPL-2.0-or-later
"""Many seeds of failovers, over processes, added up as they come."""

from __future__ import annotations

import collections
import dataclasses
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from softroce_lab.experiment.fuzz import pool
from softroce_lab.experiment.fuzz.failover import draw
from softroce_lab.experiment.fuzz.failover.draw import Drawn, Outcome
from softroce_lab.experiment.fuzz.gathering import gather

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
class Campaign:
    """What many seeds came to."""

    seeds: int = 0
    moves: int = 0
    surfaced: int = 0
    features: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    violations: list[Seen] = dataclasses.field(default_factory=list)
    interrupted: bool = False

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
        return {name: self.features[name] / max(1, self.seeds) for name in _EXPECTED}

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
    return gather(Campaign(), pool.over(seeds, _Failovers(), jobs), until, progress)
