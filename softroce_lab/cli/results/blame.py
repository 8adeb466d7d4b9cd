# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab blame`: which losses cost a run its time, by counterfactual runs on the virtual clock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from softroce_lab.cli.options import Json, Quiet
from softroce_lab.cli.results.repeating import searched
from softroce_lab.cli.results.result_options import (
    STEPS,
    RunArgument,
    RunName,
    TrustRun,
    opened,
    origin,
    runs_of,
)
from softroce_lab.errors import UserError
from softroce_lab.report.blame import words
from softroce_lab.report.blame.charges import LEAST_RUNS, USUAL_RUNS, Blame
from softroce_lab.report.blame.investigation import Investigation
from softroce_lab.telemetry.rundir import SCHEMA_VERSION

app = typer.Typer(add_completion=False)


@app.command()
def blame(
    run: RunArgument = "latest",
    of: RunName = None,
    step: Annotated[
        str | None,
        typer.Option(metavar="STEP", help=f"What the end of this step waited for: {STEPS}."),
    ] = None,
    undo: Annotated[
        str | None,
        typer.Option(
            metavar="LOSSES",
            help="Only run once more without these losses, such as 17,40-52, or all.",
        ),
    ] = None,
    runs: Annotated[
        int, typer.Option(min=LEAST_RUNS, metavar="N", help="At most so many further runs.")
    ] = USUAL_RUNS,
    trust_run: TrustRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Charge each loss with what it cost: repeat the run with losses undone, one after the other.

    All other packets keep their fates. Without --run: of each transport's run with the first seed.
    """
    found = opened(run)
    documents = []
    for number, each in enumerate(runs_of(found, of)):
        known = Investigation.of(found, each, step, origin(trusted=trust_run))
        if undo is not None:
            documents.append(_undone(known, undo, as_json=as_json))
            continue
        try:
            result = searched(known, runs, quiet=quiet)
        except KeyboardInterrupt:
            what = f"{known.known.name}: interrupted; its charges are known at the end only"
            typer.echo(f"lab: {what}", err=True)
            raise
        if as_json:
            documents.append(_document(result, known))
        else:
            print("\n" * bool(number), end="")
            _print(result, known)
    if as_json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, "runs": documents}, indent=1))


def _print(result: Blame, known: Investigation) -> None:
    for line in words.sentences(result, known):
        print(line)
    if not result.losses:
        return
    print()
    for line in words.table(list(words.rows(result, known))):
        print(line)
    print(
        f"\n{result.runs} runs. A charge is what the end gains when the losses of the charges "
        "before it are undone already; all add up."
    )
    if not result.whole:
        print("Groups are left: --runs N looks at more of them.")


def _document(result: Blame, known: Investigation) -> dict[str, Any]:
    document = result.document()
    for each in document["charges"]:
        each["message"] = known.known.messages.name(each["message"])
    path = known.path_document()
    return {"run": known.known.name, "step": known.step, **document, "critical_path": path}


def _undone(known: Investigation, text: str, *, as_json: bool) -> dict[str, Any]:
    losses = _numbers(text, known.losses)
    with_all_ns = known.subject.base.end_ns(known.subject.rows)
    left_ns = known.without(losses)
    if not as_json:
        took, left, gain = map(words.time, (with_all_ns, left_ns, with_all_ns - left_ns))
        if known.step is not None:
            left = f"step {known.step} ends {left} after the start of the run"
        print(f"{known.known.name}: {left} without {len(losses):,} of {known.losses:,} losses,")
        print(f"{took} with all: they cost {gain}.")
    return {
        "run": known.known.name,
        "step": known.step,
        "undone": [number + 1 for number in losses],
        "with_all_ns": with_all_ns,
        "left_ns": left_ns,
        "cost_ns": with_all_ns - left_ns,
    }


def _numbers(text: str, count: int) -> Sequence[int]:
    """Losses from 0, of the text of --undo. UserError."""
    if text == "all":
        return range(count)
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            begin = int(first)
            end = int(last) if dash else begin
        except ValueError:
            hint = "such as 17,40-52, or all"
            raise UserError(f"--undo: {part!r} is no loss's number", hint=hint) from None
        if not 1 <= begin <= end <= count:
            hint = f"losses are numbered 1 to {count:,}, in the order of time"
            raise UserError(f"--undo: there is no loss {part}", hint=hint)
        found.update(range(begin - 1, end))
    return sorted(found)
