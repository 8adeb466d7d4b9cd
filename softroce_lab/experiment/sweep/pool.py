# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs of a sweep, and who carries them out: this process, others of this machine, a cluster.

A run is a task in and a row out, whatever happens. Who carries runs out is a
`concurrent.futures.Executor`, with what that interface has no word for beside it.
"""

from __future__ import annotations

import abc
import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import multiprocessing
import os
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

from softroce_lab.errors import LabError
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import virtual
from softroce_lab.experiment.forecast import memory
from softroce_lab.experiment.reporter import Silent
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.sweep.rows import ERROR
from softroce_lab.experiment.sweep.spec import Recipe, Task, alone

T = TypeVar("T")
R = TypeVar("R")

DEATH = "its process died: killed, or out of memory"
_CHECKED_EVERY_S = 1.0
_AHEAD = 2  # tasks submitted for every one that is carried out

# --- One run ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """What is done with a task."""

    keep: str | None = None  # the folder that run directories are kept in

    def __call__(self, task: Task) -> dict[str, Any]:
        """Run it. A mistake, of the user's or of ours, is a row that shows it."""
        began_s, cpu_s = time.perf_counter(), _cpu_s()
        try:
            row = self._run(task)
        except LabError as error:
            row = unfinished(task, str(error))
        except Exception as error:  # a bug of ours: the other runs go on
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            row = unfinished(task, f"crashes: {type(error).__name__}: {error} ({where})")
        spent_s = row.pop("cpu_s", None) or _cpu_s() - cpu_s
        wall_s = time.perf_counter() - began_s
        return row | {"wall_s": round(wall_s, 6), "cpu_s": round(spent_s, 6)}

    def _run(self, task: Task) -> dict[str, Any]:
        experiment = _experiment(task.recipe)
        single = dataclasses.replace(experiment, transports=(task.transport,), seeds=(task.seed,))
        if experiment.clock == "virtual" and self.keep is None:
            found = virtual.run(experiment, task.transport, task.seed, lambda _: None)
            cost = {"cpu_s": found.cost.get("cpu_s")}  # of a process of its own
            return {**found.summary(), "notes": experiment_run.notes(single), **cost}
        with tempfile.TemporaryDirectory(prefix="softroce-lab-sweep-") as unwanted:
            under = Path(self.keep or unwanted)
            outcome = experiment_run.run(single, Silent(), under=under)
        kept = {"run_dir": str(outcome.directory)} if self.keep else {}
        more = {"notes": outcome.notes, "cpu_s": outcome.runs[0].cost.get("cpu_s"), **kept}
        return {**outcome.runs[0].summary(), **more}


def unfinished(task: Task, reason: str) -> dict[str, Any]:
    """The row of a run that there is no result of."""
    return {
        "transport": task.transport.label,
        "seed": task.seed,
        "verdict": ERROR,
        "reasons": [reason],
    }


@functools.lru_cache(maxsize=2)
def _experiment(recipe: Recipe) -> Experiment:
    """Of one combination come all transports and seeds, one after the other.

    UserError if there is no memory for one of its runs.
    """
    experiment = recipe.experiment()
    memory.check_fits(alone(experiment))
    return experiment


def _cpu_s() -> float:
    """Of this thread: a cluster may run several tasks in the threads of one process."""
    return time.thread_time()


# --- Who carries runs out --------------------------------------------------------------------


_MANAGER_ENDS_S = 10  # the thread of an executor whose processes are gone


class Pool(abc.ABC):
    """An executor that can be restarted."""

    executor: Executor
    slots: int  # how many runs it carries out at a time

    def check(self) -> None:  # noqa: B027 - most cannot lose their workers unnoticed
        """RunError if no worker is left to finish what was submitted."""

    @abc.abstractmethod
    def reopen(self) -> None:
        """Its executor broke: another one."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End at once; what is being carried out is given up."""


# --- In this process -------------------------------------------------------------------------


class InPlace(Executor):
    """Carries out what is submitted before `submit` returns."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call it."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # the future passes it to its owner
            future.set_exception(error)
        return future


class OneByOne(Pool):
    """For runs that would be in each other's way, such as labs."""

    slots = 1

    def __init__(self) -> None:
        self.executor = InPlace()

    def reopen(self) -> None:
        """It does not break."""

    def stop(self) -> None:
        """Nothing is left running."""


# --- Processes of this machine -----------------------------------------------------------------


class _Workers(ProcessPoolExecutor):
    """Processes that never get Ctrl-C: what to do about it is the business of this one."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """As its base has it; a process that this starts inherits what is blocked now."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Processes(Pool):
    """So many processes, which end with this one, however it ends."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._others = set(multiprocessing.active_children())
        self.reopen()

    def reopen(self) -> None:
        """Start them."""
        context = multiprocessing.get_context("spawn")
        self.executor = _Workers(self.slots, context, _end_with_parent)

    def stop(self) -> None:
        """Kill them: a run keeps nothing that would need to be cleaned up."""
        manager = getattr(self.executor, "_executor_manager_thread", None)  # until `shutdown`
        self.executor.shutdown(wait=False, cancel_futures=True)
        workers = set(multiprocessing.active_children()) - self._others
        for process in workers:
            process.kill()
        for process in workers:
            process.join()
        if manager is not None:  # else Python warns of its semaphores at the end of the command
            manager.join(_MANAGER_ENDS_S)


def _end_with_parent() -> None:
    """In a worker: it would wait for work forever if the one who gives it out were killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


@contextlib.contextmanager
def processes(slots: int) -> Iterator[Pool]:
    """So many, until the end."""
    pool = Processes(slots)
    try:
        yield pool
    finally:
        pool.stop()


# --- Tasks to results -------------------------------------------------------------------------


def carry_out(
    tasks: Sequence[T], work: Callable[[T], R], pool: Pool, lost: Callable[[T, str], R]
) -> Iterator[tuple[T, R]]:
    """Every task with its result, in the order in which they end.

    A task whose process dies has the result that `lost` makes of it and of the reason; those that
    were carried out beside it are done again, one at a time, to see which of them it was. RunError
    if nobody is left who could go on.
    """
    waiting, suspects = collections.deque(tasks), collections.deque[T]()
    flying: dict[Future[R], T] = {}
    single = False  # whether what is carried out is a suspect, by itself
    while waiting or suspects or flying:
        if not flying:
            single = bool(suspects)
        queue, room = (suspects, 1) if single else (waiting, _AHEAD * pool.slots)
        broken = not _submitted(queue, room, work, pool, flying)
        done, _ = concurrent.futures.wait(
            flying, _CHECKED_EVERY_S, concurrent.futures.FIRST_COMPLETED
        )
        for future in done:
            task = flying.pop(future)
            error = future.exception()
            if error is None:
                yield task, future.result()
            elif not isinstance(error, BrokenExecutor):  # it could not be sent, or brought back
                yield task, lost(task, f"{type(error).__name__}: {error}")
            elif single:
                yield task, lost(task, DEATH)
            else:
                suspects.append(task)
            broken |= isinstance(error, BrokenExecutor)
        if broken:
            suspects.extend(flying.values())
            flying.clear()
            pool.reopen()
        elif not done:
            pool.check()


def _submitted(
    queue: collections.deque[T],
    room: int,
    work: Callable[[T], R],
    pool: Pool,
    flying: dict[Future[R], T],
) -> bool:
    """Whether as many as there is room for could be given to the pool."""
    while queue and len(flying) < room:
        try:
            future = pool.executor.submit(work, queue[0])
        except BrokenExecutor:
            return False
        flying[future] = queue.popleft()
    return True
