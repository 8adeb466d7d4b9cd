# SPDX-License-Identifier: GPL-2.0-or-later
"""The newest transitions of an RNIC's queue pairs with a backup, for `lab inspect node`.

They lie beside the RNIC's counters (`counters_file.py`), as `<node>:<interface>.shift`: one JSON
document, replaced at each transition. The process removes it when it ends. Programs write the same
(native/verbs/backup_files.cpp).
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

SUFFIX = ".shift"
_MOST = 256  # transitions that are kept


class Publisher:
    """Of one RNIC; `statistics` is the file of its counters."""

    def __init__(self, statistics: str) -> None:
        self._path = Path(statistics + SUFFIX)
        self._rows: collections.deque[str] = collections.deque(maxlen=_MOST)
        self._newest: dict[tuple[int, str], str] = {}  # by queue pair and side

    def add(self, row: Mapping[str, Any]) -> None:
        """A transition that has just happened. It is lost where the lab's directory is gone."""
        line = json.dumps({"monotonic_ns": time.monotonic_ns(), **row})  # once for each row
        self._rows.append(line)
        self._newest[row["qp"], row["side"]] = line
        newest, rows = (", ".join(each) for each in (self._newest.values(), self._rows))
        document = f'{{"pid": {os.getpid()}, "newest": [{newest}], "transitions": [{rows}]}}'
        fresh = self._path.with_name(f".{self._path.name}.tmp")
        with contextlib.suppress(OSError):
            fresh.write_text(document)
            fresh.replace(self._path)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def read(directory: Path, port: str, alive: Collection[int]) -> list[dict[str, Any]]:
    """Transitions that the processes in `alive` have published at a port, the oldest first.

    Of each process the newest transition of each queue pair and side, and the newest of all.
    """
    rows: list[dict[str, Any]] = []
    for path in (*directory.glob(port + SUFFIX), *directory.glob(f"{port}@*{SUFFIX}")):
        with contextlib.suppress(OSError, ValueError):
            document = json.loads(path.read_text())
            if document["pid"] in alive:
                rows += _rows(document)
    return sorted(rows, key=lambda each: int(each["monotonic_ns"]))


def _rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = document["transitions"]
    since_ns = rows[0]["monotonic_ns"] if rows else 0
    return [each for each in document["newest"] if each["monotonic_ns"] < since_ns] + rows


def states(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By queue pair, what state each of its sides is in, since when, and why."""
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        of_qp = found.setdefault(row["qp"], {"sender": "Default", "receiver": "Default"})
        same = ("qp", "peer", "peer_qp", "epoch")
        of_qp |= {name: row[name] for name in same} | {row["side"]: row["after"]}
        if row["before"] != row["after"]:
            of_qp |= {"since_ns": row["monotonic_ns"], "why": row["why"]}
        of_qp["transitions"] = of_qp.get("transitions", 0) + (row["before"] != row["after"])
    return [found[number] for number in sorted(found)]
