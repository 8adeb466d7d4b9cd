# SPDX-License-Identifier: GPL-2.0-or-later
"""The finale: transports of one's own, ranked beside those of the lab on fabrics nobody has seen.

The figure is this project's: the geometric mean, over all fabrics, of the time of the whole
workload over the oracle's with the same seed. The oracle bounds what retransmission after a loss
can do, so 1 is that bound. A transport that sends parity can be below it. A run that fails counts
as one that lasted until its deadline.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment.transports import policy_file
from softroce_lab.learn import folder, trial
from softroce_lab.learn.isolation import Policy, Workers
from softroce_lab.learn.lab import Dice, hidden_seeds, task_dice
from softroce_lab.learn.labs import experiments
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


def _tenths(dice: Dice, most: int) -> str:
    return f"{dice.number('loss', 1, most) / 10:g}%"


def _line(dice: Dice, *faults: Mapping[str, Any], most_us: int = 60, **more: Any) -> Written:
    delay = f"{dice.number('delay', 5, most_us)}us"
    return experiments.line(delay, faults=faults, **{"total": "2MiB", **more})


def _reordering(dice: Dice) -> Written:
    paths, jitter = dice.number("paths", 2, 6), f"{dice.number('jitter', 1, 8)}us"
    faults = [experiments.loss(_tenths(dice, 10), "s2->h2")]
    return experiments.paths(paths, jitter, faults=faults, total="2MiB")


def _grey(dice: Dice) -> Written:
    faults = [experiments.loss(f"{dice.number('loss', 3, 15)}%", "s1->m1")]
    return experiments.paths(3, "1us", faults=faults, total="2MiB", lb="flow")


def _tails(dice: Dice) -> Written:
    tail = experiments.drop(f"tail {dice.number('tail', 1, 3)} iter {dice.number('times', 1, 2)}")
    return _line(dice, tail, total="1MiB", message="64KiB", depth=1)


def _dark(dice: Dice) -> Written:
    outage = experiments.outage(f"{dice.number('at', 50, 300)}us", f"{dice.number('for', 1, 4)}ms")
    return _line(dice, outage, most_us=40)


KINDS: dict[str, Callable[[Dice], Written]] = {
    "clean": _line,
    "lossy": lambda dice: _line(dice, experiments.loss(_tenths(dice, 30))),
    "reordering": _reordering,
    "grey path": _grey,
    "lost tails": _tails,
    "outage": _dark,
}


def arenas(secret: bytes | None) -> list[tuple[str, int, Written]]:
    """Kind, seed and experiment of each run. Without a secret: the public ones."""
    public = list(range(1, ROUNDS + 1))
    return [
        (kind, seed, build(task_dice(kind, seed)))
        for kind, build in KINDS.items()
        for seed in (public if secret is None else hidden_seeds(secret, 8, kind, ROUNDS))
    ]


# --- Runs ------------------------------------------------------------------------------------


def read_entrant(text: str) -> tuple[str, Policy]:
    """The policy that FILE:CLASS names. UserError if there is none."""
    path, name = policy_file.split(text)
    source = folder.read_file(Path(path))
    if source is None:
        raise UserError("is not there", file=path)
    try:
        known = _names(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"is no Python: {error}", file=path) from None
    if name not in known:
        hint = "FILE:CLASS, as the file writes it"
        raise UserError(f"has no class {name}", file=path, hint=hint)
    return text, Policy(source, name)


def _names(tree: ast.Module) -> set[str]:
    """What the program defines or imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def rank(
    entrants: Sequence[tuple[str, Policy]],
    secret: bytes | None,
    *,
    isolated: bool,
    say: Callable[[str], None] = lambda _: None,
) -> list[Standing]:
    """Everybody, the best first; nobody beats the oracle by retransmission."""
    runs = arenas(secret)
    times: dict[str, list[int | None]] = {}  # None: the run failed
    for name in (BOUND, *HOUSE):
        say(name)
        ended = [trial.run_transport(written, seed, name) for _, seed, written in runs]
        times[name] = [run.makespan_ns if run.verdict == "passed" else None for run in ended]
    bounds = [trial.run_transport(written, seed, BOUND).makespan_ns for _, seed, written in runs]
    for name, policy in entrants:
        say(name)
        with Workers(policy, isolated=isolated) as workers:
            trials = [trial.run_policy(written, seed, workers) for _, seed, written in runs]
        times[name] = [None if made.failure() else made.run.makespan_ns for made in trials]
    standings = [_standing(name, runs, bounds, taken) for name, taken in times.items()]
    return sorted(standings, key=lambda standing: (standing.over_oracle, standing.name))


def _standing(
    name: str,
    runs: Sequence[tuple[str, int, Written]],
    bounds: Sequence[int],
    times: Sequence[int | None],
) -> Standing:
    ratios = []
    for (kind, _, written), bound, taken in zip(runs, bounds, times, strict=True):
        deadline_ns = units.parse_time_ns(str(written["deadline"]))
        ratios.append(((deadline_ns if taken is None else taken) / bound, kind))
    mean = math.exp(math.fsum(math.log(ratio) for ratio, _ in ratios) / len(ratios))
    failed = sum(taken is None for taken in times)
    return Standing(name, mean, failed, max(ratios)[1])
