# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results rerun` of a sweep: all its runs again, and which rows differ.

On the virtual clock every figure of a row is compared. On the real clock verdicts are, and medians
of figures: the second lies in the 95 % interval of the first ones over the seeds.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from softroce_lab.errors import UserError
from softroce_lab.experiment.sweep import campaign, frozen, spec
from softroce_lab.experiment.sweep import rows as sweep_rows
from softroce_lab.experiment.sweep.campaign import Options, Reporter
from softroce_lab.inputs.yaml_source import Origin
from softroce_lab.results import sweeps
from softroce_lab.results.again import FIGURES, Comparison, Difference, code_of, of_figure
from softroce_lab.results.recorded import Recorded

_MAY_DIFFER = {"wall_s", "cpu_s", "version", "commit", "run_dir", "key", "notes"}
_COMPARED = [name for name in sweep_rows.columns() if name not in _MAY_DIFFER]
_MOST_NAMED = 6
_ELSEWHERE = "-o DIR: another folder"

Group = tuple[str, str]  # cell and transport
Rows = Mapping[Group, Sequence[Mapping[str, Any]]]


def kept(path: Path) -> Path:
    """The file in a sweep's directory that holds all of it. UserError."""
    file = path / frozen.FILE
    if not file.is_file():
        hint = f"lab run writes it, for up to {frozen.MOST_COMBINATIONS:,} combinations"
        raise UserError(f"{file} is missing: the sweep was not kept", hint=hint)
    return file


def again(
    recorded: Recorded, reporter: Reporter, *, under: Path, origin: Origin = Origin.RUN
) -> Comparison:
    """Run it once more, into a directory below `under`, and compare.

    UserError, also if it needs trust that `origin` does not give; RunError.
    """
    recorded.need_whole()
    sweep = spec.load(kept(recorded.path), origin)
    target = under / sweep.name
    if target.exists() and target.resolve() == recorded.path.resolve():
        raise UserError(f"{target} is the sweep itself", hint=_ELSEWHERE)
    for path in (target, *target.rglob("*")):
        if path.is_symlink():  # whoever made it would choose which file is written
            raise UserError(f"{path} is a link to {path.readlink()}", hint=_ELSEWHERE)
    outcome = campaign.run(sweep, Options(under, fresh=True), reporter)
    return compare(recorded, Recorded(outcome.directory))


def compare(first: Recorded, second: Recorded) -> Comparison:
    """Two directories of one sweep; the second's rows may name their values otherwise."""
    found = list(_differences(sweeps.rows(first), sweeps.rows(second), sweeps.axes(first)))
    return Comparison(first.path, second.path, (code_of(first), code_of(second)), found)


def _differences(
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    axes: Sequence[str],
) -> Iterator[Difference]:
    other = {row[sweep_rows.NUMBER]: row for row in after}
    groups: dict[Group, list[Mapping[str, Any]]] = collections.defaultdict(list)
    for row in before:
        groups[sweeps.cell_of(row, axes), row["transport"]].append(row)
    for (cell, transport), rows in groups.items():
        name = f"{cell}, {transport}"
        pairs = [(row, other.get(row[sweep_rows.NUMBER], {})) for row in rows]
        if rows[0]["clock"] == "virtual":
            yield _of_virtual(name, pairs)
        else:
            yield Difference(
                f"{name}: verdicts", all(one["verdict"] == two.get("verdict") for one, two in pairs)
            )
            yield from (_figure(name, pairs, figure) for figure in FIGURES)


_Pairs = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]


def _of_virtual(name: str, pairs: _Pairs) -> Difference:
    wrong: dict[str, list[int]] = collections.defaultdict(list)
    for one, two in pairs:
        for column in _COMPARED:
            if one.get(column) != two.get(column):
                wrong[column].append(one[sweep_rows.NUMBER])
    text = "; ".join(
        f"{column} of run {', '.join(map(str, runs[:_MOST_NAMED]))}"
        for column, runs in wrong.items()
    )
    return Difference(f"{name}: {len(pairs)} runs", not wrong, text)


def _figure(name: str, pairs: _Pairs, figure: str) -> Difference:
    one, two = (
        [row[figure] for row in side if row.get(figure)] for side in zip(*pairs, strict=True)
    )
    return of_figure(f"{name}: {figure}", one, two)
