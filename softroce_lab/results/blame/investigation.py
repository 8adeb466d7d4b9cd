# SPDX-License-Identifier: GPL-2.0-or-later
"""A run directory's run, repeated, with its critical path: what charges and words are made of."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from softroce_lab.errors import UserError
from softroce_lab.experiment.forecast import memory
from softroce_lab.experiment.sweep import spec as sweep_spec
from softroce_lab.experiment.sweep.pool import InPlace, Processes
from softroce_lab.inputs.yaml_source import Origin
from softroce_lab.results.blame import charges, counterfactual
from softroce_lab.results.blame.charges import Blame, Subject
from softroce_lab.results.blame.counterfactual import Case
from softroce_lab.results.blame.critical_path import (
    NO_MESSAGE,
    Graph,
    Piece,
    critical_path,
    last_of,
)
from softroce_lab.results.recorded import Recorded, Run
from softroce_lab.results.steps import Steps
from softroce_lab.results.story import RESTORED, Explained

WAITING, SENDING, RECOVERING = "waiting", "sending", "recovering"
RESTORING = "restoring from parity"
ACKNOWLEDGING, COMPUTING = "acknowledging", "computing"
SHARES = (SENDING, RECOVERING, RESTORING, WAITING, ACKNOWLEDGING, COMPUTING)
_WORTH_PROCESSES_S = 6.0  # two of them take more than a second to begin
_OF_PART = {
    "waiting for its turn": WAITING,
    "transfer": SENDING,
    "sending until the loss": SENDING,
    "rest of the transfer": SENDING,
    "acknowledgement": ACKNOWLEDGING,
    RESTORED: RESTORING,
}
"""Of the parts of a story; all others begin with a loss."""


@dataclasses.dataclass(frozen=True, slots=True)
class Investigation:
    """One run."""

    subject: Subject
    known: Explained
    step: str | None  # whose end is looked at; None: the end of the run
    path: Sequence[Piece]
    repeated_s: float  # what repeating it took

    @classmethod
    def of(
        cls,
        recorded: Recorded,
        run: Run,
        step: str | None = None,
        origin: Origin = Origin.RUN,
    ) -> Investigation:
        """Repeat the run. UserError, RunError if it did not come out as it was recorded.

        `step`: its name, as `Steps.find` takes it. `origin`: whether the directory is trusted.
        """
        case = Case.of(recorded, run, origin)
        known = Explained.of(recorded, run)
        if not len(known.messages):
            raise UserError(
                f"{known.name} has no message", hint="lab results show tells what it did"
            )
        rows = np.arange(len(known.messages))
        steps = Steps.of(recorded, run, known.messages.columns)
        if step is not None:
            index = steps.find(step)
            step, rows = steps.every[index].name, steps.rows(index)
        began_s = time.perf_counter()
        base = counterfactual.carry_out(case)
        repeated_s = time.perf_counter() - began_s
        counterfactual.check_same(recorded, run, base)
        experiment, _ = counterfactual.opened(case)
        graph = Graph.of_schedule(experiment.workload(case.seed).schedule())
        hosts = experiment.plan(case.seed).plain_hosts
        rails = experiment.rails(case.seed)
        used = [host.ports[rails.get(number, 0)] for number, host in enumerate(hosts)]
        addresses = [int(ipaddress.IPv4Address(str(port.address))) for port in used]
        subject = Subject(case, base, graph, rows, addresses, steps.of_row)
        path = critical_path(graph, base.messages, last_of(base.messages, rows))
        return cls(subject, known, step, path, repeated_s)

    @property
    def losses(self) -> int:
        """That can be undone."""
        return len(counterfactual.losses(self.subject.base.records))

    def shares(self) -> Mapping[str, int]:
        """What the critical path consists of; nanoseconds, all together its length."""
        found = dict.fromkeys(SHARES, 0)
        for piece in self.path:
            if piece.row == NO_MESSAGE:
                found[COMPUTING if piece.kind == "computing" else WAITING] += _length(piece)
                continue
            left_ns = _length(piece)
            for part in self.known.story(piece.row).parts:
                begin_ns = max(part.begin_ns, piece.begin_ns)
                length_ns = max(0, min(part.end_ns, piece.end_ns) - begin_ns)
                found[_OF_PART.get(part.title, RECOVERING)] += length_ns
                left_ns -= length_ns
            found[SENDING] += left_ns
        return found

    def without(self, losses: Collection[int]) -> int:
        """The time with these losses undone, by number from 0: one explicit run. RunError."""
        subject = self.subject
        outcome = counterfactual.carry_out(subject.case, subject.base.without(losses))
        return outcome.end_ns(subject.rows)

    def blame(self, most_runs: int, progress: Callable[[int], None] = lambda _: None) -> Blame:
        """What losses cost it, by `most_runs` runs at most, on processes if it is worth it.

        RunError.
        """
        if self.repeated_s * most_runs < _WORTH_PROCESSES_S:
            return charges.blame(self.subject, InPlace(), most_runs, progress)
        experiment, _ = counterfactual.opened(self.subject.case)
        fitting = max(1, memory.fitting(sweep_spec.alone(experiment)))
        # More than two have nothing to do: a round needs the one before.
        pool = Processes(min(2, os.cpu_count() or 1, fitting))
        try:
            found = charges.blame(self.subject, pool.executor, most_runs, progress)
            pool.executor.shutdown()
            return found
        finally:
            pool.stop()

    def path_document(self) -> dict[str, Any]:
        names = self.known.messages.name
        return {
            "shares_ns": dict(self.shares()),
            "pieces": [
                {
                    "kind": each.kind,
                    "message": None if each.row == NO_MESSAGE else names(each.row),
                    "begin_ns": each.begin_ns,
                    "end_ns": each.end_ns,
                }
                for each in self.path
            ],
        }


def _length(piece: Piece) -> int:
    return piece.end_ns - piece.begin_ns
