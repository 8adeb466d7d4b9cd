# SPDX-License-Identifier: GPL-2.0-or-later
"""A program for a host's port that notes when each frame arrived, for benches.

It takes the place of the lab's own program until that is attached again
(`XdpFabric.attach_programs`), in the mode that the lab came up in.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from softroce_lab.fabric.bpf import libbpf as bpf
from softroce_lab.fabric.bpf.compiler import Module
from softroce_lab.fabric.bpf.xdp import attach_pinned
from softroce_lab.fabric.lab import Lab
from softroce_lab.plan.plan import Node
from softroce_lab.structs import Struct

SOURCE = "stamps.c"
PROGRAM = "stamp_port"
STAMPS = "stamps"

RECORD = np.dtype(Struct("lab_stamp").dtype)


def load(bpffs: Path, numbers: int, index_offset: int, stamp_offset: int) -> None:
    """Compile the program and pin it and its map in the lab's bpffs. Once per lab.

    A frame has its number from 0 below `numbers` at one offset (four bytes, big-endian) and the
    moment it was sent at the other (eight bytes, CLOCK_MONOTONIC).
    """
    parameters = {
        "LAB_STAMPS": numbers,
        "LAB_INDEX_OFFSET": index_offset,
        "LAB_STAMP_OFFSET": stamp_offset,
    }
    with Module(SOURCE, (PROGRAM,), parameters) as module:
        module.pin(bpffs, (STAMPS,))


@contextmanager
def attached(lab: Lab, node: Node) -> Iterator[None]:
    """The program runs on the ports of `node`, and afterwards the lab's own does again."""
    with lab.enter(node.name):
        attach_pinned(lab.bpffs / PROGRAM, node.ports, lab.mode)
    try:
        yield
    finally:
        lab.xdp.attach_programs([node], lab.enter, lab.mode)


class Stamps:
    """The records of the frames, by number; the memory is the kernel's own."""

    def __init__(self, bpffs: Path) -> None:
        """Open the map pinned by `load`."""
        table = bpf.Map.pinned(bpffs / STAMPS)
        try:
            self._memory = mmap.mmap(table.fd, table.max_entries * RECORD.itemsize)
        finally:
            table.close()

    def clear(self) -> None:
        """Forget all frames."""
        self._memory[:] = bytes(len(self._memory))

    def taken(self, count: int) -> npt.NDArray[np.void]:
        """A copy of the records of the first `count` numbers; `copies` 0: it never arrived."""
        return np.frombuffer(self._memory, RECORD, count).copy()
