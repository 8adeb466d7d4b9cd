# SPDX-License-Identifier: GPL-2.0-or-later
"""Instructions of ShiftQPs beside those of plain queue pairs, whatever else the machine does.

valgrind's callgrind counts them, Python's own included: a busy machine changes nothing, and so a
hundredth is decided in one run. Without valgrind, or on another processor, nothing is counted.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from softroce_lab.bench.failover import counted
from softroce_lab.errors import RunError

_MOST_S = 600
_TRIGGER = re.compile(r"^desc: Trigger: Client Request: (plain|shift) (\w+)$", re.MULTILINE)
_TOTAL = re.compile(r"^totals: (\d+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Count:
    """Of one part: instructions a message, or a queue pair, and the ratio of each round."""

    plain: float
    shift: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median."""
        return statistics.median(self.ratios)

    def document(self) -> dict[str, float]:
        """For `--json`."""
        return {
            "plain": round(self.plain),
            "shift": round(self.shift),
            "ratio": round(self.ratio, 4),
            "least_ratio": round(min(self.ratios), 4),
            "largest_ratio": round(max(self.ratios), 4),
        }


def lack() -> str | None:
    """Why nothing can be counted here; None: it can."""
    if platform.machine() != "x86_64":
        return f"instructions are counted on x86_64 alone, not on {platform.machine()}"
    if shutil.which("valgrind") is None:
        return "instructions are counted by valgrind: apt install valgrind"
    return None


def measure() -> dict[str, Count]:
    """By part: `trip`, `write`, `setup`. {} without valgrind; RunError if it fails."""
    if lack() is not None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        to = f"--callgrind-out-file={folder}/out"
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", to]
        argv = [*valgrind, sys.executable, "-m", counted.__name__]
        environment = os.environ | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=_MOST_S, check=False
        )
        if done.returncode:
            raise RunError(f"valgrind ended with {done.returncode}: {done.stderr[-500:].strip()}")
        return counts(Path(folder))


def counts(folder: Path) -> dict[str, Count]:
    """Of callgrind's files, in the order of their numbers. RunError if parts are missing."""
    found: dict[tuple[str, str], list[int]] = collections.defaultdict(list)
    for path in sorted(folder.glob("out.*"), key=lambda each: int(each.suffix[1:])):
        text = path.read_text(errors="replace")
        trigger, total = _TRIGGER.search(text), _TOTAL.search(text)
        if trigger and total:
            found[trigger[1], trigger[2]].append(int(total[1]))
    parts = {}
    for part, messages in counted.MESSAGES.items():
        plain, shift = found["plain", part], found["shift", part]
        if len(plain) != counted.ROUNDS or len(shift) != counted.ROUNDS:
            have = min(len(plain), len(shift))
            raise RunError(f"valgrind has {have} counts of {part}, not {counted.ROUNDS}")
        ratios = tuple(s / p for s, p in zip(shift, plain, strict=True))
        parts[part] = Count(
            statistics.median(plain) / messages, statistics.median(shift) / messages, ratios
        )
    return parts
