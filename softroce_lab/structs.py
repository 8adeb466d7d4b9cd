# SPDX-License-Identifier: GPL-2.0-or-later
"""Structs and enums of C and C++ as Python reads and writes them, in the machine's byte order.

The compiler lays them out: native/bindings/struct_members.py lists the headers that the build takes
them from, and the headers say what the members mean. None has padding.
"""

from __future__ import annotations

import functools
import os
import re
import struct
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

from softroce_lab import _native

_CODES = {
    f"{sign}{size}": code
    for sign, codes in (("u", "BHIQ"), ("i", "bhiq"))
    for size, code in zip((1, 2, 4, 8), codes, strict=True)
}

CONSTANTS: dict[str, Any] = _native.CONSTANTS


class Struct:
    """A struct by its name in C, or as namespace softroce has it.

    Members are numbers, or the bytes of an array or of another struct.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.size: int = _native.STRUCTS[name][0]
        self._members = _native.STRUCTS[name][1]  # name, bytes, type
        codes = (_CODES.get(type_, f"{size}s") for _, size, type_ in self._members)
        self._packer = struct.Struct("=" + "".join(codes))
        self._zeros = {member: 0 if type_ in _CODES else b"" for member, _, type_ in self._members}

    @property
    def members(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(self._zeros)

    @property
    def dtype(self) -> list[Any]:
        """What `numpy.dtype` makes a dtype of; a struct inside is one with fields of its own."""
        return [(name, *_numpy(type_)) for name, _, type_ in self._members]

    @functools.cached_property
    def record(self) -> Any:
        """The class of what `unpack` returns: a named tuple."""
        return namedtuple(self._name.rpartition("::")[2], self.members)

    def pack(self, **values: int | bytes) -> bytes:
        """Its bytes; members that are not given are 0. struct.error for what does not fit."""
        given = self._zeros | values
        if len(given) > len(self._zeros):
            raise TypeError(f"{self._name} has no {', '.join(values.keys() - self._zeros)}")
        return self._packer.pack(*given.values())

    def unpack(self, data: bytes) -> Any:
        """A record of the struct that `data` begins with. struct.error if it is too short."""
        return self.record._make(self._packer.unpack_from(data))

    def unpack_all(self, data: bytes) -> Iterator[Any]:
        """Records of structs that follow each other, without a rest."""
        return map(self.record._make, self._packer.iter_unpack(data))


def _numpy(type_: Any) -> tuple[Any, ...]:
    shape: tuple[int, ...] = ()
    while isinstance(type_, tuple):
        type_, length = type_
        shape = (*shape, length)
    element = type_ if type_ in _CODES else Struct(type_).dtype
    return (element, shape) if shape else (element,)


def enumerators(name: str) -> dict[str, int]:
    """An enum's values by name: lower case, without what all of the names begin with.

    LAB_EFFECT_DROP is `drop`, kHasLab `has_lab`.
    """
    values: dict[str, int] = _native.ENUMS[name]
    names = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", each.removeprefix("k")): each for each in values}
    common = os.path.commonprefix([*names]).rpartition("_")[0]
    start = len(common) + 1 if common else 0
    return {each[start:].lower(): values[full] for each, full in names.items()}
