# SPDX-License-Identifier: GPL-2.0-or-later
"""Steps by which the workload of a case becomes smaller, whatever kind it is of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Work = dict[str, Any]

_PLAIN = {  # keys that a workload of the kind can do without
    "collective": ("algorithm", "peers"),
    "open-loop": ("incast",),
    "moe": ("repeat", "skew", "token_time"),
    "training": ("steps", "jitter", "bucket", "microbatches", "algorithm"),
}
_NUMBERS = ("tokens", "top_k", "experts", "layers", "hosts")
_POINT_TO_POINT = ("bytes", "message", "repeat", "every")


def less(work: Work) -> Iterator[Work]:
    """Each a step smaller; some may be none that can run."""
    kind = work["kind"]
    if kind == "jobs":
        yield from _fewer_jobs(work)
        return
    if "repeat" in work:
        yield _without(work, "repeat", "every")
    if "every" in work:
        yield _without(work, "every")
    if kind != "point-to-point":
        kept = {key: work[key] for key in _POINT_TO_POINT if key in work}
        yield {"kind": "point-to-point", "bytes": "4096B", **kept}
    if plain := [key for key in _PLAIN.get(kind, ()) if key in work]:
        yield _without(work, *plain)
    for key in _NUMBERS if kind in ("moe", "training") else ():
        if isinstance(work.get(key), int) and work[key] > 1:
            yield {**work, key: work[key] // 2}
            yield {**work, key: work[key] - 1}
    if kind == "goal" and "program" in work:
        yield from ({**work, "program": text} for text in _shorter(work["program"]))


def _without(work: Work, *keys: str) -> Work:
    return {key: value for key, value in work.items() if key not in keys}


def _fewer_jobs(work: Work) -> Iterator[Work]:
    jobs = work["jobs"]
    for number, job in enumerate(jobs):
        yield job["workload"]
        if "transport" in job:
            plain = _without(job, "transport")
            yield {**work, "jobs": [*jobs[:number], plain, *jobs[number + 1 :]]}
        for smaller in less(job["workload"]):
            if hosts := job["workload"].get("hosts"):
                smaller.setdefault("hosts", hosts)
            changed = {**job, "workload": smaller}
            yield {**work, "jobs": [*jobs[:number], changed, *jobs[number + 1 :]]}


_OPERATION = re.compile(r"(\w+): (?:(send|recv) (\d+)b (?:to|from) (\d+) tag (\d+)|calc)")


def _shorter(program: str) -> Iterator[str]:
    """Without a dependency, a computation or a message, of a program with a statement a line."""
    lines = program.splitlines()
    rank = -1
    transfers: dict[tuple[int, int, int], list[list[tuple[int, int, str]]]] = {}
    for number, line in enumerate(lines):
        if line.startswith("rank "):
            rank = int(line.split()[1])
        elif "requires" in line:
            yield _joined(lines, {number})
        elif found := _OPERATION.match(line):
            label, word, _, peer, tag = found.groups()
            if word is None:
                yield _joined(lines, _of_label(lines, number, label))
                continue
            ends = (rank, int(peer)) if word == "send" else (int(peer), rank)
            sides = transfers.setdefault((*ends, int(tag)), [[], []])
            sides[word == "recv"].append((number, rank, label))
    for sends, receives in transfers.values():
        for send, receive in zip(sends, receives, strict=False):
            gone = _of_label(lines, send[0], send[2]) | _of_label(lines, receive[0], receive[2])
            yield _joined(lines, gone)


def _of_label(lines: list[str], number: int, label: str) -> set[int]:
    """The line of an operation, and those of what depends on it or the reverse, in its rank."""
    begin = max(n for n in range(number) if lines[n].startswith("rank "))
    end = lines.index("}", number)
    return {number} | {
        n for n in range(begin, end) if "requires" in lines[n] and label in lines[n].split()
    }


def _joined(lines: list[str], gone: set[int]) -> str:
    return "".join(f"{line}\n" for number, line in enumerate(lines) if number not in gone)
