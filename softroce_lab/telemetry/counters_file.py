# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what an RNIC counted: native/endpoint/statistics.hpp, which has the layout.

A process that has a port publishes this in `/run/softroce_lab/<lab>/stats/<node>:<interface>`
ten times a second, under a sequence lock: readers stop nobody. Where several processes share a
port, all but the first have `@` and the number of their share behind the name. The process holds a
lock (flock) on the file as long as it lives; a file that nobody holds is of a process that was
killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import ipaddress
import os
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softroce_lab.errors import RunError
from softroce_lab.structs import enumerators
from softroce_lab.telemetry import counters

DIRECTORY = "stats"
"""In a lab's directory."""
BESIDE = (".new", ".shift", ".backup")
"""Suffixes of files there that are no counters: half-written ones, and those of SHIFT."""

_MAGIC = int.from_bytes(b"LABSTAT2", sys.byteorder)
_HEADER = tuple(enumerators("statistics::Header"))[:-1]  # the last one is how many there are
_QP = tuple(enumerators("statistics::Qp"))[:-1]
_WORD_BYTES = 8
_SEQUENCE_AT = _HEADER.index("sequence") * _WORD_BYTES
_READ_S = 1.0  # a writer takes microseconds, unless something stopped it in the middle
_NAP_S = 0.0005
_TYPES = {2: "RC", 3: "UC", 4: "UD"}  # enum ibv_qp_type
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
    rank: int | None = None  # that a launcher gave the process

    def document(self) -> dict[str, Any]:
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
    header = _words(data, 0, _HEADER)
    if header["magic_at"] != _MAGIC:
        raise ValueError("no counters of this version of the lab")
    text = data[header["names_at"] : header["names_at"] + header["names_bytes"]].decode("ascii")
    names, of_qp, *_ = (line.split() for line in [*text.split("\n"), "", ""])
    if (len(names), len(of_qp)) != (header["port_names"], header["qp_names"]):
        raise ValueError("counters without names")
    if not (set(names) >= counters.NEEDED and set(of_qp) >= counters.NEEDED_OF_QP):
        raise ValueError("no counters of this version of the lab")
    begin = len(_HEADER) + len(names)
    ends = begin + header["qps_here"] * (len(_QP) + len(of_qp))
    found = [_qp(data, at, of_qp) for at in range(begin, ends, len(_QP) + len(of_qp))]
    return Snapshot(
        header["taken_ns"], header["pid"], header["qps_alive"],
        counts=_words(data, len(_HEADER), names),
        qps=tuple(sorted(found, key=lambda qp: qp.number)),
        rank=header["rank"] - 1 if header["rank"] else None,
    )  # fmt: skip


def _words(data: bytes, at: int, names: Sequence[str]) -> dict[str, int]:
    """From word `at` on, by name."""
    values = struct.unpack_from(f"={len(names)}Q", data, at * _WORD_BYTES)
    return dict(zip(names, values, strict=True))


def _qp(data: bytes, at: int, names: list[str]) -> Qp:
    qp = _words(data, at, _QP)
    name = _TYPES[qp["type"]]
    connected = name in _CONNECTED and qp["state"] >= _STATES.index("RTR")
    return Qp(
        qp["number"],
        name,
        _STATES[qp["state"]],
        qp["remote"] if connected else None,
        _address(qp["remote_high"], qp["remote_low"]) if connected else None,
        _words(data, at + len(_QP), names),
    )


def _address(high: int, low: int) -> str:
    """Of a GID: annex A17.4.5 maps IPv4 addresses."""
    address = ipaddress.IPv6Address(high << 64 | low)
    return str(address.ipv4_mapped or address)


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """What a process that has a port has published, or had when it was killed."""

    port: str  # node:interface
    snapshot: Snapshot
    alive: bool


def read(path: Path) -> Published:
    """FileNotFoundError if its process has ended; RunError if it cannot be read."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        alive = _is_locked(fd)
        return Published(path.name.partition("@")[0], _consistent(fd, path, alive=alive), alive)
    finally:
        os.close(fd)


def is_held(path: Path) -> bool:
    """Whether a process lives that publishes there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return _is_locked(fd)
    finally:
        os.close(fd)


def _is_locked(fd: int) -> bool:
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
        after = _sequence(os.pread(fd, _SEQUENCE_AT + _WORD_BYTES, 0))
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
    return int.from_bytes(data[_SEQUENCE_AT : _SEQUENCE_AT + _WORD_BYTES], sys.byteorder)


def read_all(directory: Path, port: str = "*:*") -> list[Published]:
    """What all processes with ports of a lab have published, by port; or those with one port."""
    found = []
    for path in sorted({*directory.glob(port), *directory.glob(f"{port}@*")}):
        if path.suffix in BESIDE:
            continue
        with contextlib.suppress(FileNotFoundError):
            published = read(path)
            if published.snapshot.counts:
                found.append(published)
    return found
