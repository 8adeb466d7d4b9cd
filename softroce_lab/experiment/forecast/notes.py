# SPDX-License-Identifier: GPL-2.0-or-later
"""What is known of an experiment before it runs, and is worth a warning.

- Rules that cannot hit a transport's packets: these lack the fields that the rules match. Message,
  packet index and transmission are in the lab's own header. Queue pairs of RC have
  none, nor has the framing of one UC WRITE a packet. A transport that was not hit has not
  recovered: beside transports that were hit it would look better than it is, so it is left out.
- Values of the knob `window` that are never smaller than the congestion window.
- Open-loop traffic whose draw is not what the file asks for. A host's flows are drawn until their
  bytes are those of the load, with the warm-up and without (`workloads/open_loop.py`). Where these
  are few beside the largest size, large flows are rarer than in the distribution; where flows are
  few, no draw may have both loads; and incasts are whole events, of which a small share may have
  none.
- A real clock whose machine carries less than the links allow. One thread, the wire stage, moves a
  frame over every shaped link (docs/howto/fabric.md), and all CPUs together do the rest. Then the
  run is slower than its file and not faithful.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import socket
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from softroce_lab import units
from softroce_lab.experiment.forecast import assumed_links
from softroce_lab.experiment.forecast.memory import longest_path, packets_of_a_message
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.faults.opcodes import CNP, UD_SEND_ONLY
from softroce_lab.inputs.validation import listed
from softroce_lab.inputs.yaml_source import Place
from softroce_lab.plan import base_rtt, locate
from softroce_lab.plan.effects import Blackout, Fault, LossModel, NamedDrop
from softroce_lab.plan.path_mtu import path_mtu_bytes
from softroce_lab.plan.plan import Plan
from softroce_lab.transports.defaults import MACHINE_RTT_NS
from softroce_lab.workloads.jobs import Jobs
from softroce_lab.workloads.open_loop import OpenLoop
from softroce_lab.workloads.work import Workload


def notes(experiment: Experiment) -> list[str]:
    """All of them, a sentence each."""
    return [
        *assumed_links.note(experiment.plan(experiment.seeds[0])),
        *blind_notes(experiment),
        *window_notes(experiment),
        *traffic_notes(experiment),
        *pace_notes(experiment),
    ]


# --- Rules that hit nothing ----------------------------------------------------------------------

_RC, _UC = range(0x20), range(0x20, 0x40)  # opcodes (IBA 9.2.1)
_MOST_LINKS = 4  # that a note names


@dataclasses.dataclass(frozen=True, slots=True)
class LeftOut:
    """A transport that does not run, because rules that hit others cannot hit it."""

    transport: str  # its label
    rules: dict[str, list[str]]  # the links that each of them is on

    @property
    def note(self) -> str:
        found = []
        for rule, links in self.rules.items():
            where = "link" if len(links) == 1 else "links"
            found.append(f"rule {rule!r} of {where} {listed(links, _MOST_LINKS)}")
        return f"{self.transport} left out: {', '.join(found)} cannot hit its packets"

    def document(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def compared(experiment: Experiment) -> tuple[Experiment, list[LeftOut]]:
    """The experiment without transports that rules cannot hit; and these.

    All stay if there is none that every rule can hit: none of them is ahead of another by that.
    """
    if experiment.raw.workload.has_transports:
        return experiment, []  # one run
    blind = {each.label: _blind(experiment, each) for each in experiment.transports}
    kept = tuple(each for each in experiment.transports if not blind[each.label])
    if not kept or len(kept) == len(experiment.transports):
        return experiment, []
    out = [LeftOut(label, rules) for label, rules in blind.items() if rules]
    return dataclasses.replace(experiment, transports=kept), out


def blind_notes(experiment: Experiment) -> list[str]:
    whole, left_out = compared(experiment)
    found = [each.note for each in left_out] + [
        f"{transport.label}: cannot be hit by {', '.join(rules)}: "
        "its data packets do not show messages"
        for transport in whole.used_transports
        if (rules := _blind(experiment, transport))
    ]
    return [*found, *_uneven_tails(whole), *_drawn_by_index(whole)]


def _drawn_by_index(experiment: Experiment) -> list[str]:
    if len(experiment.transports) < 2:
        return []
    plan = experiment.plan(experiment.seeds[0])
    drawn = [
        fault.rule
        for fault in plan.faults
        if fault.key == "index"
        and isinstance(fault.effect, LossModel)
        and not isinstance(fault.effect, Blackout)
    ]
    rules = list(dict.fromkeys(drawn))
    if not rules:
        return []
    named = ", ".join(map(repr, rules))
    what = "rule" if len(rules) == 1 else "rules"
    return [f"{what} {named} (key: index) hit other packets of each transport, at the same rate"]


def _uneven_tails(experiment: Experiment) -> list[str]:
    """A sentence for each rule of tails that hits some transports more often than others.

    RC's packets do not show how often they were sent, so its tails are hit once.
    """
    if len({each.shows_messages for each in experiment.used_transports}) == 1:
        return []
    rules = {
        fault.rule: None
        for fault in experiment.plan(experiment.seeds[0]).faults
        if fault.filter.tail is not None and not fault.filter.iters and fault.filter.takes_rc_tails
    }
    return [
        f"rule {rule!r} takes last packets of rc in their first transmission alone, those of other "
        "transports in every one: write iter: 1 to compare these transports"
        for rule in rules
    ]


def _blind(experiment: Experiment, transport: Transport) -> dict[str, list[str]]:
    plan = experiment.plan(experiment.seeds[0])
    cnps = transport.control(plan) == "dcqcn"
    found: dict[str, dict[int, None]] = {}
    for fault in plan.faults:
        if not _sees(fault, transport, cnps=cnps):
            found.setdefault(fault.rule, {})[fault.directed_link] = None
    if not found:
        return {}
    names = locate.arrows(plan)
    return {rule: [names[link] for link in sorted(links)] for rule, links in found.items()}


def _has_opcode(transport: Transport, opcode: int) -> bool:
    if not transport.entry.striped:
        return opcode in _RC
    return opcode == UD_SEND_ONLY or (not transport.shows_messages and opcode in _UC)


def _sees(fault: Fault, transport: Transport, *, cnps: bool) -> bool:
    """Whether any packet of this transport can match the rule. `cnps`: it sends CNPs, too."""
    asks = fault.filter
    if asks.kinds and set(asks.kinds) <= {"probe", "parity"}:
        # Beside a rule that drops tails, such a rule is for transports that send these packets.
        hides_parity = transport.entry.codes is not None and not transport.shows_messages
        return not ("parity" in asks.kinds and hides_parity)
    if asks.opcode not in (None, *[CNP] * cnps) and not _has_opcode(transport, asks.opcode):
        return False
    if transport.shows_messages:
        return set(asks.kinds) != {"other"} or cnps
    if isinstance(fault.effect, NamedDrop):
        return fault.effect.message is None
    if asks.tail is not None and not transport.entry.striped:
        return asks.takes_rc_tails
    if asks.message is not None or asks.tail is not None or asks.iters:
        return False
    kinds = set(asks.kinds)
    # Control messages and reports of striped messages have the header in either framing.
    shown = {"other", "control", "report"} if transport.entry.striped else {"other"}
    return not kinds or bool(kinds & shown)


# --- Traffic that was not drawn as it was asked for ----------------------------------------------

LEAST_TIMES = 2
"""How many times the largest size a host is to send, at least."""
LOAD_OFF, SHARE_OFF = Fraction(1, 100), Fraction(1, 10)
"""How far the load behind the warm-up, and the share of incasts, may be off: of what was asked."""


def traffic_notes(experiment: Experiment) -> list[str]:
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


# --- Windows that are too wide -------------------------------------------------------------------


def window_notes(experiment: Experiment) -> list[str]:
    chosen = [each for each in experiment.used_transports if each.knobs.window is not None]
    if not chosen:
        return []
    plan = experiment.plan(experiment.seeds[0])
    path_mtu = path_mtu_bytes(plan.mtu, 4)
    machine_ns = MACHINE_RTT_NS if experiment.clock == "real" else 0
    fabric = base_rtt.of(plan, path_mtu)
    lines = []
    for each in chosen:
        window = each.knobs.window or 0
        most = fabric.window_packets(path_mtu, one_path=each.one_path, machine_ns=machine_ns)
        if window >= most:
            packets = units.format_count(window, "packet")
            what = f"a window of {packets} has no effect"
            lines.append(f"{each.label}: {what}, the congestion window has {most:,} at most")
    return lines


# --- Real clocks that are too slow ---------------------------------------------------------------

# Measured by benchmarks/faults.py and path.py on a machine where a datagram took so long.
_STAGE_FRAMES_PER_S = 400_000
_PATH_FRAMES_PER_S = 367_000
_REFERENCE_DATAGRAM_NS = 3500

_DATAGRAM_BYTES = 2048
_DATAGRAMS, _ROUNDS = 1000, 8
_MOST_MESSAGES = 100_000  # examined to find the pairs of sender and receiver
_FEW_PACKETS = 256  # over before anything is late


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """Packets a second, of all hosts together."""

    expected: float
    carried: float
    shaped_hops: float  # shaped links that a packet crosses


def pace_notes(experiment: Experiment) -> list[str]:
    found = pace(experiment)
    if found is None or found.expected <= found.carried:
        return []
    expected, carried = (f"{float(f'{n:.2g}'):,.0f}" for n in (found.expected, found.carried))
    return [
        f"the links allow about {expected} packets/s over {found.shaped_hops:.2g} shaped links "
        f"each, this machine carries about {carried}: the run will not be faithful "
        "(lower rates, fewer hosts, or --clock virtual)"
    ]


def pace(experiment: Experiment) -> Pace | None:
    """Of the busiest moment; None: on the virtual clock, without rates, or of a few packets."""
    if experiment.clock != "real":
        return None
    plan, work = experiment.plan(experiment.seeds[0]), experiment.workload(experiment.seeds[0])
    bits_per_s = _allowed_bps(experiment, plan)
    packets = work.message_count * packets_of_a_message(experiment)
    if bits_per_s is None or packets < _FEW_PACKETS:
        return None
    frame_bits = 8 * (path_mtu_bytes(plan.mtu, 4) + base_rtt.HEADERS_BYTES)
    hops = _shaped_hops(plan)
    return Pace(bits_per_s / frame_bits, _carried(hops), hops)


def _allowed_bps(experiment: Experiment, plan: Plan) -> float | None:
    """What the links of all senders, or of all receivers, let through; None: nothing limits it."""
    work, rates = experiment.workload(experiment.seeds[0]), base_rtt.rates(plan)
    messages = list(itertools.islice(work.messages(), _MOST_MESSAGES))
    numbers = {port.ifindex: number for number, port, _ in plan.halves}
    rails = experiment.rails(experiment.seeds[0])

    def total(hosts: set[int], way: int) -> float | None:
        ports = [plan.plain_hosts[host].ports[rails.get(host, 0)] for host in hosts]
        uplinks = [numbers[port.ifindex] ^ way for port in ports]
        found = [rates[number] for number in uplinks]
        return sum(found) if all(found) else None

    sent = total({message.source for message in messages}, 0)
    received = total({message.destination for message in messages}, 1)
    return min((each for each in (sent, received) if each is not None), default=None)


def _shaped_hops(plan: Plan) -> float:
    """Shaped links on the longest path, as if they were spread evenly."""
    shaped = {fault.directed_link for fault in plan.faults if fault.is_staged}
    return longest_path(plan) * len(shaped) / (2 * len(plan.links))


def _carried(shaped_hops: float) -> float:
    """Packets a second that the wire stage, and all CPUs together, can move."""
    speed = _REFERENCE_DATAGRAM_NS / datagram_ns()
    cpu_s = 1 / _PATH_FRAMES_PER_S + shaped_hops / _STAGE_FRAMES_PER_S  # of a packet
    by_cpus = len(os.sched_getaffinity(0)) / cpu_s
    by_stage = _STAGE_FRAMES_PER_S / shaped_hops if shaped_hops else by_cpus
    return speed * min(by_cpus, by_stage)


@functools.cache
def datagram_ns() -> float:
    """What this machine takes to send a datagram to itself and to receive it: a few milliseconds.

    Time of this thread alone, so that what else runs counts little.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    data, into = bytes(_DATAGRAM_BYTES), bytearray(_DATAGRAM_BYTES)
    with near, far:
        times = []
        for _ in range(_ROUNDS):
            begun = time.thread_time_ns()
            for _ in range(_DATAGRAMS):
                near.send(data)
                far.recv_into(into)
            times.append((time.thread_time_ns() - begun) / _DATAGRAMS)
    return min(times)
