# SPDX-License-Identifier: GPL-2.0-or-later
"""Who carries out the runs of a sweep: this process, processes of this machine, a Dask cluster.

All of them are a `concurrent.futures.Executor`, with what that interface has no word for beside it.
"""

from __future__ import annotations

import abc
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing.connection import wait
from typing import Any, TypeVar

T = TypeVar("T")

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
