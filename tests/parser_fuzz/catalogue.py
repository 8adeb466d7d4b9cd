# SPDX-License-Identifier: GPL-2.0-or-later
"""What is fuzzed: every parser of something that somebody else wrote, and its corpus."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
_MOST_WORDS = 400


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A parser; those in Python are modules of tests/parser_fuzz/targets with a function `one`."""

    name: str
    text: bool = False
    covered: tuple[str, ...] = ()
    """Python packages whose branches guide the fuzzer."""
    like: str | None = None
    """The target whose corpus it shares."""

    @property
    def module(self) -> str:
        """Of a Python target."""
        return "tests.parser_fuzz.targets." + self.name.replace("-", "_")

    @property
    def corpus(self) -> Path:
        """The inputs that every run begins with."""
        return CORPUS / (self.like or self.name)

    def seeds(self) -> list[bytes]:
        """They, always in one order."""
        return [path.read_bytes() for path in sorted(self.corpus.iterdir())]

    def words(self) -> list[bytes]:
        """The words of a language, as its corpus uses them."""
        if not self.text:
            return []
        found = {word for seed in self.seeds() for word in re.findall(rb"[\w%.*<>-]+|\W", seed)}
        return sorted(word for word in found if len(word) <= 24)[:_MOST_WORDS]


_LAB = "softroce_lab."
PYTHON = {
    target.name: target
    for target in (
        Target("topology", True, (_LAB + "topology", _LAB + "faults", _LAB + "units", "ruamel")),
        Target("faults", True, (_LAB + "topology", _LAB + "faults", _LAB + "units")),
        Target("live", True, (_LAB + "topology", _LAB + "faults", _LAB + "units")),
        Target("goal", True, (_LAB + "workloads.goal", _LAB + "workloads.graph")),
        Target("control", False, (_LAB + "recovery",)),
        Target("cm", False, (_LAB + "rnic.cm",)),
        Target("captures", False, (_LAB + "telemetry", _LAB + "check", _LAB + "dissect")),
        Target(
            "results",
            False,
            (
                _LAB + "telemetry",
                _LAB + "experiment.perftest.printed",
                _LAB + "fabric.planfile",
                _LAB + "check",
            ),
        ),
    )
}
NATIVE = {
    target.name: target
    for target in map(Target, ("codec", "datagrams", "packet-transports", "capture-reader"))
}
PLANTED = Target("planted", covered=("tests.parser_fuzz.targets",), like="live")
"""Not a parser of the lab's: what shows that a fuzzer finds something."""
