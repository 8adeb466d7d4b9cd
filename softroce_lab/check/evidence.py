# SPDX-License-Identifier: GPL-2.0-or-later
"""Input of the checkers: a capture, the run directory that contains it, and the user's options.

Arrays of this module are parallel to the rows of the capture unless they are called indices.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from softroce_lab.check import documents
from softroce_lab.errors import UserError
from softroce_lab.telemetry.packets import Has, Kind, Packets

if TYPE_CHECKING:
    from softroce_lab.telemetry.capture_file import Capture

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

_LATEST_NS = 1 << 62
_CONTROL, _HELLO = 1, 3  # LAB_KIND_CONTROL, LAB_CONTROL_HELLO of xdp/lab_wire.h
CHUNK = 1 << 16  # rows that are Python objects at a time
TRACE = "trace.pcapng"
# How comments begin.
DROPPED, CUT, CORRUPTED, DUPLICATED = "dropped", "cut", "corrupted", "duplicated"


@dataclasses.dataclass(frozen=True)
class Run:
    """A run directory as it was written, and the capture in question."""

    path: Path
    capture: str = TRACE

    @functools.cached_property
    def manifest(self) -> dict[str, Any]:
        """What was run; empty, if the file is not there."""
        return documents.read_manifest(self.path / "manifest.json")

    @functools.cached_property
    def links(self) -> dict[str, list[dict[str, Any]]]:
        """Figures of every directed link, by run."""
        return documents.read_links(self.path / "links.json")

    @functools.cached_property
    def runs(self) -> list[dict[str, Any]]:
        """The captured runs of the manifest; all runs, if it does not record the captured ones."""
        runs: list[dict[str, Any]] = self.manifest.get("runs", [])
        if not any("capture" in each for each in runs):
            return runs
        return [run for run in runs if _file_of(run) == self.capture]

    @property
    def only(self) -> dict[str, Any] | None:
        """That of the one run of a workload that was captured; None of any other capture."""
        one = self.runs[0] if len(self.runs) == 1 else {}
        return one if "capture" in one else None

    @functools.cached_property
    def messages(self) -> dict[str, npt.NDArray[Any]]:
        """Columns of messages.parquet, of the runs that were captured."""
        table = self.table("messages")
        one = self.only
        if one is None or not {"transport", "seed"} <= table.keys():
            return table
        mine = (table["transport"] == one.get("transport")) & (table["seed"] == one.get("seed"))
        return {name: column[mine] for name, column in table.items()}

    def captures(self) -> list[Path]:
        """The captures in it, in the order of the runs."""
        paths = self._recorded_captures() or [self.path / TRACE]
        return [path for path in paths if path.is_file()]

    def missing_captures(self) -> list[Path]:
        """Captures that the manifest names and that are gone."""
        return [path for path in self._recorded_captures() if not path.is_file()]

    def _recorded_captures(self) -> list[Path]:
        named = [file for run in self.manifest.get("runs", []) if (file := _file_of(run))]
        return [self.path / file for file in dict.fromkeys(named)]

    def table(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The columns of `<name>.parquet`; none, if it is not there."""
        path = self.path / f"{name}.parquet"
        if not path.is_file():
            return {}
        import pyarrow as pa  # late: it takes a third of a second
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"no table: {error}", file=str(path)) from error
        return {
            column: table[column].to_numpy(zero_copy_only=False) for column in table.column_names
        }


def _file_of(run: Mapping[str, Any]) -> str | None:
    """The name of a run's capture, if it is a file next to the manifest."""
    file = run.get("capture", {}).get("file")
    return file if isinstance(file, str) and Path(file).name == file else None


@dataclasses.dataclass(frozen=True)
class Options:
    """Facts about connections that a capture does not contain."""

    retry_count: int = 7  # of the requesters' queue pairs
    path_mtu: int | None = None  # None: the least that fits First and Middle packets
    at: tuple[bytes, ...] = ()  # GIDs of the hosts where the capture was taken, if known


@dataclasses.dataclass(eq=False)
class Evidence:
    """One capture and all that helps to understand it."""

    capture: Capture
    run: Run | None = None
    options: Options = dataclasses.field(default_factory=Options)
    kept: dict[Any, Any] = dataclasses.field(default_factory=dict)  # of `once`

    @property
    def packets(self) -> Packets:
        packets: Packets = self.capture.packets
        return packets

    @functools.cached_property
    def is_roce(self) -> Mask:
        """Frames with valid headers: complete in their headers, ICRC not known to be wrong."""
        good: Mask = (self.packets["kind"] == Kind.ROCE) & ~self.is_broken
        return good

    @functools.cached_property
    def is_broken(self) -> Mask:
        """RoCE frames with a wrong ICRC: every receiver drops them (IBA 7.8.1)."""
        has = self.packets["has"]
        broken: Mask = has & (Has.ICRC_CHECKED | Has.ICRC_GOOD) == Has.ICRC_CHECKED
        return broken

    @functools.cached_property
    def is_hello(self) -> Mask:
        """Hellos of processes that carry operations: their Q_Key is that of all hellos."""
        packets = self.packets
        is_control = (packets["has"] & Has.LAB != 0) & (packets["lab_kind"] == _CONTROL)
        hellos: Mask = is_control & (packets["lab_message_id"] == _HELLO)
        return hellos

    @functools.cached_property
    def broken(self) -> Indices:
        return np.flatnonzero(self.is_broken)

    @functools.cached_property
    def is_dropped(self) -> Mask:
        """Frames that the injector took away behind the place of the capture."""
        return self.commented(DROPPED)

    @functools.cached_property
    def is_lost(self) -> Mask:
        """Frames that no receiver takes: dropped or corrupted behind the capture, or broken."""
        return self.is_dropped | self.commented(CORRUPTED) | self.is_broken

    def commented(self, effect: str) -> Mask:
        """Frames with this effect of the injector in their comments."""
        comments = self.capture.comments
        # The last one is of index -1: no comment.
        stated = np.array([*(_states(each, effect) for each in comments), False], dtype=np.bool_)
        mask: Mask = stated[self.packets["comment"]]
        return mask

    def rules_of_the_run(self, word: str) -> bool:
        """Whether the run that was captured had rules of this word, on whatever link."""
        faults = [] if self.run is None else self.run.manifest.get("faults", [])
        return any(word in str(each.get("fault", "")) for each in faults)

    @functools.cached_property
    def in_time(self) -> Indices:
        """Indices of all rows, by time; in file order where there are no timestamps.

        Packets of one interface are in their order, whatever its clock did meanwhile.
        """
        packets = self.packets
        stamped = np.all(packets["has"] & Has.STAMPED)
        if not stamped or len(np.unique(packets["interface"])) <= 1:
            return np.arange(len(packets))
        return np.argsort(packets["time_ns"], kind="stable")

    @functools.cached_property
    def place_in_time(self) -> Indices:
        """Of each row its place in `in_time`."""
        place = np.empty(len(self.packets), np.int64)
        place[self.in_time] = np.arange(len(place))
        return place

    def times_ns(self, indices: Indices) -> Indices:
        """Of some rows, as numbers that can be subtracted, whatever the file contains."""
        times: Indices = np.minimum(self.packets["time_ns"][indices], _LATEST_NS).astype(np.int64)
        return times

    def rows(self, indices: Indices, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Some rows as tuples of Python's own numbers, GIDs as bytes; little memory at a time."""
        for begin in range(0, len(indices), CHUNK):
            part = indices[begin : begin + CHUNK]
            yield from zip(*(self._listed(name, part) for name in columns), strict=True)

    def _listed(self, name: str, indices: Indices) -> list[Any]:
        column = self.packets[name][indices]
        if column.ndim == 2:
            return [bytes(each) for each in column]
        listed: list[Any] = column.tolist()
        return listed

    def interface_names(self) -> Mapping[int, str]:
        """Of the interfaces that have a name: `leaf1->spine1` in captures of the lab."""
        numbered = enumerate(self.capture.interfaces)
        return {number: each.name for number, each in numbered if each.name is not None}


_Found = TypeVar("_Found")


def once(find: Callable[[Evidence], _Found]) -> Callable[[Evidence], _Found]:
    """Decorates what several checkers need: an evidence keeps it."""

    @functools.wraps(find)
    def kept(evidence: Evidence) -> _Found:
        if find not in evidence.kept:
            evidence.kept[find] = find(evidence)
        found: _Found = evidence.kept[find]
        return found

    return kept


def _states(comment: str, effect: str) -> bool:
    """Comments are what was done, one after the other: `corrupted: rule a; duplicated: rule b`."""
    return any(part.startswith(effect) for part in comment.split("; "))


def hosts_of(evidence: Evidence) -> set[str]:
    """Those that talked, if the capture is of a run."""
    if evidence.run is None:
        return set()
    facts = evidence.run.manifest
    two = {facts[end] for end in ("source", "destination") if isinstance(facts.get(end), str)}
    return two | set(facts.get("hosts", ()))


def ends(name: str) -> tuple[str, str]:
    """The nodes of a directed link: `s1:p2->s2:p2` is ("s1", "s2")."""
    tail, _, head = name.partition("->")
    return tail.partition(":")[0], head.partition(":")[0]
