# SPDX-License-Identifier: GPL-2.0-or-later
"""Captures of a run: `--capture [LINK]`, `--snap BYTES`, and where they go."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from softroce_lab.errors import LabError, RunError, UserError
from softroce_lab.faults import resolve
from softroce_lab.plan import locate
from softroce_lab.plan.plan import Plan
from softroce_lab.telemetry import transitions as transition
from softroce_lab.telemetry.annotate import Note, annotate
from softroce_lab.telemetry.capture_figures import (
    SNAP_BYTES,
    Figures,
    InterfaceFigures,
    check_snap,
)
from softroce_lab.telemetry.rundir import give_to_user
from softroce_lab.verbs.device import GID

if TYPE_CHECKING:
    from softroce_lab.fabric.lab import Lab
    from softroce_lab.fabric.observe.view import View
    from softroce_lab.sim.fabric import SimFabric

ENDS = "ends"  # stands for all links of the hosts that take part, both ways, and those where
# rules lose or change packets, so that the capture shows what was lost
FILE = "trace.pcapng"


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    patterns: Sequence[str]  # as `lab fault` takes them, or ENDS; (): nothing
    snap_bytes: int = SNAP_BYTES  # of each packet; 0: all
    path: Path = Path(FILE)
    optional: bool = False  # nothing is captured where the kernel lacks ring buffers

    def links(self, plan: Plan, hosts: Iterable[str]) -> dict[int, str]:
        """Number and name of each directed link, in the order of the plan. UserError."""
        check_snap(self.snap_bytes)
        if ENDS not in self.patterns:
            return links_of(plan, self.patterns)
        ends = links_of(plan, [*(each for each in self.patterns if each != ENDS), *hosts])
        names = locate.arrows(plan)
        lossy = {f.directed_link: names[f.directed_link] for f in plan.faults if not f.shapes}
        return dict(sorted((ends | lossy).items()))


def links_of(plan: Plan, patterns: Iterable[str]) -> dict[int, str]:
    """Number and name of each directed link that a pattern chooses. UserError."""
    names = locate.arrows(plan)
    chosen = {number for pattern in patterns for number in resolve.links_of(plan, pattern)}
    return {number: names[number] for number in sorted(chosen)}


NOTHING = Wanted(())


@dataclasses.dataclass(slots=True)
class RunCapture:
    wanted: Wanted
    figures: Figures = dataclasses.field(default_factory=lambda: Figures(()))

    def document(self) -> dict[str, Any]:
        kept = {"file": str(self.wanted.path), "snap_bytes": self.wanted.snap_bytes}
        return kept | self.figures.document()

    def summary(self) -> str:
        return summary(self.document())


def summary(document: Mapping[str, Any]) -> str:
    """`1,234 packets captured, 5 missed`, why it ended if it had to, and the file if known."""
    why = f"; it ended early: {document['error']}" if document["error"] else ""
    where = f": {document['file']}" if "file" in document else ""
    return f"{document['captured']:,} packets captured, {document['missed']:,} missed{why}{where}"


def _shown(path: Path) -> str:
    """As the user knows it: a run directory is written through /proc (`RunDirectory.inside`)."""
    return path.name if path.is_relative_to("/proc") else str(path)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of the empty file `path`, which belongs to the user. UserError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o644)
    except OSError as error:
        hint = "name a file in a folder that exists and may be written"
        raise UserError(f"cannot write {_shown(path)}: {error.strerror}", hint=hint) from error
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):  # not /dev/null
            give_to_user(fd)
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def capturing(lab: Lab | View, wanted: Wanted, hosts: Iterable[str]) -> Iterator[RunCapture | None]:
    """Captures run while this context is open; its figures are there afterwards.

    None: nothing is. UserError, EnvironmentLackError without ring buffers, RunError if the monitor
    died. If the run fails, what was captured until then is in the file.
    """
    from softroce_lab.fabric import lacks  # of the real clock alone

    if not wanted.patterns or (wanted.optional and lacks.RING_BUFFERS in lab.lacks):
        yield None
        return
    links = wanted.links(lab.plan, hosts)
    with opened(wanted.path) as fd:
        from softroce_lab.fabric.observe.capture import Capture  # of the real clock alone

        capture = Capture(lab.directory, links, fd, snap_bytes=wanted.snap_bytes)
    with capture:
        found = RunCapture(wanted)
        yield found
        found.figures = capture.end()


@contextlib.contextmanager
def capturing_virtually(
    fabric: SimFabric, wanted: Wanted, hosts: Iterable[str]
) -> Iterator[RunCapture | None]:
    """The same on the virtual clock, which misses nothing. RunError if the file takes no more."""
    if not wanted.patterns:
        yield None
        return
    links = wanted.links(fabric.plan, hosts)
    found = RunCapture(wanted)
    with opened(wanted.path) as fd:
        fabric.capture(links, wanted.snap_bytes, lambda blocks: _write(fd, blocks, wanted.path))
        try:
            yield found
        finally:
            seen = fabric.end_capture()
    each = (InterfaceFigures(*row, 0) for row in zip(links.values(), seen, strict=True))
    found.figures = Figures(tuple(each))


class WithEvents(Protocol):
    """The parts of a run (workload_run.py) that a capture shows as comments."""

    @property
    def transitions(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def recoveries(self) -> Iterable[Mapping[str, Any]]: ...


def comment(path: Path, run: WithEvents, plan: Plan, begun_ns: int) -> dict[str, str]:
    """Write what hosts did as comments on the packets of theirs that followed.

    Those are transitions of queue pairs with a backup, and packets restored from parity.
    `begun_ns`: the capture's time when the run began. Returns facts for the manifest:
    none, or why they were not written, for the run and its capture are whole without them.
    """
    gids = {
        host.name: frozenset(
            ipaddress.IPv6Address(GID.of_address(int(ipaddress.ip_address(each))).gid).packed
            for port in host.ports
            for each in (port.address, port.address6)
            if each is not None
        )
        for host in plan.plain_hosts
    }
    notes = [
        Note(begun_ns + row["time_ns"], gids[row["host"]], f"shift: {transition.line(row)}")
        for row in run.transitions
    ]
    names = {str(port.address): host.name for host in plan.plain_hosts for port in host.ports}
    notes += [
        Note(begun_ns + time_ns, gids[host], text)
        for part in run.recoveries
        for time_ns, host, text in _restorations(part, names)
    ]
    try:
        annotate(path, notes)
    except LabError as error:
        return {"comments_not_written": error.what}
    return {}


def _restorations(
    part: Mapping[str, Any], names: Mapping[str, str]
) -> Iterator[tuple[int, str, str]]:
    """Times, hosts and texts, of columns of recovery.parquet; `names` of hosts, by address."""
    rows = np.flatnonzero(part["event"] == "restored")
    columns = ("time_ns", "host", "src", "operation", "step", "message", "index")
    for time_ns, host, source, *key, index in zip(
        *(part[column][rows].tolist() for column in columns), strict=True
    ):
        message = f"{names.get(source, source)}->{host}:{'/'.join(map(str, key))}"
        yield time_ns, host, f"restored: packet {index} of {message}, from parity"


def wall_clock_ns(monotonic_ns: int) -> int:
    """What a capture on the real clock calls this moment of CLOCK_MONOTONIC."""
    return monotonic_ns + time.time_ns() - time.monotonic_ns()


def _write(fd: int, blocks: bytes, path: Path) -> None:
    left = memoryview(blocks)
    try:
        while left:
            left = left[os.write(fd, left) :]
    except OSError as error:
        raise RunError(f"cannot write {_shown(path)}: {error.strerror}") from error
