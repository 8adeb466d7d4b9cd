# SPDX-License-Identifier: GPL-2.0-or-later
"""Inputs that are nearly right, the same ones each time: what the short form of fuzzing tries."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

_EDGES = (b"\0", b"\x7f", b"\x80", b"\xff", b"\xff\xff", bytes(4), b"\xff" * 4, b"\x80\0\0\0")


class Mutator:
    """Changes the inputs of a corpus, helped by words of the input's language."""

    def __init__(self, corpus: Sequence[bytes], words: Sequence[bytes], seed: int) -> None:
        self._corpus = corpus
        self._words = (*words, *_EDGES)
        self._random = random.Random(seed)
        self._changes = (self._flip, self._overwrite, self._insert, self._cut, self._splice)

    def inputs(self, count: int) -> Iterator[bytes]:
        """So many of them."""
        for _ in range(count):
            data = bytearray(self._random.choice(self._corpus))
            for _ in range(self._random.randint(1, 4)):
                self._random.choice(self._changes)(data)
            yield bytes(data)

    def _at(self, data: bytearray) -> int:
        return self._random.randint(0, len(data))

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)

    def _overwrite(self, data: bytearray) -> None:
        word, at = self._random.choice(self._words), self._at(data)
        data[at : at + len(word)] = word

    def _insert(self, data: bytearray) -> None:
        at = self._at(data)
        data[at:at] = self._random.choice(self._words)

    def _cut(self, data: bytearray) -> None:
        at = self._at(data)
        del data[at : at + self._random.choice((1, 2, 4, 16, 256))]

    def _splice(self, data: bytearray) -> None:
        other = self._random.choice(self._corpus)
        begin = self._random.randint(0, len(other))
        at = self._at(data)
        data[at : at + self._random.choice((0, 8, 64))] = other[begin : begin + 64]
