# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what an RNIC counted: native/endpoint/statistics.hpp, which has the layout.

A process that owns a port publishes this in `/run/softroce_lab/<lab>/stats/<node>:<interface>`
ten times a second, under a sequence lock: readers stop nobody. The process holds a lock (flock) on
the file as long as it lives; a file that nobody holds is of a process that was killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import ipaddress
import os
import struct
import time
from pathlib import Path
from typing import Any

from softroce_lab.errors import RunError
from softroce_lab.telemetry import counters

DIRECTORY = "stats"
"""In a lab's directory."""

_MAGIC = b"LABSTAT1"
_HEADER = struct.Struct("=8s9Q")
_QP = struct.Struct("=6Q")
_SEQUENCE = struct.Struct("=Q")
_SEQUENCE_AT = 8
_WORD_BYTES = 8
_READ_S = 1.0  # a writer takes microseconds, unless something stopped it in the middle
_NAP_S = 0.0005
_TYPES = {1: "GSI", 2: "RC", 3: "UC", 4: "UD"}  # enum ibv_qp_type
_STATES = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
_CONNECTED = ("RC", "UC")


@dataclasses.dataclass(frozen=True, slots=True)
class Qp:
    """A queue pair and its counters."""

    number: int
    type: str
    state: str
    remote_number: int | None  # of connected services
    remote_address: str | None
    counts: dict[str, int]  # by the engine's names

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "qp": self.number,
            "type": self.type,
            "state": self.state,
            "remote_qp": self.remote_number,
            "remote_address": self.remote_address,
            "hw_counters": counters.of_qp(self.counts),
            "engine": self.counts,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """All counters of an RNIC and its port at one moment."""

    taken_ns: int  # CLOCK_MONOTONIC; 0: never
    pid: int  # 0: not published
    qps_alive: int  # of which `qps` has the first 256
    counts: dict[str, int]  # of the port and the RNIC, by the engine's names
    qps: tuple[Qp, ...]  # by number

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "counters": counters.of_process_port(self.counts),
            "hw_counters": counters.of_port(self.counts),
            "engine": self.counts,
            "qps_alive": self.qps_alive,
            "qps": [qp.document() for qp in self.qps],
        }


def parse(data: bytes) -> Snapshot:
    """The snapshot in `data`. ValueError if it is none."""
    try:
        return _parse(data)
    except (struct.error, UnicodeDecodeError, IndexError, KeyError) as error:
        raise ValueError(f"no counters: {error}") from error


def _parse(data: bytes) -> Snapshot:
    fields = _HEADER.unpack_from(data)
    magic, _, pid, taken_ns, qps_alive, qps_here, *of_names = fields
    port_names, qp_names, names_at, names_bytes = of_names
    if magic != _MAGIC:
        raise ValueError("no counters of this version of the lab")
    lines = data[names_at : names_at + names_bytes].decode("ascii").split("\n")
    names, of_qp = lines[0].split(), lines[1].split()
    if (len(names), len(of_qp)) != (port_names, qp_names):
        raise ValueError("counters without names")
    if not (set(names) >= counters.NEEDED and set(of_qp) >= counters.NEEDED_OF_QP):
        raise ValueError("no counters of this version of the lab")
    at = _HEADER.size
    counts = _counts(data, at, names)
    at += port_names * _WORD_BYTES
    qps = []
    for _ in range(qps_here):
        qps.append(_qp(data, at, of_qp))
        at += _QP.size + qp_names * _WORD_BYTES
    return Snapshot(taken_ns, pid, qps_alive, counts, tuple(sorted(qps, key=lambda q: q.number)))


def _counts(data: bytes, at: int, names: list[str]) -> dict[str, int]:
    return dict(zip(names, struct.unpack_from(f"={len(names)}Q", data, at), strict=True))


def _qp(data: bytes, at: int, names: list[str]) -> Qp:
    number, kind, state, remote, high, low = _QP.unpack_from(data, at)
    name = _TYPES[kind]
    connected = name in _CONNECTED and state >= _STATES.index("RTR")
    return Qp(
        number,
        name,
        _STATES[state],
        remote if connected else None,
        _address(high, low) if connected else None,
        _counts(data, at + _QP.size, names),
    )


def _address(high: int, low: int) -> str:
    """Of a GID: annex A17.4.5 maps IPv4 addresses."""
    address = ipaddress.IPv6Address(high << 64 | low)
    return str(address.ipv4_mapped or address)


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """What the owner of a port has published, or had when it was killed."""

    port: str  # node:interface
    snapshot: Snapshot
    alive: bool


def read(path: Path) -> Published:
    """FileNotFoundError if its process has ended; RunError if it cannot be read."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        alive = _is_held(fd)
        return Published(path.name, _consistent(fd, path, alive=alive), alive)
    finally:
        os.close(fd)


def _is_held(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _consistent(fd: int, path: Path, *, alive: bool) -> Snapshot:
    """A copy during which nothing was written; a writer that is dead writes no more."""
    deadline = time.monotonic() + _READ_S
    while True:
        data = os.pread(fd, os.fstat(fd).st_size, 0)
        before = _sequence(data)
        after = _sequence(os.pread(fd, _SEQUENCE_AT + _SEQUENCE.size, 0))
        if before == after and (before % 2 == 0 or not alive):
            break
        if time.monotonic() > deadline:
            raise RunError(f"{path} is being written all the time", hint="is its process stopped?")
        time.sleep(_NAP_S)
    if before == 0:  # its process has just begun
        return Snapshot(0, 0, 0, {}, ())
    try:
        return parse(data)
    except ValueError as error:
        raise RunError(f"{path}: {error}") from error


def _sequence(data: bytes) -> int:
    if len(data) < _SEQUENCE_AT + _SEQUENCE.size:
        return 0
    return int(_SEQUENCE.unpack_from(data, _SEQUENCE_AT)[0])


def read_all(directory: Path) -> list[Published]:
    """What all owners of ports of a lab have published, by port."""
    found = []
    for path in sorted(directory.glob("*:*")):
        if path.suffix == ".new":
            continue
        with contextlib.suppress(FileNotFoundError):
            published = read(path)
            if published.snapshot.counts:
                found.append(published)
    return found
