# SPDX-License-Identifier: GPL-2.0-or-later
"""A student's folder: `start` lays it out, `check` and `grade` read it, `check` adds its results.

It may be a stranger's: no link is followed, and no file is longer than a bound.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import math
import os
import re
import stat
import textwrap
import tokenize
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from softroce_lab.errors import LabError, UserError
from softroce_lab.learn.isolation import POLICY
from softroce_lab.learn.lab import Dice, Lab, Question, variant
from softroce_lab.learn.labs import find
from softroce_lab.learn.picture import Picture

TEXT, EXPERIMENT, ANSWERS, LAST = "README.md", "experiment.yaml", "answers.txt", "last-check.json"
REAL_TEXT = "real-clock.md"
"""The optional half, with real packets; beside it lie the experiments (`*.yaml`) that it names."""
CONTENT = Path(__file__).resolve().parent / "content"
MAX_BYTES = 1 << 18
EXAMPLE = "example"
_STUDENT = re.compile(r"[\w.@ +-]{1,64}")
_LINE = re.compile(r"\s*([a-z][a-z0-9_]*)\s*=\s*(.*?)\s*(?:#.*)?")


# --- A new folder ----------------------------------------------------------------------------


def start(
    number: int, folder: Path, student: str, as_typed: Callable[[str], str] = lambda text: text
) -> Lab:
    """Lay out a lab. UserError if there is something already, or no such lab.

    `as_typed` makes of `lab VERB` in a text what the student types in that folder.
    """
    lab = find(number)
    if not _STUDENT.fullmatch(student):
        raise UserError(f"{student!r} is no name of a student", hint="letters, digits, . @ + - _")
    files = make_files(lab, student)
    there = [name for name in files if (folder / name).exists() or (folder / name).is_symlink()]
    if there:
        what = f"{folder} has {', '.join(there)} already; nothing is overwritten"
        raise UserError(what, hint="another folder, or move these away")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8") as out:
                out.write(as_typed(text))
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from None
    return lab


def make_files(lab: Lab, student: str) -> dict[str, str]:
    """The files of a folder, by name."""
    dice = variant(lab.number, student)
    content = CONTENT / str(lab.number)
    real_half = [content / REAL_TEXT, *sorted(content.glob("*.yaml"))]
    return {
        TEXT: _fill((content / TEXT).read_text(encoding="utf-8"), lab, dice),
        EXPERIMENT: _yaml(lab, dice),
        **({POLICY: read_hand_out(lab)} if lab.tasks else {}),
        ANSWERS: _answers(lab, student, dice),
        **{path.name: path.read_text(encoding="utf-8") for path in real_half if path.is_file()},
    }


def _fill(text: str, lab: Lab, dice: Dice) -> str:
    for name, value in lab.values(dice).items():
        text = text.replace("{{" + name + "}}", str(value))
    return text


def read_hand_out(lab: Lab) -> str:
    """The policy with its hole."""
    return (CONTENT / str(lab.number) / "policy.py.txt").read_text(encoding="utf-8")


def _yaml(lab: Lab, dice: Dice) -> str:
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment] # of ruamel
    yaml.width = 100
    out = io.StringIO()
    yaml.dump(_plain(lab.experiment(dice)), out)
    return f"# Lab {lab.number}: {lab.title}\n# Run it: {lab.command}\n{out.getvalue()}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _answers(lab: Lab, student: str, dice: Dice) -> str:
    lines = [
        f"# Lab {lab.number}: {lab.title}",
        "# Write one number behind each '=', without its unit. Predictions come first: write them",
        "# down before you run anything. They cannot be wrong.",
        f"lab = {lab.number}",
        f"student = {student}",
    ]
    for question in lab.questions:
        text = _fill(question.text, lab, dice)
        wrapped = textwrap.wrap(text, 96, break_long_words=False, break_on_hyphens=False)
        lines += ["", *(f"# {line}" for line in wrapped)]
        lines.append(f"{question.id} =  # {question.unit}")
    return "\n".join(lines) + "\n"


# --- A submission ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Submission:
    """What a folder holds."""

    folder: Path
    lab: Lab
    student: str
    answers: dict[str, str]  # by question, as written; those that are there
    policy: bytes | None  # None: it is missing, or the lab has no tasks

    @property
    def dice(self) -> Dice:
        """The student's variant."""
        return variant(self.lab.number, self.student)

    def number(self, question: Question) -> float | None:
        """The answer; None if there is none. ValueError for what is no number."""
        written = self.answers.get(question.id, "")
        if not written:
            return None
        number = float(written.replace("_", "").replace(",", ""))
        if not math.isfinite(number):
            raise ValueError("not finite")
        return number

    @property
    def is_example(self) -> bool:
        """Whether it is the student whose numbers the texts show."""
        return self.student.strip().casefold() == EXAMPLE

    @property
    def untouched(self) -> bool:
        """Whether the policy is the hand-out."""
        return self.policy is not None and shape(self.policy) == shape(
            read_hand_out(self.lab).encode()
        )


def read(folder: Path) -> Submission:
    """A student's folder. UserError with what is missing."""
    text = read_file(folder / ANSWERS)
    if text is None:
        hint = "lab learn start N DIR lays out a folder"
        raise UserError(f"{folder} has no {ANSWERS}: it is no lab's folder", hint=hint)
    answers: dict[str, str] = {}
    for place, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise UserError(
                f"{line[:60]!r} is not NAME = NUMBER", file=str(folder / ANSWERS), line=place
            )
        answers[match[1]] = match[2]
    number, student = answers.pop("lab", ""), answers.pop("student", "")
    if not number.isdigit():
        raise UserError("'lab = N' is missing", file=str(folder / ANSWERS))
    if not _STUDENT.fullmatch(student):
        raise UserError("'student = NAME' is missing", file=str(folder / ANSWERS))
    lab = find(int(number))
    policy = read_file(folder / POLICY) if lab.tasks else None
    return Submission(folder, lab, student, answers, policy)


def read_file(path: Path) -> bytes | None:
    """Its bytes; None if it is not there. UserError for a link, a device, or too many bytes."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=str(path)) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise UserError("is no regular file", file=str(path))
    with os.fdopen(number, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise UserError(f"is longer than {MAX_BYTES:,} bytes", file=str(path))
    return content


def write_file(path: Path, text: str) -> None:
    """A new file of that name: where a stranger's link leads, nothing is written. OSError."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o644), "w", encoding="utf-8") as file:
        file.write(text)


def shape(source: bytes) -> str:
    """A digest of a program without its comments, its docstrings and its layout."""
    ignored = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    }  # fmt: skip
    begins = (tokenize.ENCODING, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    words, before = [], tokenize.ENCODING
    try:
        for token in tokenize.tokenize(io.BytesIO(source).readline):
            is_docstring = token.type == tokenize.STRING and before in begins
            if token.type not in ignored and not is_docstring:
                words.append(token.string)
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                before = token.type
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return hashlib.sha256(source).hexdigest()
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


# --- What `check` leaves ---------------------------------------------------------------------


def write_picture(folder: Path, task: str, picture: Picture | None) -> list[str]:
    """Write the picture of a failed task; the lines that `check` prints about it."""
    path = folder / f"failed-{task}.svg"
    if picture is not None:
        with contextlib.suppress(OSError):
            write_file(path, picture.svg)
            return [f"Picture of it: {path}", *(f"  {line}" for line in picture.lines)]
    return []


def remove_pictures(folder: Path, tasks: Iterable[str]) -> None:
    """Remove the pictures that an earlier check left of these tasks."""
    for task in tasks:
        with contextlib.suppress(OSError):
            (folder / f"failed-{task}.svg").unlink()


def remember_points(folder: Path, lab: int, points: int, most: int) -> None:
    """Write down the points of a check, for the list of labs."""
    document = {"lab": lab, "points": points, "most": most}
    with contextlib.suppress(OSError):
        write_file(folder / LAST, json.dumps(document) + "\n")


def list_states(where: Path, most: int) -> dict[int, list[str]]:
    """How far the folders in `where` are, by number of the lab."""
    states: dict[int, list[str]] = {}
    folders = sorted(path for path in where.iterdir() if path.is_dir())[:most]
    for path in [where, *folders]:
        if (path / ANSWERS).is_file():
            with contextlib.suppress(LabError):
                number = read(path).lab.number
                states.setdefault(number, []).append(f"{path}: {_state(path, number)}")
    return states


def _state(path: Path, number: int) -> str:
    with contextlib.suppress(LabError, ValueError, TypeError, KeyError):
        last: Any = json.loads(read_file(path / LAST) or b"{}")
        if last["lab"] == number:
            return f"{int(last['points'])} of {int(last['most'])} points"
    return "started"
