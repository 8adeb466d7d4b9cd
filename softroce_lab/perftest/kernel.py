# SPDX-License-Identifier: GPL-2.0-or-later
"""perftest's tests where an end is a kernel host: there runs the unmodified program.

Both ends meet over TCP in perftest's own words (perftest/oob_perftest.py). What the client
found is what counts: a program's figures are read from its columns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from softroce_lab.errors import RunError
from softroce_lab.experiment.hosts import rnics
from softroce_lab.fabric.lab import Lab
from softroce_lab.kernel_host.guest import Command, Guest
from softroce_lab.perftest.end import Address, PerfEnd
from softroce_lab.perftest.figures import Bandwidth, Latency
from softroce_lab.perftest.lab import DEVICE, check_kernel_gid
from softroce_lab.perftest.oob import OobServer, OobSocket
from softroce_lab.perftest.oob_perftest import BwReport, Conversation, PerftestDest, PerftestPeer
from softroce_lab.perftest.options import PerfTest
from softroce_lab.perftest.tests import Measure, OnAddresses, answers, begins, is_active, prepare
from softroce_lab.plan.plan import Node
from softroce_lab.rnic import GID, Context

_MEET_S = 20.0
_TERMINAL = 24, 200  # a program prints to a terminal immediately, to a pipe at its end
_LAST_S = 0.5
_TRIES = 3
_PROGRAM_S = 120.0  # a run of a program in a guest that is emulated, beside its own duration
_MTUS = (256, 512, 1024, 2048, 4096)  # enum ibv_mtu, from 1 on
_MIB = 1 << 20


@contextlib.contextmanager
def measures(
    lab: Lab,
    client: Node,
    server: Node,
    *,
    port: int,
    gid_index: int,
    event_log: Path | None = None,
) -> Iterator[Measure]:
    """What runs a test between two hosts, at least one of which is a kernel host.

    `event_log` is for the other one.
    """
    with contextlib.ExitStack() as stack:
        if client.kind == "kernel" and server.kind == "kernel":
            yield with_clock_rate(_Programs(lab, client, server, port, gid_index).measure)
            return
        plain, kernel = (server, client) if client.kind == "kernel" else (client, server)
        check_kernel_gid(lab, kernel, gid_index)
        context = stack.enter_context(rnics.opened(lab, plain.name, event_log=event_log))
        mixed = _Mixed(lab, plain, kernel, context, port, gid_index, client=plain is client)
        yield with_clock_rate(mixed.measure)


def with_clock_rate(measure: Measure) -> Measure:
    """Again, where a program did not find out how fast its clock goes.

    It compares the time stamp counter with the clock for 0.2 s when it begins (perftest,
    src/get_clock.c). If they agree too little, and it has -F, all its rates are 0 and all its times
    endless.
    """

    def found(
        test: PerfTest, size: int, on_addresses: OnAddresses | None = None
    ) -> Bandwidth | Latency:
        for _ in range(_TRIES):
            figures = measure(test, size, on_addresses)
            if _rate(figures) > 0:
                return figures
        raise RunError(
            f"{test.name}: the program printed a rate of 0, {_TRIES} times",
            hint="it did not find out how fast its clock goes; try on a machine that does less",
        )

    return found


def _rate(figures: Bandwidth | Latency) -> float:
    if isinstance(figures, Bandwidth):
        return figures.messages_per_second
    return figures.transactions_per_second


def program(test: PerfTest, size: int, port: int, gid_index: int) -> list[str]:
    """The command line of perftest's program."""
    options: dict[str, Any] = {
        "-d": DEVICE, "-x": gid_index, "-p": port, "-m": test.mtu, "-u": test.ack_timeout,
        "-c": test.service,
    }  # fmt: skip
    if test.verb != "atomic":
        options["-s"] = size
    if test.iterations is None:
        options["-D"] = max(round(test.duration_s or 1), 1)
    else:
        options["-n"] = test.iterations
    if not test.latency:
        options |= {"-q": test.qps, "-t": test.tx_depth, "-Q": test.signal_every(size)}
    if test.verb == "send":
        options["-r"] = test.rx_depth
    flags = ["-F", *(["-b"] if test.bidirectional else [])]
    words = [str(word) for option in options.items() for word in option]
    return [f"ib_{test.name}", *words, *flags]


def figures(text: str, test: PerfTest, size: int) -> Bandwidth | Latency:
    """What a program printed. RunError if there is no such line."""
    for line in text.splitlines():
        columns = line.split()
        if columns and columns[0] == str(size) and len(columns) >= 4:
            with contextlib.suppress(ValueError, IndexError):
                return _figures(test, [float(each) for each in columns])
    raise RunError(f"{test.name}: the program printed no result; its output: {text[-400:].strip()}")


def _figures(test: PerfTest, columns: list[float]) -> Bandwidth | Latency:
    size, iterations = int(columns[0]), int(columns[1])
    if not test.latency:
        peak, average, rate = columns[2:5]
        # Two decimals leave nothing of a few bytes now and then, six of the rate do.
        payload = average * _MIB or rate * 1e6 * size
        return Bandwidth(size, iterations, peak * _MIB, payload, rate * 1e6, received=0)
    if test.iterations is None:
        return Latency(size, iterations, None, None, None, columns[2], None, None, None)
    least, most, median, average, deviation, p99, p99_9 = columns[2:9]
    return Latency(size, iterations, least, most, median, average, deviation, p99, p99_9)


def _limit_s(test: PerfTest) -> float:
    return _PROGRAM_S + (test.duration_s or 0)


class _Programs:
    """Programs at both ends."""

    def __init__(self, lab: Lab, client: Node, server: Node, port: int, gid_index: int) -> None:
        self._guests = lab.guest(client.name), lab.guest(server.name)
        self._server = server
        self._options = port, gid_index

    def measure(
        self, test: PerfTest, size: int, on_addresses: OnAddresses | None = None
    ) -> Bandwidth | Latency:
        """One size."""
        argv = program(test, size, *self._options)
        near, far = self._guests
        with near.blamed(), far.blamed(), far.start(argv, tty=_TERMINAL) as server:
            server.expect(b"Waiting for client", _MEET_S)
            done = near.run([*argv, str(self._server.address)], _limit_s(test)).check()
            server.wait(_MEET_S)
        if on_addresses is not None:
            on_addresses([], [])
        return figures(done.text, test, size)


class _Mixed:
    """A soft RNIC at one end, a program at the other."""

    def __init__(
        self,
        lab: Lab,
        plain: Node,
        kernel: Node,
        context: Context,
        port: int,
        gid_index: int,
        *,
        client: bool,
    ) -> None:
        self._lab = lab
        self._plain, self._kernel = plain, kernel
        self._context = context
        self._port, self._gid_index = port, gid_index
        self._client = client

    def measure(
        self, test: PerfTest, size: int, on_addresses: OnAddresses | None = None
    ) -> Bandwidth | Latency:
        """One size."""
        argv = program(test, size, self._port, self._gid_index)
        guest = self._lab.guest(self._kernel.name)
        with guest.blamed():
            return (self._calls if self._client else self._serves)(
                guest, argv, test, size, on_addresses
            )

    def _calls(
        self,
        guest: Guest,
        argv: list[str],
        test: PerfTest,
        size: int,
        on_addresses: OnAddresses | None,
    ) -> Bandwidth | Latency:
        with guest.start(argv) as server:
            with server.blamed(), self._connected(guest, server, test) as socket:
                found = self._run(test, size, socket, on_addresses)
            server.wait(_limit_s(test)).check()
        assert found is not None  # noqa: S101 - a client posts
        return found

    def _serves(
        self,
        guest: Guest,
        argv: list[str],
        test: PerfTest,
        size: int,
        on_addresses: OnAddresses | None,
    ) -> Bandwidth | Latency:
        there = [*argv, str(self._plain.address)]
        with self._listening() as listener, guest.start(there) as client:
            with client.blamed(), self._accepted(listener, guest, client, test) as socket:
                self._run(test, size, socket, on_addresses)
            done = client.wait(_limit_s(test)).check()
        return figures(done.text, test, size)

    def _connected(self, guest: Guest, server: Command, test: PerfTest) -> OobSocket:
        address, limit_s = str(self._kernel.address), _limit_s(test)
        with self._lab.enter(self._plain.name):
            return OobSocket.connect(
                address, self._port, limit_s, guest.check_alive, check_server=server.check_running
            )

    def _accepted(
        self, listener: OobServer, guest: Guest, client: Command, test: PerfTest
    ) -> OobSocket:
        limit_s, check_client = _limit_s(test), client.check_running
        return listener.accept(limit_s, limit_s, guest.check_alive, check_client=check_client)

    def _listening(self) -> OobServer:
        with self._lab.enter(self._plain.name):
            return OobServer(self._port, str(self._plain.address))

    def _run(
        self, test: PerfTest, size: int, socket: OobSocket, on_addresses: OnAddresses | None
    ) -> Bandwidth | Latency | None:
        """Our end; what it found, if it was the one to post."""
        talk = Conversation(
            PerftestPeer(socket, client=self._client), test.name,
            duplex=test.bidirectional, duration=test.iterations is None,
        )  # fmt: skip
        with PerfEnd(self._plain.name, self._context, test, size) as end:
            own = [_dest(each) for each in end.addresses]
            talk.peer.negotiate(1 + _MTUS.index(test.mtu))
            remote = [_address(each) for each in talk.meet(own)]
            end.connect(remote)
            if on_addresses is not None:
                on_addresses(
                    *((end.addresses, remote) if self._client else (remote, end.addresses))
                )
            prepare(end, test, client=self._client)
            talk.connected(own)
            talk.before_run(own[0])
            end.begin()
            # A passive end is done when its peer, who sends first, sends again.
            found = self._active(end, test, size)
            report = _report(found, size)
            talk.after_run(own[0], report)
            talk.part(own[0], report)
            end.stop()
            return found

    def _active(self, end: PerfEnd, test: PerfTest, size: int) -> Bandwidth | Latency | None:
        if not is_active(test, client=self._client):
            return None
        if test.iterations is None and answers(test) and not begins(test, client=self._client):
            end.wait((test.duration_s or 0) + _LAST_S)  # it does not know the end
        else:
            end.wait_posts(_limit_s(test))
        if not end.wait(_LAST_S):
            end.stop()
            end.wait(_LAST_S)
        result = end.result()
        if test.latency:
            return Latency.of(result, test, size) if self._client else None
        return Bandwidth.of([result], test, size, int(result.received))


def _report(found: Bandwidth | Latency | None, size: int) -> BwReport:
    if not isinstance(found, Bandwidth):
        return BwReport(size)
    rate = found.messages_per_second / 1e6
    return BwReport(size, found.iterations, found.peak / _MIB, found.average / _MIB, rate)


def _dest(own: Address) -> PerftestDest:
    return PerftestDest(own.qpn, own.psn, GID.of_address(own.ip), own.rkey, own.vaddr, own.reads)


def _address(peer: PerftestDest) -> Address:
    return Address(
        peer.gid.address, peer.qpn, peer.psn, peer.rkey, peer.vaddr, max(peer.out_reads, 1)
    )
