# SPDX-License-Identifier: GPL-2.0-or-later
"""What `check` leaves in a student's folder: packets of what failed, and the points."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from softroce_lab.errors import LabError
from softroce_lab.learn.folder import ANSWERS, read, read_file, write_file
from softroce_lab.learn.judge import Verdict
from softroce_lab.learn.lab import Lab, Ran, Task

LAST = "last-check.json"


def write(folder: Path, lab: Lab, task: Task, found: Ran) -> list[str]:
    """A picture of a failed trial; lines that name it."""
    drawn = lab.draw(found, f"{task.id}, seed {found.seed}")
    if drawn is None:
        return []
    path = _picture(folder, task.id)
    with contextlib.suppress(OSError):
        write_file(path, drawn.svg)
        return [f"Picture of it: {path}", *(f"  {line}" for line in drawn.lines)]
    return []


def clear(folder: Path, tasks: Iterable[str]) -> None:
    """Remove the pictures that an earlier check left of these tasks."""
    for each in tasks:
        with contextlib.suppress(OSError):
            _picture(folder, each).unlink()


def _picture(folder: Path, task: str) -> Path:
    return folder / f"failed-{task}.svg"


def remember(folder: Path, verdict: Verdict) -> None:
    """The points, for the list of labs."""
    document = {"lab": verdict.lab, "points": verdict.points, "most": verdict.most}
    with contextlib.suppress(OSError):
        write_file(folder / LAST, json.dumps(document) + "\n")


def begun(where: Path, most: int) -> dict[int, list[str]]:
    """The labs whose folders lie here, by number, and how far each is."""
    found: dict[int, list[str]] = {}
    folders = sorted(path for path in where.iterdir() if path.is_dir())[:most]
    for path in [where, *folders]:
        if not (path / ANSWERS).is_file():
            continue
        with contextlib.suppress(LabError):
            number = read(path).lab.number
            found.setdefault(number, []).append(f"{path}: {_state(path, number)}")
    return found


def _state(path: Path, number: int) -> str:
    with contextlib.suppress(LabError, ValueError, TypeError, KeyError):
        last: Any = json.loads(read_file(path / LAST) or b"{}")
        if last["lab"] == number:
            return f"{int(last['points'])} of {int(last['most'])} points"
    return "started"
