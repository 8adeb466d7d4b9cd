# SPDX-License-Identifier: GPL-2.0-or-later
"""A run once more, with losses undone and all other fates as they were.

Fates are frozen by the names of packets (native/sim/fates.hpp): what rules did in the first run
happens again to the packets of those names, and no rule draws for any other packet. Links that are
down and full queues depend on time, not on names: they act as the new run has it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import RunError, UserError, ibv_wc_status
from softroce_lab.experiment import spec
from softroce_lab.experiment.messages import Messages
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.inputs.yaml_source import Origin
from softroce_lab.results import fabric
from softroce_lab.results.recorded import Recorded, Run, name_of, need_messages
from softroce_lab.telemetry.drops import DROP, EFFECT_CUT, EFFECT_DOWN, EFFECT_DROP, Drops

_SUCCESS = int(ibv_wc_status.IBV_WC_SUCCESS)


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A run that can be repeated: of this experiment file, a transport and a seed."""

    file: Path
    transport: str  # its label
    seed: int
    origin: Origin = Origin.RUN

    @classmethod
    def of(cls, recorded: Recorded, run: Run, origin: Origin = Origin.RUN) -> Case:
        """Of a run directory. UserError for the real clock, a failed run, and one of old schema."""
        name = name_of(run)
        need_messages(run)
        if recorded.manifest.get("clock") != "virtual":
            hint = "lab run FILE --clock virtual, then lab results explain --cost"
            raise UserError(f"{name} ran on the real clock, which cannot be repeated", hint=hint)
        if run.get("verdict") != "passed":
            hint = f"lab results explain --run {name} shows the messages that were not delivered"
            raise UserError(f"{name} failed: it has no time that losses could have cost", hint=hint)
        path = fabric.kept(recorded.path, "lab run and lab demo write it since version 0.1")
        return cls(path, str(run["transport"]), int(run["seed"]), origin)


@dataclasses.dataclass(frozen=True, slots=True)
class Fates:
    """What rules did, by the keys of packets."""

    keys: npt.NDArray[np.uint64]
    rules: npt.NDArray[np.uint32]
    effects: npt.NDArray[np.uint32]

    def without(self, rows: Collection[int]) -> Fates:
        """All but these."""
        keep = np.ones(len(self.keys), bool)
        keep[list(rows)] = False
        return Fates(self.keys[keep], self.rules[keep], self.effects[keep])


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    messages: Messages  # in the workload's order
    records: Drops  # all that rules did
    keys: npt.NDArray[np.uint64]  # of those

    def end_ns(self, rows: npt.NDArray[Any] | slice = slice(None)) -> int:
        """From the first post of the run to the last completion of these messages."""
        completed = self.messages["completed_ns"][rows]
        return int(completed.max()) - int(self.messages["posted_ns"].min())

    @property
    def fates(self) -> Fates:
        """Of all that a rule drew for."""
        return Fates(
            self.keys,
            self.records["rule_id"].astype(np.uint32),
            np.where(losses_of_links(self.records), 0, self.records["effect"]).astype(np.uint32),
        )

    def without(self, undone: Collection[int]) -> Fates:
        """The fates with these losses undone, by number from 0."""
        return self.fates.without(losses(self.records)[sorted(undone)].tolist())


def losses_of_links(records: Drops) -> npt.NDArray[np.bool_]:
    """Which packets a link took because it was down."""
    down: npt.NDArray[np.bool_] = (records["effect"] & EFFECT_DOWN) != 0
    return down


def losses(records: Drops) -> npt.NDArray[np.int64]:
    """The rows of the losses that can be undone, in the order of time."""
    dropped = (records["effect"] & (EFFECT_DROP | EFFECT_CUT)) != 0
    return np.flatnonzero(dropped & ~losses_of_links(records))


def carry_out(case: Case, fates: Fates | None = None) -> Outcome:
    """The run, with these fates; None: as rules draw. RunError if it fails."""
    experiment, transport = opened(case)
    run = VirtualRun(experiment, transport, case.seed, lambda _: None)
    native = run.fabric.native
    if fates is None:
        native.keep_fates()
    else:
        native.replay_fates(fates.keys, fates.rules, fates.effects)
    found = run.go()
    if found.reasons:
        raise RunError(f"{found.name} without some of its losses fails: {found.reasons[0]}")
    records = np.frombuffer(native.drops, DROP)
    keys = np.frombuffer(native.fates, np.uint64)
    if any(link["records_lost"] for link in found.links):
        raise RunError(f"{found.name} has more losses than are recorded: fewer, or a shorter run")
    return Outcome(found.messages, records, keys)


@functools.lru_cache(maxsize=2)
def opened(case: Case) -> tuple[Experiment, Transport]:
    """Its experiment, without payload: what bytes a packet carries takes no virtual time.

    UserError, also if the experiment needs trust that the case does not give.
    """
    experiment = spec.load(case.file, origin=case.origin)
    chosen = [each for each in experiment.transports if each.label == case.transport]
    if not chosen:
        raise UserError(f"has no transport {case.transport!r}", file=str(case.file))
    return dataclasses.replace(experiment, payload="none"), chosen[0]


_TIMES = ("posted_ns", "first_sent_ns", "first_received_ns", "received_ns", "completed_ns")


def check_same(recorded: Recorded, run: Run, outcome: Outcome) -> None:
    """RunError if a run did not come out as it was recorded: its code has changed."""
    table = recorded.table("messages", run)
    same = len(table["bytes"]) == len(outcome.messages) and all(
        np.array_equal(table[name], outcome.messages[name]) for name in _TIMES
    )
    if not same:
        what = f"{name_of(run)} did not come out as it was recorded"
        raise RunError(
            what, hint="lab results rerun names the code that made each; lab run it anew"
        )
