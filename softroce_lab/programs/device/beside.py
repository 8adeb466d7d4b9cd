# SPDX-License-Identifier: GPL-2.0-or-later
"""A process beside the unmodified programs of a host: it has their connection manager, and shares
the host's ports out among them.

The first `lab exec --verbs` starts it. It ends when nothing runs at the host any more: launchers
leave daemons behind whose children are the programs. Before, it tells the peers of programs that
have ended, as the kernel would: it may run for some seconds longer.
It listens at abstract UNIX addresses of the host's network namespace, the same ones at all hosts.
What serves an address is imported and made when a program connects there first: most never ask
for the connection manager.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, Protocol, TypeAlias

from softroce_lab.errors import LabError
from softroce_lab.fabric.net import netns, programs
from softroce_lab.structs import CONSTANTS

ADDRESSES: tuple[str, ...] = CONSTANTS["cm::kAddress"], CONSTANTS["ports::kAddress"]
"""Of the connection manager, and of the shares of ports."""
_BACKLOG = 128
_SPARE = 32  # descriptors; the kernel gives the lowest that is free
_NAP_S = 0.01


class Server(Protocol):
    """Serves those who connect at one address."""

    def is_needed(self, deserted_s: float) -> bool:
        """Whether there is something to do `deserted_s` after the last program ended."""

    @property
    def awaited(self) -> dict[int, int]:
        """What `select.poll` is to tell of, by descriptor."""

    @property
    def wait_ms(self) -> int | None:
        """How long nothing needs to be done; None: for ever."""

    def admit(self, connected: socket.socket) -> None:
        """A program has come."""

    def handle(self, fd: int, events: int) -> None:
        """Handle what `select.poll` reported."""

    def keep_time(self) -> None:
        """Do what is due."""

    def close(self) -> None:
        """Close what is left of its sockets."""


Makers: TypeAlias = Sequence[Callable[[], Server]]


def start(make_ports: Callable[[], Server]) -> None:
    """Start it beside this process, which is about to become a program, unless it runs already.

    It is nobody's child, so that the program meets no child that it did not start. `make_ports`
    makes what serves the ports.
    """
    listening = _listening()
    if listening is None:
        return
    child = os.fork()
    if child == 0:
        _leave(listening, (_connection_manager, make_ports))
    os.waitpid(child, 0)
    _close(listening)


def _listening() -> list[socket.socket] | None:
    """A socket at each address; None if another process has them."""
    listening = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in ADDRESSES]
    try:
        for each, address in zip(listening, ADDRESSES, strict=True):
            each.bind(f"\0{address}")
            each.listen(_BACKLOG)
    except OSError as error:
        _close(listening)
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return listening


def _close(listening: Sequence[socket.socket]) -> None:
    for each in listening:
        each.close()


def _leave(listening: list[socket.socket] | None, makers: Makers) -> NoReturn:
    try:
        os.setsid()
        if os.fork() == 0:
            assert listening is not None  # noqa: S101 - `start` has bound it
            _become_quiet(keep={each.fileno() for each in listening})
            while listening is not None:
                try:
                    serve(listening, makers, lambda: next(_others(), None))
                finally:
                    _close(listening)
                # A program may have come just before the addresses were given up.
                newcomer = next(_others(), None)
                listening = None if newcomer is None else _listening()
                if newcomer is not None:
                    os.close(newcomer)
    finally:
        os._exit(0)


def _others() -> Iterator[int]:
    """Descriptors of the other processes of this network namespace."""
    own = Path("/proc/self/ns/net").stat().st_ino
    for pid in netns.inhabitants([own])[own]:
        if pid != os.getpid():
            with contextlib.suppress(OSError):  # it has ended
                yield os.pidfd_open(pid)


def _become_quiet(keep: set[int]) -> None:
    """Hold nothing that belongs to the program: who reads its output waits for the end of it."""
    Path("/proc/self/comm").write_text(programs.SERVICE, "ascii")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # one or two for each program
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)


def _connection_manager() -> Server:
    from softroce_lab.programs.rdmacm.server import ConnectionServer

    return ConnectionServer.of_host()


def serve(
    listening: Sequence[socket.socket], makers: Makers, find_program: Callable[[], int | None]
) -> None:
    """Serve all that connect, until all programs have ended and nothing is left to do.

    `makers` make the server of each socket. `find_program` opens a descriptor of a program that
    runs, which is readable when it has ended.
    """
    program: int | None = None
    last_seen_s = time.monotonic()  # of a program
    with contextlib.closing(_Servers(listening, makers)) as servers:
        while True:
            if program is None:
                program = find_program()
            now_s = time.monotonic()
            if program is not None:
                last_seen_s = now_s
            elif not servers.are_needed(now_s - last_seen_s):
                return
            for fd, events in servers.wait(program):
                if fd == program:
                    os.close(program)
                    program = None
                else:
                    servers.handle(fd, events)
            servers.keep_time()


class _Servers:
    """Those of the sockets at which programs connect, each made when the first one does."""

    def __init__(self, listening: Sequence[socket.socket], makers: Makers) -> None:
        pairs = zip(listening, makers, strict=True)
        self._doors = {door.fileno(): (door, make) for door, make in pairs}
        self._made: dict[int, Server] = {}  # by the descriptor of their socket

    def close(self) -> None:
        for each in self._made.values():
            each.close()

    def are_needed(self, deserted_s: float) -> bool:
        return any(each.is_needed(deserted_s) for each in self._made.values())

    def wait(self, program: int | None) -> list[tuple[int, int]]:
        """What `select.poll` reports, once there is something to do or `program` has ended."""
        poller = select.poll()
        for fd in [*self._doors, *([] if program is None else [program])]:
            poller.register(fd, select.POLLIN)
        for each in self._made.values():
            for fd, events in each.awaited.items():
                poller.register(fd, events)
        waits_ms = [each.wait_ms for each in self._made.values()]
        return poller.poll(min((ms for ms in waits_ms if ms is not None), default=None))

    def handle(self, fd: int, events: int) -> None:
        if fd not in self._doors:
            for each in self._made.values():
                each.handle(fd, events)
            return
        door, make = self._doors[fd]
        try:
            connected = door.accept()[0]
        except OSError:  # the machine has no descriptors or memory: the program waits
            time.sleep(_NAP_S)
            return
        try:
            if connected.fileno() >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE:
                raise OSError(errno.EMFILE, "those it serves need the last descriptors")
            if fd not in self._made:
                self._made[fd] = make()
        except (OSError, LabError):
            connected.close()  # which tells the program that it is not served
        else:
            self._made[fd].admit(connected)

    def keep_time(self) -> None:
        for each in self._made.values():
            each.keep_time()
