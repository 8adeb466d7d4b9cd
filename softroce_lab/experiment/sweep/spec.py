# SPDX-License-Identifier: GPL-2.0-or-later
"""Sweeps: a YAML file in, a `Sweep` out that knows every run of an experiment's many variants.

docs/reference/sweeps.md is the file's reference.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from softroce_lab import paths
from softroce_lab.errors import UserError
from softroce_lab.experiment import spec, trust
from softroce_lab.experiment.gates import expect, fit
from softroce_lab.experiment.gates.expect import Gate
from softroce_lab.experiment.spec import Experiment, Overrides
from softroce_lab.experiment.spec_model import Expected, ExperimentFile, Seeds
from softroce_lab.experiment.sweep import bounds
from softroce_lab.experiment.sweep.falls import Falls, FallsSpec
from softroce_lab.experiment.sweep.rows import NUMBER, columns, in_unit
from softroce_lab.experiment.sweep.values import KINDS, RangeSpec, label
from softroce_lab.experiment.transports import written
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.faults.model import name_schema
from softroce_lab.faults.text import documents as fault_documents
from softroce_lab.faults.words import Filled
from softroce_lab.inputs import choices, yaml_source
from softroce_lab.inputs.ready import find
from softroce_lab.inputs.validation import did_you_mean, validate
from softroce_lab.inputs.yaml_source import Data, Origin, Place, Source
from softroce_lab.topology.model import MAX_LAB_NAME, check_lab_name
from softroce_lab.transports import registry

MAX_RUNS = 1_000_000

_OWN = {"seeds": "seeds: 10, beside over", "transports": "transports: [csa_ud, rc], beside over"}
_RANGE_KEYS = {"from", "to", "step", "times"}
_BY_HAND = "the file was edited: lab run FILE runs it"


class SweepFile(Filled):
    """The whole file."""

    elsewhere: ClassVar = {
        "seed": "seeds: [1], or how many",
        "transport": "transports: [csa_ud]",
        "workload": "below experiment, or in set",
        "topology": "below experiment, or in set",
    }

    name: Annotated[str, AfterValidator(check_lab_name), name_schema(MAX_LAB_NAME)] = Field(
        description="Name of the sweep, and of its directory."
    )
    like: str | None = Field(
        None,
        description=(
            "Another sweep: a file of the same folder, or a built-in one. It has all keys "
            "that this file lacks, and the entries of `over` that this file does not set."
        ),
    )
    experiment: Any = Field(
        description=(
            "A built-in experiment, a file, or an experiment written out here without a `name`."
        )
    )
    set: dict[str, Any] = Field(
        default_factory=dict,
        description="Keys with dots and their values in all runs, as `lab run --set` has them.",
    )
    over: dict[str, Any] = Field(
        default_factory=dict,
        description=(
            "What is varied. A run takes one value of each entry; the last entry varies first."
        ),
    )
    transports: Any = Field(
        None, description="As in an experiment, or `all`. Default: the experiment's."
    )
    seeds: Seeds | None = Field(
        None, description="How many seeds, counted from 1, or a list. Default: the experiment's."
    )
    falls: FallsSpec | None = Field(
        None,
        description=(
            "Tells from which value of an entry of `over` on a column has lost a share of "
            "its first value."
        ),
    )
    expect: Expected = Field(
        default_factory=dict,
        description=(
            "Gates that every row must hold. A ratio is of two rows with the same values and seed."
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """One value of what is varied."""

    label: str  # of tables and of --only
    value: Data  # of its column: as written; of a point with a name, that name
    overrides: tuple[tuple[str, Data], ...]
    place: Place


@dataclasses.dataclass(frozen=True, slots=True)
class Axis:
    """What is varied, and over what."""

    name: str  # keys with dots, or a name for points that change several keys
    points: tuple[Point, ...]


Points = tuple[Point, ...]  # one of each axis


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """What makes the experiment of a combination; small enough to be sent to another process."""

    digest: str  # SHA-256 of all that decides its results, but transport and seed
    source: Source = dataclasses.field(compare=False, repr=False)
    overrides: Overrides = dataclasses.field(compare=False, repr=False)

    def experiment(self) -> Experiment:
        """Made anew. UserError where files that it names are not what they were, or not there."""
        return spec.of(spec.with_overrides(self.source, self.overrides))


@dataclasses.dataclass(frozen=True, slots=True)
class Combination:
    """One value of each axis, and the experiment that they make."""

    points: Points
    experiment: Experiment
    recipe: Recipe

    @property
    def labels(self) -> tuple[str, ...]:
        """Of its values, in the order of the axes."""
        return tuple(point.label for point in self.points)

    @property
    def title(self) -> str:
        """For people."""
        return ", ".join(f"{point.place[1]}={point.label}" for point in self.points)


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A run of a sweep: a combination, a transport, a seed."""

    number: int  # in the order of the sweep, from 0
    key: str  # of what decides its result: equal keys, equal rows
    recipe: Recipe
    transport: Transport
    seed: int
    values: Mapping[str, Data]  # of the axes
    labels: Mapping[str, str]  # the same, for people

    @property
    def title(self) -> str:
        """For people."""
        parts = [f"{axis}={label}" for axis, label in self.labels.items()]
        return ", ".join([*parts, self.transport.label, f"seed {self.seed}"])


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep whose parts are known to fit each other."""

    name: str
    file: str
    about: str  # the comment that the file begins with
    axes: tuple[Axis, ...]
    combinations: tuple[Combination, ...]
    seeds: tuple[int, ...] | None  # None: the experiment's
    falls: Falls | None = None  # which figure is watched along which axis
    gates: tuple[Gate, ...] = ()  # what figures of its rows must hold

    def tasks(self, code: str) -> list[Task]:
        """All runs in their order; `code` is which code will run them, and is part of keys."""
        found: list[Task] = []
        for combination in self.combinations:
            experiment = combination.experiment
            for transport, seed in itertools.product(
                experiment.transports, self.seeds or experiment.seeds
            ):
                found.append(self._task(len(found), combination, transport, seed, code))
        return found

    def _task(
        self, number: int, combination: Combination, transport: Transport, seed: int, code: str
    ) -> Task:
        names = [axis.name for axis in self.axes]
        recipe = combination.recipe
        return Task(
            number,
            _digest([recipe.digest, transport.document(), seed, code])[:32],
            recipe,
            transport,
            seed,
            {name: each.value for name, each in zip(names, combination.points, strict=True)},
            {name: each.label for name, each in zip(names, combination.points, strict=True)},
        )

    @property
    def by_labels(self) -> Mapping[tuple[str, ...], Experiment]:
        """The experiments, by the labels of their values."""
        return {each.labels: each.experiment for each in self.combinations}

    @property
    def clocks(self) -> set[str]:
        """On which its runs take place."""
        return {each.experiment.clock for each in self.combinations}


def alone(experiment: Experiment) -> Experiment:
    """One of its runs: the one that takes most memory, which striped messages do."""
    transports = experiment.transports
    largest = next((each for each in transports if each.entry.striped), transports[0])
    return dataclasses.replace(experiment, transports=(largest,), seeds=experiment.seeds[:1])


def load(where: str | os.PathLike[str], origin: Origin = Origin.USER) -> Sweep:
    """Read a sweep by path, or a ready one by name.

    UserError with file, line and column for what is wrong, in any combination.
    """
    path = _path(where)
    source = _read(path, origin)
    if "experiment" not in source.data and {"workload", "topology"} & source.data.keys():
        hint = "lab run runs it; a sweep names it: docs/howto/experiments.md"
        raise source.error((), "this is no sweep, but an experiment or a topology", hint=hint)
    raw = validate(SweepFile, source)
    if origin is not Origin.USER:
        _check_written_out(raw, source)
    if origin is Origin.RUN:
        trust.refuse(_needs_trust(raw, source), source)
    base = _base(raw, source)
    axes = tuple(_axis(name, values, source) for name, values in raw.over.items())
    _check_columns(axes, source)
    _check_undone(axes, source)
    seeds = None if raw.seeds is None else tuple(raw.seeds)
    _check_size(axes, base, seeds, source)
    falls = _falls(raw, axes, source)
    combinations = tuple(_combinations(axes, base, source))
    gates = tuple(expect.gates(raw.expect))
    runs = [each for combination in combinations for each in combination.experiment.transports]
    expect.check_transports(source, [each.label for each in runs])
    fit.check(source, [each.experiment for each in combinations], sweep=True)
    bounds.check(source, {each.labels: each.experiment for each in combinations})
    return Sweep(raw.name, source.file or "", about(path), axes, combinations, seeds, falls, gates)


def find_file(where: str) -> tuple[Path, bool]:
    """The file of an experiment or of a sweep, ready ones by name, and whether it is a sweep.

    UserError if there is no such file, or if it is broken.
    """
    others = {"lab up": paths.TOPOLOGIES}
    path = find(where, paths.WORKLOADS, "experiment or sweep", others, more=[paths.SWEEPS])
    return path, bool(yaml_source.read(path).data.keys() & {"experiment", "like", "over"})


def _read(path: Path, origin: Origin = Origin.USER) -> Source:
    """A file, completed by the sweep that it is `like`: by its keys, and by its entries of `over`.

    What comes from there has the place of the key `like`. That sweep is like no other. UserError.
    """
    source = yaml_source.read(path, origin)
    named = source.data.get("like")
    if not isinstance(named, str) or origin is not Origin.USER:  # the others are refused later
        return source
    beside = path.parent / f"{named.removesuffix('.yaml')}.yaml"
    try:
        other = yaml_source.read(beside if beside.exists() else _path(named)).data
    except UserError as error:
        raise source.error(("like",), str(error).partition("\n")[0], hint=error.hint) from None
    if "like" in other:
        raise source.error(("like",), f"{named} itself is like another sweep", hint="name that one")
    over, changed = other.get("over"), source.data.get("over", {})
    data = {**other, **source.data}
    if isinstance(over, dict) and isinstance(changed, dict):
        data["over"] = {**over, **changed}
    there = source.values[("like",)]
    places = {(key,): there for key in data} | dict(source.values)
    return dataclasses.replace(source, data=data, values=places)


def _path(where: str | os.PathLike[str]) -> Path:
    return find(where, paths.SWEEPS, "sweep")


def _falls(raw: SweepFile, axes: Sequence[Axis], source: Source) -> Falls | None:
    if raw.falls is None:
        return None
    labels = {axis.name: [point.label for point in axis.points] for axis in axes}
    try:
        return Falls.of(raw.falls, labels)
    except UserError as error:
        raise source.error(("falls",), error.what, hint=error.hint) from None


def shipped() -> list[tuple[str, str]]:
    """(name, what it is about) of every sweep that comes with the lab."""
    return [(file.stem, about(file)) for file in sorted(paths.SWEEPS.glob("*.yaml"))]


def about(path: Path) -> str:
    """The comment that a file begins with."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), path.read_text().splitlines())
    return " ".join(line.lstrip("# ") for line in lines)


def _check_written_out(raw: SweepFile, source: Source) -> None:
    """UserError for keys that `lab run` does not write into a directory (sweep/frozen.py)."""
    for key in ("like", "set", "transports"):
        if key in raw.model_fields_set:
            raise source.error((key,), f"'{key}' in the directory of a sweep", hint=_BY_HAND)
    if isinstance(raw.experiment, str):
        what = "the experiment of a sweep's directory is not written out"
        raise source.error(("experiment",), what, hint=_BY_HAND)


def _needs_trust(raw: SweepFile, source: Source) -> Iterator[str]:
    """What its experiments need trust for, a line each. UserError."""
    base = _written(raw, source)
    axes = (_axis(name, values, source).points for name, values in raw.over.items())
    for points in ((), *itertools.product(*axes)):
        changed = spec.with_overrides(base, _overrides(points))
        yield from trust.described(validate(ExperimentFile, changed), changed)


# --- What is swept ---------------------------------------------------------------------------


def _base(raw: SweepFile, source: Source) -> Source:
    """The experiment with what all runs have in common."""
    base = _written(raw, source)
    spec.of(base)  # its own mistakes come first, with their place
    for key, value in raw.set.items():
        base = _changed(base, [(key, value)], source, ("set", key))
    if raw.transports is not None:
        chosen: Data = raw.transports
        if chosen == "all":
            chosen = list(registry.transports())
        chosen = written.from_folder(chosen, Path(source.file or "").parent)
        base = _changed(base, [("transports", chosen)], source, ("transports",))
    return base


def _written(raw: SweepFile, source: Source) -> Source:
    if not isinstance(raw.experiment, str):
        inline = source.below("experiment")
        data = {"name": raw.name, **inline.data}
        if raw.transports is not None:  # which take the place of any, here RC's, once all else fits
            any_: list[Data] = [*registry.transports(registry.Kind.QUEUE_PAIR)]
            data = {"transports": any_, **data}
        return dataclasses.replace(inline, data=data)
    beside = Path(source.file or "").parent / raw.experiment
    named = Path(raw.experiment)
    try:
        path = beside if named.suffix and not named.exists() and beside.exists() else named
        return yaml_source.read(find(path, paths.WORKLOADS, "experiment"))
    except UserError as error:
        if error.line is not None:
            raise
        raise source.error(("experiment",), str(error.what), hint=error.hint) from None


def _changed(base: Source, overrides: Overrides, source: Source, place: Place) -> Source:
    """The same experiment, something else at these keys; what is wrong now is wrong at `place`."""
    try:
        changed = spec.with_overrides(base, overrides)
        spec.of(changed)
    except UserError as error:
        raise _placed(error, base, source, place) from None
    return changed


def _placed(error: UserError, base: Source, source: Source, place: Place) -> UserError:
    elsewhere = error.file not in (None, base.file)  # a topology's or a profile's own mistake
    what = str(error).partition("\n")[0] if elsewhere else error.what
    return source.error(place, what, hint=error.hint)


def _axis(name: str, values: Any, source: Source) -> Axis:
    place: Place = ("over", name)
    if name in _OWN:
        raise source.error(place, f"{name!r} is not swept here", hint=_OWN[name], at_key=True)
    if isinstance(values, list):
        points = [_point(name, value, (*place, n)) for n, value in enumerate(values)]
    elif isinstance(values, dict) and _RANGE_KEYS & values.keys():
        spans = validate(RangeSpec, source.below("over").below(name))
        try:
            points = [_point(name, value, place) for value in spans.values()]
        except UserError as error:
            raise source.error(place, error.what, hint=error.hint) from None
    elif isinstance(values, dict):
        points = [_named(label, keys, (*place, label), source) for label, keys in values.items()]
        if name in {NUMBER, *columns()}:
            raise source.error(place, f"the table has a column {name!r}", at_key=True)
        _check_printable(name, place, source)
    else:
        hint = "a list of values, {from: 1us, to: 1ms, times: 10}, or names with keys below them"
        raise source.error(place, f"what {name!r} is varied over is missing", hint=hint)
    if not points:
        raise source.error(place, f"{name!r} is varied over nothing")
    return Axis(name, tuple(_distinct(points, source)))


def _point(key: str, value: Data, place: Place) -> Point:
    return Point(label(value), value, ((key, value),), place)


def _named(name: str, keys: Any, place: Place, source: Source) -> Point:
    if not isinstance(keys, dict):
        hint = f"{name}: {{workload.bytes: 1MiB}}, or {name}: {{}}"
        raise source.error(place, f"what {name!r} sets is missing", hint=hint)
    _check_printable(name, place, source)
    return Point(name, name, tuple(keys.items()), place)


def _check_printable(name: str, place: Place, source: Source) -> None:
    if not name.isprintable():
        raise source.error(place, f"{name!r} cannot be shown in a table", at_key=True)


def _distinct(points: Sequence[Point], source: Source) -> Iterator[Point]:
    seen: set[str] = set()
    for point in points:
        if point.label in seen:
            raise source.error(point.place, f"{point.label} stands twice")
        seen.add(point.label)
        yield point


def _check_columns(axes: Sequence[Axis], source: Source) -> None:
    """UserError for an axis that is called like a column of another one."""
    names = {axis.name for axis in axes}
    for name, kind in itertools.product(names, KINDS):
        if (column := in_unit(name, kind)) in names:
            hint = f"it is that of {name!r}, as a number"
            what = f"the table has a column {column!r}"
            raise source.error(("over", column), what, hint=hint, at_key=True)


def _check_undone(axes: Sequence[Axis], source: Source) -> None:
    """UserError for an axis that sets anew what one before it varies: rows would lie about it."""
    before: dict[str, None] = {}
    for axis in axes:
        keys = [(point, key) for point in axis.points for key, _ in point.overrides]
        for point, key in keys:
            undone = next((each for each in before if f"{each}.".startswith(f"{key}.")), None)
            if undone is not None:
                what = f"{key!r} undoes {undone!r}, which is varied above"
                raise source.error(point.place, what, hint="each key once, wider ones first")
        before.update(dict.fromkeys(key for _, key in keys))


def _check_size(
    axes: Sequence[Axis], base: Source, seeds: Sequence[int] | None, source: Source
) -> None:
    experiment = spec.of(base)
    each = len(experiment.transports) * len(seeds or experiment.seeds)
    runs = each * math.prod(len(axis.points) for axis in axes)
    if runs > MAX_RUNS:
        raise source.error(("over",), f"{runs:,} runs", hint=f"at most {MAX_RUNS:,}")


# --- Combinations ----------------------------------------------------------------------------


def _combinations(axes: Sequence[Axis], base: Source, source: Source) -> Iterator[Combination]:
    for points in itertools.product(*(axis.points for axis in axes)):
        overrides = _overrides(points)
        try:
            experiment = spec.of(spec.with_overrides(base, overrides))
        except UserError as error:
            place = _culprit(points, axes, base).place
            raise _placed(error, base, source, place) from None
        digest = _digest(_decisive(experiment))
        yield Combination(points, experiment, Recipe(digest, base, overrides))


def _overrides(points: Points) -> list[tuple[str, Data]]:
    return [change for point in points for change in point.overrides]


def _culprit(points: Points, axes: Sequence[Axis], base: Source) -> Point:
    """The wrong value: combinations come in order, and the ones before this one were right."""
    moved = [point for point, axis in zip(points, axes, strict=True) if point != axis.points[0]]
    if moved:
        return moved[-1]
    overrides: list[tuple[str, Data]] = []
    for point in points[:-1]:
        overrides += point.overrides
        try:
            spec.of(spec.with_overrides(base, overrides))
        except UserError:
            return point
    return points[-1]


def _decisive(experiment: Experiment) -> Any:
    """All that decides what a run comes to, but transport and seed."""
    plan = experiment.plan(experiment.seeds[0])
    document = experiment.document()
    own = {key: value for key, value in document.items() if key not in ("transports", "seeds")}
    return [own, plan.digest, fault_documents(plan)]


def _digest(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


# --- A part of it ----------------------------------------------------------------------------


def only(tasks: Sequence[Task], sweep: Sweep, chosen: Sequence[str]) -> list[Task]:
    """Those of these values: `KEY=VALUE`, of an axis, `transport` or `seed`. UserError."""
    return choices.only(tasks, chosen, lambda task, key: _facet(task, key, sweep))


def _facet(task: Task, key: str, sweep: Sweep) -> str:
    facets = {**task.labels, "transport": task.transport.label, "seed": str(task.seed)}
    if key not in facets:
        hint = did_you_mean(key, facets)
        raise UserError(f"{sweep.name} varies no {key!r}", hint=hint)
    return facets[key]
