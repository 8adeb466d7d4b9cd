# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench sim`: packet-hops that the simulated fabric moves in a second of processor time.

Every host of a 100 Gb/s fabric sends 2 MB to another one, as one message, in packets of path MTU
4096; a hop is one packet, data or control, over one link. Each sample is a process of its own. Its
processor time is user plus system time, Python included, from the first post to the last result;
that of reading the experiment, building the fabric and connecting the hosts is separate, for it
does not grow with the traffic.

Rounds go through all cases in turn, so that a machine that is slow for a while is slow for all.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from softroce_lab import units
from softroce_lab.errors import RunError
from softroce_lab.statistics import Interval, median_interval
from softroce_lab.telemetry import memory
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

SHAPES: Mapping[int, str] = {
    128: "kind: fat-tree, k: 8",
    1024: "kind: fat-tree, k: 16",
    4096: "kind: clos, pods: 16, leaves: 16, hosts: 16",
}
TRANSPORTS = ("csa_ud", "irn", "rc", "ud_rto", "sdr_sr")
MESSAGE = "2MB"
ROUNDS = 6  # as many as a 95 % interval of a median needs
SAMPLE_S = 900.0
"""After so long a sample is given up."""
HTSIM: Mapping[int, float] = {128: 2.56e6, 1024: 1.09e6}
"""What csg-htsim moves of the same work, by hosts."""

_ARGV = [sys.executable, "-m", "softroce_lab.bench.sim"]
_EXPERIMENT = """
name: bench-sim
topology:
  generator: {{{shape}, access: {wire}, core: {wire}}}
lb: flow
mtu: 4300
transports: [{transport}]
workload: {{kind: permutation, bytes: {message}, message: {message}}}
deadline: 10s
"""
_WIRE = "{rate: 100Gbit limit 100000, delay: 500ns}"


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """What one case came to."""

    hosts: int
    transport: str
    verdict: str
    hops: int
    cpu_s: float  # of the run
    setup_cpu_s: float  # before it
    peak_rss_bytes: int
    makespan_ns: int

    @property
    def rate(self) -> float:
        """Hops in a second of processor time."""
        return self.hops / self.cpu_s


def experiment(hosts: int, transport: str, message: str = MESSAGE) -> str:
    """The file of a case."""
    return _EXPERIMENT.format(shape=SHAPES[hosts], wire=_WIRE, transport=transport, message=message)


def measure(hosts: int, transport: str, message: str = MESSAGE) -> Moved:
    """One case, in this process."""
    from softroce_lab.experiment import spec
    from softroce_lab.experiment.virtual import VirtualRun
    from softroce_lab.inputs import yaml_source

    begun = time.process_time()
    loaded = spec.of(yaml_source.parse(experiment(hosts, transport, message)))
    run = VirtualRun(loaded, loaded.transports[0], 1, lambda _: None)
    built = time.process_time()
    found = run.go()
    ended = time.process_time()
    return Moved(
        hosts=hosts,
        transport=transport,
        verdict=found.verdict,
        hops=run.fabric.native.hops,
        cpu_s=ended - built,
        setup_cpu_s=built - begun,
        peak_rss_bytes=memory.peak_bytes(),
        makespan_ns=found.makespan_ns,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """The samples of one fabric and transport, one a round."""

    hosts: int
    transport: str
    samples: list[Moved] = dataclasses.field(default_factory=list)

    @property
    def rate(self) -> Interval:
        """Hops in a second of processor time."""
        return median_interval([each.rate for each in self.samples])

    @property
    def peak_rss_bytes(self) -> int:
        """The most of any sample."""
        return max(each.peak_rss_bytes for each in self.samples)

    @property
    def setup_cpu_s(self) -> float:
        """The median."""
        return median_interval([each.setup_cpu_s for each in self.samples]).median

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "hosts": self.hosts,
            "transport": self.transport,
            "hops": self.samples[0].hops,
            "makespan_ns": self.samples[0].makespan_ns,
            "hops_per_cpu_second": dataclasses.asdict(self.rate),
            "over_htsim": self.rate.median / HTSIM[self.hosts] if self.hosts in HTSIM else None,
            "setup_cpu_s": self.setup_cpu_s,
            "peak_rss_bytes": self.peak_rss_bytes,
            "samples": [dataclasses.asdict(each) for each in self.samples],
        }


def run(
    sizes: Sequence[int], transports: Sequence[str], rounds: int, say: Callable[[str], None]
) -> list[Case]:
    """Every case `rounds` times. RunError if one fails, or takes longer than SAMPLE_S."""
    cases = [Case(hosts, transport) for hosts in sizes for transport in transports]
    took_s: dict[int, float] = {}
    for number in range(rounds):
        for at, case in enumerate(cases):
            left = ""
            if number:
                rest_s = sum(took_s[each] * (rounds - number - (each < at)) for each in took_s)
                left = f", {units.format_duration(round(rest_s) * 10**9)} left"
            say(f"round {number + 1} of {rounds}: {case.hosts} hosts, {case.transport}{left}")
            begun = time.monotonic()
            case.samples.append(_sample(case.hosts, case.transport))
            took_s[at] = time.monotonic() - begun
    return cases


def _sample(hosts: int, transport: str) -> Moved:
    try:
        done = subprocess.run(
            [*_ARGV, str(hosts), transport],
            capture_output=True, text=True, timeout=SAMPLE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise RunError(f"{hosts} hosts over {transport} took more than {SAMPLE_S:.0f} s") from None
    if done.returncode != 0:
        raise RunError(f"{hosts} hosts over {transport}: {done.stderr[-400:]}")
    moved = Moved(**json.loads(done.stdout))
    if moved.verdict != "passed":
        raise RunError(f"{hosts} hosts over {transport}: the run {moved.verdict}")
    return moved


def csa_ud_over_irn(cases: Sequence[Case]) -> dict[int, Interval]:
    """By hosts: the ratio of csa_ud's rate to irn's in the same round, where both were measured."""
    samples = {(case.hosts, case.transport): case.samples for case in cases}
    return {
        hosts: median_interval(
            [ours.rate / irn.rate for ours, irn in zip(rounds, samples[hosts, "irn"], strict=True)]
        )
        for (hosts, transport), rounds in samples.items()
        if transport == "csa_ud" and (hosts, "irn") in samples
    }


def document(cases: Sequence[Case]) -> dict[str, Any]:
    """For `--json`."""
    rates: dict[str, dict[str, float]] = {}
    for each in cases:
        rates.setdefault(str(each.hosts), {})[each.transport] = round(each.rate.median)
    return {
        "schema_version": SCHEMA_VERSION,
        "hops_per_cpu_second": rates,
        "csa_ud_over_irn": {
            str(hosts): dataclasses.asdict(ratio) for hosts, ratio in csa_ud_over_irn(cases).items()
        },
        "peak_rss_bytes": max(each.peak_rss_bytes for each in cases),
        "rounds": len(cases[0].samples),
        "htsim_hops_per_cpu_second": {str(hosts): rate for hosts, rate in HTSIM.items()},
        "cases": [each.document() for each in cases],
        "environment": environment(),
    }


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(measure(int(sys.argv[1]), sys.argv[2]))))  # noqa: T201
