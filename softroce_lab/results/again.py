# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results rerun`: an experiment again, from its run directory; is it the same?

On the virtual clock every file is compared byte for byte; what may differ is `environment` and the
words by which the experiment named its parts. On the real clock timing varies. There the fates of
first transmissions are compared, which are a function of seed and packet, and the figures: those of
the second must lie in the interval of the first one's seeds.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from softroce_lab import statistics
from softroce_lab.experiment import frozen, spec
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment.capturing import NOTHING
from softroce_lab.experiment.reporter import Reporter
from softroce_lab.inputs.yaml_source import Origin
from softroce_lab.results import fabric
from softroce_lab.results.recorded import MANIFEST, Recorded, Run, name_of
from softroce_lab.statistics import median_interval
from softroce_lab.transports import registry

_MAY_DIFFER = ("environment", "experiment", "topology", "notes")
"""Of the manifest. The experiment itself is compared by `experiment.json`."""

FIGURES = ("makespan_ns", "fct_p50_ns", "fct_p99_ns")
FEWEST_SEEDS = statistics.FEWEST


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A thing that was compared."""

    what: str
    same: bool | None  # None: it cannot be decided
    detail: str = ""

    def __str__(self) -> str:
        word = {True: "same", False: "different", None: "undecided"}[self.same]
        return f"{word:9}  {self.what}" + (f": {self.detail}" if self.detail else "")


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """The first run directory beside the second."""

    first: Path
    second: Path
    codes: tuple[str, str]  # which code made each
    differences: list[Difference]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(each.same is not False for each in self.differences)

    @property
    def undecided(self) -> int:
        """How many of the things that were compared could not be decided."""
        return sum(each.same is None for each in self.differences)

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "first": str(self.first),
            "run_dir": str(self.second),
            "code": list(self.codes),
            "verdict": "same" if self.same else "different",
            "compared": [dataclasses.asdict(each) for each in self.differences],
        }


def again(
    recorded: Recorded, reporter: Reporter, *, under: Path, origin: Origin = Origin.RUN
) -> Comparison:
    """Run it once more, into a directory below `under`, and compare.

    UserError for a directory that does not have its experiment, or whose experiment needs trust
    that `origin` does not give; EnvironmentLackError, RunError.
    """
    file = (recorded.manifest.get("environment") or {}).get("file")
    hint = f"lab run {file}" if file else "lab run and lab demo write it since version 0.1"
    path = fabric.kept(recorded.path, hint)
    recorded.need_whole()
    if any("capture" in run for run in recorded.runs):
        reporter.say("the first one was captured; captures are not repeated")
    experiment = spec.load(path, origin=origin)
    outcome = experiment_run.run(experiment, reporter, under=under, capture=NOTHING)
    return compare(recorded, Recorded(outcome.directory))


def compare(first: Recorded, second: Recorded) -> Comparison:
    """Two run directories of one experiment."""
    virtual = first.manifest.get("clock") == "virtual"
    found = _bytes(first, second) if virtual else _fates_and_figures(first, second)
    return Comparison(first.path, second.path, (code_of(first), code_of(second)), list(found))


def code_of(recorded: Recorded) -> str:
    """Which code made it."""
    about = recorded.manifest.get("environment") or {}
    return str(about.get("commit") or about.get("softroce_lab", "unknown"))


def _bytes(first: Recorded, second: Recorded) -> Iterator[Difference]:
    files = {each.name for side in (first, second) for each in side.path.iterdir()}
    names = sorted(name for name in files if name.endswith(".parquet"))
    for name in (frozen.FILE, *names, "links.json", "stats.json"):
        one, other = (each.path / name for each in (first, second))
        if name == frozen.FILE and not one.is_file() and not other.is_file():
            continue  # `lab demo failover` is no experiment
        missing = [str(each.parent) for each in (one, other) if not each.is_file()]
        if missing:
            same = None if len(missing) == 2 else False
            yield Difference(name, same, f"is missing in {' and '.join(missing)}")
        else:
            yield Difference(name, one.read_bytes() == other.read_bytes())
    yield from _manifests(first, second)


def _manifests(first: Recorded, second: Recorded) -> Iterator[Difference]:
    one, other = (
        {key: value for key, value in each.manifest.items() if key not in _MAY_DIFFER}
        for each in (first, second)
    )
    for each in (one, other):
        each["runs"] = [{**run, "capture": None} for run in each.get("runs", ())]
    keys = [key for key in {**one, **other} if _text(one.get(key)) != _text(other.get(key))]
    yield Difference(MANIFEST, not keys, ", ".join(keys))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _fates_and_figures(first: Recorded, second: Recorded) -> Iterator[Difference]:
    before = {name_of(run): run for run in first.runs}
    for run in second.runs:
        name = name_of(run)
        if name not in before:
            yield Difference(name, same=False, detail="the first one has no such run")
            continue
        yield Difference(f"{name}: verdict", before[name]["verdict"] == run["verdict"])
        yield _fates(first, second, before[name])
    for transport in dict.fromkeys(run["transport"] for run in first.runs):
        for figure in FIGURES:
            yield _figure(first, second, transport, figure)


def _fates(first: Recorded, second: Recorded, run: Run) -> Difference:
    what = f"{name_of(run)}: fates of first transmissions"
    if registry.uses_queue_pairs(protocol := run.get("protocol")):
        return Difference(
            what, same=None, detail=f"packets of {protocol} do not name their message"
        )
    one, other = (_first_losses(each, run) for each in (first, second))
    count = len(one ^ other)
    detail = f"{len(one):,} losses" + (f", {count:,} differ" if count else "")
    keyed = first.manifest.get("grade") == "identity"
    same = None if count and not keyed else not count
    return Difference(what, same, detail)


def _first_losses(recorded: Recorded, run: Run) -> set[tuple[Any, ...]]:
    """The data packets that rules took when they were sent first, by their names."""
    events = recorded.table("events", run)
    chosen = (events["event"] == "drop") & (events["packet_kind"] == "data")
    chosen &= events["attempt"] == 0
    names = ("rule", "src", "dst", "operation", "step", "message", "index")
    return set(zip(*(events[name][chosen].tolist() for name in names), strict=True))


def _figure(first: Recorded, second: Recorded, transport: str, figure: str) -> Difference:
    one, other = (
        [run[figure] for run in each.runs if run["transport"] == transport and run[figure]]
        for each in (first, second)
    )
    return of_figure(f"{transport}: {figure}", one, other)


def of_figure(what: str, one: Sequence[float], other: Sequence[float]) -> Difference:
    """Whether the median of the second ones lies in the interval of the first ones."""
    if not one or not other:
        return Difference(what, same=None, detail="no run has it")
    interval = median_interval(one)
    middle = float(np.median(other))
    detail = f"{middle:,.0f}, first {interval.median:,.0f}"
    if len(one) < FEWEST_SEEDS:
        return Difference(
            what, same=None, detail=f"{detail}; {FEWEST_SEEDS} seeds give an interval"
        )
    inside = interval.low <= middle <= interval.high
    return Difference(what, inside, f"{detail} [{interval.low:,.0f}, {interval.high:,.0f}]")
