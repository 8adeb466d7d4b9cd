# SPDX-License-Identifier: GPL-2.0-or-later
"""Options of `sdr_ec` and `sdr_auto`, and the codes that follow from them.

Their recovery is native/transport/sdr_ec.cpp and sdr_auto.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from softroce_lab.erasure import code as erasure
from softroce_lab.recovery.options import Option, OptionError, Value

CHUNK_BYTES = 64 << 10
K, M = 32, 8
AUTO_PARITY = (8, 1, 2, 4, 16, 32)
"""Chunks of parity that `sdr_auto` may add to 32 of data; the first one until losses are known."""

_MOST_CHUNK_BYTES = 4 << 20

AUTO_OPTIONS = (
    Option("chunk", CHUNK_BYTES, "bytes of a chunk: path MTUs in all", "bytes",
           least=256, most=_MOST_CHUNK_BYTES),
    Option("beta", 1.0, "RTTs that the fallback timer waits behind the last packet",
           least=0.0, most=100.0),
)  # fmt: skip
EC_OPTIONS = (
    Option("code", "mds", "erasure code of a submessage", choices=erasure.SCHEMES),
    Option("k", K, "chunks of data in a submessage", least=1, most=erasure.MOST_CHUNKS - 1),
    Option("m", M, "chunks of parity in a submessage", least=1, most=erasure.MOST_CHUNKS - 1),
    *AUTO_OPTIONS,
)

Codes = tuple[tuple[int, int], ...]
"""(k, m) of the codes that messages may have."""


def ec_codes(values: Mapping[str, Value]) -> Codes:
    """The code of all messages; OptionError for a (k, m) that there is no code of."""
    k, m = cast("int", values["k"]), cast("int", values["m"])
    if k + m > erasure.MOST_CHUNKS:
        most = erasure.MOST_CHUNKS - k
        what = f"option 'm': k + m is {k + m}, more than {erasure.MOST_CHUNKS}"
        raise OptionError("m", what, hint=f"with k = {k}: at most {most}")
    if values["code"] == "xor" and m > k:
        what = f"option 'm': {m} chunks of parity for k = {k} chunks of data"
        raise OptionError("m", what, hint="xor has at most k")
    return ((k, m),)


def auto_codes(values: Mapping[str, Value]) -> Codes:
    """All that it may use."""
    return tuple((K, parity) for parity in AUTO_PARITY)


def chunk_packets(values: Mapping[str, Value], path_mtu: int) -> int:
    """Packets of a chunk, one for each path MTU in it; OptionError if that is no whole number."""
    chunk = cast("int", values["chunk"])
    if chunk % path_mtu:
        below = chunk - chunk % path_mtu or path_mtu
        what = f"option 'chunk': {chunk} bytes are no multiple of the path MTU, {path_mtu} bytes"
        raise OptionError("chunk", what, hint=f"for example {below} bytes")
    return chunk // path_mtu
