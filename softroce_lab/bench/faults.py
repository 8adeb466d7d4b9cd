# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench faults`: what faults cost, in one run.

    forwarding  frames a second at one link of a path of three switches, with faults on it beside
                the same without, in pairs of neighbours in time. Counted at that link, before its
                faults; drops are logged. The receiver polls for frames, as our hosts do:
                were it woken by each, that would hide most of what faults cost.
    hosts       frames a second that arrive, hosts included: AF_XDP sockets and the lab's switches
                with 1 % loss, beside what a user has without: UDP sockets in batches, kernel
                routers and nftables with 1 % loss. Through one switch and through three. The UDP
                receiver sleeps until the kernel wakes it, as sockets are used; `_moderated` is
                against one that polls every 50 us, as our hosts do.
    wire        what the wire stage moves over a delayed link, and how exactly (`bench_wire`).

A pair is taken in either order by turns. A sample is taken again when the hypervisor gave the CPUs
to others meanwhile. Sender and receiver have a core each, with and without the lab.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from softroce_lab import _native, topology
from softroce_lab.bench import fault_sets, samples
from softroce_lab.bench import wire as bench_wire
from softroce_lab.bench.bare_traffic import (
    PAYLOAD_BYTES,
    RECEIVER_CPU,
    SENDER_CPU,
    BareTraffic,
    set_faults,
)
from softroce_lab.bench.samples import Sample, undisturbed
from softroce_lab.errors import EnvironmentLackError
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.lab import Lab
from softroce_lab.plan import locate
from softroce_lab.plan.effects import Fault
from softroce_lab.plan.plan import Link, Plan, Port
from softroce_lab.statistics import Interval
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

if TYPE_CHECKING:
    from softroce_lab.bench.kernel_routers import KernelRouters

Part: TypeAlias = Literal["forwarding", "hosts", "wire"]
Say: TypeAlias = Callable[[str], None]
Measure: TypeAlias = Callable[[], Sample]

PARTS: tuple[Part, ...] = get_args(Part)
TOPOLOGIES = {1: "two-hosts", 3: "path"}  # by the number of switches between the two hosts
MODERATED = "_moderated"
_ONE_IN = 100  # of the baseline's packets is lost


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    rounds: int = 15
    seconds: float = 0.5  # of a sample
    parts: Sequence[Part] = PARTS
    mode: fabric.Mode = "auto"
    name: str = "bench"


@dataclasses.dataclass(slots=True)
class Pair:
    """Something and what it is compared with, a value a round each."""

    above: list[Sample] = dataclasses.field(default_factory=list)
    below: list[Sample] = dataclasses.field(default_factory=list)
    met: int = 0  # frames that met the faults
    dropped: int = 0

    @property
    def ratio(self) -> Interval:
        """Frames a second with faults over those without; ours over the baseline's."""
        return samples.ratio(self.above, self.below, "frames_per_second")

    @property
    def drop_rate(self) -> float | None:
        """Of the frames that met the faults; None: they were not counted."""
        return self.dropped / self.met if self.met else None


@dataclasses.dataclass(slots=True)
class Outcome:
    """All that was measured."""

    mode: str = ""  # of XDP
    pairs: dict[str, Pair] = dataclasses.field(default_factory=dict)
    wire: bench_wire.Outcome | None = None
    lacking: dict[str, str] = dataclasses.field(default_factory=dict)  # part -> what it wants

    def samples(self) -> dict[str, list[Sample]]:
        """By name; the other half of a pair is called `NAME_beside`."""
        both = ((name, pair.above, pair.below) for name, pair in self.pairs.items())
        return {
            key: each for name, a, b in both for key, each in ((name, a), (f"{name}_beside", b))
        }

    def document(self) -> dict[str, Any]:
        """All of it, as `--json` prints it. What was not measured is absent."""
        plain = {name: pair.ratio for name, pair in self.pairs.items()}
        moderated = {
            name.removesuffix(MODERATED): plain.pop(name)
            for name in tuple(plain)
            if name.endswith(MODERATED)
        }
        taken = self.samples()
        rates = samples.intervals(taken, "frames_per_second")
        return {
            "schema_version": SCHEMA_VERSION,
            **_ratios("ratios", plain),
            **_ratios("ratios_moderated", moderated),
            "frames_per_second": {name: round(rate.median) for name, rate in rates.items()},
            "drop_rates": {
                name: pair.drop_rate
                for name, pair in self.pairs.items()
                if pair.drop_rate is not None
            },
            "rounds": max((len(each) for each in taken.values()), default=0),
            "disturbed": samples.disturbed(taken),
            **(self.wire.document() if self.wire else {}),
            "lacking": self.lacking,
            "xdp_mode": self.mode,
            "environment": environment(),
        }


def _ratios(key: str, ratios: dict[str, Interval]) -> dict[str, dict[str, Any]]:
    return {
        key: {name: round(ratio.median, 4) for name, ratio in ratios.items()},
        f"{key}_interval_95": {name: [r.low, r.high] for name, r in ratios.items()},
    }


def run(options: Options, say: Say) -> Outcome:
    """Measure; the labs are gone afterwards. EnvironmentLackError if no part can be measured.

    A part that the machine lacks something for is left out, with what that is in `lacking`.
    """
    outcome = Outcome()
    measures: dict[Part, Callable[[Options, Outcome, Say], None]] = {
        "forwarding": _forwarding,
        "hosts": _hosts,
        "wire": _wire,
    }
    for part in options.parts:
        try:
            measures[part](options, outcome, say)
        except EnvironmentLackError as error:
            if len(options.parts) == 1 or not outcome.mode:
                raise
            outcome.lacking[part] = str(error)
            say(f"{part}: {error}")
    return outcome


@contextmanager
def _labs(options: Options, outcome: Outcome, say: Say, *switches: int) -> Iterator[list[Lab]]:
    """Labs with so many switches between two hosts."""
    with ExitStack() as stack:
        labs = []
        for count in switches:
            plan = topology.load(TOPOLOGIES[count], name=f"{options.name}-{count}")
            lab = stack.enter_context(fabric.owned(plan, mode=options.mode, say=say))
            labs.append(lab)
        outcome.mode = labs[0].mode
        yield labs


def first_switch(plan: Plan) -> tuple[Link, int, Port]:
    """Where packets leave the first switch between the hosts: link, directed link, port."""
    source, destination = plan.hosts[0], plan.hosts[-1]
    peers = locate.peers(plan)
    switch = peers[source.ports[0].ifindex][1].node
    ((port, *_),) = [
        route.ports
        for route in plan.routes
        if route.node == switch and route.destination == f"{destination.address}/32"
    ]
    directed, _ = peers[port.ifindex]
    return plan.links[directed // 2], directed, port


def _take(pair: Pair, above: Measure, below: Measure, forth: bool) -> None:
    """One sample of each, one right after the other."""
    if forth:
        pair.above.append(undisturbed(above))
    pair.below.append(undisturbed(below))
    if not forth:
        pair.above.append(undisturbed(above))


def _rounds(options: Options, part: Part, say: Say) -> Iterator[bool]:
    """Whether each round goes forth or back."""
    for number in range(options.rounds):
        say(f"{part}: round {number + 1} of {options.rounds}")
        yield number % 2 == 0


# -------------------------------------------------------------------------------- forwarding


def _forwarding(options: Options, outcome: Outcome, say: Say) -> None:
    with _labs(options, outcome, say, 3) as (lab,):
        _, directed, port = first_switch(lab.plan)
        traffic = BareTraffic(lab, options.seconds, moderate=True)
        outcome.pairs |= {name: Pair() for name in fault_sets.SETS}
        for forth in _rounds(options, "forwarding", say):
            for name, faults in fault_sets.SETS.items():
                pair = outcome.pairs[name]
                with_faults = _armed(lab, faults(directed), traffic, port, pair)
                _take(pair, with_faults, _armed(lab, (), traffic, port), forth)


def _armed(
    lab: Lab, faults: Sequence[Fault], traffic: BareTraffic, port: Port, pair: Pair | None = None
) -> Measure:
    """Measures at the port where the faults act; `pair` counts what they did."""

    def measure() -> Sample:
        set_faults(lab, faults)
        met, dropped, ns = traffic.run_past(port.ifindex)
        if pair is not None:
            pair.met += met
            pair.dropped += dropped
        return Sample.of(met, ns, PAYLOAD_BYTES)

    return measure


# -------------------------------------------------------------------------------- hosts


def _hosts(options: Options, outcome: Outcome, say: Say) -> None:
    from softroce_lab.bench.kernel_routers import KernelRouters  # no other bench needs pyroute2

    with _labs(options, outcome, say, 1, 3) as labs, ExitStack() as stack:
        measures: dict[str, tuple[Measure, Measure]] = {}
        for switches, lab in zip((1, 3), labs, strict=True):
            _, directed, port = first_switch(lab.plan)
            routers = stack.enter_context(KernelRouters(lab.plan))
            routers.lose(port.node, _ONE_IN)
            set_faults(lab, fault_sets.random(directed))
            ours = _ours(BareTraffic(lab, options.seconds, moderate=True))
            for suffix, moderate in (("", False), (MODERATED, True)):
                sockets = _sockets(routers, lab.plan, options.seconds, moderate)
                measures[f"over_nft_{switches}{suffix}"] = ours, sockets
        pairs = {name: Pair() for name in measures}
        for forth in _rounds(options, "hosts", say):
            for name, (above, below) in measures.items():
                _take(pairs[name], above, below, forth)
        outcome.pairs |= pairs


def _ours(traffic: BareTraffic) -> Measure:
    def measure() -> Sample:
        _, received, ns = traffic.run()
        return Sample.of(received, ns, PAYLOAD_BYTES)

    return measure


def _sockets(routers: KernelRouters, plan: Plan, seconds: float, moderate: bool) -> Measure:
    def measure() -> Sample:
        sender, receiver = routers.udp_pair(plan.hosts[0], plan.hosts[-1])
        with sender, receiver:
            _, received, ns = _native.udp_traffic(
                sender.fileno(),
                receiver.fileno(),
                payload_bytes=PAYLOAD_BYTES,
                duration_ns=int(seconds * 1e9),
                moderate=moderate,
                sender_cpu=SENDER_CPU,
                receiver_cpu=RECEIVER_CPU,
            )
        return Sample.of(received, ns, PAYLOAD_BYTES)

    return measure


# -------------------------------------------------------------------------------- wire


def _wire(options: Options, outcome: Outcome, say: Say) -> None:
    with _labs(options, outcome, say, 1) as (lab,):
        _, directed, _ = first_switch(lab.plan)
        outcome.wire = bench_wire.run(lab, directed, options.seconds, say)
