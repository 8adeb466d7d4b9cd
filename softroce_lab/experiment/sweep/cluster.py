# SPDX-License-Identifier: GPL-2.0-or-later
"""A Dask cluster as the one who carries out the runs of a sweep: optional extra `cluster`.

Workers need this softroce_lab, its native module included, and the files that an experiment names
at the same paths.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from softroce_lab.errors import EnvironmentLackError, RunError, UserError
from softroce_lab.experiment import code_version
from softroce_lab.experiment.sweep.pool import Pool

CONNECT_S = 5.0


class Cluster(Pool):
    """What a scheduler's workers do."""

    def __init__(self, client: Any, slots: int) -> None:
        self._client = client
        self.slots = slots or max(1, sum(client.nthreads().values()))
        self.reopen()

    def reopen(self) -> None:
        """Runs are never taken for equal ones of another client, nor done again after an end."""
        self.executor = self._client.get_executor(pure=False)

    def check(self) -> None:
        """RunError when no worker is left."""
        if self._client.status != "running" or not self._client.scheduler_info().get("workers"):
            hint = "the same command goes on where this one ended"
            raise RunError("the cluster has no workers any more", hint=hint)

    def stop(self) -> None:
        """Take back what was submitted."""
        self.executor.shutdown(wait=False)


@contextlib.contextmanager
def cluster(address: str, slots: int = 0) -> Iterator[Pool]:
    """The workers of the scheduler at `address`; as many runs at a time as they have threads.

    UserError for what is no address, EnvironmentLackError if nobody answers there in time, or
    answers with other code.
    """
    try:
        import distributed
    except ImportError:
        hint = "start it with ./lab, or pip install 'softroce-lab[cluster]'"
        raise EnvironmentLackError("distributed, which --scheduler needs", hint=hint) from None
    _probe(distributed, address)
    client: Any = distributed.Client(  # type: ignore[no-untyped-call]
        address, timeout=CONNECT_S, set_as_default=False
    )
    try:
        pool = Cluster(client, slots)
        _compare(client, address)
        try:
            yield pool
        finally:
            pool.stop()
    finally:
        client.close(timeout=CONNECT_S)


def _probe(distributed: Any, address: str) -> None:
    """Whether a scheduler answers; a client that cannot connect does not end cleanly."""

    async def ask() -> Any:
        async with distributed.rpc(address, timeout=CONNECT_S) as scheduler:
            return await scheduler.identity()

    try:
        found = asyncio.run(asyncio.wait_for(ask(), CONNECT_S))
    except ValueError as error:
        hint = "--scheduler tcp://HOST:PORT"
        raise UserError(f"{address!r} is no address of a scheduler: {error}", hint=hint) from None
    except (OSError, TimeoutError) as error:
        what = f"no Dask scheduler answers at {address}: {error or 'it gave no reason'}"
        raise _unreachable(what) from None
    if found.get("type") != "Scheduler":
        raise _unreachable(f"what answers at {address} is no Dask scheduler")
    if not found.get("workers"):
        raise _unreachable(f"the scheduler at {address} has no workers")


def _unreachable(what: str) -> EnvironmentLackError:
    hint = "start them: dask scheduler, and dask worker ADDRESS"
    return EnvironmentLackError("a Dask cluster", what, hint=hint)


def _compare(client: Any, address: str) -> None:
    """Whether every worker has the code that this process has."""
    try:
        found = client.run(code_version.fingerprint, on_error="return")
    except (OSError, FutureTimeoutError) as error:
        raise _unreachable(f"the workers of {address} do not answer: {error}") from None
    ours = code_version.fingerprint()
    for worker, theirs in sorted(found.items()):
        if isinstance(theirs, BaseException):
            what = f"worker {worker} cannot import softroce_lab: {theirs}"
        elif theirs != ours:
            what = f"worker {worker} has another softroce_lab than this machine"
        else:
            continue
        hint = "install one wheel on all: a native module that is built anew differs"
        raise EnvironmentLackError("a Dask cluster with softroce_lab", what, hint=hint)
