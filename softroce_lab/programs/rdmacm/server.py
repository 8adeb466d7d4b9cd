# SPDX-License-Identifier: GPL-2.0-or-later
"""The connection manager of a host with its sockets: those of its programs, and its queue pair 1.

It never waits for a program: what one does not take is kept within bounds.
"""

from __future__ import annotations

import secrets
import select
import socket
import time
from collections import deque
from typing import Self

from softroce_lab.programs.rdmacm.host_service import HostService, Results, ToProgram
from softroce_lab.programs.rdmacm.mad_port import MadPort

_LONGEST_BYTES = 1024  # more than any message has
MOST_WAITING = 4096  # messages that wait for a program: above that, it is left
_LONGEST_FAREWELL_S = 30  # that peers may take to confirm, once no program is left


class ConnectionServer:
    """Whoever polls `awaited` calls `handle`, and `keep_time` after `wait_ms`."""

    def __init__(self, service: HostService, port: MadPort) -> None:
        self._service, self._port = service, port
        self._receivers = {receiver.fileno(): receiver for receiver in port.receivers}
        self._clients: dict[int, Client] = {}  # by descriptor, which the service knows them by

    @classmethod
    def of_host(cls) -> Self:
        """Of the network namespace that this process is in."""
        return cls(HostService(secrets.SystemRandom()), MadPort())

    def close(self) -> None:
        """Close what is left of its sockets."""
        self._port.close()
        for client in self._clients.values():
            client.socket.close()

    def is_needed(self, deserted_s: float) -> bool:
        """Whether there is something to do `deserted_s` after the last program ended."""
        farewell = self._service.is_disconnecting and deserted_s < _LONGEST_FAREWELL_S
        return bool(self._clients) or farewell

    @property
    def awaited(self) -> dict[int, int]:
        """What `select.poll` is to tell of, by descriptor."""
        clients = {fd: client.awaited for fd, client in self._clients.items()}
        return clients | dict.fromkeys(self._receivers, select.POLLIN)

    @property
    def wait_ms(self) -> int | None:
        """How long nothing needs to be done; None: for ever."""
        due_ns = self._service.next_timeout_ns
        if due_ns is None:
            return None
        return max(0, (due_ns - time.monotonic_ns()) // 1_000_000 + 1)

    def admit(self, connected: socket.socket) -> None:
        """A program has come."""
        self._clients[connected.fileno()] = Client(connected)

    def handle(self, fd: int, events: int) -> None:
        """Handle what `select.poll` reported."""
        if fd in self._receivers:
            for way, mad in self._port.receive(self._receivers[fd]):
                self._carry_out(self._service.handle_mad(mad, way, time.monotonic_ns()))
        elif client := self._clients.get(fd):
            message = client.handle(events)
            try:
                if message:
                    self._carry_out(self._service.handle(fd, message, time.monotonic_ns()))
            except ValueError:
                client.has_ended = True
        self._forget_ended()

    def keep_time(self) -> None:
        """Do what is due."""
        due_ns, now_ns = self._service.next_timeout_ns, time.monotonic_ns()
        if due_ns is not None and due_ns <= now_ns:
            self._carry_out(self._service.handle_timeout(now_ns))
        self._forget_ended()

    def _carry_out(self, results: Results) -> None:
        for result in results:
            if isinstance(result, ToProgram):
                if client := self._clients.get(result.program):
                    client.send(result.message)
            else:
                self._port.send(result)

    def _forget_ended(self) -> None:
        while ended := [fd for fd, client in self._clients.items() if client.has_ended]:
            for fd in ended:
                self._clients.pop(fd).socket.close()
                self._carry_out(self._service.leave(fd, time.monotonic_ns()))


class Client:
    """A program that uses librdmacm."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.has_ended = False  # or does not speak our language, or does not listen to us
        self._waiting: deque[bytes] = deque()

    @property
    def awaited(self) -> int:
        """What `select.poll` is to tell of."""
        return select.POLLIN | (select.POLLOUT if self._waiting else 0)

    def handle(self, events: int) -> bytes:
        """Send what waits; returns a message that came, if one did."""
        if events & select.POLLOUT:
            self._flush()
        if not events & ~select.POLLOUT:
            return b""
        try:
            message = self.socket.recv(_LONGEST_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            message = b""
        self.has_ended |= not message
        return message

    def send(self, message: bytes) -> None:
        """Send it, now or when the program has room for it."""
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
