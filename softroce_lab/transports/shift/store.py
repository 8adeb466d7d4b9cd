# SPDX-License-Identifier: GPL-2.0-or-later
"""The key-value service by which the ends of ShiftQPs know each other's backups ahead of failures.

It is the lab's own rendezvous: a dictionary for the QPs of one process, or a server on the
management network, which is TCP with a line of JSON for each request and answer.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from typing import Any, Protocol

from softroce_lab.errors import LabError

_LONGEST_LINE = 1 << 20
_POLL_S = 0.02  # how long a server that is closed goes on


class StoreUnreachableError(LabError):
    """The key-value service does not answer."""


class Store(Protocol):
    """What a ShiftQP asks of the service; both raise StoreUnreachableError."""

    def put(self, key: str, value: Any) -> None:
        """Set a key to what JSON can hold."""

    def scan(self, prefix: str) -> dict[str, Any]:
        """All keys that begin so, with their values."""


class LocalStore:
    """For the QPs of one process; `reachable` is for tests of failures."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self.reachable = True

    def put(self, key: str, value: Any) -> None:
        """Set a key."""
        self._check()
        self._values[key] = value

    def scan(self, prefix: str) -> dict[str, Any]:
        """All keys that begin so."""
        self._check()
        return {key: value for key, value in self._values.items() if key.startswith(prefix)}

    def _check(self) -> None:
        if not self.reachable:
            raise StoreUnreachableError("the key-value service does not answer")


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        while line := self.rfile.readline(_LONGEST_LINE):
            try:
                request = json.loads(line)
                with self.server.lock:
                    answer = _answer(self.server.values, request)
            except (ValueError, KeyError, TypeError):
                return  # not a client of ours
            self.wfile.write(json.dumps(answer).encode() + b"\n")


def _answer(values: LocalStore, request: dict[str, Any]) -> Any:
    if request["verb"] == "put":
        return values.put(str(request["key"]), request["value"])
    return values.scan(str(request["prefix"]))


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        self.values = LocalStore()
        self.lock = threading.Lock()
        super().__init__(address, _Handler)


class StoreServer:
    """Serves a store at an address; port 0 takes a free one. For a `with` statement."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._server = _Server((host, port))
        self.address: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[_POLL_S], daemon=True
        )

    def __enter__(self) -> StoreServer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class TcpStore:
    """A client of a StoreServer; each request takes at most `timeout_s`."""

    def __init__(self, host: str, port: int, timeout_s: float = 0.5) -> None:
        self._address, self._timeout_s = (host, port), timeout_s
        self._connection: socket.socket | None = None
        self._lines: Any = None
        self._lock = threading.Lock()

    def put(self, key: str, value: Any) -> None:
        """Set a key."""
        self._ask({"verb": "put", "key": key, "value": value})

    def scan(self, prefix: str) -> dict[str, Any]:
        """All keys that begin so."""
        return dict(self._ask({"verb": "scan", "prefix": prefix}))

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._lines.close()
            self._connection.close()
            self._connection = None

    def _ask(self, request: dict[str, Any]) -> Any:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = socket.create_connection(self._address, self._timeout_s)
                    self._lines = self._connection.makefile("rb")
                self._connection.sendall(json.dumps(request).encode() + b"\n")
                return json.loads(self._lines.readline())
            except (OSError, ValueError) as error:
                with contextlib.suppress(OSError):
                    self.close()
                host, port = self._address
                raise StoreUnreachableError(
                    f"the key-value service at {host}:{port} does not answer: {error}",
                    hint="is its server up, and the management network?",
                ) from error
