# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab explain`: the story of a message's recovery, in words and as a ladder."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Annotated

import typer

from softroce_lab.cli.options import Json
from softroce_lab.cli.results.result_options import RunArgument, RunName, opened, runs_of
from softroce_lab.errors import UserError
from softroce_lab.report import explained, ladder, recorded, story
from softroce_lab.report.explained import Explained
from softroce_lab.report.story import Story
from softroce_lab.telemetry.rundir import SCHEMA_VERSION

app = typer.Typer(add_completion=False)


@app.command()
def explain(
    run: RunArgument = "latest",
    of: RunName = None,
    message: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="This message, such as 'h1->h2:0/3/12' or 0/3/12."),
    ] = None,
    worst: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The N slowest messages; default: 1.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The slowest message of this step.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell what delayed a message: losses, their detection, retransmissions, and where time went.

    Without --run: of each transport's run with the first seed.
    """
    if sum(each is not None for each in (message, worst, step)) > 1:
        raise UserError("--message, --worst and --step exclude each other")
    found = opened(run)
    tale = []
    for each in runs_of(found, of):
        recorded.need_messages(each)
        known = Explained.of(found, each)
        chosen = _chosen(known, shlex.quote(run), message, worst or 1, step)
        tale += [(known, one) for one in chosen]
    if as_json:
        stories = [one.document() | {"oracle_ns": known.bound_ns(one)} for known, one in tale]
        print(json.dumps({"schema_version": SCHEMA_VERSION, "stories": stories}, indent=1))
        return
    if found.warning:
        print(f"{found.warning}\n")
    for number, (known, one) in enumerate(tale):
        if number:
            print()
        _print(known, one, step)


def _chosen(
    known: Explained, where: str, message: str | None, worst: int, step: int | None
) -> Iterator[Story]:
    messages = known.messages
    if message is not None:
        yield known.story(story.named(messages, message, where))
        return
    within = None if step is None else story.of_step(messages, step)
    for row in story.worst(messages, worst, within):
        yield known.story(row)


def _print(known: Explained, one: Story, step: int | None) -> None:
    if step is not None:
        print(explained.step_words(known, step))
    for line in story.words(one, known.bound_ns(one)):
        print(line)
    if not known.has_decisions:
        print("Which packets a decision was about was not recorded; the virtual clock records it.")
    print()
    for line in ladder.lines(one):
        print(line)
    print(known.loss_words())
