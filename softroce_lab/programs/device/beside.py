# SPDX-License-Identifier: GPL-2.0-or-later
"""A process beside the unmodified programs of a host: it has their connection manager, and shares
the host's ports out among them (`ports.py`).

The first `lab exec --verbs` starts it. It ends when nothing runs at the host any more: launchers
leave daemons behind whose children are the programs.
It listens at an abstract UNIX address of the host's network namespace. All hosts have the same
address, so launchers may copy it from host to host.
The manager itself is imported and made when a program asks for it first: most never do.
It never waits for a program: what one does not take is kept within bounds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from softroce_lab.fabric.net import netns

if TYPE_CHECKING:
    from softroce_lab.programs.device.ports import PortService
    from softroce_lab.programs.rdmacm.program_service import ProgramService

SOCKET_VARIABLE = "SOFTROCE_CM"  # where native/verbs/rdmacm finds the address
ADDRESS = "softroce_lab/cm"
PORTS_ADDRESS = "softroce_lab/ports"  # native/endpoint/port_wire.hpp
COMMAND = "softroce-cm"  # the process's name in ps(1)
_LONGEST_BYTES = 512  # more than any message has
_BACKLOG = 8
MOST_REPEATED = 64  # messages that wait for a program: above that, repeated ones are lost
MOST_WAITING = 4096  # above that, the program is left


class Listening(NamedTuple):
    connections: socket.socket  # of programs that use librdmacm
    ports: socket.socket  # of those that open a port


def start(make_ports: Callable[[], PortService]) -> None:
    """Start it beside this process, which is about to become a program, unless it runs already.

    It is nobody's child, so that the program meets no child that it did not start. `make_ports` is
    called when a program opens a port first.
    """
    listening = _listening()
    if listening is None:
        return
    program = os.pidfd_open(os.getpid())
    child = os.fork()
    if child == 0:
        _leave(listening, program, make_ports)
    os.waitpid(child, 0)
    for each in listening:
        each.close()
    os.close(program)


def _listening() -> Listening | None:
    """Sockets at both addresses; None if another process has them."""
    both = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    try:
        for each, address in zip(both, (ADDRESS, PORTS_ADDRESS), strict=True):
            each.bind(f"\0{address}")
            each.listen(_BACKLOG)
    except OSError as error:
        for each in both:
            each.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return Listening(*both)


def _leave(
    listening: Listening | None, program: int, make_ports: Callable[[], PortService]
) -> NoReturn:
    try:
        os.setsid()
        if os.fork() == 0:
            assert listening is not None  # noqa: S101 - `start` has bound it
            _become_quiet(keep={*map(socket.socket.fileno, listening), program})
            while listening is not None:
                serve(listening, _programs(program), make_ports)
                # A program may have come just before the address was given up.
                program = next(_others(), -1)
                listening = None if program < 0 else _listening()
    finally:
        os._exit(0)


def _programs(first: int) -> Iterator[int]:
    """Descriptors of processes of the host, each asked for when the one before has ended."""
    yield first
    while (other := next(_others(), None)) is not None:
        yield other


def _others() -> Iterator[int]:
    """Descriptors of the other processes of this network namespace."""
    own = Path("/proc/self/ns/net").stat().st_ino
    for pid in netns.inhabitants([own])[own]:
        if pid != os.getpid():
            with contextlib.suppress(OSError):  # it has ended
                yield os.pidfd_open(pid)


def _become_quiet(keep: set[int]) -> None:
    """Hold nothing that belongs to the program: who reads its output waits for the end of it."""
    Path("/proc/self/comm").write_text(COMMAND, "ascii")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)


def _connection_manager() -> ProgramService:
    from softroce_lab.programs.rdmacm.program_service import ProgramService

    return ProgramService(secrets.SystemRandom())


def serve(
    listening: Listening,
    programs: Iterator[int],
    make_ports: Callable[[], PortService],
    make_service: Callable[[], ProgramService] = _connection_manager,
) -> None:
    """Serve all that connect, until all `programs` have ended and the clients have gone.

    `programs` are descriptors, each readable when its program has ended; it is closed then.
    """
    _Server(listening, programs, make_ports, make_service).run()


class _Server:
    def __init__(
        self,
        listening: Listening,
        programs: Iterator[int],
        make_ports: Callable[[], PortService],
        make_service: Callable[[], ProgramService],
    ) -> None:
        self._listening, self._programs = listening, programs
        self._make_ports, self._make_service = make_ports, make_service
        self._ports: PortService | None = None
        self._clients: dict[int, Client] = {}
        self._poller = select.poll()
        self._handlers: dict[int, Callable[[int], None]] = {}  # of what `select.poll` reports
        self._watch(listening.connections.fileno(), self._accept_client)
        self._watch(listening.ports.fileno(), self._accept_at_port)
        self._await_program()

    def run(self) -> None:
        while self._handlers:
            for fd, events in self._poller.poll(self._wait_ms()):
                if handler := self._handlers.get(fd):
                    handler(events)
            self._look_after()

    def _watch(self, fd: int, handler: Callable[[int], None]) -> None:
        self._handlers[fd] = handler
        self._poller.register(fd, select.POLLIN)

    def _forget(self, fd: int) -> None:
        del self._handlers[fd]
        self._poller.unregister(fd)

    def _await_program(self) -> None:
        """The next one; without any, nobody connects any more."""
        program = next(self._programs, -1)
        if program >= 0:
            self._watch(program, lambda _: self._program_ended(program))
            return
        for each in self._listening:
            self._forget(each.fileno())
            each.close()

    def _program_ended(self, program: int) -> None:
        self._forget(program)
        os.close(program)
        self._await_program()

    def _accept_client(self, _: int) -> None:
        client = Client(self._listening.connections.accept()[0], self._make_service())
        self._clients[client.socket.fileno()] = client
        self._watch(client.socket.fileno(), client.handle)

    def _accept_at_port(self, _: int) -> None:
        ports = self._ports = self._ports or self._make_ports()
        connected = self._listening.ports.accept()[0]
        connected.setblocking(False)
        fd = connected.fileno()

        def handle(_: int) -> None:
            if not ports.handle(connected):
                self._forget(fd)

        self._watch(fd, handle)

    def _look_after(self) -> None:
        """Do what is due, and leave those that have ended."""
        for fd, client in list(self._clients.items()):
            client.keep_time()
            if client.has_ended:
                self._forget(fd)
                self._clients.pop(fd).socket.close()
            else:
                self._poller.modify(fd, client.awaited)
        if self._ports is not None and self._ports.next_look_ns is not None:
            self._ports.look(time.monotonic_ns())

    def _wait_ms(self) -> int | None:
        awaited = [client.service.next_timeout_ns for client in self._clients.values()]
        awaited += [self._ports.next_look_ns] if self._ports else []
        due_ns = [each for each in awaited if each is not None]
        if not due_ns:
            return None
        return max(0, (min(due_ns) - time.monotonic_ns()) // 1_000_000 + 1)


class Client:
    """A program that uses librdmacm."""

    def __init__(self, connected: socket.socket, service: ProgramService) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.service = service
        self.has_ended = False  # or does not speak our language, or does not listen to us
        self._waiting: deque[bytes] = deque()

    @property
    def awaited(self) -> int:
        """What `select.poll` is to tell of."""
        return select.POLLIN | (select.POLLOUT if self._waiting else 0)

    def handle(self, events: int) -> None:
        """Handle what `select.poll` reported."""
        if events & select.POLLOUT:
            self._flush()
        if events & ~select.POLLOUT:
            self._receive()

    def keep_time(self) -> None:
        """Do what is due."""
        due_ns = self.service.next_timeout_ns
        if due_ns is not None and due_ns <= time.monotonic_ns() and not self.has_ended:
            self._send(self.service.handle_timeout(time.monotonic_ns()))

    def _receive(self) -> None:
        try:
            message = self.socket.recv(_LONGEST_BYTES)
            if message:
                self._send(self.service.handle(message, time.monotonic_ns()))
            else:
                self.has_ended = True
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            self.has_ended = True

    def _send(self, messages: list[bytes]) -> None:
        for message in messages:
            if len(self._waiting) < MOST_REPEATED or not self.service.is_repeated(message):
                self._waiting.append(message)
                self._flush()

    def _flush(self) -> None:
        try:
            while self._waiting:
                self.socket.send(self._waiting[0])
                self._waiting.popleft()
        except BlockingIOError:
            if len(self._waiting) > MOST_WAITING:  # a reply that is lost would not come again
                self.has_ended = True
        except OSError:
            self.has_ended = True
