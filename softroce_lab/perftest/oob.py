# SPDX-License-Identifier: GPL-2.0-or-later
"""Out-of-band exchange: what two programs exchange over TCP before they use RDMA.

The formats are those of perftest and of the ibv_*_pingpong programs, so that unmodified ones can
be at the other end. Every wait is bounded; what goes wrong is an `OobError` with its name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import ClassVar, Self

from softroce_lab.errors import RunError
from softroce_lab.rnic.addr import GID

DEFAULT_PORT = 18515
"""Of perftest and of the pingpongs."""

_RETRY_S = 0.05  # while a server may not be listening yet
_SHORTEST_S = 0.001  # a timeout of 0 would mean: do not wait at all
_LOOK_S = 0.5  # how often those who wait check that the other side is still there
_LAST_WORDS_BYTES = 1 << 16  # that a peer may say after our goodbye


class OobError(RunError):
    """The exchange failed: nobody there, silence, an end too soon, or words that make no sense."""


def _nothing_to_check() -> None:
    """Of a peer that nothing else is known about."""


class OobSocket:
    """A TCP connection to a peer program; each read and write takes `timeout_s` at most.

    `check` is called while a read waits and may raise: a machine that died hangs up on nobody.
    """

    def __init__(
        self,
        connected: socket.socket,
        timeout_s: float,
        check: Callable[[], None] = _nothing_to_check,
    ) -> None:
        self._socket = connected
        self._timeout_s = timeout_s
        self._check = check
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = connected.getpeername()[:2]
        self.peer = f"{host}:{port}"

    @classmethod
    def connect(
        cls,
        host: str,
        port: int = DEFAULT_PORT,
        timeout_s: float = 10.0,
        check: Callable[[], None] = _nothing_to_check,
        *,
        check_server: Callable[[], None] = _nothing_to_check,
    ) -> Self:
        """Connect to a server, which may start to listen within `timeout_s`.

        `check_server` is called until it does, and may raise.
        """
        until = time.monotonic() + timeout_s
        while True:
            left_s = until - time.monotonic()
            try:
                connected = socket.create_connection((host, port), max(left_s, _RETRY_S))
                return cls(connected, timeout_s, check)
            except OSError as error:
                if left_s <= _RETRY_S:
                    raise OobError(
                        f"cannot connect to {host}:{port}: {error.strerror or error}",
                        hint="is the server started, and the address its own?",
                    ) from error
            check()
            check_server()
            time.sleep(_RETRY_S)

    def write(self, octets: bytes) -> None:
        """Send all of `octets`."""
        try:
            self._socket.settimeout(self._timeout_s)  # which sendall takes for all octets together
            self._socket.sendall(octets)
        except OSError as error:
            raise self._failed("cannot send", error) from error

    def read(self, count: int) -> bytes:
        """Exactly `count` octets."""
        octets, until = b"", time.monotonic() + self._timeout_s
        while len(octets) < count:
            try:
                more = self._receive(count - len(octets), until)
            except OSError as error:
                raise self._failed(f"{len(octets)} of {count} bytes came", error) from error
            if not more:
                raise OobError(f"{self.peer} hung up after {len(octets)} of {count} bytes")
            octets += more
        return octets

    def say_goodbye(self, words: bytes) -> None:
        """Say last words to a peer that may be gone, and let it say its own before we hang up."""
        until, left = time.monotonic() + self._timeout_s, _LAST_WORDS_BYTES
        with contextlib.suppress(OSError):  # what is not read would make TCP reset the peer
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(words)
            self._socket.shutdown(socket.SHUT_WR)
            while left > 0 and (output := self._receive(4096, until)):
                left -= len(output)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _receive(self, most: int, until: float) -> bytes:
        """What comes next, until that time by the monotonic clock. TimeoutError."""
        while (left_s := until - time.monotonic()) > 0:
            self._socket.settimeout(max(min(left_s, _LOOK_S), _SHORTEST_S))
            with contextlib.suppress(TimeoutError):
                return self._socket.recv(most)
            self._check()
        raise TimeoutError

    def _failed(self, what: str, error: OSError) -> OobError:
        why = "silence" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return OobError(f"{self.peer}: {what}: {why}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class OobServer:
    """A listening port; `accept` gives the peers one by one."""

    def __init__(self, port: int = DEFAULT_PORT, address: str = "") -> None:
        family = socket.AF_INET6 if ":" in address or not address else socket.AF_INET
        both = family == socket.AF_INET6 and not address
        try:
            self._socket = socket.create_server((address, port), family=family, dualstack_ipv6=both)
        except OSError as error:
            raise OobError(f"cannot listen at port {port}: {error.strerror or error}") from error
        self.port = int(self._socket.getsockname()[1])

    def accept(
        self,
        wait_s: float = 60.0,
        timeout_s: float = 10.0,
        check: Callable[[], None] = _nothing_to_check,
        *,
        check_client: Callable[[], None] = _nothing_to_check,
    ) -> OobSocket:
        """The next peer, if one comes within `wait_s`.

        `check_client` is called until then, and may raise.
        """
        until = time.monotonic() + wait_s
        while (left_s := until - time.monotonic()) > 0:
            self._socket.settimeout(max(min(left_s, _LOOK_S), _SHORTEST_S))
            try:
                connected, _ = self._socket.accept()
            except TimeoutError:
                check()
                check_client()
                continue
            except OSError as error:
                raise OobError(f"port {self.port}: {error.strerror or error}") from error
            return OobSocket(connected, timeout_s, check)
        raise OobError(f"nobody came to port {self.port} within {wait_s:g} s")

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclasses.dataclass(frozen=True, slots=True)
class PingpongDest:
    """A queue pair as the ibv_*_pingpong programs tell it: `%04x:%06x:%06x:` and the GID."""

    qpn: int
    psn: int
    gid: GID
    lid: int = 0

    SIZE_BYTES: ClassVar[int] = 52

    def build(self) -> bytes:
        """52 octets, the last of them 0."""
        raw = raw_of_gid(self.gid).hex()
        text = f"{self.lid:04x}:{self.qpn:06x}:{self.psn:06x}:{raw}"
        return text.encode("ascii").ljust(self.SIZE_BYTES, b"\0")

    @classmethod
    def parse(cls, octets: bytes) -> Self:
        """The queue pair that a peer sends; OobError if that is none."""
        number = "([0-9a-fA-F]{1,8})"
        found = re.fullmatch(f"{number}:{number}:{number}:([0-9a-fA-F]{{32}})", text_of(octets))
        if not found:
            raise OobError(f"not a pingpong's address: {octets!r}")
        lid, qpn, psn = (int(each, 16) for each in found.groups()[:3])
        return cls(qpn, psn, gid_of_raw(bytes.fromhex(found[4])), lid)


_DONE = b"done\0"


def pingpong_client(peer: OobSocket, own: PingpongDest) -> PingpongDest:
    """Tell the server our queue pair; its own comes when it is ready for what we send."""
    peer.write(own.build())
    remote = PingpongDest.parse(peer.read(PingpongDest.SIZE_BYTES))
    peer.write(_DONE)
    return remote


def pingpong_server_receives(peer: OobSocket) -> PingpongDest:
    """The client's queue pair. Bring ours to RTS, then tell it by `pingpong_server_sends`."""
    return PingpongDest.parse(peer.read(PingpongDest.SIZE_BYTES))


def pingpong_server_sends(peer: OobSocket, own: PingpongDest) -> None:
    """Send the client our queue pair, and wait until it has its own ready."""
    peer.write(own.build())
    if (word := peer.read(len(_DONE))) != _DONE:
        raise OobError(f"{peer.peer} says {word!r} instead of 'done'")


def text_of(octets: bytes) -> str:
    """The characters before the first 0."""
    return octets.partition(b"\0")[0].decode("ascii", "replace")


def raw_of_gid(gid: GID) -> bytes:
    """The 16 octets of a GID."""
    return bytes.fromhex(gid.gid.replace(":", ""))


def gid_of_raw(raw: bytes) -> GID:
    """The GID of 16 octets."""
    return GID(":".join(raw[n : n + 2].hex() for n in range(0, 16, 2)))
