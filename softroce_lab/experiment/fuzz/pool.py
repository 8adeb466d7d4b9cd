# SPDX-License-Identifier: GPL-2.0-or-later
"""Seeds handed to processes, one a core; one that hangs or dies is a finding, and not the end.

A run is bounded on its own clock. This bounds it on the machine's, by processor time, so that a
busy machine is no reason: a loop without end at one virtual moment is reported, and so is a crash.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

SEED_CPU_S = 60
"""Processor time that a seed may take; the most expensive ones take a second or two."""

_AT_ONCE = 8  # seeds that a process has before it
_AHEAD = 1024  # of the oldest that is not done
_LOOK_S = 1.0  # between two checks of processes without output
_TICKS = os.sysconf("SC_CLK_TCK")
_SPAWN = multiprocessing.get_context("spawn")


class Work(Protocol):
    """What processes do with a seed; they get a copy of it."""

    def run(self, seed: int) -> Any:
        """What it came to."""

    def lost(self, seed: int, what: str) -> Any:
        """The same of a seed whose process died or hung, as `what` tells."""


def over(seeds: Iterable[int], work: Work, jobs: int) -> Iterator[Any]:
    """What some work made of each seed, in the order of the seeds."""
    rest = iter(seeds)
    first = list(itertools.islice(rest, jobs))  # no more processes than seeds
    with ExitStack() as stack:
        pool = _Pool(work, len(first))
        stack.callback(pool.close)
        yield from pool.run(enumerate(itertools.chain(first, rest)))


class _Worker:
    """A process, and the seeds that it was given and has not answered."""

    def __init__(self, work: Work) -> None:
        self.end, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_work, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()
        self.given: collections.deque[tuple[int, int]] = collections.deque()  # (place, seed)
        self._answered_at_s = 0.0  # on its processor clock

    def give(self, place: int, seed: int) -> None:
        """One more to do."""
        self.given.append((place, seed))
        with suppress(BrokenPipeError):  # it died; the next read detects it
            self.end.send(seed)

    def take(self) -> Any:
        """The result of its first seed; None: the process died."""
        try:
            seen = self.end.recv()
        except (EOFError, ConnectionResetError):
            return None
        self._answered_at_s = self._cpu_s()
        return seen

    @property
    def hangs(self) -> bool:
        """Whether its first seed takes too long."""
        return bool(self.given) and self._cpu_s() - self._answered_at_s > SEED_CPU_S

    def _cpu_s(self) -> float:
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        except OSError:
            return 0.0
        fields = stat.rpartition(")")[2].split()  # from the third on, proc(5)
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def end_now(self) -> int | None:
        """Kill it; its exit code."""
        self.process.kill()
        self.process.join()
        self.end.close()
        return self.process.exitcode


class _Pool:
    def __init__(self, work: Work, jobs: int) -> None:
        self._work = work
        self._workers = [_Worker(work) for _ in range(jobs)]
        self._done: dict[int, Any] = {}
        self._next = 0

    def run(self, numbered: Iterator[tuple[int, int]]) -> Iterator[Any]:
        """All of (place, seed)."""
        more = True
        while True:
            more = more and self._hand_out(numbered)
            while self._next in self._done:
                yield self._done.pop(self._next)
                self._next += 1
            if not more and not any(worker.given for worker in self._workers):
                return
            self._collect()

    def _hand_out(self, numbered: Iterator[tuple[int, int]]) -> bool:
        """False: there are no more."""
        for most, worker in itertools.product(range(1, _AT_ONCE + 1), self._workers):
            while len(worker.given) < most:
                if worker.given and worker.given[0][0] - self._next > _AHEAD:
                    break
                following = next(numbered, None)
                if following is None:
                    return False
                worker.give(*following)
        return True

    def _collect(self) -> None:
        busy = {worker.end: worker for worker in self._workers if worker.given}
        for ready in connection.wait(list(busy), _LOOK_S):
            worker = busy.pop(ready)  # type: ignore[call-overload]
            seen = worker.take()
            if seen is None:
                self._lost(worker, "dies")
            else:
                self._done[worker.given.popleft()[0]] = seen
        for worker in busy.values():
            if worker.hangs:
                self._lost(worker, "loops")

    def _lost(self, worker: _Worker, how: str) -> None:
        """Its first seed is the cause; a new process has the others."""
        exit_code = worker.end_now()
        what = f"{how}: {_ends(how, exit_code)}"
        place, seed = worker.given.popleft()
        self._done[place] = self._work.lost(seed, what)
        successor = _Worker(self._work)
        for each in worker.given:
            successor.give(*each)
        self._workers[self._workers.index(worker)] = successor

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.end_now()


def _ends(how: str, exit_code: int | None) -> str:
    if how == "loops":
        return f"no end within {SEED_CPU_S} s of processor time"
    return "the process ended with " + (
        f"signal {-exit_code}" if exit_code is not None and exit_code < 0 else f"code {exit_code}"
    )


def _work(end: connection.Connection, work: Work) -> None:
    """Answer seeds until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this one ends it
    with suppress(EOFError, BrokenPipeError):
        while True:
            end.send(work.run(end.recv()))


# --- What they come to ------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class Campaign(abc.ABC):
    """What many seeds came to, added up as they come."""

    seeds: int = 0
    features: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    violations: list[Any] = dataclasses.field(default_factory=list)
    interrupted: bool = False

    @abc.abstractmethod
    def add(self, seen: Any) -> None:
        """One more."""

    def shares(self, names: Iterable[str]) -> dict[str, float]:
        """In what share of the seeds each of these features was met."""
        return {name: self.features[name] / max(1, self.seeds) for name in names}

    def gather(
        self, seen: Iterable[Any], until: Callable[[], bool], progress: Callable[[Self], None]
    ) -> Self:
        """Add all seeds, or as many as there are before `until` is true, or Ctrl-C is pressed.

        `progress` gets the campaign after every seed.
        """
        try:
            for each in seen:
                self.add(each)
                progress(self)
                if until():
                    break
        except KeyboardInterrupt:
            self.interrupted = True
        return self


_T = TypeVar("_T")


def smallest(broken: _T, smaller: Callable[[_T], Iterator[_T | None]], tries: int) -> _T:
    """What is left when nothing smaller breaks alike, or after so many tries.

    `smaller` tries steps of what it is given, and yields of each what broke, or None.
    """
    while True:
        for found in smaller(broken):
            tries -= 1
            if found is not None:
                broken = found
                break
            if tries <= 0:
                return broken
        else:
            return broken
        if tries <= 0:
            return broken
