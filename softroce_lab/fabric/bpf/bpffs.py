# SPDX-License-Identifier: GPL-2.0-or-later
"""What a lab has pinned in its BPF file system: programs and maps, seen until they are gone."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from pathlib import Path

from softroce_lab.fabric.bpf import libbpf

_POLL_S = 0.002


@dataclasses.dataclass(frozen=True, slots=True)
class BpfObjects:
    """Programs and maps by their ids, which the kernel gives out in turn."""

    programs: frozenset[int] = frozenset()
    maps: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.programs or self.maps)

    def __str__(self) -> str:
        programs = [f"program {number}" for number in sorted(self.programs)]
        return ", ".join([*programs, *(f"map {number}" for number in sorted(self.maps))])

    def living(self) -> BpfObjects:
        return BpfObjects(
            frozenset(libbpf.living("prog", self.programs)),
            frozenset(libbpf.living("map", self.maps)),
        )


def pinned(bpffs: Path) -> BpfObjects:
    """All that is pinned in this file system; nothing if there is none."""
    found: dict[str, set[int]] = {"prog_id": set(), "map_id": set()}
    with contextlib.suppress(FileNotFoundError):
        for pin in bpffs.iterdir():
            with contextlib.suppress(OSError):  # the kernel's own files there cannot be opened
                for key, number in _ids(libbpf.opened(pin)):
                    found.get(key, set()).add(number)
    return BpfObjects(frozenset(found["prog_id"]), frozenset(found["map_id"]))


def _ids(fd: int) -> list[tuple[str, int]]:
    """The numbers that the kernel shows of the object behind `fd`, which is closed."""
    try:
        text = Path(f"/proc/self/fdinfo/{fd}").read_text("ascii")
    finally:
        os.close(fd)
    fields = (line.partition(":") for line in text.splitlines())
    return [(key, int(value)) for key, _, value in fields if key in ("prog_id", "map_id")]


def await_freed(objects: BpfObjects, timeout_s: float) -> BpfObjects:
    """Wait until all are gone, for at most `timeout_s` seconds; those that are not."""
    deadline = time.monotonic() + timeout_s
    while (objects := objects.living()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return objects
