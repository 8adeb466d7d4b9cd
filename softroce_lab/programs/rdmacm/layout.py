# SPDX-License-Identifier: GPL-2.0-or-later
"""Records of bit fields as the specification's tables give them: a byte, a bit in it, a width.

A record is a frozen dataclass whose fields carry their offsets. Bytes and bits count from the most
significant, as in the tables of IBA volume 1. What no field covers is reserved: sent as zero,
ignored on receipt. So `build(parse(octets))` is `octets` with the reserved bits cleared, and
`parse(build(record))` is `record`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Any, ClassVar, Self


class LayoutError(ValueError):
    """A value does not fit its field, or the octets are not as many as the record has."""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a field lies, and how its integer becomes the value."""

    byte: int
    bit: int
    width: int
    of_int: Callable[[int], Any]
    to_int: Callable[[Any], int]


def _same(value: int) -> int:
    return value


def at(byte: int, width: int, bit: int = 0, default: int = 0) -> Any:
    """A number of `width` bits that begins `bit` bits into octet `byte`."""
    place = Place(byte, bit, width, _same, int)
    return dataclasses.field(default=default, metadata={"place": place})


def gid_at(byte: int) -> dict[str, Place]:
    """Metadata of a field that is a GID."""
    return {"place": Place(byte, 0, 128, IPv6Address, int)}


def data_at(byte: int, length: int) -> Any:
    """`length` octets; shorter data is followed by zeros, as the MAD is."""
    place = Place(byte, 0, 8 * length, lambda value: value.to_bytes(length), int.from_bytes)
    return dataclasses.field(default=bytes(length), metadata={"place": place, "pad": length})


def record_at(byte: int, kind: type[Record]) -> dict[str, Place]:
    """Metadata of a field that is a record within the record."""
    size = kind.SIZE_BYTES
    place = Place(
        byte,
        0,
        8 * size,
        lambda value: kind.parse(value.to_bytes(size)),
        lambda record: int.from_bytes(record.build()),
    )
    return {"place": place}


@dataclasses.dataclass(frozen=True)
class Record:
    """Base of all records."""

    SIZE_BYTES: ClassVar[int]
    _places: ClassVar[tuple[tuple[str, int, int, Place], ...]]

    @classmethod
    def _fields(cls) -> tuple[tuple[str, int, int, Place], ...]:
        """Name, shift from the right, mask and place of every field; found out once."""
        if "_places" not in cls.__dict__:
            places = [(field.name, field.metadata["place"]) for field in dataclasses.fields(cls)]
            cls._places = tuple(
                (
                    name,
                    8 * (cls.SIZE_BYTES - place.byte) - place.bit - place.width,
                    (1 << place.width) - 1,
                    place,
                )
                for name, place in places
            )
        return cls._places

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if length := field.metadata.get("pad"):
                data = getattr(self, field.name)
                if len(data) > length:
                    raise LayoutError(f"{field.name}: {len(data)} bytes, {length} fit")
                object.__setattr__(self, field.name, bytes(data).ljust(length, b"\0"))

    def build(self) -> bytes:
        """The octets; LayoutError if a value is wider than its field."""
        whole = 0
        for name, shift, mask, place in self._fields():
            value = place.to_int(getattr(self, name))
            if not 0 <= value <= mask:
                raise LayoutError(f"{name}: {value:#x} does not fit {place.width} bits")
            whole |= value << shift
        return whole.to_bytes(self.SIZE_BYTES)

    @classmethod
    def parse(cls, octets: bytes) -> Self:
        """The record in `octets`; LayoutError if their number is not the record's."""
        if len(octets) != cls.SIZE_BYTES:
            raise LayoutError(f"{cls.__name__}: {len(octets)} bytes, not {cls.SIZE_BYTES}")
        whole = int.from_bytes(octets)
        return cls(
            **{
                name: place.of_int(whole >> shift & mask)
                for name, shift, mask, place in cls._fields()
            }
        )

    @classmethod
    def defined(cls) -> bytes:
        """Ones where the record has fields, zeros where it is reserved."""
        whole = 0
        for _, shift, mask, place in cls._fields():
            inner = place.of_int(0)
            ones = int.from_bytes(inner.defined()) if isinstance(inner, Record) else mask
            whole |= ones << shift
        return whole.to_bytes(cls.SIZE_BYTES)
