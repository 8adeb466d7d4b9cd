# SPDX-License-Identifier: GPL-2.0-or-later
"""Erasure codes (32, 8) with chunks of 64 KiB on one core, and ISA-L's functions bare.

Decoding restores as many chunks as a code can: eight chunks of data, one of each group of XOR.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from softroce_lab import _native
from softroce_lab.transports.erasure.code import ErasureCode

K, M, CHUNK_BYTES = 32, 8, 64 << 10
_ALIGNMENT = 64  # ISA-L's xor_gen needs 32


def measure(short: bool) -> dict[str, float]:
    """Bytes of data a second of CPU."""
    memory = np.random.default_rng(1).integers(0, 256, (K + M) * CHUNK_BYTES + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    chunks = memory[begin : begin + (K + M) * CHUNK_BYTES].reshape(K + M, CHUNK_BYTES)
    data, parity = chunks[:K], chunks[K:]
    present = np.ones(K + M, np.bool_)
    present[:M] = False
    work: dict[str, Callable[[], Any]] = {}
    for scheme in ("mds", "xor"):
        code = ErasureCode(scheme, K, M)
        work[f"{scheme}_encode"] = lambda code=code: code.encode(data, parity)  # type: ignore[misc]
        work[f"{scheme}_decode"] = lambda code=code: code.decode(data, parity, present)  # type: ignore[misc]
    if _native.has_isal:
        tables = _native.isal_tables(K, M)
        work["isal_mds_encode"] = lambda: _native.isal_encode(tables, data, parity)
        work["isal_xor_encode"] = lambda: _native.isal_xor(data, parity)
    turns = 2 if short else 200
    return {f"{name}_bytes_per_cpu_s": _rate(each, turns) for name, each in work.items()}


def _rate(work: Callable[[], Any], turns: int) -> float:
    work()  # warm
    began = time.thread_time_ns()
    for _ in range(turns):
        work()
    return turns * K * CHUNK_BYTES * 1e9 / (time.thread_time_ns() - began)
