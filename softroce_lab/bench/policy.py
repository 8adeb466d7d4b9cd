# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench policy`: the goodput of recovery policies on the real clock, as a share of `ud_rto`'s.

Every round transfers the same file over each, one after the other, forth and back: a machine that
is slow for a while is slow for all, and a ratio is taken within a round.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from softroce_lab import topology
from softroce_lab.bench import samples
from softroce_lab.bench.samples import Sample, take_round
from softroce_lab.bench.transfer import TRANSFER_BYTES, Transfers, payload_of
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.fabric import lab as fabric
from softroce_lab.statistics import Interval
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

BASELINE = "ud_rto"


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    transports: Sequence[Transport]  # besides the baseline, each of a label of its own
    rounds: int = 15
    transfer_bytes: int = TRANSFER_BYTES
    mode: fabric.Mode = "auto"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """All samples by transport, a list of rounds."""

    samples: dict[str, list[Sample]]
    mode: str  # of XDP

    def goodputs_bps(self) -> dict[str, Interval]:
        """Median and 95 % interval, by transport."""
        return samples.intervals(self.samples, "payload_bps")

    def ratios(self) -> dict[str, Interval]:
        """Over the baseline's, by transport."""
        base = self.samples[BASELINE]
        return {
            name: samples.ratio(taken, base, "payload_bps")
            for name, taken in self.samples.items()
            if name != BASELINE
        }

    def document(self) -> dict[str, Any]:
        """All of it, as `--json` prints it."""
        ratios = self.ratios()
        return {
            "schema_version": SCHEMA_VERSION,
            "baseline": BASELINE,
            "ratios": {name: round(ratio.median, 4) for name, ratio in ratios.items()},
            "ratios_interval_95": {name: [r.low, r.high] for name, r in ratios.items()},
            "goodput_bps": {name: round(g.median) for name, g in self.goodputs_bps().items()},
            "rounds": len(self.samples[BASELINE]),
            "disturbed": samples.disturbed(self.samples),
            "xdp_mode": self.mode,
            "environment": environment(),
        }


def run(options: Options, say: Callable[[str], None]) -> Outcome:
    """Measure. The lab is gone afterwards."""
    measured = {each.label: each for each in (Transport.named(BASELINE), *options.transports)}
    taken: dict[str, list[Sample]] = {name: [] for name in measured}
    plan = topology.load("path", name="bench")
    with (
        fabric.owned(plan, mode=options.mode, say=say) as lab,
        payload_of(options.transfer_bytes) as payload,
    ):
        transfers = Transfers(lab, payload, options.transfer_bytes)
        measures = {
            name: functools.partial(transfers.sample, each) for name, each in measured.items()
        }
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            take_round(measures, taken, forth=number % 2 == 0)
        return Outcome(taken, lab.mode)
