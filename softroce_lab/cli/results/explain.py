# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results explain`: the story of a message's recovery, in words and as a ladder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import typer

from softroce_lab.cli.modes import ModalCommand, Mode, flag
from softroce_lab.cli.options import Json, Quiet, print_document
from softroce_lab.cli.results.options import (
    STEPS,
    RunArgument,
    RunName,
    Trust,
    opened,
    origin,
    runs_of,
)
from softroce_lab.errors import UserError
from softroce_lab.results import ladder, program_story, recorded, story
from softroce_lab.results.blame.charges import LEAST_RUNS, USUAL_RUNS
from softroce_lab.results.program_story import ProgramRun, QueuePairLosses
from softroce_lab.results.recorded import Recorded, Run
from softroce_lab.results.steps import Steps
from softroce_lab.results.story import Explained, Story

app = typer.Typer(add_completion=False)


class _Command(ModalCommand):
    """A command that rejects options without effect in the chosen mode."""

    modes = (
        Mode("--cost", flag("cost"), ("message", "worst")),
        Mode(
            "without --cost",
            lambda params: not params["cost"],
            ("undo", "runs", "trust", "quiet"),
        ),
        Mode("--undo", lambda params: params["undo"] is not None, ("runs",)),
    )


@app.command(cls=_Command)
def explain(
    run: RunArgument = "latest",
    of: RunName = None,
    message: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="This message: SENDER->RECEIVER:OPERATION/STEP/NUMBER, such as 'h1->h2:0/3/12'. "
            "The output names messages so.",
        ),
    ] = None,
    worst: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The N slowest messages; default: 1.")
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            metavar="STEP",
            help=f"The slowest message of a step of the workload: {STEPS}. With --cost: what the "
            "end of the step waited for.",
        ),
    ] = None,
    cost: Annotated[
        bool,
        typer.Option(
            "--cost",
            help="Measure what losses cost: simulate the run again, each time without one of them.",
        ),
    ] = False,
    undo: Annotated[
        str | None,
        typer.Option(
            metavar="LOSSES",
            help="With --cost: one run without all of these losses, by their numbers in the "
            "output: 17,40-52, or all.",
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            min=LEAST_RUNS, metavar="N", help="With --cost: at most so many further runs."
        ),
    ] = USUAL_RUNS,
    trust: Trust = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tell what delayed a message: losses, their detection, retransmissions, and where time went.

    RUN is a directory that `lab run` wrote, with a run for each transport and seed; --run chooses
    one of them. Without it: each transport's run with the first seed. In a run of programs, a
    message is a work request of an RC queue pair: 'h1->h2:QPN/NUMBER', the sender's QP.
    """
    if sum(each is not None for each in (message, worst, step)) > 1:
        raise UserError("--message, --worst and --step exclude each other")
    found, where = opened(run), shlex.quote(run)
    if cost:
        from softroce_lab.cli.results import cost as costs  # late: it runs experiments

        whose = origin(trusted=trust)
        costs.show(found, of, step, undo, runs, whose, as_json=as_json, quiet=quiet)
        return
    tale: list[_Shown] = []
    for each in runs_of(found, of):
        if recorded.programs_of(each):
            tale += _of_programs(ProgramRun.of(found, each), where, message, worst or 1, step)
        else:
            tale += _of_messages(found, each, where, message, worst or 1, step)
    if as_json:
        stories = [each.one.document() | {"oracle_ns": each.bound_ns} for each in tale if each.one]
        pairs = [each.document() for shown in tale for each in shown.pairs]
        print_document(stories=stories, **({"queue_pairs": pairs} if pairs else {}))
        return
    if found.warning:
        print(f"{found.warning}\n")
    for number, shown in enumerate(tale):
        if number:
            print()
        _print(shown)


class _Shown(NamedTuple):
    one: Story | None  # None: no message of the run is recorded
    words: list[str]
    loss_words: str
    bound_ns: int | None = None
    pairs: Sequence[QueuePairLosses] = ()  # of programs


def _of_messages(
    found: Recorded, run: Run, where: str, message: str | None, worst: int, step: str | None
) -> Iterator[_Shown]:
    known = Explained.of(found, run)
    if step is None:
        of_step, chosen = [], list(_chosen(known, where, message, worst))
    else:
        steps = Steps.of(found, run, known.messages.columns)
        index = steps.find(step)
        of_step = [story.step_words(known, steps, index)]
        chosen = [known.story(row) for row in story.worst(known.messages, 1, steps.of_row == index)]
    for one in chosen:
        yield _Shown(one, of_step + known.words(one), known.loss_words(), known.bound_ns(one))


def _of_programs(
    known: ProgramRun, where: str, message: str | None, worst: int, step: str | None
) -> Iterator[_Shown]:
    if step is not None:
        raise UserError(f"{known.name}: programs have no steps", hint="--worst N, or --message KEY")
    rows = known.worst(worst) if message is None else [known.named(message, where)]
    for one in map(known.story, rows):
        yield _Shown(one, program_story.words(one), known.loss_words())
    if not rows:
        yield _Shown(None, [], known.loss_words())
    pairs = known.by_queue_pair() if message is None else []
    if pairs:
        yield _Shown(None, program_story.queue_pair_words(pairs), "", pairs=pairs)


def _chosen(known: Explained, where: str, message: str | None, worst: int) -> Iterator[Story]:
    messages = known.messages
    if message is not None:
        yield known.story(story.named(messages, message, where))
        return
    for row in story.worst(messages, worst):
        yield known.story(row)


def _print(shown: _Shown) -> None:
    for line in shown.words:
        print(line)
    if shown.one is not None:
        print()
        for line in ladder.lines(shown.one):
            print(line)
    if shown.loss_words:
        print(shown.loss_words)
