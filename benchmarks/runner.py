# SPDX-License-Identifier: GPL-2.0-or-later
"""Rounds of a benchmark, each in a process of its own, and what follows from them.

With two checkouts, each round measures both, one right after the other, in either order by turns:
a machine that is slow for a while is slow for both. A ratio is taken within a round. The code that
measures is this checkout's for both.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softroce_lab.errors import RunError, UserError
from softroce_lab.statistics import Interval, median_interval
from softroce_lab.telemetry.rundir import environment
from softroce_lab.telemetry.stolen import StolenTime

MEASURE_S = 1800.0
"""A round that takes longer is given up."""
_END_S = 60.0
# `benchmarks` of this checkout, `softroce_lab` of the one whose Python this is.
_MEASURE = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
import benchmarks
del sys.path[0]
found = importlib.import_module(f"benchmarks.{sys.argv[2]}").measure(sys.argv[3] == "short")
print(json.dumps(found))
"""

Figures = dict[str, float]


@dataclasses.dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout, and the Python that has its packages."""

    folder: Path
    python: Path

    @classmethod
    def at(cls, folder: Path) -> Checkout:
        """UserError if nothing is built there."""
        python = folder.resolve() / ".venv" / "bin" / "python"
        if not python.exists():
            raise UserError(f"{folder} has no .venv", hint="run ./lab doctor there")
        return cls(folder.resolve(), python)

    def measure(self, name: str, *, short: bool) -> Figures:
        """One round. RunError if the benchmark fails."""
        ours = str(Path(__file__).resolve().parents[1])
        command = [str(self.python), "-c", _MEASURE, ours, name, "short" if short else "long"]
        # A session of its own: Ctrl-C reaches us alone, and the benchmark can remove its lab.
        with subprocess.Popen(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, words = process.communicate(timeout=MEASURE_S)
            except BaseException:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=_END_S)
                raise
        if process.returncode:
            raise RunError(f"{self.folder}: {_error(words) or f'exit code {process.returncode}'}")
        figures: Figures = json.loads(output.splitlines()[-1])
        return figures


@dataclasses.dataclass(slots=True)
class Results:
    """All rounds of a benchmark: this checkout's, and the other's if there is one."""

    rounds: list[list[Figures]]  # by round, then by checkout
    stolen: float = 0.0  # share of the CPUs' time that the hypervisor gave to others
    failure: str | None = None

    def figures(self) -> dict[str, Interval]:
        """Of this checkout."""
        first = self.rounds[0][0] if self.rounds else {}
        return {name: median_interval([each[0][name] for each in self.rounds]) for name in first}

    def ratio(self, name: str) -> Interval | None:
        """How much faster this checkout is; None without another one, or where a value is 0."""
        pairs = [[each[name] for each in both if name in each] for both in self.rounds]
        if not all(len(pair) == 2 and all(pair) for pair in pairs):
            return None
        better = is_better_if_larger(name)
        return median_interval([a / b if better else b / a for a, b in pairs])

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        found: dict[str, Any] = {}
        for name, value in self.figures().items():
            ratio = self.ratio(name)
            found[name] = dataclasses.asdict(value) | {
                "values": [[each.get(name) for each in both] for both in self.rounds],
                "ratio": None if ratio is None else dataclasses.asdict(ratio),
            }
        return {
            "figures": found,
            "stolen": round(self.stolen, 4),
            "failure": self.failure,
            "environment": environment(),
        }


def is_better_if_larger(name: str) -> bool:
    """Rates and ratios are; times, memory and counts are not."""
    return name.endswith(("_per_s", "_per_cpu_s")) or "_over_" in name


def run_rounds(name: str, checkouts: Sequence[Checkout], rounds: int, *, short: bool) -> Results:
    """All rounds, until one fails."""
    results, stolen = Results([]), StolenTime()
    for number in range(rounds):
        _say(f"{name}: round {number + 1} of {rounds}")
        taken: dict[int, Figures] = {}
        for at in range(len(checkouts)) if number % 2 else reversed(range(len(checkouts))):
            try:
                taken[at] = checkouts[at].measure(name, short=short)
            except (RunError, subprocess.TimeoutExpired) as error:
                results.failure = str(error)
                return results
        results.rounds.append([taken[at] for at in range(len(checkouts))])
    results.stolen = stolen.share()
    return results


def _error(words: str) -> str:
    """The error below a traceback: the last line that is not indented, and those below it."""
    lines = words.strip().splitlines()
    begin = max((at for at, line in enumerate(lines) if not line.startswith(" ")), default=0)
    return "\n".join(lines[begin:])


def _say(text: str) -> None:
    print(f"benchmarks: {text}", file=sys.stderr)
