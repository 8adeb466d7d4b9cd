# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench ec`: bytes of data a second that one core encodes and decodes, beside ISA-L.

    mds, xor                  encoding submessages of k chunks
    mds_decode, xor_decode    decoding them with as many losses as each code restores: m chunks of
                              data, one of each group
    isal_mds, isal_xor        ISA-L's ec_encode_data and xor_gen over the same memory, called bare

All take turns over the same submessages. Time is the core's time that this thread got.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from softroce_lab import _native
from softroce_lab.erasure.code import Chunks, ErasureCode
from softroce_lab.errors import UserError
from softroce_lab.statistics import Interval, median_interval
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

_ALIGNMENT = 64  # xor_gen of ISA-L wants 32


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    rounds: int = 21
    size_bytes: int = 256 << 20  # of data in a round of each, rounded up to the working set
    working_set_bytes: int = 2 << 20  # of data, rounded up to submessages
    chunk_bytes: int = 64 << 10
    data_chunks: int = 32
    parity_chunks: int = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Bytes of data a second, a value a round, by what was measured."""

    options: Options
    working_set_bytes: int
    rates: dict[str, list[float]]

    def intervals(self) -> dict[str, Interval]:
        """Bytes of data a second."""
        return {name: median_interval(values) for name, values in self.rates.items()}

    def ratios(self) -> dict[str, Interval]:
        """Our encoding over ISA-L's, each within its round; nothing without ISA-L."""
        return {
            name: median_interval([a / b for a, b in zip(self.rates[name], bare, strict=True)])
            for name in ("mds", "xor")
            if (bare := self.rates.get(f"isal_{name}"))
        }

    def document(self) -> dict[str, Any]:
        """All of it, as `--json` prints it."""
        intervals = self.intervals()
        return {
            "schema_version": SCHEMA_VERSION,
            **{f"{name}_bytes_per_second": round(each.median) for name, each in intervals.items()},
            "ratios_to_isal": {name: round(each.median, 4) for name, each in self.ratios().items()},
            "interval_95": {name: [each.low, each.high] for name, each in intervals.items()},
            "rounds": self.options.rounds,
            "working_set_bytes": self.working_set_bytes,
            "chunk_bytes": self.options.chunk_bytes,
            "data_chunks": self.options.data_chunks,
            "parity_chunks": self.options.parity_chunks,
            "has_isal": _native.has_isal,
            "environment": environment(),
        }


def run(options: Options, progress: Callable[[int], None] = lambda _: None) -> Outcome:
    """Measure; `progress` gets the number of rounds done. UserError for what cannot be."""
    if options.chunk_bytes % _ALIGNMENT or not options.chunk_bytes:
        raise UserError(
            f"chunks of {options.chunk_bytes} bytes",
            hint=f"ISA-L is compared with multiples of {_ALIGNMENT} bytes",
        )
    rig = _Rig(options)
    rates: dict[str, list[float]] = {name: [] for name in rig.measures}
    turns = max(1, -(-options.size_bytes // rig.data_bytes))
    for measure in rig.measures.values():  # warm
        rig.rate(measure, 1)
    for done in range(options.rounds):
        names = [*rig.measures]
        for name in names if done % 2 else reversed(names):
            rates[name].append(rig.rate(rig.measures[name], turns))
        progress(done + 1)
    return Outcome(options, rig.data_bytes, rates)


class _Rig:
    """Submessages in memory, and what is measured over one of them."""

    def __init__(self, options: Options) -> None:
        k, m = options.data_chunks, options.parity_chunks
        mds, xor = ErasureCode("mds", k, m), ErasureCode("xor", k, m)
        submessage_bytes = k * options.chunk_bytes
        count = max(1, -(-options.working_set_bytes // submessage_bytes))
        self.data_bytes = count * submessage_bytes
        self._submessages = _aligned(count, k + m, options.chunk_bytes)
        self._k = k
        present = np.ones(k + m, np.bool_)
        present[:m] = False  # chunks 0 to m - 1 are of different groups
        self.measures: dict[str, Callable[[Chunks, Chunks], Any]] = {
            "mds": mds.encode,
            "xor": xor.encode,
            "mds_decode": lambda data, parity: mds.decode(data, parity, present),
            "xor_decode": lambda data, parity: xor.decode(data, parity, present),
        }
        if _native.has_isal:
            tables = _native.isal_tables(k, m)
            self.measures |= {
                "isal_mds": lambda data, parity: _native.isal_encode(tables, data, parity),
                "isal_xor": _native.isal_xor,
            }

    def rate(self, measure: Callable[[Chunks, Chunks], Any], turns: int) -> float:
        """Bytes of data a second."""
        began = time.thread_time_ns()
        for _ in range(turns):
            for chunks in self._submessages:
                measure(chunks[: self._k], chunks[self._k :])
        return turns * self.data_bytes * 1e9 / (time.thread_time_ns() - began)


def _aligned(count: int, rows: int, row_bytes: int) -> Any:
    """Random bytes of three dimensions that begin at a multiple of `_ALIGNMENT`."""
    size = count * rows * row_bytes
    memory = np.random.default_rng(1).integers(0, 256, size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size].reshape(count, rows, row_bytes)
