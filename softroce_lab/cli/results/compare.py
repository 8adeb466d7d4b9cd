# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results compare`: runs or sweeps side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import completion, tables
from softroce_lab.cli.options import Json, print_document, say
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.results import comparison, ratios, recorded, sign_tests
from softroce_lab.results.comparison import Comparison, Line, Passed, Values
from softroce_lab.results.ratios import Comparisons
from softroce_lab.results.recorded import Recorded
from softroce_lab.statistics import ALPHA
from softroce_lab.transports import registry

app = typer.Typer(add_completion=False)

_NO_DIFFERENCE = "no difference shown"
_ALONE = (
    "transports of one directory are compared by --baseline: lab results compare latest --baseline "
    "csa_ud; lab results ls shows what is here"
)


@app.command()
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="Run directories or sweeps; the others are compared with the first. "
            "With --baseline one.",
            autocompletion=completion.runs,
        ),
    ],
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="TRANSPORT",
            help="Compare the other transports of one directory with this one.",
        ),
    ] = None,
    transport: Annotated[
        str | None,
        typer.Option(
            "--transport",
            metavar="TRANSPORT",
            help="Print ratios: this transport over each other one of one directory.",
        ),
    ] = None,
    ladder: Annotated[
        bool,
        typer.Option(
            "--ladder",
            help="Print ratios: each transport of one directory over the one before it.",
        ),
    ] = False,
    figures: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            metavar="FIGURE",
            help="Print ratios of this figure, by cell and as geometric mean; may be repeated, "
            "and may be a product such as 'makespan_ns*fct_p99_ns'.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="KEY=VALUE",
            help="With ratios: only these runs, such as loss=none or seed=3; may be repeated.",
        ),
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Show only what is better or worse.")
    ] = False,
    fail_on_worse: Annotated[
        bool,
        typer.Option(
            "--fail-on-worse", help="Exit with 1 if a figure is worse, or more runs failed."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare runs, sweeps or transports, seed by seed: better, worse, or no difference shown."""
    if figures or only or ladder or transport is not None:
        if changed or fail_on_worse:
            what = "--changed and --fail-on-worse: no effect on ratios, which have no verdicts"
            raise UserError(what, hint="leave them out")
        _print_ratios(runs, (baseline, transport, ladder), figures, only or (), as_json)
        return
    first, *others = _directories(runs, baseline)
    _check((first, *others))
    if baseline is None:
        base = str(first.path)
        found = {str(each.path): comparison.compared(first, each) for each in others}
    else:
        base, found = baseline, dict(comparison.with_baseline(first, baseline))
    notes = {str(each.path): list(comparison.notes(first, each)) for each in others}
    if as_json:
        about = {"first": str(first.path), "baseline": baseline}
        print_document(**about, comparisons=_documents(found, notes))
    else:
        for name, each in found.items():
            _print(base, name, each, changed=changed)
            for note in notes.get(name, ()):
                print(f"  {note}")
    if fail_on_worse and any(each.worse for each in found.values()):
        raise typer.Exit(ExitCode.FAILED)


def _check(directories: Sequence[Recorded]) -> None:
    """Warn of directories that are not whole. UserError for a table that is cut."""
    for directory in directories:
        if directory.warning:
            say(f"{directory.path} is {directory.warning}")
        directory.check_tables()


def _print_ratios(
    names: Sequence[str],
    chosen: tuple[str | None, str | None, bool],
    figures: Sequence[str] | None,
    only: Sequence[str],
    as_json: Json,
) -> None:
    """`chosen`: baseline, transport, ladder. UserError if the choices do not fit each other."""
    if len(names) > 2:
        raise UserError("ratios are of two directories at most", hint="leave the others out")
    figures = list(figures or ratios.DEFAULTS)
    ratios.check_figures(figures)
    directories = [Recorded(_found(each)) for each in names]
    _check(directories)
    first, *others = values = [comparison.values(each, only) for each in directories]
    compared = _compared(first, others, *chosen)
    found = list(ratios.rows(first, (others or [first])[0], compared, figures))
    failed = {
        str(directory.path): list(ratios.failed(each))
        for directory, each in zip(directories, values, strict=True)
    }
    if as_json:
        print_document(ratios=[each.document() for each in found], failed=failed)
        return
    _print_ratio_table(found, figures)
    for path, runs in failed.items():
        for run in runs:
            print(f"no figures, failed in {path}: {run}")
    for each in directories[1:]:
        for note in comparison.notes(directories[0], each):
            print(note)


def _compared(
    first: Values,
    others: Sequence[Values],
    baseline: str | None,
    transport: str | None,
    ladder: bool,
) -> Comparisons:
    """UserError unless exactly one kind of comparison is chosen."""
    if (baseline is not None) + (transport is not None) + ladder + bool(others) != 1:
        what = "ratios are those of two directories, or of one with --transport, --baseline"
        raise UserError(f"{what} or --ladder", hint="choose one of these")
    if others:
        return ratios.of_two(first, others[0])
    if baseline is not None:
        return ratios.over_baseline(first, baseline)
    return ratios.ladder(first) if transport is None else ratios.over_others(first, transport)


def _print_ratio_table(rows: Sequence[ratios.Row], figures: Sequence[str]) -> None:
    headings = ("compared", "cell", *figures, "pairs")
    table = tables.table(*(f"{each}<" for each in headings))
    for row in rows:
        values = [row.ratios[figure] for figure in figures]
        pairs = [value.pairs for value in values if value is not None]
        table.add_row(row.compared, row.cell, *("-" if v is None else str(v) for v in values),
                      str(min(pairs, default=0)))  # fmt: skip
    tables.show(table)


def _directories(names: Sequence[str], baseline: str | None) -> list[Recorded]:
    """UserError if these cannot be compared."""
    if baseline is not None and len(names) > 1:
        raise UserError("--baseline compares transports of one directory", hint="name one")
    if baseline is None and len(names) < 2:
        raise UserError("two directories are needed, or more", hint=_ALONE)
    first, *others = (Recorded(_found(each)) for each in names)
    if any(each.is_sweep != first.is_sweep for each in others):
        raise UserError("a run and a sweep cannot be compared")
    return [first, *others]


def _documents(
    found: Mapping[str, Comparison], notes: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    return [
        {
            "with": name,
            "notes": notes.get(name, []),
            "figures": [line.document() for line in each.lines],
            "passed": [line.document() for line in each.passed],
        }
        for name, each in found.items()
    ]


def _found(name: str) -> Path:
    try:
        return recorded.find(name)
    except UserError as error:
        if name not in registry.transports():
            raise
        raise UserError(f"{name} is a transport, not a run", hint=_ALONE) from error


def _print(first: str, second: str, found: Comparison, *, changed: bool) -> None:
    print(f"{second}, compared with {first}")
    shown = [line for line in found.lines if not changed or line.verdict != _NO_DIFFERENCE]
    titles = ("cell", "transport", "figure", "first", "second", "second / first", "pairs")
    table = tables.table(*(f"{each}<" for each in (*titles, "verdict")), no_wrap=True)
    for line in shown:
        ratio = line.ratio
        factor = f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
        table.add_row(line.cell, line.transport, line.figure, line.shown(line.first),
                      line.shown(line.second), factor, str(line.pairs), _verdict(line))  # fmt: skip
    if shown:
        tables.show(table)
    elif found.lines:
        count = units.format_count(len(found.lines), "figure")
        print(f"  {_NO_DIFFERENCE} in any of {count}")
    for each in found.passed:
        _print_passed(first, second, each)
    fewest = sign_tests.fewest_pairs(ALPHA)
    few = sum(line.pairs < fewest for line in found.lines)
    if few:
        print(f"  {few} of {len(found.lines)} figures have fewer than {fewest} pairs: "
              "so few seeds cannot show a difference")  # fmt: skip


def _verdict(line: Line) -> str:
    """With the pairs whose times may be the machine's."""
    if not line.unfaithful:
        return line.verdict
    return f"{line.verdict}; not faithful: {_seeds(line.unfaithful)}"


def _print_passed(first: str, second: str, found: Passed) -> None:
    """What the figures leave out: runs that failed, and seeds without a partner."""
    name = found.transport if found.cell == "all" else f"{found.cell}, {found.transport}"
    ends = []
    if found.first_only:
        ends.append(f"passed in {first} and failed in {second}: {_seeds(found.first_only)}")
    if found.second_only:
        ends.append(f"failed in {first} and passed in {second}: {_seeds(found.second_only)}")
    for each in ends:
        print(f"  {name}: {each}")
    if ends:
        print(f"  {name}: {found.verdict}, by the runs that passed")
    if found.neither:
        print(f"  {name}: failed in both: {_seeds(found.neither)}")
    if found.missing:
        print(f"  {name}: in one of the two alone: {_seeds(found.missing)}")


def _seeds(numbers: Sequence[int]) -> str:
    return f"seed{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
