# SPDX-License-Identifier: GPL-2.0-or-later
"""How long labs take to come up and to go down, as their user waits for it.

Real commands, each a process of its own, by the clock on the wall, less what `lab --version` takes
in the same round: what starting Python and reading the command line costs is no lab's. A lab is
down when its command has ended and the kernel has nothing of it left: no name, no program, no map,
and so no interface. Beside it the same nodes and links in Mininet, where that is installed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from softroce_lab import topology
from softroce_lab.bench import mininet_script
from softroce_lab.errors import RunError
from softroce_lab.fabric import runtime
from softroce_lab.fabric.bpf import objects as bpf_objects
from softroce_lab.fabric.net import netns
from softroce_lab.statistics import Interval, median_interval
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment
from softroce_lab.telemetry.stolen import StolenTime

SHAPES = {"fat_tree_k4": "fat-tree-k4", "star_100": "star-100"}  # by the document's key

_COMMAND_S = 60.0  # longer than any of the commands may take
_GONE_S = 10.0
_POLL_S = 0.001
_MININET_S = 120.0
_SYSTEM_PYTHON = "/usr/bin/python3"  # which Debian's Mininet is for


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    rounds: int = 11
    shapes: Sequence[str] = tuple(SHAPES)


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """One lab, up and down, in seconds."""

    up_s: float
    down_s: float


@dataclasses.dataclass(slots=True)
class Shape:
    """All turns of one shape."""

    first_up_s: float  # when the XDP programs had yet to be compiled
    turns: list[Turn] = dataclasses.field(default_factory=list)
    mininet: list[Turn] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured."""

    shapes: Mapping[str, Shape]
    version_s: Interval
    mininet: str  # which switches Mininet used, or why it was not measured
    stolen: float  # share of the CPUs' time that the hypervisor gave to others

    def document(self) -> dict[str, Any]:
        """All of it, as `--json` prints it."""
        ours = {name: intervals(shape.turns) for name, shape in self.shapes.items()}
        theirs = {name: intervals(each.mininet) for name, each in self.shapes.items()}
        return {
            "schema_version": SCHEMA_VERSION,
            "shapes": _medians(ours),
            "shapes_interval_95": _bounds(ours),
            "first_up_s": {name: round(each.first_up_s, 4) for name, each in self.shapes.items()},
            "version_s": round(self.version_s.median, 4),
            "rounds": len(next(iter(self.shapes.values())).turns),
            "mininet": {
                "used": self.mininet,
                "shapes": _medians(theirs),
                "shapes_interval_95": _bounds(theirs),
            },
            "stolen": round(self.stolen, 4),
            "environment": environment(),
        }


Intervals = dict[str, Interval]


def intervals(turns: Sequence[Turn]) -> Intervals:
    """Medians of both directions; nothing without turns."""
    if not turns:
        return {}
    names = [field.name for field in dataclasses.fields(Turn)]
    return {name: median_interval([getattr(turn, name) for turn in turns]) for name in names}


def _medians(shapes: Mapping[str, Intervals]) -> dict[str, dict[str, float]]:
    return {
        shape: {name: round(value.median, 4) for name, value in values.items()}
        for shape, values in shapes.items()
        if values
    }


def _bounds(shapes: Mapping[str, Intervals]) -> dict[str, dict[str, list[float]]]:
    return {
        shape: {name: [round(value.low, 4), round(value.high, 4)] for name, value in values.items()}
        for shape, values in shapes.items()
        if values
    }


def run(options: Options, say: Callable[[str], None]) -> Outcome:
    """Measure. RunError if a command fails or a lab stays."""
    stolen, versions, mininet = StolenTime(), [_version()], _Mininet()
    shapes: dict[str, Shape] = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in options.shapes:
            # Its own folder of compiled programs, so that the first one is compiled.
            lab = _Lab(name, Path(cache, name))
            shapes[name] = Shape(lab.turn(versions[-1]).up_s)
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            versions.append(_version())
            for name, shape in shapes.items():
                shape.turns.append(_Lab(name, Path(cache, name)).turn(versions[-1]))
                shape.mininet.extend(mininet.turn(name))
    return Outcome(shapes, median_interval(versions), mininet.used, stolen.share())


def _command(*arguments: str, **environment: str) -> float:
    """The seconds that a `lab` command takes. RunError if it fails or does not end."""
    script = Path(sys.executable).with_name("lab")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "softroce_lab.cli"]
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            [*command, *arguments],
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(f"`lab {' '.join(arguments)}` takes over {_COMMAND_S:g} s") from error
    if done.returncode != 0:
        raise RunError(f"`lab {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return time.perf_counter() - begun


def _version() -> float:
    return _command("--version")


class _Lab:
    """A lab of one shape that comes up and goes down again."""

    def __init__(self, shape: str, cache: Path) -> None:
        self._file = SHAPES[shape]
        self._name = f"bench-up-{os.getpid()}"
        self._environment = {"LAB_CACHE": str(cache)}

    def turn(self, version_s: float) -> Turn:
        try:
            up_s = _command("up", self._file, "--name", self._name, **self._environment)
            objects = bpf_objects.pinned(runtime.DIRECTORY / self._name / runtime.BPFFS)
            begun = time.perf_counter()
            _command("down", self._name)
            self._await_gone(objects)
            down_s = time.perf_counter() - begun
        finally:
            if runtime.examine(self._name) is not None:
                runtime.down(self._name, lambda _: None)
        return Turn(up_s - version_s, down_s - version_s)

    def _await_gone(self, objects: bpf_objects.BpfObjects) -> None:
        deadline = time.monotonic() + _GONE_S
        while left := self._left(objects):
            if time.monotonic() > deadline:
                raise RunError(f"after `lab down` there is still: {left}")
            time.sleep(_POLL_S)

    def _left(self, objects: bpf_objects.BpfObjects) -> str:
        names = sorted(path.name for path in netns.DIRECTORY.glob(f"{self._name}-*"))
        directory = runtime.DIRECTORY / self._name
        return ", ".join(
            [*names, *([str(directory)] if directory.exists() else []), str(objects.living())]
        ).removesuffix(", ")


class _Mininet:
    """The same nodes and links there, until it turns out that it does not work here."""

    def __init__(self) -> None:
        self.used = ""
        self._works = True

    def turn(self, shape: str) -> list[Turn]:
        """Up and down once, or nothing."""
        if not self._works:
            return []
        answer = _ask_mininet(_graph(SHAPES[shape]))
        self._works = "missing" not in answer
        if not self._works:
            self.used = f"not measured: {answer['missing']}"
            return []
        self.used = answer["switches"]
        return [Turn(answer["up_s"], answer["down_s"])]


def _graph(file: str) -> str:
    """What the script reads."""
    plan = topology.load(file)
    nodes = {
        kind: [node.name for node in plan.nodes if node.kind == kind] for kind in ("host", "switch")
    }
    return json.dumps({**nodes, "links": [[link.a.node, link.b.node] for link in plan.links]})


def _ask_mininet(graph: str) -> dict[str, Any]:
    """What the script prints, run by the Python that Mininet is installed for."""
    command = [_SYSTEM_PYTHON, str(Path(mininet_script.__file__).resolve())]
    pipe = subprocess.PIPE
    try:
        # In a session of its own: Ctrl-C reaches us alone, and the script gets time to clean up.
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        ) as script:
            try:
                output, words = script.communicate(graph, timeout=_MININET_S)
            except BaseException:
                script.terminate()
                script.wait(_MININET_S)
                raise
        answer: dict[str, Any] = json.loads(output)
    except subprocess.TimeoutExpired:
        return {"missing": f"it takes over {_MININET_S:g} s"}
    except FileNotFoundError:
        return {"missing": f"there is no {_SYSTEM_PYTHON}"}
    except ValueError:
        return {"missing": f"it failed: {words.strip().rpartition(chr(10))[2]}"}
    return answer
