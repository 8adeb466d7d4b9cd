# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations of queue pairs between two RNICs, judged by IBA's rules of order.

A seed draws queue pairs, posts, faults of the cable and at most one planned fault
(native/pair/operation_plan.hpp). `_native` runs them and returns what broke.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.experiment.fuzz import pool
from softroce_lab.inputs.validation import Model, did_you_mean, validate
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.transports import registry

RC = "rc"
_PATH_MTU = 4096  # of the ports; a seed draws that of its queue pairs
_EXPECTED = (
    "IPv6", "loss", "duplicates", "corruption", "reordering", "a cut", "a drained queue",
    "a late queue pair", "old frames", "receives that were late", "shared receives",
    "two regions", "fences", "invalidations", "atomics of several queue pairs", "an error",
    "a planned error",
    "fault bad_key", "fault out_of_bounds", "fault no_right", "fault not_granted",
    "fault short_receive", "fault bad_receive", "fault bad_source", "fault bad_result",
    "fault bad_invalidate", "fault no_receive", "fault region_goes", "fault end_fails",
    "fault end_resets", "fault end_destroyed", "fault cut",
)  # fmt: skip


def transports_of(chosen: Iterable[str] | None) -> tuple[str, ...]:
    """Those chosen; by default `rc`. UserError for one that carries no operations."""
    names = tuple(dict.fromkeys(chosen or (RC,)))
    for name in names:
        if name not in registry.transports():
            what = f"{name} does not carry the operations of queue pairs"
            raise UserError(what, hint=f"one of {', '.join(registry.transports())}")
    return names


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """A seed, or a part of what it draws."""

    seed: int
    without_posts: tuple[int, ...] = ()
    without_disturbances: tuple[str, ...] = ()

    def run(self, transport: str, *, tells_story: bool = False) -> Any:
        """The `_native.OperationOutcome`."""
        return _native.run_operation_trial(
            self.seed,
            _config(transport),
            without_posts=list(self.without_posts),
            without_disturbances=list(self.without_disturbances),
            overlaps_mix=transport != RC,
            tells_story=tells_story,
        )


def _config(transport: str) -> Any:
    config = _native.MessageConfig()
    config.path_mtu = _PATH_MTU
    if transport != RC:
        for name, value in registry.find(transport).engine().items():
            setattr(config, name, value)
        config.carries_operations = True
    return config


@dataclasses.dataclass(frozen=True, slots=True)
class Violation:
    """A rule that did not hold."""

    transport: str
    what: str  # RULE: WHAT
    trial: Trial
    file: str | None = None  # that it came from
    posts: tuple[int, ...] = ()  # numbers of those that ran; none: its process was lost

    @property
    def seed(self) -> int:
        """Of the trial."""
        return self.trial.seed

    @property
    def rule(self) -> str:
        """The rule's name."""
        return self.what.partition(":")[0]

    @property
    def replay(self) -> str:
        """The command that shows it again."""
        words = ["lab", "fuzz", "operations", "--transport", self.transport]
        which = ["--seed", str(self.seed), "--seeds", "1"]
        return shlex.join([*words, *(which if self.file is None else ["--case", self.file])])


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """A seed with all chosen transports."""

    seed: int
    runs: int
    features: frozenset[str] = frozenset()
    violations: tuple[Violation, ...] = ()


@dataclasses.dataclass(slots=True)
class Campaign(pool.Campaign):
    """Of operations."""

    runs: int = 0

    def add(self, seen: Seen) -> None:
        """One more."""
        self.seeds += 1
        self.runs += seen.runs
        self.features.update(seen.features)
        self.violations += seen.violations

    @property
    def coverage(self) -> dict[str, float]:
        """In what share of the seeds each feature was met."""
        return self.shares(_EXPECTED)

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "seeds": self.seeds,
            "runs": self.runs,
            "violations": [
                {
                    "seed": each.seed,
                    "transport": each.transport,
                    "what": each.what,
                    "replay": each.replay,
                }
                for each in self.violations
            ],
            "coverage": self.coverage,
        }


def run_trial(trial: Trial, transports: Iterable[str], file: str | None = None) -> Seen:
    """A trial with each transport; whatever is raised is a violation."""
    features: set[str] = set()
    violations = []
    runs = 0
    for transport in transports:
        runs += 1
        try:
            outcome = trial.run(transport)
        except Exception as error:  # a bug of ours is what this is for
            what = f"crashes: {type(error).__name__}: {error}"
            violations.append(Violation(transport, what, trial, file))
            continue
        features.update(outcome.met)
        if outcome.violations:
            what = outcome.violations[0]
            violations.append(Violation(transport, what, trial, file, tuple(outcome.posts)))
    return Seen(trial.seed, runs, frozenset(features), tuple(violations))


@dataclasses.dataclass(frozen=True, slots=True)
class _Operations:
    transports: tuple[str, ...]

    def run(self, seed: int) -> Seen:
        return run_trial(Trial(seed), self.transports)

    def lost(self, seed: int, what: str) -> Seen:
        violation = Violation(self.transports[0], what, Trial(seed))
        return Seen(seed, len(self.transports), violations=(violation,))


def campaign(
    seeds: Iterable[int],
    transports: tuple[str, ...],
    jobs: int,
    *,
    until: Callable[[], bool] = lambda: False,
    progress: Callable[[Campaign], None] = lambda _: None,
) -> Campaign:
    """All seeds, or as many as come before `until` is true or the user interrupts."""
    seen = pool.over(seeds, _Operations(transports), jobs)
    return Campaign().gather(seen, until, progress)


# --- Smaller ---------------------------------------------------------------------------------

_MOST_TRIES = 2000


def shrink(violation: Violation, say: Callable[[str], None] = lambda _: None) -> Violation:
    """The same rule broken with fewer posts and disturbances, or `violation` unchanged."""

    def smaller(best: Violation) -> Iterator[Violation | None]:
        for candidate in _simpler(best):
            seen = run_trial(candidate, (best.transport,), best.file)
            broken = next((each for each in seen.violations if each.rule == best.rule), None)
            if broken is not None:
                say(f"smaller: {len(broken.posts)} posts")
            yield broken

    return pool.smallest(violation, smaller, _MOST_TRIES)


def _simpler(violation: Violation) -> Iterator[Trial]:
    """Each a step smaller: the largest parts of the posts are left out first."""
    trial, posts = violation.trial, violation.posts
    part = len(posts) // 2
    while part:
        for begin in range(0, len(posts), part):
            left_out = {*trial.without_posts, *posts[begin : begin + part]}
            yield dataclasses.replace(trial, without_posts=tuple(sorted(left_out)))
        part //= 2
    for name in _native.operation_disturbances:
        if name not in trial.without_disturbances:
            left_out = (*trial.without_disturbances, name)
            yield dataclasses.replace(trial, without_disturbances=left_out)


# --- Files -----------------------------------------------------------------------------------


def _disturbance(text: str) -> str:
    names = list(_native.operation_disturbances)
    if text not in names:
        raise UserError(f"no disturbance is called {text!r}", hint=did_you_mean(text, names))
    return text


class _CaseFile(Model):
    operation_seed: Annotated[int, Field(ge=0)]
    without_posts: list[Annotated[int, Field(ge=0)]]
    without_disturbances: list[Annotated[str, AfterValidator(_disturbance)]]


def case_of(source: Source) -> Trial:
    """UserError with the place of what is wrong."""
    found = validate(_CaseFile, source)
    return Trial(
        found.operation_seed, tuple(found.without_posts), tuple(found.without_disturbances)
    )


def case_text(violation: Violation) -> str:
    """The file, YAML; its comments tell what was posted and what completed."""
    trial = violation.trial
    lines = [
        f"operation_seed: {trial.seed}",
        f"without_posts: {list(trial.without_posts)}",
        f"without_disturbances: [{', '.join(trial.without_disturbances)}]",
    ]
    if violation.posts:
        lines += (f"# {line}" for line in trial.run(violation.transport, tells_story=True).story)
    return "\n".join(lines) + "\n"
