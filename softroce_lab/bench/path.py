# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench path`: what a path carries, from bare AF_XDP sockets to a transport, in one run.

    raw      AF_XDP sockets that write and read their payload, plain redirect programs between
    switch   the same sockets and frames, the lab's programs, no faults
    loss     the same with random loss on the spine links
    csa_ud   a transfer over csa_ud, hosts and ICRCs and all, no faults
    tcp      iperf3 over the hosts' kernels, the same links
    udp      iperf3 -u -b 0 -l 2048, likewise

Every round runs all of them once, one after the other, so that a machine that is slow for a while
is slow for all; a ratio is taken within a round. A sample is taken again when the hypervisor gave
the CPUs to others meanwhile. Sender and receiver have a core each.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from softroce_lab import topology
from softroce_lab.bench import engine, plain_redirect, samples
from softroce_lab.bench.bare_traffic import (
    PAYLOAD_BYTES,
    RECEIVER_CPU,
    SENDER_CPU,
    BareTraffic,
    set_faults,
)
from softroce_lab.bench.samples import Figure, Sample, take_round
from softroce_lab.bench.transfer import TRANSFER_BYTES, Transfers, payload_of
from softroce_lab.errors import EnvironmentLackError, RunError
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.ledger.process import Process
from softroce_lab.faults import profile
from softroce_lab.faults.resolve import arm
from softroce_lab.plan.plan import Node, Plan
from softroce_lab.statistics import Interval
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

_IPERF_S = 10.0  # longer than it should ever take to begin or to end


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    rounds: int = 15
    seconds: float = 0.5  # of a bare or iperf3 sample
    transfer_bytes: int = TRANSFER_BYTES
    mode: fabric.Mode = "auto"
    name: str = "bench"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """All samples by name, a list of rounds."""

    samples: dict[str, list[Sample]]
    mode: str  # of XDP
    pair: engine.Outcome

    def intervals(self, figure: Figure) -> dict[str, Interval]:
        """Median and 95 % interval of one figure, by what was measured."""
        return samples.intervals(self.samples, figure)

    def ratio(self, above: str, below: str, figure: Figure) -> Interval:
        """Median over the rounds of one figure's ratio, with its 95 % interval."""
        return samples.ratio(self.samples[above], self.samples[below], figure)

    def ratios(self) -> dict[str, Interval]:
        """The ratios that the bench is for."""
        return {
            "switch_over_raw": self.ratio("switch", "raw", "frames_per_second"),
            "loss_over_switch": self.ratio("loss", "switch", "frames_per_second"),
            "csa_ud_over_raw": self.ratio("csa_ud", "raw", "payload_bps"),
            "csa_ud_over_udp": self.ratio("csa_ud", "udp", "payload_bps"),
        }

    def document(self) -> dict[str, Any]:
        """All of it, as `--json` prints it."""
        ratios = self.ratios()
        figures: dict[Figure, dict[str, Interval]] = {
            figure: self.intervals(figure) for figure in get_args(Figure)
        }
        return {
            "schema_version": SCHEMA_VERSION,
            "ratios": {name: round(ratio.median, 4) for name, ratio in ratios.items()},
            "ratios_interval_95": {name: [r.low, r.high] for name, r in ratios.items()},
            "pair_packets_per_second": self.pair.document()["pair_packets_per_second"],
            **{
                field: {name: round(value.median) for name, value in values.items()}
                for field, values in figures.items()
            },
            "rounds": len(self.samples["raw"]),
            "disturbed": samples.disturbed(self.samples),
            "xdp_mode": self.mode,
            "environment": environment(),
        }


def run(options: Options, say: Callable[[str], None]) -> Outcome:
    """Measure. EnvironmentLackError without iperf3 or two CPUs; the lab is gone afterwards."""
    iperf3 = _iperf3()
    plan = topology.load("path", name=options.name)
    lossy = arm(plan, profile.load("spine-loss-1pct"))
    with (
        fabric.owned(plan, mode=options.mode, say=say) as lab,
        payload_of(options.transfer_bytes) as payload,
    ):
        bench = PathBench(lab, lossy, options, payload, iperf3)
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            bench.round()
        taken, mode = bench.samples, lab.mode
    say("two RNICs in memory")
    return Outcome(taken, mode, engine.run(engine.Options(rounds=15)))


def _iperf3() -> str:
    for folder in ("/usr/bin", "/usr/local/bin"):
        if Path(folder, "iperf3").exists():
            return f"{folder}/iperf3"
    raise EnvironmentLackError("iperf3", hint="apt install iperf3")


class PathBench:
    """The samples' makers."""

    def __init__(self, lab: Lab, lossy: Plan, options: Options, payload: Path, iperf3: str) -> None:
        self._lab = lab
        self._lossy = lossy
        self._options = options
        self._iperf3 = iperf3
        self._source, self._destination = lab.plan.hosts[0], lab.plan.hosts[-1]
        self._transfers = Transfers(lab, payload, options.transfer_bytes)
        self._traffic = BareTraffic(lab, options.seconds)
        (self._faulted,) = {
            near.ifindex
            for _, near, far in lab.plan.halves
            if (near.node, far.node) == ("leaf1", "spine1")
        }
        plain_redirect.load(lab.plan, lab.bpffs)
        self._forth = True
        self.samples: dict[str, list[Sample]] = {
            name: [] for name in ("raw", "switch", "loss", "csa_ud", "tcp", "udp")
        }

    def round(self) -> None:
        """One sample of each, forth and back: those that are compared are neighbours in time."""
        measures = {
            "loss": self._loss,
            "switch": self._switch,
            "raw": self._raw,
            "csa_ud": self._csa_ud,
            "udp": self._udp,
            "tcp": self._tcp,
        }
        take_round(measures, self.samples, forth=self._forth)
        self._forth = not self._forth

    # ---------------------------------------------------------------- bare sockets

    def _raw(self) -> Sample:
        """Counted where the frames arrive: the plain programs count nothing."""
        plan, lab = self._lab.plan, self._lab
        ends = (self._source.name, self._destination.name)
        plain_redirect.attach(plan, lab.enter, lab.bpffs, ends, lab.mode)
        try:
            _, received, ns = self._traffic.run(plain_redirect.XSKS)
        finally:
            lab.xdp.attach_programs(plan.nodes, lab.enter, lab.mode)
        return Sample.of(received, ns, PAYLOAD_BYTES)

    def _switch(self) -> Sample:
        return self._through_lab()

    def _loss(self) -> Sample:
        set_faults(self._lab, self._lossy.faults)
        try:
            return self._through_lab()
        finally:
            set_faults(self._lab)

    def _through_lab(self) -> Sample:
        """Counted where the fault acts: on the first spine link, before its rules."""
        met, _, ns = self._traffic.run_past(self._faulted)
        return Sample.of(met, ns, PAYLOAD_BYTES)

    # ---------------------------------------------------------------- transports

    def _csa_ud(self) -> Sample:
        return self._transfers.sample(Transport.named("csa_ud"))

    def _tcp(self) -> Sample:
        end = self._iperf("-t", f"{max(self._options.seconds, 1):g}")
        rate = end["sum_received"]["bits_per_second"]
        return Sample(rate / (8 * PAYLOAD_BYTES), rate)

    def _udp(self) -> Sample:
        seconds = f"{max(self._options.seconds, 1):g}"
        end = self._iperf("-t", seconds, "-u", "-b", "0", "-l", str(PAYLOAD_BYTES))["sum"]
        arrived = 1 - end["lost_packets"] / max(end["packets"], 1)
        rate = end["bits_per_second"] * arrived
        return Sample(rate / (8 * PAYLOAD_BYTES), rate)

    def _iperf(self, *arguments: str) -> Any:
        """The part `end` of the client's report. RunError if there is none."""
        server = self._spawn(self._destination, "-s", "-1", "--forceflush")
        try:
            _read(server, b"listening", _IPERF_S)
            client = self._spawn(
                self._source,
                *("-c", str(self._destination.address), "-J", *arguments),
                *("-A", f"{SENDER_CPU},{RECEIVER_CPU}", "--connect-timeout", "2000"),
            )
            output = _read(client, None, self._options.seconds + _IPERF_S)
            client.end()
        finally:
            server.end()
        report = json.loads(output)
        if "error" in report:
            raise RunError(f"iperf3: {report['error']}")
        return report["end"]

    def _spawn(self, node: Node, *arguments: str) -> Process:
        argv = [self._iperf3, *arguments]
        return self._lab.spawn(
            argv, role="iperf3", node=node.name, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )


def _read(process: Process, until: bytes | None, timeout_s: float) -> bytes:
    """What iperf3 prints up to `until`, or up to its end. RunError if that does not come."""
    pipe = process.stdout
    if pipe is None:
        raise RunError("iperf3 has no output")
    deadline = time.monotonic() + timeout_s
    output = b""
    while select.select([pipe], [], [], max(deadline - time.monotonic(), 0))[0]:
        chunk = os.read(pipe.fileno(), 1 << 16)
        output += chunk
        if (until is None and not chunk) or (until is not None and until in output):
            return output
        if not chunk:
            break
    raise RunError(f"iperf3 came to nothing in {timeout_s:g} s: {output[-200:]!r}")
