# SPDX-License-Identifier: GPL-2.0-or-later
"""What a demo tells of itself, whichever clock it ran on."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softroce_lab.recovery import registry
from softroce_lab.telemetry.rundir import SCHEMA_VERSION


class DemoOutcome(abc.ABC):
    """What both kinds of outcome have, and say in the same words."""

    __slots__ = ()

    directory: Path  # of the run
    runs: Sequence[Any]  # a transport each; `verified`, and `summary()`
    clock: str  # `real` or `virtual`

    @property
    def telling(self) -> Sequence[Any]:
        """Runs whose packets say which they are, so that what was lost can be compared."""
        return [run for run in self.runs if registry.find(run.transport).shows_messages()]

    @property
    @abc.abstractmethod
    def same_fates(self) -> bool | None:
        """Whether all that tell lost the same packets of those sent first; None: nobody knows."""

    @property
    @abc.abstractmethod
    def lost_any_first(self) -> bool:
        """Whether any packet was lost when it was sent first."""

    @property
    @abc.abstractmethod
    def idle_rules(self) -> list[str]:
        """The rules that did nothing in any of the runs."""

    @property
    @abc.abstractmethod
    def captures(self) -> list[dict[str, Any]]:
        """What was captured: a document for each file, which lies in the run's directory."""

    @property
    def verified(self) -> bool:
        """Whether every transport delivered the file, byte by byte."""
        return all(run.verified for run in self.runs)

    def rows(self) -> list[dict[str, Any]]:
        """The figures of the table, a run each."""
        return [run.summary() for run in self.runs]

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "clock": self.clock,
            "run_dir": str(self.directory),
            "same_first_attempt_drops": self.same_fates,
            "idle_rules": self.idle_rules,
            "captures": self.captures,
            "runs": self.rows(),
        }
