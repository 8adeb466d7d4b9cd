# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench programs`: perftest as Debian ships it over native/verbs, beside what bounds it.

    program       ib_write_bw, WRITEs of 1 MiB, through the lab's programs
    raw           bare AF_XDP sockets, frames as long, plain redirect programs between
    perf          `lab perf`: both engines in one process, a thread each
    program_trip  round trips of ib_send_lat, SENDs of 64 bytes
    echo          round trips of a frame of 64 bytes between bare sockets that spin
    perf_trip     round trips of `lab perf`

All over one switch with a path MTU of 2 KiB. Every round runs all of them once, those that are
compared one after the other; a ratio is taken within a round. Sender and receiver have a core each.
In one kernel host, ib_write_bw over the library and over Linux's rxe take turns (in_guest.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from softroce_lab import topology
from softroce_lab.bench import samples
from softroce_lab.bench.rdma import in_guest
from softroce_lab.bench.rdma import verbs as bench_verbs
from softroce_lab.bench.rdma.perftest import Perftest, send_lat_trip_ns, write_bw_rate
from softroce_lab.bench.rdma.verbs import MESSAGE_BYTES, PATH_MTU, SEND_BYTES, VerbsBench
from softroce_lab.bench.samples import Sample, take_round
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.lab import Lab
from softroce_lab.paths import verbs_library
from softroce_lab.statistics import Interval, median_interval
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

_OPTIONS = ("-m", str(PATH_MTU))
_MESSAGES_PER_SECOND = 800  # about 6.7 Gbit/s: how many a sample has
_RATIOS = ("write_bw_over_raw", "send_lat_over_echo", "over_rxe_in_guest")


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    rounds: int = 15
    seconds: float = 0.5  # of a sample of a rate
    trips: int = 5000  # of a sample of round trips
    guest: bool = True
    mode: fabric.Mode = "auto"
    name: str = "bench"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """All samples by name, a list of rounds; of trips and echoes one "frame" is a round trip."""

    samples: dict[str, list[Sample]]
    mode: str  # of XDP
    guest: in_guest.Outcome | None = None

    def ratios(self) -> dict[str, Interval]:
        """What the bench is for. A ratio of times is one of rates, turned around."""
        taken = self.samples
        guest = {} if self.guest is None else {"over_rxe_in_guest": self.guest.ratio}
        return {
            "write_bw_over_raw": samples.ratio(taken["program"], taken["raw"], "payload_bps"),
            "send_lat_over_echo": samples.ratio(
                taken["echo"], taken["program_trip"], "frames_per_second"
            ),
            **guest,
            "write_bw_over_perf": samples.ratio(taken["program"], taken["perf"], "payload_bps"),
            "send_lat_over_perf": samples.ratio(
                taken["perf_trip"], taken["program_trip"], "frames_per_second"
            ),
        }

    def round_trips_ns(self) -> dict[str, Interval]:
        """Of perftest, of a bare echo and of `lab perf`."""
        return {
            name: median_interval([1e9 / sample.frames_per_second for sample in self.samples[name]])
            for name in ("program_trip", "echo", "perf_trip")
        }

    def rates_bps(self) -> dict[str, Interval]:
        """Bits of payload a second."""
        named = {name: self.samples[name] for name in ("program", "raw", "perf")}
        guest = {} if self.guest is None else self.guest.rates_bps()
        return samples.intervals(named, "payload_bps") | guest

    def document(self) -> dict[str, Any]:
        """All of it, as `--json` prints it."""
        ratios = self.ratios()
        medians = {name: round(ratio.median, 4) for name, ratio in ratios.items()}
        return {
            "schema_version": SCHEMA_VERSION,
            **{name: medians[name] for name in _RATIOS if name in medians},
            "ratios": medians,
            "ratios_interval_95": {name: [r.low, r.high] for name, r in ratios.items()},
            "payload_bps": {name: round(rate.median) for name, rate in self.rates_bps().items()},
            "round_trip_ns": {
                name: round(trip.median) for name, trip in self.round_trips_ns().items()
            },
            "rounds": len(self.samples["raw"]),
            "disturbed": samples.disturbed(self.samples),
            "xdp_mode": self.mode,
            "environment": environment(),
        }


def run(options: Options, say: Callable[[str], None]) -> Outcome:
    """Measure. EnvironmentLackError without root's rights, the library or, with a guest, its files.

    The lab is gone afterwards.
    """
    verbs_library()
    plan = topology.load("two-hosts", name=options.name)
    with fabric.owned(plan, mode=options.mode, say=say) as lab:
        bench = ProgramsBench(lab, options)
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            bench.round()
        taken, mode = bench.samples, lab.mode
    guest = None
    if options.guest:
        guest = in_guest.run(
            options.rounds, options.seconds, options.name, say, ours=in_guest.VethPair.library
        )
    return Outcome(taken, mode, guest)


class ProgramsBench:
    """The samples' makers."""

    def __init__(self, lab: Lab, options: Options) -> None:
        self._beside = VerbsBench(
            lab, bench_verbs.Options(seconds=options.seconds, trips=options.trips)
        )
        self._perftest = Perftest(lab)
        self._messages = max(round(options.seconds * _MESSAGES_PER_SECOND), 5)
        self._trips = options.trips
        self._forth = True
        self._measures: dict[str, Callable[[], Sample]] = {
            "perf": self._beside.write,
            "program": self._program,
            "raw": self._beside.raw,
            "echo": self._beside.echo,
            "program_trip": self._program_trip,
            "perf_trip": self._beside.trip,
        }
        self.samples: dict[str, list[Sample]] = {name: [] for name in self._measures}

    def round(self) -> None:
        """One sample of each, forth and back: those that are compared are neighbours in time."""
        take_round(self._measures, self.samples, forth=self._forth)
        self._forth = not self._forth

    def _program(self) -> Sample:
        options = [*_OPTIONS, "-s", str(MESSAGE_BYTES), "-n", str(self._messages)]
        rate = self._perftest.figure("ib_write_bw", options, MESSAGE_BYTES, write_bw_rate)
        return Sample(rate / PATH_MTU, rate * 8)

    def _program_trip(self) -> Sample:
        options = [*_OPTIONS, "-s", str(SEND_BYTES), "-n", str(self._trips)]
        trip_ns = self._perftest.figure("ib_send_lat", options, SEND_BYTES, send_lat_trip_ns)
        return Sample.of(1, round(trip_ns), SEND_BYTES)
