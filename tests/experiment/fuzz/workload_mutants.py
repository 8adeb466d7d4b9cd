# SPDX-License-Identifier: GPL-2.0-or-later
"""Mistakes made on purpose in workloads, to see whether `lab fuzz` notices them."""

import contextlib
import heapq
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from softroce_lab.workloads import composite, moe
from softroce_lab.workloads.goal import workload as goal
from softroce_lab.workloads.open_loop import OpenLoop
from softroce_lab.workloads.progress import DEPTH, HostWork
from softroce_lab.workloads.schedule import Compute, Schedule

MUTANTS = {}  # by name


class Mutant(NamedTuple):
    """A mistake in a method of a class: given the method, it returns another."""

    owner: type | ModuleType
    method: str
    mistake: Callable[[Any], Any]
    transport: str
    seed: int  # the first that notices it


def mutant(owner, method, transport, seed):
    """Register a mistake."""

    def register(mistake):
        MUTANTS[mistake.__name__] = Mutant(owner, method, mistake, transport, seed)
        return mistake

    return register


@contextlib.contextmanager
def forgetting():
    """What was made without the mistake is made anew with it, and the reverse."""
    caches = (moe.tokens_of_hosts, composite._schedule_of)
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()


# --- Progress through the graph --------------------------------------------------------------


@mutant(HostWork, "_waits", "csa_ud", 0)
def a_dependency_ignored(original):
    """A send is posted although what it requires is not complete."""

    def waits(self, index, peer):
        missing, self._missing[index] = self._missing[index], 0
        found = original(self, index, peer)
        self._missing[index] = missing
        return found

    return waits


@mutant(HostWork, "_next_compute", "csa_ud", 27)
def a_computation_over_at_once(original):
    """It is over as soon as it begins."""

    def next_compute(self, processor):
        original(self, processor)
        self._alarms = [
            (self._now_ns if index in self._running else at_ns, index)
            for at_ns, index in self._alarms
        ]
        heapq.heapify(self._alarms)

    return next_compute


@mutant(HostWork, "_end_receive", "csa_ud", 0)
def a_receive_not_followed(original):
    """What requires a receive never starts."""

    def end_receive(self, index):
        self._on_complete.pop(index, None)
        original(self, index)

    return end_receive


@mutant(HostWork, "__init__", "csa_ud", 2)
def a_send_outstanding_too_few(original):
    """One less than may be; the sends come later, and all arrives."""

    def init(self, vertices, depth=DEPTH):
        original(self, vertices, max(1, depth - 1))

    return init


@mutant(HostWork, "_next_compute", "csa_ud", 27)
def a_computation_a_nanosecond_too_long(original):
    """Each takes a nanosecond more than it should."""

    def next_compute(self, processor):
        running = set(self._running)
        original(self, processor)
        begun = self._running - running
        self._alarms = [(at_ns + (index in begun), index) for at_ns, index in self._alarms]
        heapq.heapify(self._alarms)

    return next_compute


# --- Graphs ----------------------------------------------------------------------------------


@mutant(Schedule, "compute", "csa_ud", 42)
def a_computation_of_zero_time(original):
    """Training and experts compute in no time."""

    def compute(self, host, duration_ns, requires=(), **more):
        return original(self, host, 0, requires, **more)

    return compute


@mutant(composite._ScheduleWriter, "_copy", "csa_ud", 42)
def a_part_that_waits_for_none(original):
    """A part of a composite begins with the run."""

    def copy(self, host, vertices, moved, gate):
        return original(self, host, vertices, moved, ())

    return copy


@mutant(OpenLoop, "schedule", "csa_ud", 7)
def flows_all_at_once(original):
    """Flows are posted in the beginning."""

    def schedule(self):
        found = original(self)
        for vertices in found.of.values():
            for each in vertices:
                if hasattr(each, "at_ns"):
                    each.at_ns = 0
        return found

    return schedule


@mutant(moe, "_batch", "csa_ud", 61)
def an_expert_chosen_twice(original):
    """The gate chooses among all experts each time."""

    def batch(drawn, weights):
        ends = weights.cumsum()
        chosen = np.searchsorted(ends, drawn % np.uint64(ends[-1]), side="right")
        return np.bincount(chosen.ravel(), minlength=len(weights))

    return batch


# --- GOAL ------------------------------------------------------------------------------------


@mutant(goal, "_receives", "csa_ud", 163)
def a_receive_of_another_send(original):
    """The last receive of a tag takes the first send, if it has the same size."""

    def receives(program):
        found = {}
        for name, indices in original(program).items():
            queue = list(indices)
            sizes = {program.ranks[name[1]][index].amount for index in queue}
            found[name] = iter(queue[::-1] if len(sizes) == 1 else queue)
        return found

    return receives


@mutant(goal, "_vertex", "csa_ud", 55)
def a_calc_of_zero_time(original):
    """A GOAL program computes in no time."""

    def vertex(operation, message, moved):
        found = original(operation, message, moved)
        return Compute(0, found.requires, found.irequires) if message is None else found

    return vertex


@mutant(goal, "_moved", "csa_ud", 5)
def a_dependency_of_goal_lost(original):
    """The last one that an operation requires."""
    return lambda required, moved: original(required, moved)[:-1]
