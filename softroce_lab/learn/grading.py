# SPDX-License-Identifier: GPL-2.0-or-later
"""Grades many submissions, a process for each core, and writes what teachers' tools read."""

from __future__ import annotations

import collections
import csv
import dataclasses
import functools
import io
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from softroce_lab import junit, units
from softroce_lab.errors import LabError, UserError
from softroce_lab.experiment.sweep import pool
from softroce_lab.learn import folder, judge
from softroce_lab.learn.judge import Item, Options, Verdict

COLUMNS = ("folder", "student", "lab", "points", "most", "share", "first_failure", "replay",
           "same_program_as", "same_student_as")  # fmt: skip


def check_folders(folders: Sequence[Path]) -> None:
    """UserError if no folder is a submission, but folders in one of them are."""
    if any((path / folder.ANSWERS).exists() for path in folders):
        return
    for path in folders:
        inner = sorted(answers.parent for answers in path.glob(f"*/{folder.ANSWERS}"))
        if inner:
            count = units.format_count(len(inner), "submission")
            what = f"{path} is no submission, but a folder of {count}"
            raise UserError(what, hint=f"lab learn grade {shlex.quote(str(path))}/*")


def grade(
    folders: Sequence[Path],
    options: Options,
    jobs: int,
    progress: Callable[[int], None] = lambda _: None,
    by: Callable[[str, Options], Verdict] | None = None,
) -> list[Verdict]:
    """A verdict for each folder, in their order. A folder that cannot be read has no points.

    Of a process that dies only one submission pays. `by` judges: `grade_one`.
    """
    work = functools.partial(_judge, by or grade_one, options)
    verdicts: dict[int, Verdict] = {}
    with pool.processes(min(jobs, len(folders))) as processes:
        tasks = [(place, str(path)) for place, path in enumerate(folders)]
        for (place, _), verdict in pool.carry_out(tasks, work, processes, _lost):
            verdicts[place] = verdict
            progress(len(verdicts))
    return [verdicts[place] for place in range(len(folders))]


def _judge(
    by: Callable[[str, Options], Verdict], options: Options, task: tuple[int, str]
) -> Verdict:
    return by(task[1], options)


def _lost(task: tuple[int, str], _: str) -> Verdict:
    return _without_points(task[1], "not decided, the judge was ended; look at it by hand")


def grade_one(path: str, options: Options) -> Verdict:
    """The verdict of a folder; one without points, and why, if it cannot be judged."""
    try:
        return judge.judge(folder.read(Path(path)), options)
    except LabError as error:
        return _without_points(path, str(error).partition("\n")[0])  # its hint is for students
    except Exception as error:  # one submission does not end the others' grading
        what = f"{type(error).__name__}: {error}"
        return _without_points(path, f"the judge itself failed; look at it by hand: {what}")


def _without_points(path: str, why: str) -> Verdict:
    return Verdict(path, 0, "", (Item("folder", "the folder", "fails", 0, 0, why),))


# --- Tables and documents --------------------------------------------------------------------


def find_twins(verdicts: Sequence[Verdict]) -> tuple[dict[str, str], dict[str, str]]:
    """By folder, the first other one with the same program, and with the same student."""
    programs: dict[tuple[int, str], list[str]] = collections.defaultdict(list)
    students: dict[tuple[int, str], list[str]] = collections.defaultdict(list)
    for verdict in verdicts:
        if verdict.shape:
            programs[verdict.lab, verdict.shape].append(verdict.folder)
        if verdict.student:
            students[verdict.lab, verdict.student.strip().casefold()].append(verdict.folder)
    return _first_others(programs.values()), _first_others(students.values())


def _first_others(groups: Iterable[list[str]]) -> dict[str, str]:
    return {
        path: other
        for group in groups
        for path in group
        if (other := next((other for other in group if other != path), None)) is not None
    }


def rows(verdicts: Sequence[Verdict]) -> Iterator[dict[str, Any]]:
    """A row for each verdict, with the keys COLUMNS."""
    programs, students = find_twins(verdicts)
    for verdict in verdicts:
        # A failed task first: it has most of the points. Then an answer.
        failed = [item for item in verdict.items if item.state != "holds"]
        first = min(failed, key=lambda item: item.task is None, default=None)
        text = "" if first is None else " ".join(f"{first.title}: {first.text}".split())
        yield {
            "folder": verdict.folder,
            "student": verdict.student,
            "lab": verdict.lab,
            "points": verdict.points,
            "most": verdict.most,
            "share": f"{verdict.points / verdict.most:.3f}" if verdict.most else "0.000",
            "first_failure": text,
            "replay": "" if first is None else first.replay,
            "same_program_as": programs.get(verdict.folder, ""),
            "same_student_as": students.get(verdict.folder, ""),
        }


def as_csv(verdicts: Sequence[Verdict]) -> str:
    """A table with a head, as RFC 4180 has it."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows(verdicts):
        writer.writerow({key: _escape_formula(value) for key, value in row.items()})
    return out.getvalue()


def _escape_formula(value: Any) -> Any:
    """A spreadsheet runs a text that begins like a formula, and a student chooses some texts."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value


def as_gradescope(verdict: Verdict) -> dict[str, Any]:
    """`results.json` of a Gradescope autograder, for one submission."""
    return {
        "score": verdict.points,
        "output": f"Lab {verdict.lab}. Next: {verdict.next_step}",
        "visibility": "visible",
        "tests": [
            {
                "name": item.title,
                "number": item.id,
                "score": item.points,
                "max_score": item.most,
                "status": "passed" if item.state == "holds" else "failed",
                "output": item.text,
            }
            for item in verdict.items
        ],
    }


def as_documents(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Everything, for programs."""
    return [
        {**row, "items": [dataclasses.asdict(item) for item in verdict.items]}
        for row, verdict in zip(rows(verdicts), verdicts, strict=True)
    ]


def write_junit(path: Path, verdicts: Sequence[Verdict]) -> None:
    """A suite for each submission, a case for each item. UserError if it cannot be written."""
    suites = [
        junit.Suite(verdict.folder, [_case(verdict, item) for item in verdict.items])
        for verdict in verdicts
    ]
    junit.write(path, "lab learn", suites)


def _case(verdict: Verdict, item: Item) -> junit.Case:
    kind: junit.Kind | None = None if item.state == "holds" else "failure"
    text = "\n".join(part for part in (item.text, item.replay) if part)
    return junit.Case(
        f"lab{verdict.lab}.{verdict.student or verdict.folder}", item.id, kind,
        item.text if kind else "", "", text if kind else "",
    )  # fmt: skip
