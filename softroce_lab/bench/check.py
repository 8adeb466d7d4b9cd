# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench check`: what it takes to read and to check a capture of a million packets.

    read    the native reader alone: file to rows, every ICRC checked and every payload hashed
    check   `lab verify` as a user runs it, a process of its own

A capture of each kind of traffic is written before (`recorded_talk.py`), unless files are named.
Each is measured in a process of its own, whose memory is the most that it ever had at once.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from softroce_lab.bench import recorded_talk
from softroce_lab.errors import ExitCode, RunError, UserError
from softroce_lab.telemetry import memory
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

Say: TypeAlias = Callable[[str], None]

PACKETS = 1_000_000
# A process inherits the peak of its parent's memory (getrusage), but not that of its own (status).
_REPORT = """
import atexit, os, pathlib, sys
report = int(sys.argv.pop(1))
atexit.register(lambda: os.write(report, pathlib.Path("/proc/self/status").read_bytes()))
"""
_READ = """
from softroce_lab.telemetry import capture_file
print(len(capture_file.read(pathlib.Path(sys.argv[1])).packets))
"""
_CHECK = """
from softroce_lab.cli.app import main
main()
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """Of one process, from its start to its end."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int

    def document(self) -> dict[str, Any]:
        """Part of what `--json` prints."""
        return {
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "peak_bytes": self.peak_bytes,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """What one capture took."""

    name: str
    packets: int
    file_bytes: int
    read: Cost
    check: Cost
    failed: bool  # `lab verify` found something

    def document(self) -> dict[str, Any]:
        """Part of what `--json` prints."""
        return {
            "name": self.name,
            "packets": self.packets,
            "file_bytes": self.file_bytes,
            "failed": self.failed,
            "read": self.read.document(),
            "check": self.check.document(),
        }


def document(captures: Sequence[Measured]) -> dict[str, Any]:
    """All of it, as `--json` prints it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "captures": [each.document() for each in captures],
        "environment": environment(),
    }


def run(packets: int, files: Sequence[Path], say: Say) -> Iterator[Measured]:
    """Measure the files, or else a capture of about so many packets of each talk.

    UserError for a file that is no capture; RunError if a measured process failed.
    """
    for path in files:
        yield _measure(str(path), path)
    for talk in () if files else recorded_talk.TALKS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{talk}.pcap"
            say(f"{talk}: two RNICs in memory fill {path}")
            recorded_talk.write(path, packets, talk)
            yield _measure(talk, path)


def _measure(name: str, path: Path) -> Measured:
    check, checker = _cost(_CHECK, "verify", str(path))
    read, reader = _cost(_READ, str(path))
    failed = checker.returncode == ExitCode.FAILED
    return Measured(name, int(reader.stdout), path.stat().st_size, read, check, failed)


def _cost(program: str, *arguments: str) -> tuple[Cost, subprocess.CompletedProcess[str]]:
    """What a Python program takes. UserError for its input; RunError if it failed otherwise."""
    reading, writing = os.pipe()
    with open(reading) as report:  # noqa: PTH123 - a descriptor
        before, began = _cpu_seconds(), time.monotonic()
        try:
            command = [sys.executable, "-c", _REPORT + program, str(writing), *arguments]
            done = subprocess.run(
                command, pass_fds=[writing], capture_output=True, text=True, check=False
            )
        finally:
            os.close(writing)
        seconds = time.monotonic() - began
        if done.returncode == ExitCode.USAGE:
            raise UserError(done.stderr.strip().removeprefix("lab: "))
        if done.returncode not in (ExitCode.DONE, ExitCode.FAILED):
            raise RunError(done.stderr.strip() or f"exit code {done.returncode}")
        return Cost(seconds, _cpu_seconds() - before, memory.peak_bytes(report.read())), done


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
