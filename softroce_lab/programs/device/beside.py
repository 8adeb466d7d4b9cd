# SPDX-License-Identifier: GPL-2.0-or-later
"""A process beside an unmodified program, one for each `lab exec --verbs`: its connection manager.

It listens at an abstract UNIX address of the host's network namespace, and ends with the program.
The manager itself is imported and made when a program asks for it first: most never do.
It never waits for a program: what one does not take is kept within bounds.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from softroce_lab.programs.rdmacm.program_service import ProgramService

SOCKET_VARIABLE = "SOFTROCE_CM"  # where native/verbs/rdmacm finds the address
_LONGEST_BYTES = 512  # more than any message has
_BACKLOG = 8
MOST_REPEATED = 64  # messages that wait for a program: above that, repeated ones are lost
MOST_WAITING = 4096  # above that, the program is left


def start() -> str:
    """Start it beside this process, which is about to become the program; returns its address.

    It is nobody's child, so that the program meets no child that it did not start.
    """
    name = f"softroce_lab/cm/{os.getpid()}"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(f"\0{name}")
    listening.listen(_BACKLOG)
    program = os.pidfd_open(os.getpid())
    child = os.fork()
    if child == 0:
        _leave(listening, program)
    os.waitpid(child, 0)
    listening.close()
    os.close(program)
    return name


def _leave(listening: socket.socket, program: int) -> NoReturn:
    try:
        os.setsid()
        if os.fork() == 0:
            _become_quiet(keep={listening.fileno(), program})
            serve(listening, program)
    finally:
        os._exit(0)


def _become_quiet(keep: set[int]) -> None:
    """Hold nothing that belongs to the program: who reads its output waits for the end of it."""
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
    listening: socket.socket,
    program: int,
    make_service: Callable[[], ProgramService] = _connection_manager,
) -> None:
    """Serve all that connect, until the program has ended and they have gone."""
    clients: dict[int, Client] = {}
    poller = select.poll()
    for fd in (listening.fileno(), program):
        poller.register(fd, select.POLLIN)
    while True:
        for fd, events in poller.poll(_wait_ms(clients)):
            if fd == program:
                for ended in (program, listening.fileno()):
                    poller.unregister(ended)
                listening.close()
                program = -1
            elif fd in clients:
                clients[fd].handle(events)
            elif program >= 0:
                client = Client(listening.accept()[0], make_service())
                clients[client.socket.fileno()] = client
                poller.register(client.socket, client.awaited)
        _look_after(clients, poller)
        if program < 0 and not clients:
            return


def _look_after(clients: dict[int, Client], poller: select.poll) -> None:
    """Do what is due, and leave those that have ended."""
    for fd, client in list(clients.items()):
        client.keep_time()
        if client.has_ended:
            poller.unregister(fd)
            clients.pop(fd).socket.close()
        else:
            poller.modify(fd, client.awaited)


def _wait_ms(clients: dict[int, Client]) -> int | None:
    due_ns = [due for client in clients.values() if (due := client.service.next_timeout_ns)]
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
