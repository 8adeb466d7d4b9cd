# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench verbs`: what RC over the soft RNIC costs, beside bare AF_XDP sockets, in one run.

    raw    AF_XDP sockets that write and read their payload, plain redirect programs between
    write  RC WRITEs of 1 MiB through the lab's programs, packets as long as the frames of `raw`
    send   RC SENDs of 64 bytes
    echo   round trips of a frame of 64 bytes between bare sockets that spin, plain programs
    trip   round trips of an RC SEND of 64 bytes, both engines spinning

All over one switch with a path MTU of 2 KiB; 8 MiB of memory are written in turn by `raw` and
`write` alike. Every round runs all of them once, those that are compared one after the other; a
ratio is taken within a round. Sender and receiver have a core each.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from softroce_lab import _native, topology
from softroce_lab.bench import plain_redirect, samples
from softroce_lab.bench.bare_traffic import (
    ACK_TIMEOUT,
    RECEIVER_CPU,
    SENDER_CPU,
    data_frame,
    open_port,
)
from softroce_lab.bench.rdma import in_guest as bench_in_guest
from softroce_lab.bench.rdma import soft_pair as perf
from softroce_lab.bench.rdma.soft_pair import Bandwidth, Ends, Latency, PerfTest
from softroce_lab.bench.rdma.soft_pair import Options as TestOptions
from softroce_lab.bench.samples import Sample, take_round
from softroce_lab.errors import RunError
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.lab import Lab
from softroce_lab.statistics import Interval, median_interval
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

PATH_MTU = 2048
MESSAGE_BYTES, SLOTS = 1 << 20, 8
SEND_BYTES = 64
_HEADERS_BYTES, _ICRC_BYTES = 54, 4  # of a packet in the middle of a WRITE: Ethernet to BTH
_LEAST_TRIPS = 0.9  # of the echoes asked for: with fewer the machine loses frames


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    rounds: int = 15
    seconds: float = 0.5  # of a sample of a rate
    trips: int = 5000  # of a sample of round trips
    in_guest: bool = False
    mode: fabric.Mode = "auto"
    name: str = "bench"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """All samples by name, a list of rounds; of `echo` and `trip` one "frame" is a round trip."""

    samples: dict[str, list[Sample]]
    mode: str  # of XDP
    guest: bench_in_guest.Outcome | None = None

    def ratios(self) -> dict[str, Interval]:
        """What the bench is for. A ratio of times is one of rates, turned around."""
        taken = self.samples
        in_guest = {} if self.guest is None else {"rc_write_over_rxe": self.guest.ratio}
        return {
            "rc_write_over_raw": samples.ratio(taken["write"], taken["raw"], "payload_bps"),
            "rtt_over_raw": samples.ratio(taken["echo"], taken["trip"], "frames_per_second"),
            **in_guest,
        }

    def send64(self) -> Interval:
        """64-byte SENDs a second."""
        return median_interval([sample.frames_per_second for sample in self.samples["send"]])

    def round_trips_ns(self) -> dict[str, Interval]:
        """Of a bare echo and of a SEND."""
        return {
            name: median_interval([1e9 / sample.frames_per_second for sample in self.samples[name]])
            for name in ("echo", "trip")
        }

    def rates_bps(self) -> dict[str, Interval]:
        """Bits of payload a second."""
        named = {name: self.samples[name] for name in ("raw", "write")}
        in_guest = {} if self.guest is None else self.guest.rates_bps()
        return samples.intervals(named, "payload_bps") | in_guest

    def document(self) -> dict[str, Any]:
        """All of it, as `--json` prints it."""
        ratios, send64 = self.ratios(), self.send64()
        medians = {name: round(ratio.median, 4) for name, ratio in ratios.items()}
        over_rxe = {name: value for name, value in medians.items() if name.endswith("over_rxe")}
        return {
            "schema_version": SCHEMA_VERSION,
            "ratios": medians,
            **over_rxe,
            "ratios_interval_95": {name: [r.low, r.high] for name, r in ratios.items()},
            "send64_per_second": round(send64.median),
            "send64_interval_95": [round(send64.low), round(send64.high)],
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
    """Measure. EnvironmentLackError without root's rights; the lab is gone afterwards."""
    plan = topology.load("two-hosts", name=options.name)
    with fabric.owned(plan, mode=options.mode, say=say) as lab:
        bench = VerbsBench(lab, options)
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            bench.round()
        taken, mode = bench.samples, lab.mode
    guest = None
    if options.in_guest:
        guest = bench_in_guest.run(options.rounds, options.seconds, options.name, say)
    return Outcome(taken, mode, guest)


class VerbsBench:
    """The samples' makers."""

    def __init__(self, lab: Lab, options: Options) -> None:
        self._lab = lab
        self._options = options
        self._hosts = lab.plan.hosts[0], lab.plan.hosts[-1]
        self._forth = True
        plain_redirect.load(lab.plan, lab.bpffs)
        self.samples: dict[str, list[Sample]] = {
            name: [] for name in ("raw", "write", "send", "trip", "echo")
        }

    def round(self) -> None:
        """One sample of each, forth and back: those that are compared are neighbours in time."""
        measures = {
            "raw": self.raw,
            "write": self.write,
            "send": self.send,
            "trip": self.trip,
            "echo": self.echo,
        }
        take_round(measures, self.samples, forth=self._forth)
        self._forth = not self._forth

    # ---------------------------------------------------------------- bare sockets

    def raw(self) -> Sample:
        """Frames of a path MTU, one way."""
        sender, receiver = (open_port(self._lab, host) for host in self._hosts)
        with self._plain(receiver):
            _, received, ns = _native.raw_traffic(
                sender,
                receiver,
                self._frame(PATH_MTU),
                payload_offset=_HEADERS_BYTES,
                index_offset=0,
                duration_ns=int(self._options.seconds * 1e9),
                sender_cpu=SENDER_CPU,
                receiver_cpu=RECEIVER_CPU,
            )
        return Sample.of(received, ns, PATH_MTU)

    def echo(self) -> Sample:
        """Frames of 64 bytes, there and back."""
        near, far = (open_port(self._lab, host) for host in self._hosts)
        with self._plain(near, far):
            trips = _native.echo(
                near,
                far,
                self._frame(SEND_BYTES),
                self._frame(SEND_BYTES, back=True),
                self._options.trips,
                near_cpu=SENDER_CPU,
                far_cpu=RECEIVER_CPU,
            )
        if len(trips) < _LEAST_TRIPS * self._options.trips:
            raise RunError(f"{len(trips)} of {self._options.trips} echoes came back")
        return Sample.of(1, int(np.median(trips)), SEND_BYTES)

    def _frame(self, payload_bytes: int, *, back: bool = False) -> bytes:
        """As long as an RC packet. The plain programs read no header, so its end may lack."""
        source, destination = reversed(self._hosts) if back else self._hosts
        whole = data_frame(self._lab, source, destination, PATH_MTU)
        return whole[: _HEADERS_BYTES + payload_bytes + _ICRC_BYTES]

    def _plain(self, *receivers: Any) -> PlainPrograms:
        return PlainPrograms(self._lab, self._hosts[0].name, self._hosts[1].name, receivers)

    # ---------------------------------------------------------------- RC

    def write(self) -> Sample:
        """WRITEs of 1 MiB, as `lab perf` measures them."""
        found = self._measure(
            TestOptions("write_bw", bytes=MESSAGE_BYTES, duration_s=self._options.seconds)
        )
        assert isinstance(found, Bandwidth)  # noqa: S101 - what a stream gives
        return Sample(found.average / PATH_MTU, found.average * 8)

    def send(self) -> Sample:
        """SENDs of 64 bytes."""
        found = self._measure(
            TestOptions("send_bw", bytes=SEND_BYTES, duration_s=self._options.seconds)
        )
        assert isinstance(found, Bandwidth)  # noqa: S101 - what a stream gives
        return Sample(found.messages_per_second, found.average * 8)

    def trip(self) -> Sample:
        """Round trips of a SEND of 64 bytes."""
        found = self._measure(
            TestOptions("send_lat", bytes=SEND_BYTES, iterations=self._options.trips)
        )
        assert isinstance(found, Latency)  # noqa: S101 - what a ping-pong gives
        assert found.median is not None  # noqa: S101 - of a number of iterations
        return Sample.of(1, round(2e3 * found.median), SEND_BYTES)

    def _measure(self, options: TestOptions) -> Bandwidth | Latency:
        patient = dataclasses.replace(options, ack_timeout=ACK_TIMEOUT)
        test = PerfTest.of(patient, PATH_MTU)
        slots = SLOTS if options.bytes == MESSAGE_BYTES else 1
        with self._ends() as both:
            return perf.measure(both, test, test.sizes[0], slots=slots)

    def _ends(self) -> contextlib.AbstractContextManager[Ends]:
        first, second = self._hosts
        return perf.ends(self._lab, first.name, second.name, (SENDER_CPU, RECEIVER_CPU))


class PlainPrograms:
    """In a `with`: plain redirect programs lead to these sockets; then the lab's own again."""

    def __init__(self, lab: Lab, first: str, second: str, receivers: tuple[Any, ...]) -> None:
        self._lab = lab
        self._ends = (first, second)
        for receiver in receivers:
            receiver.insert_into(str(lab.bpffs / plain_redirect.XSKS))

    def __enter__(self) -> None:
        lab = self._lab
        plain_redirect.attach(lab.plan, lab.enter, lab.bpffs, self._ends, lab.mode)

    def __exit__(self, *_: object) -> None:
        lab = self._lab
        lab.xdp.attach_programs(lab.plan.nodes, lab.enter, lab.mode)
