# SPDX-License-Identifier: GPL-2.0-or-later
"""What the experiment of a run directory would execute, or read outside the directory.

A run directory may come from anybody, and the lab often runs as root. So the experiment of a
directory is loaded for reading without its transports (`spec.recorded`), and runs again only if it
needs nothing of this, or if the user says `--trust`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from softroce_lab.errors import UserError
from softroce_lab.experiment.kinds.base import Use
from softroce_lab.experiment.spec_model import ExperimentFile
from softroce_lab.inputs.yaml_source import Source

UNTRUSTED = "this runs again only if you trust the run directory:"
HINT = "if you do, repeat the command with --trust"
_WORDS = {
    "policy": "it executes the policy",
    "program": "it executes the program",
    "payload": "it reads the file",
    "file": "it reads the file",
}


def needed(raw: ExperimentFile, source: Source) -> Iterator[Use]:
    """Every policy, every program, and every file that is not in the directory of `source`."""
    for number, spec in enumerate(raw.transports or ()):
        if spec.policy is not None:
            yield Use(("transports", number), "policy", spec.policy)
    for place, spec in raw.workload.own_transports.values():
        if spec.policy is not None:
            yield Use(place, "policy", spec.policy)
    # `lab run` writes topologies and faults out. A name may mean any file.
    if isinstance(raw.topology, str):
        yield Use(("topology",), "file", raw.topology)
    for number, fault in enumerate(raw.faults):
        if isinstance(fault, str):
            yield Use(("faults", number), "file", fault)
    for use in raw.workload.uses(("workload",)):
        if use.what == "program" or not _is_inside(use.text, source):
            yield use


def _is_inside(path: str, source: Source) -> bool:
    """Whether a path leads into the directory of `source`, behind all links."""
    home = Path(source.file or "").parent.resolve()
    try:
        return (home / path).resolve().is_relative_to(home)
    except (OSError, RuntimeError, ValueError):  # links in a circle, a zero byte
        return False


def check(raw: ExperimentFile, source: Source) -> None:
    refuse(described(raw, source), source)


def check_reading(raw: ExperimentFile, source: Source) -> None:
    """UserError if fabric and jobs cannot be told without a file outside the directory."""
    for use in needed(raw, source):
        if use.what == "file":
            what = f"{use.text!r} is not in the run directory, and is not read"
            raise source.error(use.place, what, hint="lab run makes a new one")


def described(raw: ExperimentFile, source: Source) -> Iterator[str]:
    """A line for each thing that the experiment needs trust for, with its place in the file."""
    for use in needed(raw, source):
        shown = repr(use.text)
        if use.what == "policy":
            shown = repr(str(Path(source.file or "").parent.absolute() / use.text))
        mark = source.mark(use.place)
        at = "" if mark is None else f"{mark.line}:{mark.column}: "
        yield f"{at}{_WORDS[use.what]} {shown}"


def refuse(lines: Iterable[str], source: Source) -> None:
    """UserError with these lines of `described`, if there are any."""
    if listed := "".join(f"\n  {line}" for line in dict.fromkeys(lines)):
        raise UserError(UNTRUSTED + listed, hint=HINT, file=source.file)
