# SPDX-License-Identifier: GPL-2.0-or-later
"""The finale: transports of one's own, ranked beside those of the lab on fabrics nobody has seen.

The figure is this project's: the geometric mean, over all fabrics, of the time of the whole
workload over the oracle's with the same seed. The oracle bounds what retransmission after a loss
can do, so 1 is the bound. A run that fails counts as one that lasted until its deadline.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment.transports import policy_file
from softroce_lab.learn import folder, seeds, trial
from softroce_lab.learn.crew import Crew, Policy
from softroce_lab.learn.labs import fabrics
from softroce_lab.learn.seeds import Dice
from softroce_lab.learn.trial import Written

BOUND = "oracle"
HOUSE = ("csa_ud", "irn", "ud_rto")
"""Whom entrants are ranked beside."""
ROUNDS = 2  # of all kinds of fabric


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """A line of the table."""

    name: str
    over_oracle: float
    failed: int  # runs
    worst: str  # the kind of fabric where it was furthest behind


# --- Fabrics ---------------------------------------------------------------------------------


def _clean(dice: Dice) -> Written:
    return fabrics.line(f"{dice.number('delay', 5, 60)}us", total="2MiB")


def _lossy(dice: Dice) -> Written:
    share = f"{dice.number('loss', 1, 30) / 10:g}%"
    return fabrics.line(f"{dice.number('delay', 5, 60)}us", faults=[fabrics.loss(share)],
                        total="2MiB")  # fmt: skip


def _reordering(dice: Dice) -> Written:
    share = f"{dice.number('loss', 1, 10) / 10:g}%"
    return fabrics.paths(dice.number("paths", 2, 6), f"{dice.number('jitter', 1, 8)}us",
                         faults=[fabrics.loss(share, "s2->h2")], total="2MiB")  # fmt: skip


def _grey(dice: Dice) -> Written:
    faults = [fabrics.loss(f"{dice.number('loss', 3, 15)}%", "s1->m1")]
    return {**fabrics.paths(3, "1us", faults=faults, total="2MiB"), "lb": "flow"}


def _tails(dice: Dice) -> Written:
    faults = [fabrics.drop(f"tail {dice.number('tail', 1, 3)} iter {dice.number('times', 1, 2)}")]
    return fabrics.line(f"{dice.number('delay', 5, 60)}us", faults=faults, total="1MiB",
                        message="64KiB", depth=1)  # fmt: skip


def _dark(dice: Dice) -> Written:
    faults = [fabrics.outage(f"{dice.number('at', 50, 300)}us", f"{dice.number('for', 1, 4)}ms")]
    return fabrics.line(f"{dice.number('delay', 5, 40)}us", faults=faults, total="2MiB")


KINDS: dict[str, Callable[[Dice], Written]] = {
    "clean": _clean,
    "lossy": _lossy,
    "reordering": _reordering,
    "grey path": _grey,
    "lost tails": _tails,
    "outage": _dark,
}


def arenas(secret: bytes | None) -> list[tuple[str, int, Written]]:
    """Kind, seed and experiment of each run; public ones without a secret."""
    found = []
    for kind, build in KINDS.items():
        chosen = range(1, ROUNDS + 1) if secret is None else seeds.hidden(secret, 8, kind, ROUNDS)
        found += [(kind, seed, build(seeds.of_seed(kind, seed))) for seed in chosen]
    return found


# --- Runs ------------------------------------------------------------------------------------


def entrant(text: str) -> tuple[str, Policy]:
    """What FILE:CLASS names. UserError if it cannot be read, or has no such name."""
    path, name = policy_file.split(text)
    source = folder.read_file(Path(path))
    if source is None:
        raise UserError("is not there", file=path)
    try:
        known = _names(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"is no Python: {error}", file=path) from None
    if name not in known:
        raise UserError(
            f"has no class {name}", file=path, hint="FILE:CLASS, as it is written there"
        )
    return text, Policy(source, name)


def _names(tree: ast.Module) -> set[str]:
    """What the program defines or imports."""
    found: set[str] = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.ClassDef):
            found.add(each.name)
        elif isinstance(each, ast.alias):
            found.add(each.asname or each.name)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            found.add(each.id)
    return found


def ranked(
    entrants: Sequence[tuple[str, Policy]],
    secret: bytes | None,
    *,
    shut_in: bool,
    say: Callable[[str], None] = lambda _: None,
) -> list[Standing]:
    """The best first; the oracle, which nobody beats by retransmission, on top."""
    runs = arenas(secret)
    bounds = [trial.of_transport(each, seed, BOUND).makespan_ns for _, seed, each in runs]
    found = []
    for name in (BOUND, *HOUSE):
        say(name)
        made = (trial.of_transport(each, seed, name) for _, seed, each in runs)
        found.append(_standing(
            name, runs, bounds, [r.makespan_ns if r.verdict == "passed" else None for r in made]
        ))  # fmt: skip
    for name, policy in entrants:
        say(name)
        with Crew(policy, shut_in=shut_in) as crew:
            trials = [trial.of_policy(each, seed, crew) for _, seed, each in runs]
        times = [None if each.failure() else each.run.makespan_ns for each in trials]
        found.append(_standing(name, runs, bounds, times))
    return sorted(found, key=lambda each: (each.over_oracle, each.name))


def _standing(
    name: str,
    runs: Sequence[tuple[str, int, Written]],
    bounds: Sequence[int],
    times: Sequence[int | None],
) -> Standing:
    ratios = []
    for (kind, _, written), bound, taken in zip(runs, bounds, times, strict=True):
        most_ns = units.parse_time_ns(str(written["deadline"]))
        ratios.append(((most_ns if taken is None else taken) / bound, kind))
    mean = math.exp(math.fsum(math.log(each) for each, _ in ratios) / len(ratios))
    failed = sum(taken is None for taken in times)
    return Standing(name, mean, failed, max(ratios)[1])
