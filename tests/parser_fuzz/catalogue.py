# SPDX-License-Identifier: GPL-2.0-or-later
"""What is fuzzed: every parser of something that somebody else wrote, and its corpus.

A corpus is what `seed_corpus` makes from the checkout, and what fuzzing found to be worth keeping:
files whose names are hashes, in CORPUS.
"""

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

    def inputs(self) -> dict[str, bytes]:
        """The inputs that every run begins with, by name, always in one order."""
        from tests.parser_fuzz import seed_corpus  # late: the program that replays does without

        name = self.like or self.name
        kept = {path.name: path.read_bytes() for path in (CORPUS / name).glob("*")}
        return dict(sorted((kept | seed_corpus.MAKERS[name]()).items()))

    def seeds(self) -> list[bytes]:
        """The same without names."""
        return list(self.inputs().values())

    def write_corpus(self, folder: Path) -> Path:
        """The same as files, for programs that want a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.inputs().items():
            (folder / name).write_bytes(data)
        return folder

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
        Target("control", False, (_LAB + "transports",)),
        Target("cm", False, (_LAB + "programs.rdmacm",)),
        Target("captures", False, (_LAB + "telemetry", _LAB + "check", _LAB + "dissect")),
        Target(
            "results",
            False,
            (
                _LAB + "telemetry",
                _LAB + "experiment.perftest.printed",
                _LAB + "fabric.ledger",
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
