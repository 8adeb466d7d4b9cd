# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a run fits into memory, checked before it starts."""

from __future__ import annotations

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment.forecast import base_rtt, expected_events
from softroce_lab.experiment.forecast.available import available_bytes
from softroce_lab.experiment.hosts.settings import path_mtu_bytes
from softroce_lab.experiment.spec import Experiment

_BASE_BYTES = 136 << 20  # the interpreter with all that is imported
_MESSAGE_BYTES = 1500  # a message in Python: itself, its row, and its place in two hosts' queues
_NODE_BYTES = 64 << 10  # of a simulated host or switch, with its ports and routes
_PEER_BYTES = {True: 48 << 10, False: 8 << 10}  # of a host per peer; True: striped
# Of a packet that a rule hit: its record, in a list that grows, its repair, the columns of both.
_EVENT_BYTES = 300
_ACT_BYTES = 400  # of what a policy did: the same
_RECOVERY_BYTES = 80  # of what was done about a loss: its record, and columns of a part of them
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
    events = expected_events.count(experiment) * _EVENT_BYTES  # of one run, then written
    events += expected_events.acts(experiment) * _ACT_BYTES
    events += expected_events.recoveries(experiment, window) * _RECOVERY_BYTES
    return needed + peers + len(plan.nodes) * _NODE_BYTES + held + flights + events


def _in_flight(experiment: Experiment, window: int) -> int:
    """Packets that hosts may have out at once: each `depth` messages to each peer, or a window."""
    work = experiment.workload(experiment.seeds[0])
    each = expected_events.packets_of_a_message(experiment)
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
