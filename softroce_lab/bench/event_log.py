# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench event-log`: what the event log costs, off and on in one run.

    write  RC WRITEs of 1 MiB: few events a packet
    send   RC SENDs of 64 bytes: some five events a packet, as many as there can be
    trip   round trips of an RC SEND of 64 bytes

Both ends log, on cores that their engines use: the writers' threads take their share of the CPUs.
A round measures each workload off and on, one after the other; ratios are taken within it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from softroce_lab import topology
from softroce_lab.bench import samples
from softroce_lab.bench.bare_traffic import ACK_TIMEOUT, RECEIVER_CPU, SENDER_CPU
from softroce_lab.bench.rdma import soft_pair as perf
from softroce_lab.bench.rdma.soft_pair import Bandwidth, Ends, PerfTest
from softroce_lab.bench.rdma.soft_pair import Options as TestOptions
from softroce_lab.bench.samples import Sample, take_round
from softroce_lab.fabric import lab as fabric
from softroce_lab.statistics import Interval
from softroce_lab.telemetry import event_log
from softroce_lab.telemetry.event_log import EventLog
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

_PATH_MTU = 2048
_SEND_BYTES, _WRITE_BYTES = 64, 1 << 20
WORKLOADS = ("write", "send", "trip")


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    rounds: int = 15
    seconds: float = 0.5  # of a sample of a rate
    trips: int = 5000  # of a sample of round trips
    mode: fabric.Mode = "auto"
    name: str = "bench"


@dataclasses.dataclass(slots=True)
class Logged:
    """What all samples of a workload logged."""

    events: int = 0
    lost: int = 0
    bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """All samples, `<workload>_off` and `<workload>_on`; of `trip` a "frame" is a round trip."""

    samples: Mapping[str, list[Sample]]
    logged: Mapping[str, Logged]
    mode: str  # of XDP

    def ratios(self) -> dict[str, Interval]:
        """On over off: messages a second."""
        taken = self.samples
        return {
            name: samples.ratio(taken[f"{name}_on"], taken[f"{name}_off"], "frames_per_second")
            for name in WORKLOADS
        }

    def document(self) -> dict[str, Any]:
        """All of it, as `--json` prints it."""
        ratios = self.ratios()
        rates = samples.intervals(self.samples, "frames_per_second")
        return {
            "schema_version": SCHEMA_VERSION,
            "on_over_off": {name: round(ratio.median, 4) for name, ratio in ratios.items()},
            "on_over_off_interval_95": {name: [r.low, r.high] for name, r in ratios.items()},
            "messages_per_second": {name: round(rate.median) for name, rate in rates.items()},
            "logged": {name: dataclasses.asdict(logged) for name, logged in self.logged.items()},
            "rounds": len(self.samples["write_on"]),
            "disturbed": samples.disturbed(self.samples),
            "xdp_mode": self.mode,
            "environment": environment(),
        }


def run(options: Options, say: Callable[[str], None]) -> Outcome:
    """Measure. EnvironmentLackError without root's rights; the lab is gone afterwards."""
    plan = topology.load("two-hosts", name=options.name)
    with (
        tempfile.TemporaryDirectory(prefix="softroce_event_log") as folder,
        fabric.owned(plan, mode=options.mode, say=say) as lab,
    ):
        return _measured(lab, options, Path(folder) / "log.jsonl", say)


def _measured(lab: fabric.Lab, options: Options, path: Path, say: Callable[[str], None]) -> Outcome:
    hosts = lab.plan.hosts[0].name, lab.plan.hosts[-1].name
    with perf.ends(lab, *hosts, (SENDER_CPU, RECEIVER_CPU)) as both:
        bench = _Bench(both, options, path)
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            bench.round()
    return Outcome(bench.samples, bench.logged, lab.mode)


class _Bench:
    """The samples' maker."""

    def __init__(self, both: Ends, options: Options, path: Path) -> None:
        self._both = both
        self._path = path
        self._forth = True
        tests = {
            "write": TestOptions("write_bw", bytes=_WRITE_BYTES, duration_s=options.seconds),
            "send": TestOptions("send_bw", bytes=_SEND_BYTES, duration_s=options.seconds),
            "trip": TestOptions("send_lat", bytes=_SEND_BYTES, iterations=options.trips),
        }
        self._measures: dict[str, Callable[[], Sample]] = {}
        for name, test in tests.items():
            self._measures[f"{name}_off"] = functools.partial(self._off, test)
            self._measures[f"{name}_on"] = functools.partial(self._on, name, test)
        self.samples: dict[str, list[Sample]] = {name: [] for name in self._measures}
        self.logged = {name: Logged() for name in WORKLOADS}

    def round(self) -> None:
        """One sample of each, forth and back."""
        take_round(self._measures, self.samples, forth=self._forth)
        self._forth = not self._forth

    def _off(self, options: TestOptions) -> Sample:
        patient = dataclasses.replace(options, ack_timeout=ACK_TIMEOUT)
        test = PerfTest.of(patient, _PATH_MTU)
        found = perf.measure(self._both, test, test.sizes[0])
        if isinstance(found, Bandwidth):
            return Sample(found.messages_per_second, found.average * 8)
        assert found.median is not None  # noqa: S101 - of a number of iterations
        return Sample.of(1, round(2e3 * found.median), _SEND_BYTES)

    def _on(self, name: str, options: TestOptions) -> Sample:
        with self._logging(self.logged[name]):
            return self._off(options)

    @contextlib.contextmanager
    def _logging(self, logged: Logged) -> Iterator[None]:
        event_log.create(self._path)
        ends = self._both.client, self._both.server
        logs = [EventLog(end.endpoint, self._path, host=str(end.name)) for end in ends]
        try:
            yield
        finally:
            for log in logs:
                totals = log.close()
                logged.events += totals.records
                logged.lost += totals.lost
            logged.bytes += self._path.stat().st_size
