# SPDX-License-Identifier: GPL-2.0-or-later
"""Cells of the same point by scheme, and how far `auto` is from the best fixed scheme there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Protocol, TypeAlias, TypeVar

Point: TypeAlias = tuple[float, int, float]
"""Distance, size, loss."""


class Timed(Protocol):
    """A cell: a scheme's mean time of a message, in ns."""

    @property
    def scheme(self) -> str:
        """By the model's name."""

    @property
    def mean_ns(self) -> float:
        """Of a message."""


_Cell = TypeVar("_Cell", bound=Timed)
_Where = TypeVar("_Where", bound=Hashable)


def by_scheme(
    cells: Iterable[_Cell], where: Callable[[_Cell], _Where]
) -> dict[_Where, dict[str, _Cell]]:
    """By where they are, then by scheme; both in the order of the first ones."""
    found: dict[_Where, dict[str, _Cell]] = {}
    for each in cells:
        found.setdefault(where(each), {})[each.scheme] = each
    return found


def fixed(here: Mapping[str, _Cell]) -> list[_Cell]:
    """The cells of all schemes but `auto`."""
    return [cell for name, cell in here.items() if name != "auto"]


def auto_over(points: Mapping[_Where, Mapping[str, _Cell]]) -> dict[_Where, float]:
    """The mean of `auto` over the least of the others, where both were simulated."""
    return {
        where: here["auto"].mean_ns / min(cell.mean_ns for cell in others)
        for where, here in points.items()
        if "auto" in here and (others := fixed(here))
    }
