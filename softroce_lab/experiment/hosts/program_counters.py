# SPDX-License-Identifier: GPL-2.0-or-later
"""Counters of the RNICs that the programs of a run had, by host, process and name.

An RNIC goes with its process. The library writes its last counters, those of queue pairs that were
destroyed among them, to the folder of the variable below. Of a process that was killed there is
what it had published (telemetry/counters_file.py) when somebody looked last.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from softroce_lab.errors import RunError
from softroce_lab.experiment.figure_table import RETRANSMITTED, data_packets, total
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.observe import counters_files
from softroce_lab.fabric.observe.view import View
from softroce_lab.telemetry import counters, counters_file
from softroce_lab.telemetry.counters_file import Published, Snapshot

FOLDER_VARIABLE = "SOFTROCE_COUNTERS"  # native/verbs/settings.cpp
_LOOKS_S = 0.2  # as often as it is worth it: processes publish ten times a second


@dataclasses.dataclass(frozen=True, slots=True)
class OfProcess:
    """The last that is known of an RNIC."""

    program: str  # its process's name
    snapshot: Snapshot

    def document(self) -> dict[str, Any]:
        """For stats.json."""
        return {"pid": self.snapshot.pid, "program": self.program, **self.snapshot.document()}

    def brief(self) -> dict[str, Any]:
        """For the manifest."""
        counts = self.snapshot.counts
        return {
            "pid": self.snapshot.pid,
            "program": self.program,
            "queue_pairs": len(self.snapshot.qps),
            "packets_sent": data_packets(counts) + counts.get("tx_ud", 0),
            "retransmitted": total(counts, RETRANSMITTED),
        }


class ProgramCounters:
    """Of the hosts that take part in a run, while it lasts."""

    def __init__(self, lab: Lab | View, hosts: Sequence[str], folder: Path) -> None:
        """`folder`: empty, for what processes leave; its owner removes it."""
        self._lab = lab
        self._looked_s = 0.0
        self._folders = {host: folder / host for host in hosts}
        self._known: dict[str, dict[int, OfProcess]] = {host: {} for host in hosts}
        for each in self._folders.values():
            each.mkdir()
        # A process that was killed leaves its counters until another opens the port.
        self._before = {each.snapshot.pid for host in hosts if (each := self._published(host))}

    def environment(self, host: str) -> dict[str, str]:
        """For the commands of a host."""
        return {FOLDER_VARIABLE: str(self._folders[host])}

    def look(self, *, now: bool = False) -> None:
        """See what is published, unless that was done a moment ago."""
        if not now and time.monotonic() - self._looked_s < _LOOKS_S:
            return
        self._looked_s = time.monotonic()
        for host, known in self._known.items():
            published = self._published(host)
            if published is not None and (pid := published.snapshot.pid) not in self._before:
                name = known[pid].program if pid in known else _name_of(pid)
                known[pid] = OfProcess(name, published.snapshot)

    def _published(self, host: str) -> Published | None:
        port = self._lab.plan.node(host).ports[0]
        with contextlib.suppress(RunError, OSError):
            published = counters_files.of_port(self._lab.directory, port)
            if published is not None and published.snapshot.pid:
                return published
        return None

    def end(self) -> dict[str, list[OfProcess]]:
        """Of all processes, by host, in the order of their numbers; all have ended."""
        self.look(now=True)
        for host, folder in self._folders.items():
            for path in sorted(folder.iterdir()):
                with contextlib.suppress(OSError, ValueError):
                    snapshot = counters_file.parse(path.read_bytes())
                    name = path.name.partition(".")[2]
                    self._known[host][snapshot.pid] = OfProcess(name, snapshot)
        return {
            host: [known[pid] for pid in sorted(known)]
            for host, known in self._known.items()
            if known
        }


@contextlib.contextmanager
def of_run(lab: Lab | View, hosts: Sequence[str]) -> Iterator[ProgramCounters]:
    """The folder lasts as long as this."""
    with tempfile.TemporaryDirectory(prefix="softroce_lab-counters-") as folder:
        yield ProgramCounters(lab, hosts, Path(folder))


def stats(processes: Sequence[OfProcess]) -> dict[str, Any]:
    """Of a host, for stats.json: sums of all its processes, and each of them."""
    sums: Counter[str] = Counter()
    for each in processes:
        sums.update(each.snapshot.counts)
    counts = dict(sums)
    return {
        "counters": counters.of_process_port(counts),
        "hw_counters": counters.of_port(counts),
        "engine": counts,
        "processes": [each.document() for each in processes],
    }


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8").strip()
    except OSError:
        return ""
