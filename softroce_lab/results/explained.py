# SPDX-License-Identifier: GPL-2.0-or-later
"""A run with all that is known of each of its messages: what stories are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment.over_oracle import ORACLE
from softroce_lab.results import story
from softroce_lab.results.incidents import Incident, Messages, What, incidents
from softroce_lab.results.recorded import Recorded, Run, name_of
from softroce_lab.results.steps import Steps
from softroce_lab.results.story import Story

_DATA = ("data", "other")
_SUCCESS = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Explained:
    """A run of a directory."""

    name: str
    messages: Messages
    incidents: Sequence[Incident]
    of_message: Mapping[int, Sequence[Incident]]  # by row
    bound: Messages | None  # the same messages under oracle
    has_decisions: bool  # recovery.parquet is there

    @classmethod
    def of(cls, recorded: Recorded, run: Run) -> Explained:
        """UserError if a table is missing."""
        messages = Messages.of(recorded, run)
        found = incidents(recorded, run, messages)
        of_message: dict[int, list[Incident]] = {}
        for each in found:
            if each.message >= 0:
                of_message.setdefault(each.message, []).append(each)
        decisions = recorded.has("recovery")
        bound = _bound(recorded, run)
        return cls(name_of(run), messages, found, of_message, bound, decisions)

    def story(self, row: int) -> Story:
        """Of the message in this row."""
        found = self.of_message.get(row, ())
        return story.story(self.name, self.messages, row, found, counted=not self.has_decisions)

    def bound_ns(self, tale: Story) -> int | None:
        """What this message took under oracle with the same seed; None: that did not run."""
        if self.bound is None or tale.row >= len(self.bound):
            return None
        taken = int(story.completion_ns(self.bound)[tale.row])
        return None if taken == np.iinfo(np.int64).max else taken

    def words(self, tale: Story) -> list[str]:
        """The story in sentences."""
        lines = story.words(tale, self.bound_ns(tale))
        if not self.has_decisions:
            what = "Which packets a decision was about was not recorded"
            lines.append(f"{what}; the virtual clock records it.")
        return lines

    @property
    def losses(self) -> int:
        """Data packets that were lost, retransmissions included.

        Packets of queue pairs are those with data if they are of a message; where packets name
        none (`Messages.names_packets`), ACKs and NAKs are counted, too.
        """
        return len(self._lost)

    @property
    def hit(self) -> int:
        """Messages that lost a packet."""
        return len({each.message for each in self._lost if each.message >= 0})

    @property
    def _lost(self) -> list[Incident]:
        names = self.messages.names_packets
        return [
            each
            for each in self.incidents
            if each.what is What.DROP and each.kind in _DATA and (each.message >= 0 or not names)
        ]

    def loss_words(self) -> str:
        """How many packets the run lost, of how many messages."""
        if self.messages.names_packets:
            lost, hit = map(units.format_count, (self.losses, self.hit), ("data packet", "message"))
            return f"In all of {self.name}: {lost} lost in {hit}."
        lost = units.format_count(self.losses, "packet")
        return f"In all of {self.name}: {lost} lost, ACKs and NAKs among them."


def _bound(recorded: Recorded, run: Run) -> Messages | None:
    if run["transport"] == ORACLE:
        return None
    try:
        return Messages.of(recorded, recorded.run(f"{ORACLE}/{run['seed']}"))
    except UserError:
        return None


def step_words(known: Explained, steps: Steps, step: int) -> str:
    """How long a step took, by its index, and what was lost in it."""
    rows = steps.rows(step).tolist()
    delivered = int((known.messages.columns["status"][rows] == _SUCCESS).sum())
    lost = sum(each.what is What.DROP for row in rows for each in known.of_message.get(row, ()))
    count = units.format_count(len(rows), "message")
    name = f"{known.name}: step {steps.every[step].name}, {count}"
    taken_ns = steps.times_ns(known.messages.columns).get(step)
    packets = units.format_count(lost, "packet")
    if taken_ns is not None:
        took = f"took {units.format_duration(taken_ns)}"
    elif delivered < len(rows):
        took = f"{delivered:,} delivered"
    else:
        took = "behind one that was not delivered"
    return f"{name}, {took}; {packets} lost. Its slowest message:"
