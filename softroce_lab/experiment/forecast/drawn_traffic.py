# SPDX-License-Identifier: GPL-2.0-or-later
"""Open-loop traffic whose draw is not what the file asks for, as a few flows cannot be.

A host's flows are drawn until their bytes are those of the load, with the warm-up and without
(`workloads/open_loop.py`). Where these are few beside the largest size, large flows are rarer than
in the distribution; where flows are few, no draw may have both loads; and incasts are whole events,
of which a small share may have none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from softroce_lab import units
from softroce_lab.experiment.spec import Experiment
from softroce_lab.inputs.yaml_source import Place
from softroce_lab.workloads.jobs import Jobs
from softroce_lab.workloads.open_loop import OpenLoop
from softroce_lab.workloads.work import Workload

LEAST_TIMES = 2
"""How many times the largest size a host is to send, at least."""
LOAD_OFF, SHARE_OFF = Fraction(1, 100), Fraction(1, 10)
"""How far the load behind the warm-up, and the share of incasts, may be off: of what was asked."""


def notes(experiment: Experiment) -> list[str]:
    """A line for each difference, with the place of the key that was not met; first seed."""
    found = []
    for place, work in _workloads(experiment.workload(experiment.seeds[0])):
        for key, why in (
            (("duration",), _too_short(work)),
            (("load",), _other_load(work)),
            (("incast", "share"), _other_share(work)),
        ):
            if why is not None:
                found.append(str(experiment.source.error((*place, *key), why)))
    return found


def _workloads(work: Workload) -> Iterator[tuple[Place, OpenLoop]]:
    """Those of this kind, and where the file has them."""
    if isinstance(work, OpenLoop):
        yield ("workload",), work
    if isinstance(work, Jobs):
        for number, job in enumerate(work.jobs.values()):
            for place, each in _workloads(job):
                yield ("workload", "jobs", number, *place), each


def _too_short(work: OpenLoop) -> str | None:
    share = 1 - work.incast.share if work.incast else 1
    bytes_a_ns = work.load * share * min(work.rates_bps) / (8 * 10**9)
    sent, largest = bytes_a_ns * work.duration_ns, work.sizes.largest
    if sent >= LEAST_TIMES * largest:
        return None
    enough = units.format_duration(math.ceil(LEAST_TIMES * largest / bytes_a_ns))
    return (
        f"in {units.format_duration(work.duration_ns)} a host sends about "
        f"{units.format_bytes(float(sent))}, the largest flow has {units.format_bytes(largest)}: "
        f"large flows are too rare ({enough} or more, or smaller sizes)"
    )


def _other_load(work: OpenLoop) -> str | None:
    if abs(work.measured_load / work.load - 1) <= LOAD_OFF:
        return None
    found = f"{100 * float(work.measured_load):.3g} %"
    return (
        f"flows that arrive after the warm-up have a load of {found}, "
        "not that of all: figures are of these (with a longer duration the load is closer)"
    )


def _other_share(work: OpenLoop) -> str | None:
    if work.incast is None or abs(work.incast_share / work.incast.share - 1) <= SHARE_OFF:
        return None
    found = f"{100 * float(work.incast_share):.3g} %"
    return (
        f"incasts have {found} of the load: they are whole events of "
        f"{units.format_bytes(work.incast.degree * work.incast.size_bytes)} "
        "(with a longer duration the share is closer)"
    )
