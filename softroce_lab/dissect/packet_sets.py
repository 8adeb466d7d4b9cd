# SPDX-License-Identifier: GPL-2.0-or-later
"""Packet sets of control messages: which packets a NACK or SACK calls missing, as ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from softroce_lab.dissect.description import MOST_IN_SET, PLAIN, RUNS

Range = tuple[int, int]  # first and last packet
MOST_SHOWN = 8  # ranges
MOST_SHIFT = 28  # of a run length


def ranges(form: int, base: int, count: int, bits: bytes) -> list[Range]:
    """The missing packets, ascending; ValueError if `bits` is not what the rest announces."""
    if form == PLAIN:
        if len(bits) != (count + 7) // 8:
            raise ValueError("plain bits of another length than announced")
        return _decode_bits(base, count, bits)
    if form != RUNS or count > MOST_IN_SET:
        raise ValueError("unknown form of a packet set, or absurdly many packets")
    return _decode_run_lengths(base, count, bits)


def plain_bits(missing: Iterable[int], base: int, count: int) -> bytes:
    """The bits of a plain set in which these packets of [base, base + count) are missing."""
    whole = sum({1 << each - base for each in missing})
    return whole.to_bytes((count + 7) // 8, "little")


def text(found: list[Range]) -> str:
    """The ranges as `3, 7-9`, cut after a few."""
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in found[:MOST_SHOWN]]
    return ", ".join(shown + ["..."] * (len(found) > MOST_SHOWN)) or "none"


def _decode_bits(base: int, count: int, bits: bytes) -> list[Range]:
    found: list[Range] = []
    for each in range(count):
        if bits[each // 8] >> each % 8 & 1:
            _append(found, base + each, base + each)
    return found


def _decode_run_lengths(base: int, count: int, data: bytes) -> list[Range]:
    found: list[Range] = []
    at, missing = 0, True
    for length in _leb128(data):
        if at + length > count:
            raise ValueError("runs longer than announced")
        if missing and length:
            _append(found, base + at, base + at + length - 1)
        at, missing = at + length, not missing
    if at != count:
        raise ValueError("runs shorter than announced")
    return found


def _append(found: list[Range], first: int, last: int) -> None:
    """Adds a range; one that follows the last one without a gap makes it longer."""
    if found and found[-1][1] + 1 == first:
        first = found.pop()[0]
    found.append((first, last))


def _leb128(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte & 0x80:
            if shift > MOST_SHIFT:
                raise ValueError("run length too long")
            continue
        yield value
        value = shift = 0
    if shift:
        raise ValueError("a run length is cut")
