# SPDX-License-Identifier: GPL-2.0-or-later
"""A message sent back and forth, as the ibv_*_pingpong programs do it.

Between soft RNICs both ends run in engines of this process; at a kernel host runs the unmodified
program, and both ends meet over TCP in its own words (softroce_lab.perftest.oob).
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal

from softroce_lab.errors import RunError, UserError
from softroce_lab.experiment.hosts.settings import path_mtu_bytes
from softroce_lab.fabric.lab import Lab
from softroce_lab.kernel_host.guest import Command
from softroce_lab.perftest import rnics, tests
from softroce_lab.perftest.end import Address, PerfEnd
from softroce_lab.perftest.lab import check_kernel_gid
from softroce_lab.perftest.oob import (
    OobServer,
    OobSocket,
    PingpongDest,
    pingpong_client,
    pingpong_server_receives,
    pingpong_server_sends,
)
from softroce_lab.perftest.options import Options as TestOptions
from softroce_lab.perftest.options import PerfTest, Service
from softroce_lab.plan.plan import Node
from softroce_lab.rnic import GID

_BYTES, _DATAGRAM_BYTES = 4096, 2048
_MTU = 1024
_MEET_S, _PROGRAM_S = 20.0, 120.0
_TERMINAL = 24, 200  # a program prints to a terminal immediately, to a pipe at its end
_SERVICES: dict[str, Service] = {"rc": "RC", "uc": "UC", "ud": "UD"}


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose; None: the program's default."""

    kind: Literal["rc", "uc", "ud"] = "rc"
    bytes: int | None = None
    mtu: int | None = None
    rx_depth: int = 500
    iterations: int = 1000
    events: bool = False
    port: int = 18515
    gid_index: int = 1

    def check(self) -> None:
        """UserError for what makes no sense, before there is a lab."""
        self.test(4096)

    def test(self, most_mtu: int) -> PerfTest:
        """The same in perftest's words."""
        if self.iterations < 1:
            raise UserError(f"-n {self.iterations} is too few", hint="at least one exchange")
        mtu = self.mtu or (most_mtu if self.kind == "ud" else min(_MTU, most_mtu))
        size = self.bytes if self.bytes is not None else self.default_bytes
        return dataclasses.replace(
            PerfTest.of(
                TestOptions(
                    "send_lat",
                    bytes=size,
                    tx_depth=self.rx_depth,
                    rx_depth=self.rx_depth,
                    service=_SERVICES[self.kind],
                    mtu=mtu,
                    events=self.events,
                ),
                most_mtu,
            ),
            name="pingpong",
            iterations=self.iterations,
        )

    @property
    def default_bytes(self) -> int:
        """Of a message."""
        return _DATAGRAM_BYTES if self.kind == "ud" else _BYTES


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What the client saw."""

    client: list[Address]
    server: list[Address]
    bytes: int  # in both directions
    iterations: int
    seconds: float

    @property
    def mbit_per_second(self) -> float:
        """Of both directions together."""
        return self.bytes * 8 / 1e6 / self.seconds

    @property
    def usec_per_iteration(self) -> float:
        """Back and forth."""
        return self.seconds * 1e6 / self.iterations

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "bytes": self.bytes,
            "iterations": self.iterations,
            "seconds": round(self.seconds, 6),
            "mbit_per_second": round(self.mbit_per_second, 2),
            "usec_per_iteration": round(self.usec_per_iteration, 2),
        }


def run(lab: Lab, client: Node, server: Node, options: Options) -> Outcome:
    """Play. RdmaError, RunError, OobError."""
    test = options.test(path_mtu_bytes(lab.plan.mtu, 4))
    match client.kind, server.kind:
        case "host", "host":
            return _between_soft(lab, client, server, test)
        case "host", "kernel":
            return _Program(lab, client, server, options, test).serves()
        case "kernel", "host":
            return _Program(lab, server, client, options, test).calls()
    return _between_programs(lab, client, server, options, test)


def _outcome(
    test: PerfTest, seconds: float, client: list[Address], server: list[Address]
) -> Outcome:
    iterations = test.iterations or 0
    return Outcome(client, server, 2 * test.sizes[0] * iterations, iterations, max(seconds, 1e-9))


def _seconds(result: Any) -> float:
    return float(result.received_last_ns - result.began_ns) / 1e9


def _between_soft(lab: Lab, client: Node, server: Node, test: PerfTest) -> Outcome:
    shown: list[list[Address]] = []
    with tests.ends(lab, client.name, server.name) as both:
        near, _ = tests.run(
            both, test, test.sizes[0], on_addresses=lambda *sides: shown.extend(sides)
        )
    return _outcome(test, _seconds(near), *shown)


def _command(options: Options, test: PerfTest) -> list[str]:
    path_mtu = [] if options.kind == "ud" else ["-m", str(test.mtu)]
    return [
        f"ibv_{options.kind}_pingpong", "-g", str(options.gid_index), "-p", str(options.port),
        "-s", str(test.sizes[0]), "-n", str(test.iterations), "-r", str(options.rx_depth),
        *path_mtu, *(["-e"] if options.events else []),
    ]  # fmt: skip


def _printed_seconds(text: str, test: PerfTest) -> float:
    """From a program's last line: microseconds an exchange are more exact than its seconds."""
    found = re.search(r"iters in [\d.]+ seconds = ([\d.]+) usec/iter", text)
    if found is None:
        raise RunError(f"the program printed no result; its output: {text[-400:].strip()}")
    return float(found[1]) * (test.iterations or 0) / 1e6


def _between_programs(
    lab: Lab, client: Node, server: Node, options: Options, test: PerfTest
) -> Outcome:
    argv = _command(options, test)
    near, far = lab.guest(client.name), lab.guest(server.name)
    with near.blamed(), far.blamed(), far.start(argv, tty=_TERMINAL) as there:
        there.expect(b"local address", _MEET_S)
        called = [*argv, str(server.address)]
        done = near.run(called, _PROGRAM_S).check()
        there.wait(_PROGRAM_S)
    return _outcome(test, _printed_seconds(done.text, test), [], [])


class _Program:
    """A program in a guest, and us at a soft RNIC."""

    def __init__(
        self, lab: Lab, plain: Node, kernel: Node, options: Options, test: PerfTest
    ) -> None:
        check_kernel_gid(lab, kernel, options.gid_index)
        self._guest = lab.guest(kernel.name)
        self._lab = lab
        self._plain, self._kernel = plain, kernel
        self._options, self._test = options, test

    def serves(self) -> Outcome:
        """The program is the server."""
        with (
            self._guest.blamed(),
            rnics.opened(self._lab, self._plain.name) as context,
            PerfEnd(self._plain.name, context, self._test, self._test.sizes[0]) as end,
            self._guest.start(_command(self._options, self._test)) as there,
        ):
            with there.blamed(), self._connected(there) as socket:
                remote = _address(pingpong_client(socket, _dest(end)))
                self._play(end, remote, client=True)
            there.wait(_PROGRAM_S).check()
            return _outcome(self._test, _seconds(end.result()), end.addresses, [remote])

    def calls(self) -> Outcome:
        """The program is the client."""
        argv = [*_command(self._options, self._test), str(self._plain.address)]
        with (
            self._guest.blamed(),
            rnics.opened(self._lab, self._plain.name) as context,
            PerfEnd(self._plain.name, context, self._test, self._test.sizes[0]) as end,
            self._listening() as listener,
            self._guest.start(argv) as there,
        ):
            with there.blamed(), self._accepted(listener, there) as socket:
                remote = _address(pingpong_server_receives(socket))
                self._ready(end, remote, client=False)
                pingpong_server_sends(socket, _dest(end))
                self._wait(end)
            done = there.wait(_PROGRAM_S).check()
            seconds = _printed_seconds(done.text, self._test)
            return _outcome(self._test, seconds, [remote], end.addresses)

    def _play(self, end: PerfEnd, remote: Address, *, client: bool) -> None:
        self._ready(end, remote, client=client)
        self._wait(end)

    def _ready(self, end: PerfEnd, remote: Address, *, client: bool) -> None:
        end.connect([remote])
        tests.prepare(end, self._test, client=client)
        end.begin()

    def _wait(self, end: PerfEnd) -> None:
        end.wait(_PROGRAM_S)
        end.result()

    def _connected(self, server: Command) -> OobSocket:
        address, check_alive = str(self._kernel.address), self._guest.check_alive
        with self._lab.enter(self._plain.name):
            return OobSocket.connect(
                address,
                self._options.port,
                _PROGRAM_S,
                check_alive,
                check_server=server.check_running,
            )

    def _accepted(self, listener: OobServer, client: Command) -> OobSocket:
        check_alive, check_client = self._guest.check_alive, client.check_running
        return listener.accept(_PROGRAM_S, _PROGRAM_S, check_alive, check_client=check_client)

    def _listening(self) -> OobServer:
        with self._lab.enter(self._plain.name):
            return OobServer(self._options.port, str(self._plain.address))


def _dest(end: PerfEnd) -> PingpongDest:
    own = end.addresses[0]
    return PingpongDest(own.qpn, own.psn, GID.of_address(own.ip))


def _address(peer: PingpongDest) -> Address:
    return Address(peer.gid.address, peer.qpn, peer.psn, 0, 0)
