# SPDX-License-Identifier: GPL-2.0-or-later
"""Samples of speed, taken while the machine was ours, and what follows from many of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from softroce_lab.errors import RunError
from softroce_lab.statistics import Interval, median_interval
from softroce_lab.telemetry.stolen import StolenTime

MOST_STOLEN, MOST_ATTEMPTS = 0.01, 8
"""A sample is taken again while the hypervisor takes more of the CPUs than this share."""

Figure = Literal["frames_per_second", "payload_bps"]


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One measurement."""

    frames_per_second: float
    payload_bps: float  # bits of payload a second that arrived
    stolen: float = 0.0  # share of the CPUs' time that the hypervisor gave to others

    @classmethod
    def of(cls, frames: int, ns: int, payload_bytes: int) -> Sample:
        """So many frames in so long."""
        rate = frames * 1e9 / ns
        return cls(rate, rate * 8 * payload_bytes)


Samples: TypeAlias = Mapping[str, Sequence[Sample]]


def undisturbed(measure: Callable[[], Sample]) -> Sample:
    """A sample while the machine was ours; if it never is, the one that came closest.

    RunError if no frame got through in any.
    """
    taken: list[Sample] = []
    while not taken or (_spoilt(taken[-1]) and len(taken) < MOST_ATTEMPTS):
        stolen = StolenTime()
        sample = measure()
        taken.append(dataclasses.replace(sample, stolen=stolen.share()))
    moved = [sample for sample in taken if sample.frames_per_second > 0]
    if not moved:
        raise RunError(
            f"no frame got through in {len(taken)} samples",
            hint="other programs may keep the CPUs busy; longer samples help (--seconds)",
        )
    return min(moved, key=lambda sample: sample.stolen)


def take_round(
    measures: Mapping[str, Callable[[], Sample]],
    samples: Mapping[str, list[Sample]],
    *,
    forth: bool,
) -> None:
    """One undisturbed sample of each measure, in their order or back."""
    for name in measures if forth else reversed(list(measures)):
        samples[name].append(undisturbed(measures[name]))


def _spoilt(sample: Sample) -> bool:
    return sample.stolen > MOST_STOLEN or not sample.frames_per_second


def intervals(samples: Samples, figure: Figure) -> dict[str, Interval]:
    """Median and 95 % interval of one figure, by what was measured."""
    return {
        name: median_interval([getattr(sample, figure) for sample in each])
        for name, each in samples.items()
    }


def ratio(above: Sequence[Sample], below: Sequence[Sample], figure: Figure) -> Interval:
    """Median over the rounds of one figure's ratio, with its 95 % interval."""
    pairs = zip(above, below, strict=True)
    return median_interval([getattr(a, figure) / getattr(b, figure) for a, b in pairs])


def disturbed(samples: Samples) -> dict[str, int]:
    """How many samples of each the hypervisor disturbed all the same."""
    return {
        name: sum(sample.stolen > MOST_STOLEN for sample in each) for name, each in samples.items()
    }
