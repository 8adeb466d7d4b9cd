# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a figure falls along an axis: from which value on a transport has lost a share of it.

    falls: {along: peers, figure: goodput_bps, share: 5%}

The share is of what the axis's first value has. Between two values the figure is taken to fall
evenly with the logarithm of the value.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from softroce_lab.errors import UserError
from softroce_lab.experiment.figure_table import Row
from softroce_lab.experiment.sweep.rows import columns
from softroce_lab.faults.words import Filled, Probability

_NUMBERS = ("int64", "float64")


class FallsSpec(Filled):
    """From which value of an entry of `over` on a column has lost a share."""

    elsewhere: ClassVar = {"over": "along: the name of an entry of over"}

    along: str = Field(description="Entry of `over` whose labels are ascending numbers.")
    figure: str = Field(description="A column of numbers.")
    share: Probability = Field(description="Share of the first value that is lost.")


@dataclasses.dataclass(frozen=True, slots=True)
class Falls:
    """A figure along an axis whose labels are numbers."""

    along: str
    figure: str
    share: float

    @classmethod
    def of(cls, raw: FallsSpec, axes: Mapping[str, Sequence[str]]) -> Falls:
        """Labels by axis. UserError for an axis or a figure that there is not."""
        if raw.along not in axes:
            raise UserError(f"{raw.along!r} is not varied", hint=f"one of {', '.join(axes)}")
        numbers = [_number(label) for label in axes[raw.along]]
        if any(low >= high for low, high in itertools.pairwise(numbers)):
            raise UserError(f"the values of {raw.along!r} are no ascending numbers above 0")
        if columns().get(raw.figure) not in _NUMBERS:
            hint = "a figure of numbers, such as goodput_bps: docs/howto/experiments.md"
            raise UserError(f"no column of numbers is called {raw.figure!r}", hint=hint)
        return cls(raw.along, raw.figure, float(raw.share))

    def lines(self, axes: Sequence[str], rows: Sequence[Row]) -> list[str]:
        """One line for each transport and value of the other axes."""
        return [self._line(title, points) for title, points in self._curves(axes, rows)]

    def document(self, axes: Sequence[str], rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The same for `--json`; `at` is None if the figure does not fall so far."""
        return [
            {"curve": title, "along": self.along, "figure": self.figure, "share": self.share,
             "at": self.at(points), "points": points}
            for title, points in self._curves(axes, rows)
        ]  # fmt: skip

    def at(self, points: Sequence[tuple[float, float]]) -> float | None:
        """Where the figure has fallen by the share; None: nowhere up to the last value."""
        limit = (1 - self.share) * points[0][1]
        for (low, above), (high, below) in itertools.pairwise(points):
            if below < limit <= above:
                part = (above - limit) / (above - below)
                return math.exp(math.log(low) + part * (math.log(high) - math.log(low)))
        return None

    def _line(self, title: str, points: Sequence[tuple[float, float]]) -> str:
        at = self.at(points)
        share = f"{self.figure} has lost {self.share:.3g} of what it is at {points[0][0]:g}"
        kept = f"{points[-1][1] / points[0][1]:.3f} of it is left at {points[-1][0]:g}"
        if at is None:
            return f"{title}: {kept}"
        return f"{title}: {share} from {at:,.0f} {self.along} on; {kept}"

    def _curves(
        self, axes: Sequence[str], rows: Sequence[Row]
    ) -> Iterator[tuple[str, list[tuple[float, float]]]]:
        """The median of the seeds at each value, where there is one."""
        found: dict[str, dict[float, list[float]]] = {}
        for row in rows:
            if row.get(self.figure) is not None:
                parts = [f"{axis} {row[axis]}" for axis in axes if axis != self.along]
                curve = found.setdefault(", ".join([row["transport"], *parts]), {})
                curve.setdefault(_number(row[self.along]), []).append(row[self.figure])
        for title, curve in found.items():
            points = [(value, statistics.median(curve[value])) for value in sorted(curve)]
            if points[0][1] > 0:
                yield title, points


def _number(label: Any) -> float:
    """UserError if it is none above 0."""
    try:
        value = float(label)
    except (TypeError, ValueError):
        value = 0.0
    if not 0 < value < math.inf:
        raise UserError(f"{label!r} is no number above 0")
    return value
