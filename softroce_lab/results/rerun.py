# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results rerun`: an experiment, a sweep, or `lab demo failover` again; is it the same?

On the virtual clock every file is compared byte for byte, and of a sweep every figure of a row.
`environment` may differ, and the words by which the experiment named its parts. On the real clock
timing varies. There the fates of first transmissions are compared, which are a function of seed and
packet, and the figures: the second median lies in the 95 % interval of the first one's seeds.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from softroce_lab import paths
from softroce_lab.errors import UserError
from softroce_lab.experiment import frozen, spec, trust
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment.capturing import NOTHING
from softroce_lab.experiment.failover import rig as failover
from softroce_lab.experiment.failover.rig import Options as FailoverOptions
from softroce_lab.experiment.reporter import Reporter
from softroce_lab.experiment.sweep import campaign
from softroce_lab.experiment.sweep import frozen as frozen_sweep
from softroce_lab.experiment.sweep import rows as sweep_rows
from softroce_lab.experiment.sweep import spec as sweep_spec
from softroce_lab.inputs.ready import find
from softroce_lab.inputs.yaml_source import Origin
from softroce_lab.results import fabric, sweeps
from softroce_lab.results.recorded import MANIFEST, Recorded, Run, name_of
from softroce_lab.statistics import FEWEST, median_interval
from softroce_lab.transports import registry

_MAY_DIFFER = ("environment", "experiment", "topology", "notes")
"""Of the manifest. The experiment itself is compared by `experiment.json`."""
_COLUMNS_MAY_DIFFER = {"wall_s", "cpu_s", "version", "commit", "run_dir", "key", "notes"}
_COLUMNS = [name for name in sweep_rows.columns() if name not in _COLUMNS_MAY_DIFFER]
_FIGURES = ("makespan_ns", "fct_p50_ns", "fct_p99_ns")
_MOST_NAMED = 6  # runs of a sweep that differ in a column
_ELSEWHERE = "-o DIR: another folder"

Row = Mapping[str, Any]


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

    @classmethod
    def of(cls, first: Recorded, second: Recorded, found: Iterator[Difference]) -> Comparison:
        return cls(first.path, second.path, (_code_of(first), _code_of(second)), list(found))

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(each.same is not False for each in self.differences)

    @property
    def undecided(self) -> int:
        """How many of the things that were compared could not be decided."""
        return sum(each.same is None for each in self.differences)

    def document(self) -> dict[str, Any]:
        return {
            "first": str(self.first),
            "run_dir": str(self.second),
            "code": list(self.codes),
            "verdict": "same" if self.same else "different",
            "compared": [dataclasses.asdict(each) for each in self.differences],
        }


def _code_of(recorded: Recorded) -> str:
    about = recorded.manifest.get("environment") or {}
    return str(about.get("commit") or about.get("softroce_lab", "unknown"))


# --- Experiments ---------------------------------------------------------------------------------


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
    compared = _bytes if virtual else _fates_and_figures
    return Comparison.of(first, second, compared(first, second))


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
    manifests = [_comparable(first), _comparable(second)]
    keys = dict.fromkeys(key for each in manifests for key in each)
    differing = [key for key in keys if manifests[0].get(key) != manifests[1].get(key)]
    yield Difference(MANIFEST, not differing, ", ".join(differing))


def _comparable(recorded: Recorded) -> dict[str, str]:
    """What of the manifest is to be the same: JSON text, by key."""
    runs = [{**run, "capture": None} for run in recorded.manifest.get("runs", ())]
    found = {**recorded.manifest, "runs": runs}
    return {
        key: json.dumps(value, sort_keys=True)
        for key, value in found.items()
        if key not in _MAY_DIFFER
    }


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
        sides = (
            [{each: run[each] for each in _FIGURES} for run in side.runs
             if run["transport"] == transport]
            for side in (first, second)
        )  # fmt: skip
        yield from _figures(transport, *sides)


def _fates(first: Recorded, second: Recorded, run: Run) -> Difference:
    what = f"{name_of(run)}: fates of first transmissions"
    if registry.uses_queue_pairs(protocol := run.get("protocol")):
        return Difference(what, None, f"packets of {protocol} do not name their message")
    one, other = (_first_losses(each, run) for each in (first, second))
    count = len(one ^ other)
    detail = f"{len(one):,} losses" + (f", {count:,} differ" if count else "")
    keyed = first.manifest.get("grade") == "identity"
    return Difference(what, None if count and not keyed else not count, detail)


def _first_losses(recorded: Recorded, run: Run) -> set[tuple[Any, ...]]:
    """The data packets that rules took when they were sent first, by their names."""
    events = recorded.table("events", run)
    chosen = np.isin(events["event"], ("drop", "cut")) & (events["packet_kind"] == "data")
    chosen &= events["attempt"] == 0
    names = ("rule", "src", "dst", "operation", "step", "message", "index")
    return set(zip(*(events[name][chosen].tolist() for name in names), strict=True))


def _figures(name: str, first: Sequence[Row], second: Sequence[Row]) -> Iterator[Difference]:
    """Whether medians of the second rows lie in intervals of the first ones."""
    for figure in _FIGURES:
        what = f"{name}: {figure}"
        one, other = ([row[figure] for row in side if row.get(figure)] for side in (first, second))
        if not one or not other:
            yield Difference(what, None, "no run has it")
            continue
        interval = median_interval(one)
        middle = float(np.median(other))
        detail = f"{middle:,.0f}, first {interval.median:,.0f}"
        if len(one) < FEWEST:
            yield Difference(what, None, f"{detail}; {FEWEST} seeds give an interval")
            continue
        inside = interval.low <= middle <= interval.high
        yield Difference(what, inside, f"{detail} [{interval.low:,.0f}, {interval.high:,.0f}]")


# --- Sweeps --------------------------------------------------------------------------------------


def kept_sweep(path: Path) -> Path:
    """The file in a sweep's directory that holds all of it. UserError."""
    file = path / frozen_sweep.FILE
    if not file.is_file():
        hint = f"lab run writes it, for up to {frozen_sweep.MOST_COMBINATIONS:,} combinations"
        raise UserError(f"{file} is missing: the sweep was not kept", hint=hint)
    return file


def sweep_again(
    recorded: Recorded, reporter: campaign.Reporter, *, under: Path, origin: Origin = Origin.RUN
) -> Comparison:
    """Run it once more, into a directory below `under`, and compare.

    UserError, also if it needs trust that `origin` does not give; RunError.
    """
    recorded.need_whole()
    sweep = sweep_spec.load(kept_sweep(recorded.path), origin)
    target = under / sweep.name
    if target.exists() and target.resolve() == recorded.path.resolve():
        raise UserError(f"{target} is the sweep itself", hint=_ELSEWHERE)
    for path in (target, *target.rglob("*")):
        if path.is_symlink():  # whoever made it would choose which file is written
            raise UserError(f"{path} is a link to {path.readlink()}", hint=_ELSEWHERE)
    outcome = campaign.run(sweep, campaign.Options(under, fresh=True), reporter)
    return compare_sweeps(recorded, Recorded(outcome.directory))


def compare_sweeps(first: Recorded, second: Recorded) -> Comparison:
    """Two directories of one sweep; the second's rows may name their values otherwise."""
    return Comparison.of(first, second, _rows(first, second))


def _rows(first: Recorded, second: Recorded) -> Iterator[Difference]:
    other = {row[sweep_rows.NUMBER]: row for row in sweeps.rows(second)}
    axes = sweeps.axes(first)
    groups: dict[str, list[Row]] = collections.defaultdict(list)
    for row in sweeps.rows(first):
        groups[f"{sweeps.cell_of(row, axes)}, {row['transport']}"].append(row)
    for name, rows in groups.items():
        pairs = [(row, other.get(row[sweep_rows.NUMBER], {})) for row in rows]
        if rows[0]["clock"] == "virtual":
            yield _columns(name, pairs)
        else:
            same = all(one["verdict"] == two.get("verdict") for one, two in pairs)
            yield Difference(f"{name}: verdicts", same)
            yield from _figures(name, rows, [two for _, two in pairs])


def _columns(name: str, pairs: Sequence[tuple[Row, Row]]) -> Difference:
    wrong: dict[str, list[int]] = collections.defaultdict(list)
    for one, two in pairs:
        for column in _COLUMNS:
            if one.get(column) != two.get(column):
                wrong[column].append(one[sweep_rows.NUMBER])
    text = "; ".join(
        f"{column} of run {', '.join(map(str, runs[:_MOST_NAMED]))}"
        for column, runs in wrong.items()
    )
    return Difference(f"{name}: {len(pairs)} runs", not wrong, text)


# --- `lab demo failover` -------------------------------------------------------------------------


def is_failover(recorded: Recorded) -> bool:
    """Whether it is the directory of this demo."""
    return _demo(recorded).get("story") == "failover"


def failover_again(
    recorded: Recorded,
    say: Callable[[str], None],
    *,
    under: Path,
    origin: Origin = Origin.RUN,
) -> Comparison:
    """Run it once more on its clock, into a directory below `under`, and compare.

    UserError, also for a topology that is not the lab's own where `origin` gives no trust;
    EnvironmentLackError (no lab comes up for the real clock), RunError.
    """
    recorded.need_whole()
    options = _failover_options(recorded)
    if origin is Origin.RUN and not _is_ready(options.topology):
        what = f"{trust.UNTRUSTED}\n  it reads the topology {options.topology!r}"
        raise UserError(what, hint=trust.HINT, file=str(recorded.path / MANIFEST))
    on_real = recorded.manifest.get("clock") == "real"
    outcomes, clock = failover.run(options, "real" if on_real else "virtual", say)
    made = failover.write(outcomes, options, clock, under)
    return compare(recorded, Recorded(made))


def check_failover_is_whole(recorded: Recorded) -> None:
    """UserError if the directory alone does not repeat it: its topology is a file of the user's."""
    named = _failover_options(recorded).topology
    if not _is_ready(named):
        what = f"the topology {named} is not kept in the directory of this demo"
        raise UserError(what, hint="lab results pack packs the demo on a built-in topology")


def _is_ready(topology: str) -> bool:
    """Whether it is one of the lab's own. UserError if it is nowhere."""
    file = find(topology, paths.TOPOLOGIES, "topology").resolve()
    return file.is_relative_to(paths.TOPOLOGIES.resolve())


def _failover_options(recorded: Recorded) -> FailoverOptions:
    """UserError where the manifest does not have them as they are now."""
    kept = {key: value for key, value in _demo(recorded).items() if key != "story"}
    names = {each.name for each in dataclasses.fields(FailoverOptions)}
    if set(kept) != names:
        odd = ", ".join(sorted(set(kept) ^ names))
        what = f"demo: its options are of another schema: {odd}"
        raise UserError(what, file=str(recorded.path / MANIFEST), hint="lab demo failover anew")
    return FailoverOptions(**kept)


def _demo(recorded: Recorded) -> dict[str, Any]:
    found = recorded.manifest.get("demo")
    return found if isinstance(found, dict) else {}
