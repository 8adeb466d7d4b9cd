# SPDX-License-Identifier: GPL-2.0-or-later
"""How much memory a run will need, and upper bounds of its events, which count in it."""

from __future__ import annotations

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports.own_process import available_bytes
from softroce_lab.faults import expected
from softroce_lab.plan import base_rtt
from softroce_lab.plan.effects import Fault, NamedDrop
from softroce_lab.plan.path_mtu import path_mtu_bytes
from softroce_lab.plan.plan import Plan
from softroce_lab.telemetry.recoveries import MOST_RECORDS
from softroce_lab.topology import routing
from softroce_lab.transports.registry import Kind

_BASE_BYTES = 136 << 20  # the interpreter with all that is imported
_MESSAGE_BYTES = 1500  # a message in Python: itself, its row, and its place in two hosts' queues
_NODE_BYTES = 64 << 10  # of a simulated host or switch, with its ports and routes
_PEER_BYTES = {True: 48 << 10, False: 8 << 10}  # of a host per peer; True: striped
# Of a packet that a rule hit: its record, in a list that grows, its repair, the columns of both.
_EVENT_BYTES = 300
_ACT_BYTES = 400  # of what a policy did: the same
_RECOVERY_BYTES = 80  # of what was done about a loss: its record, and columns of a part of them
_MOST_WRITER_BYTES = 64 << 20  # of tables of these while they are sorted and written
_SENT_BYTES = 8  # of a packet in flight, in a log as long as the window
_FLIGHT_BYTES = 192  # of the packet itself, on links and in queues, without its payload
_HOST_PROCESS_BYTES = 120 << 20  # of the real clock: a process, its socket's memory
_MOST_SHARE = 0.9

# What is kept of each run until all are written: rows of messages, and dictionaries of figures.
_KEPT_MESSAGE_BYTES = 200
_KEPT_LINK_BYTES = 2000
_KEPT_HOST_BYTES = 4000


def needed_bytes(experiment: Experiment) -> int:
    """An estimate of the most that a run will hold, somewhat above what was measured."""
    seed = experiment.seeds[0]
    plan, work = experiment.plan(seed), experiment.workload(seed)
    buffers = sum(work.buffer_bytes_of(host) for host in work.ranks)
    needed = _BASE_BYTES + work.message_count * _MESSAGE_BYTES + _kept_bytes(experiment)
    if experiment.clock == "real":
        # Of hosts two; the right ones of two seeds, and of the one that is being computed.
        return needed + len(plan.plain_hosts) * _HOST_PROCESS_BYTES + 5 * buffers
    striped = any(transport.entry.striped for transport in experiment.used_transports)
    pairs = min(work.message_count, work.hosts * (work.hosts - 1) // 2)
    path_mtu = path_mtu_bytes(plan.mtu, 4)
    window = base_rtt.of(plan, path_mtu).window_packets(path_mtu)
    peers = 2 * pairs * (_PEER_BYTES[striped] + striped * window * _SENT_BYTES)
    with_backup = any(transport.entry.rails > 1 for transport in experiment.used_transports)
    carries = experiment.payload == "verify" or with_backup
    held = 3 * buffers if carries else 0  # before, now, and what must be
    flights = _in_flight(experiment, window) * (_FLIGHT_BYTES + carries * path_mtu)
    events = hit_packets(experiment) * _EVENT_BYTES  # of one run, then written
    events += acts(experiment) * _ACT_BYTES
    events += recoveries(experiment, window) * _RECOVERY_BYTES
    events += min(events, _MOST_WRITER_BYTES)
    return needed + peers + len(plan.nodes) * _NODE_BYTES + held + flights + events


def _in_flight(experiment: Experiment, window: int) -> int:
    """Packets that hosts may have out at once: each `depth` messages to each peer, or a window."""
    work = experiment.workload(experiment.seeds[0])
    each = packets_of_a_message(experiment)
    pairs = min(work.message_count, work.hosts * (work.hosts - 1))
    return min(work.message_count * each, pairs * min(window, experiment.depth * each))


def _kept_bytes(experiment: Experiment) -> int:
    seed = experiment.seeds[0]
    plan, work = experiment.plan(seed), experiment.workload(seed)
    run = (
        work.message_count * _KEPT_MESSAGE_BYTES
        + 2 * len(plan.links) * _KEPT_LINK_BYTES
        + len(plan.plain_hosts) * _KEPT_HOST_BYTES
    )
    return len(experiment.seeds) * len(experiment.transports) * run


def fitting(experiment: Experiment) -> int:
    """How many of these runs fit into memory side by side; 1 at least."""
    return max(1, int(_MOST_SHARE * available_bytes()) // needed_bytes(experiment))


def check_fits(experiment: Experiment) -> None:
    """UserError if the machine has not got what the run will need."""
    needed, available = needed_bytes(experiment), available_bytes()
    if needed > _MOST_SHARE * available:
        need, have = units.format_bytes(needed), units.format_bytes(available)
        hint = "fewer hosts or seeds, fewer or larger messages, less loss, or payload: none"
        raise UserError(f"the run would need {need} of memory, {have} are free", hint=hint)


_HEADER_BYTES = 40  # of a packet's payload, the lab's own
_ACTS_A_MESSAGE = 10
_PACKETS_A_WORD = 4  # a bitmap each quarter of a round trip: fewer packets only on slow links
_MOST_LOST = 0.9  # where more is lost, messages fail before all of it was sent so often


def hit_packets(experiment: Experiment) -> int:
    """Packets that rules will have hit in one run.

    As if all packets crossed every link that a rule is on, as far as a path goes.
    """
    seed = experiment.seeds[0]
    plan, work = experiment.plan(seed), experiment.workload(seed)
    hops = longest_path(plan)
    rules: dict[tuple[str, type], list[Fault]] = {}
    for fault in plan.faults:
        if expected.rate(fault.effect) is not None:
            rules.setdefault((fault.rule, type(fault.effect)), []).append(fault)
    packets = work.message_count * packets_of_a_message(experiment)
    hits, arriving = 0.0, 1.0
    for faults in rules.values():
        first, crossed = faults[0], min(len(faults), hops)
        rate = expected.rate(first.effect) or 0.0
        single = isinstance(first.effect, NamedDrop) or first.filter.tail is not None
        share = work.message_count / packets if single else 1.0  # single packets of messages
        hits += min(rate * crossed, 1.0) * share
        if first.window.always and share == 1.0 and rate < 1:
            arriving *= (1 - rate) ** crossed
    return int(packets * hits / max(arriving, 1 - _MOST_LOST))  # what is lost is sent again


def recoveries(experiment: Experiment, window: int) -> int:
    """Records of what is done about these packets in one run: decisions, and packets sent again.

    Of each loss two, and where a queue pair goes back, the `window` of packets behind it.
    """
    striped = all(transport.entry.striped for transport in experiment.used_transports)
    return min(MOST_RECORDS, hit_packets(experiment) * (2 if striped else 2 + window))


def acts(experiment: Experiment) -> int:
    """The expected events of policies in one run: a few per message, and those per packet."""
    sessions = [
        transport.entry
        for transport in experiment.used_transports
        if transport.entry.kind is Kind.SESSION
    ]
    shows = any(entry.sends_sacks for entry in sessions)
    words = packets_of_a_message(experiment) // _PACKETS_A_WORD if shows else 0
    messages = experiment.workload(experiment.seeds[0]).message_count
    return messages * (_ACTS_A_MESSAGE + words) if sessions else 0


def packets_of_a_message(experiment: Experiment) -> int:
    """Of the longest ones."""
    seed = experiment.seeds[0]
    longest = experiment.workload(seed).longest_message_bytes
    path_mtu = path_mtu_bytes(experiment.plan(seed).mtu, 4)
    return max(1, -(-longest // (path_mtu - _HEADER_BYTES)))


def longest_path(plan: Plan) -> int:
    """Links between the first host and the one farthest from it."""
    among = routing.neighbours((node.name for node in plan.nodes), plan.links)
    far = routing.distances([plan.hosts[0].name], among)
    return max(far[host.name] for host in plan.hosts)
