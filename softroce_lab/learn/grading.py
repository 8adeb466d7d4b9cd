# SPDX-License-Identifier: GPL-2.0-or-later
"""Grades many submissions, a process for each core, and writes what teachers' tools read."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import csv
import io
import multiprocessing
import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from softroce_lab import junit, units
from softroce_lab.errors import EnvironmentLackError, LabError, UserError
from softroce_lab.learn import crew, folder, judge
from softroce_lab.learn.judge import How, Item, Verdict
from softroce_lab.learn.sandbox import seccomp

COLUMNS = ("folder", "student", "lab", "points", "most", "share", "first_failure", "replay",
           "same_program_as", "same_student_as")  # fmt: skip


def safe_way(trust: bool) -> bool:
    """Whether submissions are shut in. EnvironmentLackError where they cannot, unless trusted."""
    lacks = crew.lacks_bubblewrap()
    if lacks is None:
        return True
    if not trust:
        what = f"submissions cannot be shut in: {lacks}"
        hint = "--trust grades them with rlimits and a filter of system calls alone; they can read"
        raise EnvironmentLackError("bubblewrap", what, hint=f"{hint} this machine's files then")
    seccomp.shut_out()
    return False


def check_folders(folders: Sequence[Path]) -> None:
    """UserError if no folder is a submission, but folders in one of them are."""
    if any((each / folder.ANSWERS).exists() for each in folders):
        return
    for each in folders:
        inner = sorted(path.parent for path in each.glob(f"*/{folder.ANSWERS}"))
        if inner:
            found = units.format_count(len(inner), "submission")
            what = f"{each} is no submission, but a folder of {found}"
            raise UserError(what, hint=f"lab learn grade {shlex.quote(str(each))}/*")


def grade(
    folders: Sequence[Path],
    how: How,
    jobs: int,
    progress: Callable[[int], None] = lambda _: None,
    by: Callable[[str, How], Verdict] | None = None,
) -> list[Verdict]:
    """A verdict for each folder, in their order. What cannot be read has no points.

    A process that dies takes the others of its pool along: what is left is judged again, each in a
    process of its own, so that one submission alone pays for it. `by`: who judges, `one`.
    """
    by = by or one
    found: dict[int, Verdict] = {}
    context = multiprocessing.get_context("spawn")
    jobs = min(jobs, len(folders))
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        futures = {pool.submit(by, str(path), how): place for place, path in enumerate(folders)}
        for future in concurrent.futures.as_completed(futures):
            with contextlib.suppress(BrokenProcessPool):
                found[futures[future]] = future.result()
                progress(len(found))
    for place, path in enumerate(folders):
        if place not in found:
            found[place] = _alone(str(path), how, by)
            progress(len(found))
    return [found[place] for place in range(len(folders))]


def _alone(path: str, how: How, by: Callable[[str, How], Verdict]) -> Verdict:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(by, path, how).result()
        except BrokenProcessPool:
            return _without_points(path, "not decided, the judge was ended; look at it by hand")


def one(path: str, how: How) -> Verdict:
    """The verdict of a folder; one without points, and why, if it cannot be judged."""
    if not how.shut_in:
        seccomp.shut_out()  # the secret is in this process
    try:
        return judge.judge(folder.read(Path(path)), how)
    except LabError as error:
        return _without_points(path, str(error).partition("\n")[0])  # its hint is for students
    except Exception as error:  # one submission does not end the others' grading
        what = f"{type(error).__name__}: {error}"
        return _without_points(path, f"the judge itself failed; look at it by hand: {what}")


def _without_points(path: str, why: str) -> Verdict:
    return Verdict(path, 0, "", (Item("folder", "the folder", "fails", 0, 0, why),))


# --- What teachers' tools read ---------------------------------------------------------------


def twins(verdicts: Sequence[Verdict]) -> tuple[dict[str, str], dict[str, str]]:
    """By folder, the first other one with the same program, and with the same student."""
    programs: dict[tuple[int, str], list[str]] = collections.defaultdict(list)
    students: dict[tuple[int, str], list[str]] = collections.defaultdict(list)
    for each in verdicts:
        if each.shape:
            programs[each.lab, each.shape].append(each.folder)
        if each.student:
            students[each.lab, each.student.strip().casefold()].append(each.folder)
    return _first_others(programs.values()), _first_others(students.values())


def _first_others(groups: Any) -> dict[str, str]:
    return {
        each: other
        for group in groups
        for each in group
        if (other := next((other for other in group if other != each), None)) is not None
    }


def rows(verdicts: Sequence[Verdict]) -> Iterator[dict[str, Any]]:
    """One for each verdict, of COLUMNS."""
    programs, students = twins(verdicts)
    for each in verdicts:
        failed = first_failure(each)
        share = f"{each.points / each.most:.3f}" if each.most else "0.000"
        yield {
            "folder": each.folder,
            "student": each.student,
            "lab": each.lab,
            "points": each.points,
            "most": each.most,
            "share": share,
            "first_failure": "" if failed is None else _in_a_line(f"{failed.title}: {failed.text}"),
            "replay": "" if failed is None else failed.replay,
            "same_program_as": programs.get(each.folder, ""),
            "same_student_as": students.get(each.folder, ""),
        }


def first_failure(verdict: Verdict) -> Item | None:
    """What does not hold: of the policy first, as it has most of the points, then an answer."""
    failed = [item for item in verdict.items if item.state != "holds"]
    return min(failed, key=lambda item: item.task is None, default=None)


def _in_a_line(text: str) -> str:
    return " ".join(text.split())


def as_csv(verdicts: Sequence[Verdict]) -> str:
    """A table with a head, as RFC 4180 has it."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _no_formula(value) for key, value in row.items()}
                     for row in rows(verdicts))  # fmt: skip
    return out.getvalue()


def _no_formula(value: Any) -> Any:
    """A spreadsheet runs what begins like a formula: a student chooses some of these texts."""
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
        {**row, "items": [item.document() for item in verdict.items]}
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
    text = "\n".join(each for each in (item.text, item.replay) if each)
    return junit.Case(
        f"lab{verdict.lab}.{verdict.student or verdict.folder}", item.id, kind,
        item.text if kind else "", "", text if kind else "",
    )  # fmt: skip
