# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench capture`: what a capture takes in, what it misses, and what it costs.

    paced   frames that leave an AF_XDP socket at an even pace, 100,000 a second: how many of them
            are in a capture of 128 bytes of each, how many it missed, and the monitor's CPU time
    flood   frames as fast as sockets and one switch move them, with the capture beside without, in
            pairs of neighbours in time: what capturing costs, and what is missed at that pace

The capture is of the link from the switch to the receiver, into a file. Frames are 1 KiB and
headers. A piece is taken again when the hypervisor gave the CPUs to others meanwhile.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from softroce_lab import _native, topology
from softroce_lab.bench import samples
from softroce_lab.bench.bare_traffic import (
    HEADERS_BYTES,
    INDEX_OFFSET,
    PAYLOAD_BYTES,
    SENDER_CPU,
    BareTraffic,
    data_frame,
    open_port,
)
from softroce_lab.bench.samples import MOST_ATTEMPTS, Sample, undisturbed
from softroce_lab.errors import RunError, UserError
from softroce_lab.experiment.capturing import links_of
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.observe.capture import Capture
from softroce_lab.statistics import Interval
from softroce_lab.telemetry import capture_file
from softroce_lab.telemetry.capture_figures import Figures, check_snap
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment
from softroce_lab.telemetry.stolen import StolenTime

Say: TypeAlias = Callable[[str], None]

FRAMES_PER_SECOND = 100_000.0
PACED_PAYLOAD_BYTES = 1024
SNAP_BYTES = 128  # all headers: the copy that the fabric is to bear at that rate
_SETTLE_S = 0.1  # for the last frames


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    rounds: int = 15  # pairs of floods
    seconds: float = 10.0  # of paced frames
    flood_seconds: float = 0.5
    frames_per_second: float = FRAMES_PER_SECOND
    snap_bytes: int = SNAP_BYTES
    mode: fabric.Mode = "auto"
    name: str = "bench"


@dataclasses.dataclass(frozen=True, slots=True)
class Paced:
    """What became of evenly paced frames."""

    sent: int
    frames_per_second: float  # that were sent
    figures: Figures
    in_file: int  # packets that the capture's file holds
    file_bytes: int
    cpu_share: float  # of one CPU, that the monitor took
    stolen: float  # share of the CPUs' time that the hypervisor gave to others

    def document(self) -> dict[str, Any]:
        """Part of what `--json` prints."""
        (interface,) = self.figures.interfaces
        return {
            "sent": self.sent,
            "frames_per_second": round(self.frames_per_second),
            "received": interface.received,
            "captured": self.figures.captured,
            "missed": self.figures.missed,
            "in_file": self.in_file,
            "file_bytes": self.file_bytes,
            "monitor_cpu_share": round(self.cpu_share, 4),
            "stolen": round(self.stolen, 4),
        }


@dataclasses.dataclass(slots=True)
class Outcome:
    """All that was measured."""

    options: Options
    mode: str  # of XDP
    paced: Paced
    captured: list[Sample] = dataclasses.field(default_factory=list)
    plain: list[Sample] = dataclasses.field(default_factory=list)
    flood_received: int = 0
    flood_missed: int = 0

    @property
    def ratio(self) -> Interval:
        """Frames a second with a capture over those without."""
        return samples.ratio(self.captured, self.plain, "frames_per_second")

    def rates(self) -> dict[str, Interval]:
        """Frames a second of the floods."""
        both = {"captured": self.captured, "plain": self.plain}
        return samples.intervals(both, "frames_per_second")

    def document(self) -> dict[str, Any]:
        """All of it, as `--json` prints it."""
        return {
            "schema_version": SCHEMA_VERSION,
            "snap_bytes": self.options.snap_bytes,
            "paced": self.paced.document(),
            "flood": {
                "ratio": round(self.ratio.median, 4),
                "ratio_interval_95": [self.ratio.low, self.ratio.high],
                "frames_per_second": {n: round(r.median) for n, r in self.rates().items()},
                "received": self.flood_received,
                "missed": self.flood_missed,
                "rounds": len(self.plain),
                "disturbed": samples.disturbed({"captured": self.captured, "plain": self.plain}),
            },
            "xdp_mode": self.mode,
            "environment": environment(),
        }


def run(options: Options, say: Say) -> Outcome:
    """Measure; the lab and the files are gone afterwards. UserError, EnvironmentLackError."""
    check_snap(options.snap_bytes)
    if not 0 < options.frames_per_second * options.seconds < 2**31:
        raise UserError("too many frames, or none", hint="--rate, --seconds")
    plan = topology.load("two-hosts", name=options.name)
    with (
        fabric.owned(plan, mode=options.mode, say=say) as lab,
        tempfile.TemporaryDirectory(prefix="softroce_lab-bench-") as folder,
    ):
        bench = _CaptureBench(lab, options, Path(folder))
        say(f"paced: {options.seconds:g} s")
        outcome = Outcome(options, lab.mode, bench.undisturbed_paced())
        for number in range(options.rounds):
            say(f"flood: round {number + 1} of {options.rounds}")
            bench.flood(outcome, forth=number % 2 == 0)
    return outcome


class _CaptureBench:
    def __init__(self, lab: Lab, options: Options, folder: Path) -> None:
        self._lab = lab
        self._options = options
        self._source, self._destination = lab.plan.hosts
        self._path = folder / "bench.pcapng"
        self._links = links_of(lab.plan, [f"*->{self._destination.name}"])
        self._traffic = BareTraffic(lab, options.flood_seconds, moderate=True)
        ends = self._source, self._destination
        self._frame = data_frame(lab, *ends, PACED_PAYLOAD_BYTES)

    @contextmanager
    def _capturing(self) -> Iterator[Capture]:
        with self._path.open("wb") as file:
            snap_bytes = self._options.snap_bytes
            running = Capture(
                self._lab.directory, self._links, file.fileno(), snap_bytes=snap_bytes
            )
        with running:
            yield running

    def undisturbed_paced(self) -> Paced:
        """The least disturbed of some tries."""
        tries: list[Paced] = []
        while not tries or (tries[-1].stolen > samples.MOST_STOLEN and len(tries) < MOST_ATTEMPTS):
            tries.append(self._paced())
        return min(tries, key=lambda each: each.stolen)

    def _paced(self) -> Paced:
        options = self._options
        count = int(options.frames_per_second * options.seconds)
        stolen = StolenTime()
        with self._receiving(), self._capturing() as running:
            before_s, begun = self._monitor_cpu_s(), time.monotonic()
            sent, elapsed_ns, _ = _native.paced_traffic(
                open_port(self._lab, self._source),
                self._frame,
                index_offset=INDEX_OFFSET,
                stamp_offset=HEADERS_BYTES,
                count=count,
                frames_per_second=options.frames_per_second,
                cpu=SENDER_CPU,
            )
            time.sleep(_SETTLE_S)
            figures = running.end()
            cpu_share = (self._monitor_cpu_s() - before_s) / (time.monotonic() - begun)
        if sent != count:
            raise RunError(f"{self._source.name} could send {sent} of {count} frames only")
        return Paced(
            sent=sent,
            frames_per_second=sent * 1e9 / elapsed_ns,
            figures=figures,
            in_file=len(capture_file.read(self._path).packets),
            file_bytes=self._path.stat().st_size,
            cpu_share=cpu_share,
            stolen=stolen.share(),
        )

    @contextmanager
    def _receiving(self) -> Iterator[None]:
        """A socket takes the frames at their end; nobody reads it."""
        port = open_port(self._lab, self._destination)
        port.insert_into(str(self._lab.bpffs / "xsks"))
        yield
        del port

    def _monitor_cpu_s(self) -> float:
        """CPU time that the lab's monitor has had."""
        processes = self._lab.ledger.history.of_kind("process")
        pid = next(each.facts["pid"] for each in processes if each.facts["role"] == "monitor")
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime

    def flood(self, outcome: Outcome, *, forth: bool) -> None:
        """One sample with a capture and one without, in either order."""

        def with_capture() -> Sample:
            with self._capturing() as running:
                sample = self._flooded()
                figures = running.end()
            outcome.flood_received += sum(each.received for each in figures.interfaces)
            outcome.flood_missed += figures.missed
            return sample

        pairs = ((with_capture, outcome.captured), (self._flooded, outcome.plain))
        for measure, taken in pairs if forth else reversed(pairs):
            taken.append(undisturbed(measure))

    def _flooded(self) -> Sample:
        _, received, ns = self._traffic.run()
        return Sample.of(received, ns, PAYLOAD_BYTES)
