# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers that follow from names: of a student's variant, of a task's seed, of hidden seeds.

They are hashes, not draws of a generator, so that every machine and every version has the same.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_SEEDS = 1 << 31
_HIDDEN_FROM = 1 << 16  # public seeds are below


class Dice:
    """Choices that follow from a text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def number(self, name: str, least: int, most: int) -> int:
        """One of [least, most]."""
        return least + _hash(f"{self._text}/{name}") % (most - least + 1)

    def one_of(self, name: str, choices: Sequence[T]) -> T:
        """One of these."""
        return choices[self.number(name, 0, len(choices) - 1)]


def variant(lab: int, student: str) -> Dice:
    """A student's variant of a lab: of the experiment and of the questions' answers."""
    return Dice(f"softroce_lab learn {lab} {student.strip().casefold()}")


def of_seed(task: str, seed: int) -> Dice:
    """What a task draws from a seed."""
    return Dice(f"{task} {seed}")


def hidden(secret: bytes, lab: int, task: str, count: int) -> list[int]:
    """A teacher's seeds of a task. Who knows them does not know the secret."""
    found = []
    for number in range(count):
        text = f"lab {lab} task {task} seed {number}".encode()
        digest = hmac.new(secret, text, hashlib.sha256).digest()
        found.append(_HIDDEN_FROM + int.from_bytes(digest[:8], "big") % (_SEEDS - _HIDDEN_FROM))
    return found


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
