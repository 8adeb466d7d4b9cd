# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab learn`: teaching labs that grade themselves."""

from __future__ import annotations

import dataclasses
import getpass
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from softroce_lab import units, writable
from softroce_lab.cli import tables, typed
from softroce_lab.cli.options import Json, Junit, Quiet, print_json, saying
from softroce_lab.cli.screen import Screen
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.experiment.transports import policy_file
from softroce_lab.inputs import yaml_source
from softroce_lab.learn import folder, grading, judge, labs
from softroce_lab.learn import league as league_table
from softroce_lab.learn.failover import outcome, run
from softroce_lab.learn.failover import scene as failovers
from softroce_lab.learn.isolation import Policy, Workers, require_isolation
from softroce_lab.learn.judge import Options, Verdict
from softroce_lab.learn.lab import Ran, Task
from softroce_lab.learn.labs import SERIES

app = typer.Typer(add_completion=False)

_WIDTH = 100
_MARKS = {"holds": "ok", "fails": "FAILS", "open": "open"}
_SECRET = "SOFTROCE_LAB_SECRET"  # noqa: S105 - the name of a variable
_MOST_FOLDERS = 200  # that the list looks at


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `start` laid out.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run policies of your own without bubblewrap.")
]


@app.callback(invoke_without_command=True)
def learn(context: typer.Context) -> None:
    """List the teaching labs and how far the folders here are; start, check and grade them."""
    if context.invoked_subcommand is None:
        _list()


@app.command()
def start(
    number: Annotated[int, typer.Argument(metavar="N", help="Number of the lab.")],
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The folder to lay out.")
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose variant. [default: name of the user]"),
    ] = None,
) -> None:
    """Lay out a lab: text, experiment, policy with a hole, answers. Overwrite nothing."""
    if directory is None:
        known = labs.find(number)
        hint = f"lab learn start {number} lab{number}"
        raise UserError(f"lab {number} ({known.title}) needs a folder to lie in", hint=hint)
    command = typed.inside(directory)
    lab = folder.start(number, directory, student or _user(), lambda text: _typed(text, command))
    print(f"Lab {lab.number}: {lab.title}. About {lab.minutes} minutes, {lab.points} points.")
    print(f"Read {directory / folder.TEXT} first; then: {typed.name()} learn check {directory}")


@app.command()
def check(
    directory: Folder,
    task: Annotated[
        str | None, typer.Option(metavar="ID", help="Check this task of the policy alone.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=(1 << 31) - 1, help="With this seed alone, instead of the public ones."
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Option("--size", metavar="BYTES", help="Send only so much.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Say what holds and what does not, with seeds and packets, and what to do next.

    The policy runs in bubblewrap. Exit code 0: everything holds; 1: something does not, or is open;
    3: bubblewrap cannot run here, and --trust is not given.
    """
    submission = folder.read(directory)
    lab = submission.lab
    if task is None and (seed is not None or size is not None):
        raise UserError("--seed and --size are of one task", hint="add --task ID")
    size_bytes = None if size is None else units.parse_bytes(size)
    runs = submission.policy is not None and not submission.untouched
    isolated = runs and require_isolation(trust=trust)
    options = Options(isolated, None, task, seed, size_bytes, prints=True)
    notes: list[str] = []
    folder.remove_pictures(directory, [one.id for one in lab.tasks if task in (None, one.id)])

    def draw_first(which: Task, ran: Ran) -> None:
        if not notes:
            picture = lab.draw(ran, f"{which.id}, seed {ran.seed}")
            notes.extend(folder.write_picture(directory, which.id, picture))

    verdict = judge.judge(submission, options, draw_first)
    if task is None:
        folder.remember_points(directory, verdict.lab, verdict.points, verdict.most)
    _print_verdict(verdict)
    for note in notes:
        print(note)
    if not verdict.passed:
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def grade(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of students.")
    ],
    secret: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"A file whose bytes give the hidden seeds; or the variable {_SECRET}.",
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a table as CSV.")] = False,
    for_gradescope: Annotated[
        bool, typer.Option("--gradescope", help="Print JSON for Gradescope's autograder.")
    ] = False,
    as_json: Json = False,
    junit_file: Junit = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Processes. [default: one a core]")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Grade submissions with hidden seeds, each in bubblewrap.

    A grade is no failure: exit code 0. 3: bubblewrap cannot run here.
    """
    if as_csv + as_json + for_gradescope > 1:
        what = "--csv, --json and --gradescope are different formats"
        raise UserError(what, hint="give one of them")
    if for_gradescope and len(directories) > 1:
        hint = "its autograder runs once for each submission"
        raise UserError("--gradescope is for one submission", hint=hint)
    if not for_gradescope:  # which wants its file, whatever was handed in
        grading.check_folders(directories)
    if junit_file is not None:
        writable.check(junit_file, "--junit FILE")
    options = Options(require_isolation(may_trust=False), _secret(secret))
    with Screen(quiet=quiet) as screen:
        count = len(directories)
        bar = screen.bar("grading", count, units.format_count(count, "submission"))
        verdicts = grading.grade(directories, options, jobs or os.cpu_count() or 1, bar)
    if as_csv:
        print(grading.as_csv(verdicts), end="")
    elif for_gradescope:
        print_json(grading.as_gradescope(verdicts[0]))
    elif as_json:
        print_json(grading.as_documents(verdicts))
    else:
        _print_grades(verdicts)
    if junit_file is not None:  # last: grades that are known are printed
        grading.write_junit(junit_file, verdicts)


@app.command()
def league(
    entries: Annotated[
        list[str], typer.Argument(metavar="FILE:CLASS...", help="Transports of students.")
    ],
    secret: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rank on fabrics that follow from its bytes."),
    ] = None,
    as_json: Json = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Rank transports beside csa_ud, irn, ud_rto and the oracle: time over the oracle's."""
    entrants = [league_table.read_entrant(entry) for entry in entries]
    isolated = require_isolation(trust=trust)
    hidden = None if secret is None else _secret(secret)
    standings = league_table.rank(entrants, hidden, isolated=isolated, say=saying(quiet))
    if as_json:
        print_json([dataclasses.asdict(standing) for standing in standings])
        return
    table = tables.table(
        "place", "transport<", "time over the oracle's", "failed runs", "worst on<"
    )
    for place, standing in enumerate(standings, 1):
        ratio, failed = f"{standing.over_oracle:.3f}", str(standing.failed or "")
        table.add_row(str(place), standing.name, ratio, failed, standing.worst)
    Console(width=_WIDTH).print(table)


@app.command()
def failover(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Lab 7's experiment.")],
    policy: Annotated[
        str | None,
        typer.Argument(metavar="[FILE:CLASS]", help="A failover of your own, as a fourth."),
    ] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Let a NIC die without a backup, with one that repeats all, and with SHIFT's rules."""
    scene = failovers.read(yaml_source.read(file).data)
    results = run.compare_ways(scene)
    if policy is not None:
        results["yours"] = _run_failover(policy, scene, trust)
    if as_json:
        print_json({name: one.document() for name, one in results.items()})
        return
    table = tables.table("<", *results)
    for name, cells in run.tabulate(list(results.values()), scene):
        table.add_row(name, *cells)
    Console(width=_WIDTH).print(table)
    for name, result in results.items():
        for text in run.first_of_each_kind(result.wrong):
            print(f"{name}: {text}")


def _run_failover(reference: str, scene: failovers.Scene, trust: bool) -> run.Result:
    file, name = policy_file.split(reference)
    source = folder.read_file(Path(file))
    if source is None:
        raise UserError("is not there", file=file)
    policy = Policy(source, name, "failover")
    with Workers(policy, isolated=require_isolation(trust=trust), prints=True) as workers:
        result = run.run(scene, outcome.RemoteWay(workers))
    if result.broken is not None:
        raise result.broken
    return result


def _secret(file: Path | None) -> bytes:
    written = os.environ.get(_SECRET, "").encode() if file is None else folder.read_file(file)
    if not written or not written.strip():
        where = f"{_SECRET} is not set" if file is None else f"{file} is not there, or empty"
        hint = "a file with some random words, --secret FILE; keep it, and show it to nobody"
        raise UserError(f"no secret for the hidden seeds: {where}", hint=hint)
    return written.strip()


def _typed(text: str, command: str | None = None) -> str:
    """With commands as the user types them here; or in another folder, by `command`."""
    from softroce_lab.cli.app import VERBS  # late: that module imports the verbs

    return typed.commands(text, VERBS, command or typed.name())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise UserError("this user has no name", hint="--student NAME") from None


# --- Tables ----------------------------------------------------------------------------------


def _list() -> None:
    table = tables.table("lab", "title<", "minutes", "points", "state<")
    known = folder.list_states(Path(), _MOST_FOLDERS)
    for lab in SERIES.values():
        facts = [str(lab.number), lab.title, str(lab.minutes), str(lab.points)]
        for state in known.get(lab.number) or ["not started"]:
            table.add_row(*facts, state)
            facts = [""] * len(facts)
    Console(width=_WIDTH).print(table)
    name = typed.name()
    print(f"\n{name} learn start N DIR lays one out; {name} learn check DIR says what holds")


def _print_verdict(verdict: Verdict) -> None:
    print(f"Lab {verdict.lab}, {verdict.student}: {verdict.points} of {verdict.most} points")
    for item in verdict.items:
        print(f"  {_MARKS[item.state]:<6}{item.points:>3}/{item.most:<3}{item.title}")
        if item.text:
            print(f"        {_typed(item.text)}")
        if item.replay:
            print(f"        again: {_typed(item.replay)}")
    print(f"Next: {_typed(verdict.next_step)}")


def _print_grades(verdicts: Sequence[Verdict]) -> None:
    for row in grading.rows(verdicts):
        who = f" ({row['student']})" if row["student"] else ""
        print(f"{row['points']:>3} of {row['most']:<3} {row['folder']}{who}")
        if row["first_failure"]:
            print(f"       {_typed(row['first_failure'])}")
        if row["replay"]:
            print(f"       again: {_typed(row['replay'])}")
        for key, what in (("same_program_as", "the same program as"),
                          ("same_student_as", "the same student as")):  # fmt: skip
            if row[key]:
                print(f"       {what} {row[key]}")
