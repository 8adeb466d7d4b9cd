# SPDX-License-Identifier: GPL-2.0-or-later
"""perftest's tests between two soft RNICs of a lab; both ends run in engines of this process.

The loops are native (native/endpoint/perf.hpp) and no Python runs while they do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

from softroce_lab import _native
from softroce_lab.experiment.hosts import rnics
from softroce_lab.fabric.lab import Lab
from softroce_lab.perftest.end import Address, PerfEnd
from softroce_lab.perftest.figures import Bandwidth, Latency
from softroce_lab.perftest.options import PerfTest
from softroce_lab.rnic import Context

OnAddresses = Callable[[list[Address], list[Address]], None]


class Measure(Protocol):
    """Runs one size of a test; `on_addresses` gets both sides' queue pairs. RdmaError, RunError."""

    def __call__(
        self, test: PerfTest, size: int, on_addresses: OnAddresses | None = None
    ) -> Bandwidth | Latency:
        """The figures."""


_LOOK_S = 0.5
_LAST_S = 0.2  # for what may still arrive, where nobody knows whether anything will
_UNTIL_STOPPED = int(_native.PerfConfig.UNTIL_STOPPED)


@dataclasses.dataclass(frozen=True, slots=True)
class Ends:
    """The RNICs at two hosts."""

    client: Context
    server: Context
    names: tuple[str, str]

    def measure(
        self, test: PerfTest, size: int, on_addresses: OnAddresses | None = None
    ) -> Bandwidth | Latency:
        """Run one size; `on_addresses` gets both sides' queue pairs. RdmaError, RunError."""
        return measure(self, test, size, on_addresses=on_addresses)


@contextlib.contextmanager
def ends(
    lab: Lab,
    client: str,
    server: str,
    cpus: tuple[int, int] = (-1, -1),
    *,
    ip_version: Literal[4, 6] = 4,
    event_log: Path | None = None,
) -> Iterator[Ends]:
    """Open the RNICs of two hosts; `cpus` are of their engines, -1: any."""
    opened = functools.partial(rnics.opened, lab, ip_version=ip_version, event_log=event_log)
    with (
        opened(client, cpu=cpus[0]) as near,
        opened(server, cpu=cpus[1]) as far,
    ):
        yield Ends(near, far, (client, server))


def measure(
    between: Ends,
    test: PerfTest,
    size: int,
    *,
    slots: int = 1,
    on_addresses: OnAddresses | None = None,
) -> Bandwidth | Latency:
    """Run one size of a test, as `Ends.measure`; `slots` messages have memory of their own."""
    near, far = run(between, test, size, slots=slots, on_addresses=on_addresses)
    if test.latency:
        return Latency.of(near, test, size)
    posted = [near, far] if test.bidirectional else [near]
    return Bandwidth.of(posted, test, size, int(far.received))


def run(
    between: Ends,
    test: PerfTest,
    size: int,
    *,
    slots: int = 1,
    on_addresses: OnAddresses | None = None,
) -> tuple[Any, Any]:
    """As `measure`, for what both ends saw."""
    with (
        PerfEnd(between.names[0], between.client, test, size, slots=slots) as client,
        PerfEnd(between.names[1], between.server, test, size, slots=slots) as server,
    ):
        client.connect(server.addresses)
        server.connect(client.addresses)
        if on_addresses is not None:
            on_addresses(client.addresses, server.addresses)
        prepare(client, test, client=True)
        prepare(server, test, client=False)
        if begins(test, client=True):
            server.begin()
            client.begin()
        else:
            client.begin()
            server.begin()
        return _results(test, client, server)


# ---------------------------------------------------------------- what an end does


def answers(test: PerfTest) -> bool:
    """Whether the server sends each message back."""
    return test.latency and test.verb in ("send", "write")


def is_active(test: PerfTest, *, client: bool) -> bool:
    """Whether this end posts requests."""
    return client or test.bidirectional or answers(test)


def begins(test: PerfTest, *, client: bool) -> bool:
    """Whether this end is the first: of WRITEs that are sent back the server, as in perftest."""
    return client != (test.verb == "write" and test.latency)


def prepare(end: PerfEnd, test: PerfTest, *, client: bool) -> None:
    """Get an end ready for its part."""
    end.prepare(
        posts=is_active(test, client=client),
        begins=begins(test, client=client),
        expected=_expected(test, client=client),
    )


def _expected(test: PerfTest, *, client: bool) -> int:
    """How many messages an end of a stream waits for: all, where none can be lost."""
    if test.latency or (client and not test.bidirectional):
        return 0
    if test.verb != "send":
        return 0 if test.bidirectional else _UNTIL_STOPPED
    if test.iterations is None or test.service != "RC":
        return _UNTIL_STOPPED
    return test.iterations * test.qps


def _results(test: PerfTest, client: PerfEnd, server: PerfEnd) -> tuple[Any, Any]:
    """When both have done what they had to post, they wait a little for what is on its way.

    Each gives up by itself when nothing moves for its patience.
    """
    first, second = (client, server) if begins(test, client=True) else (server, client)
    _await_posts(first, second)
    if test.iterations is None and answers(test):
        second.stop()
    _await_posts(second, first)
    for end in (server, client):
        if not end.wait(_LAST_S):
            end.stop()
            end.wait(test.patience_s + 1)
    return client.result(), server.result()


def _await_posts(end: PerfEnd, other: PerfEnd) -> None:
    """Until `end` has posted all; RdmaError, RunError as soon as either has failed."""
    while not end.wait_posts(_LOOK_S):
        if other.wait(0):
            other.result()
    if end.wait(0):
        end.result()
