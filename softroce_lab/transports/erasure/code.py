# SPDX-License-Identifier: GPL-2.0-or-later
"""Systematic erasure codes: k chunks of data, m chunks of parity (SDR-RDMA, arXiv 2505.05366v2).

    code = ErasureCode("mds", 32, 8)
    code.encode(data, parity)           # data: 32 rows, parity: 8 rows of bytes
    code.decode(data, parity, present)  # restores the rows of data that are not present

Chunks are the rows of numpy arrays, which native code reads and writes in place
(`native/erasure/`). A row's bytes are contiguous; rows may lie anywhere.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from softroce_lab import _native
from softroce_lab.errors import RunError, UserError

Scheme: TypeAlias = Literal["mds", "xor"]
"""`mds`: Reed-Solomon, any k chunks suffice. `xor`: parity i = XOR of data j with j mod m = i."""

SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
MOST_CHUNKS = 256
"""Of data and parity together: the elements of GF(2^8)."""

Chunks: TypeAlias = npt.NDArray[np.uint8]
Presence: TypeAlias = npt.NDArray[np.bool_]


class UndecodableError(RunError):
    """More chunks are lost than the code can restore; no memory was written."""

    def __init__(self, code: ErasureCode, lost: list[int]) -> None:
        super().__init__(
            f"{code}: cannot restore the data without chunks {', '.join(map(str, lost))}",
            hint="retransmit them, or protect the data with more parity",
        )
        self.lost = lost


class ErasureCode:
    """Encodes, tells what can be decoded, and decodes. UserError for an impossible (k, m)."""

    def __init__(self, scheme: Scheme, data_chunks: int, parity_chunks: int) -> None:
        check(scheme, data_chunks, parity_chunks)
        self.scheme = scheme
        self.data_chunks = data_chunks
        self.parity_chunks = parity_chunks
        make = _native.make_mds_code if scheme == "mds" else _native.make_xor_code
        self.native: Any = make(data_chunks, parity_chunks)
        """The native code, for the engine's memory."""

    def __str__(self) -> str:
        return f"{self.scheme} ({self.data_chunks}, {self.parity_chunks})"

    def encode(self, data: Chunks, parity: Chunks) -> None:
        """Write the parity of the data. UserError for arrays of another shape."""
        self._check_arrays(data, parity)
        _check_writeable("parity", parity)
        self.native.encode(data, parity)

    def decodable(self, present: Presence) -> bool:
        """Whether the data can be had from these of the k + m chunks, data first."""
        self._check_presence(present)
        return bool(self.native.decodable(present))

    def decode(self, data: Chunks, parity: Chunks, present: Presence) -> npt.NDArray[np.intp]:
        """Restore the rows of data that are not present; returns their indices.

        No other row is written. UndecodableError if too much is lost.
        """
        self._check_arrays(data, parity)
        _check_writeable("data", data)
        if not self.decodable(present):
            raise UndecodableError(self, np.flatnonzero(~present).tolist())
        self.native.decode(present, data, parity)
        return np.flatnonzero(~present[: self.data_chunks])

    def _check_arrays(self, data: Chunks, parity: Chunks) -> None:
        for name, array, rows in (
            ("data", data, self.data_chunks),
            ("parity", parity, self.parity_chunks),
        ):
            _check_bytes(name, array)
            if array.shape[0] != rows:
                raise UserError(f"{self}: {array.shape[0]} rows of {name}, not {rows}")
        if data.shape[1] != parity.shape[1]:
            raise UserError(
                f"chunks of data have {data.shape[1]} bytes, chunks of parity {parity.shape[1]}",
                hint="pad a short chunk with zeros",
            )

    def _check_presence(self, present: Presence) -> None:
        chunks = self.data_chunks + self.parity_chunks
        if not isinstance(present, np.ndarray) or present.dtype != np.bool_:
            raise UserError("`present` is an array of bool")
        if present.shape != (chunks,) or not present.flags.c_contiguous:
            raise UserError(f"{self}: `present` has shape {present.shape}, not ({chunks},)")


def check(scheme: str, data_chunks: int, parity_chunks: int) -> None:
    """UserError if there is no such code."""
    if scheme not in SCHEMES:
        raise UserError(f"no erasure code is called {scheme!r}", hint=f"use {', '.join(SCHEMES)}")
    for name, count in (("k", data_chunks), ("m", parity_chunks)):
        if count < 1:
            raise UserError(f"{scheme}: {name} is {count}, not at least 1")
    if data_chunks + parity_chunks > MOST_CHUNKS:
        raise UserError(
            f"{scheme}: k + m is {data_chunks + parity_chunks}, not at most {MOST_CHUNKS}",
            hint="GF(2^8) has 256 elements",
        )
    if scheme == "xor" and parity_chunks > data_chunks:
        raise UserError(
            f"xor: m is {parity_chunks}, more than k = {data_chunks}",
            hint="each chunk of parity covers at least one chunk of data",
        )


def _check_bytes(name: str, array: Chunks) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 2:
        raise UserError(f"{name} is no array of uint8 with two dimensions: chunks, bytes")
    if array.shape[1] < 1:
        raise UserError(f"the chunks of {name} have no bytes")
    if array.shape[1] > 1 and array.strides[1] != 1:
        raise UserError(f"the bytes of a chunk of {name} are not contiguous")


def _check_writeable(name: str, array: Chunks) -> None:
    if not array.flags.writeable:
        raise UserError(f"{name} is read-only")
