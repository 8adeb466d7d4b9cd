# SPDX-License-Identifier: GPL-2.0-or-later
"""What rules do, in words, by their ids: the file from which the monitor comments packets.

The file only grows, a line for each range of ids with the same text:

    FIRST LAST <tab> text [<tab> text of what a gemodel does in its bad state]

An id names the same rule as long as the lab exists, for records of it may be under way when faults
change. The file is written before any of its rules acts.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from softroce_lab.faults.text import comments
from softroce_lab.plan.effects import Fault

FILE = "rules.txt"

_TAIL_BYTES = 4096  # more than the last line has


def free_id(directory: Path) -> int:
    """Above the ids of all rules that the lab ever had."""
    try:
        with (directory / FILE).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return 0
    return 1 + int(lines[-1].split(maxsplit=2)[1]) if lines else 0


def add(faults: Iterable[Fault], directory: Path) -> None:
    """Write the texts of these rules that are not in the file yet."""
    free = free_id(directory)
    fresh = sorted((f for f in faults if f.rule_id >= free), key=lambda fault: fault.rule_id)
    lines = "".join(f"{first} {last}\t{words}\n" for first, last, words in _ranges(fresh))
    with (directory / FILE).open("ab", buffering=0) as file:
        end = file.tell()
        if file.write(lines.encode()) != len(lines.encode()):  # no one finds a torn line
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory / FILE))


def renumbered(faults: Iterable[Fault], kept: Iterable[Fault], directory: Path) -> list[Fault]:
    """`faults` of which those that are not `kept` have ids that no rule of the lab ever had."""
    each, known, free = list(faults), set(kept), free_id(directory)
    fresh = sorted({fault.rule_id for fault in each if fault not in known})
    if not fresh or fresh[0] >= free:
        return each
    ids = dict(zip(fresh, itertools.count(free)))
    return [
        fault if fault in known else dataclasses.replace(fault, rule_id=ids[fault.rule_id])
        for fault in each
    ]


def text(fault: Fault) -> str:
    """`gemodel good, rule noise <tab> gemodel bad, rule noise`."""
    return "\t".join(comments(fault))


def _ranges(faults: Iterable[Fault]) -> Iterator[tuple[int, int, str]]:
    """First id, last id and text of each run of rules with one text."""
    for words, run in itertools.groupby(faults, key=text):
        ids = [fault.rule_id for fault in run]
        yield ids[0], ids[-1], words
