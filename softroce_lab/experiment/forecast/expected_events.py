# SPDX-License-Identifier: GPL-2.0-or-later
"""How many events a run will have: upper bounds that memory is reckoned with."""

from __future__ import annotations

from softroce_lab.experiment.hosts.settings import path_mtu_bytes
from softroce_lab.experiment.spec import Experiment
from softroce_lab.faults import expected
from softroce_lab.plan.effects import Fault, NamedDrop
from softroce_lab.plan.plan import Plan
from softroce_lab.telemetry.recoveries import MOST_RECORDS
from softroce_lab.topology import routing
from softroce_lab.transports.registry import Kind

_HEADER_BYTES = 40  # of a packet's payload, the lab's own
_ACTS_A_MESSAGE = 10
_PACKETS_A_WORD = 4  # a bitmap each quarter of a round trip: fewer packets only on slow links
_MOST_LOST = 0.9  # where more is lost, messages fail before all of it was sent so often


def count(experiment: Experiment) -> int:
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
        rate, crossed = _rate(faults[0]), min(len(faults), hops)
        share = work.message_count / packets if _by_message(faults[0]) else 1.0
        hits += min(rate * crossed, 1.0) * share
        if faults[0].window.always and share == 1.0 and rate < 1:
            arriving *= (1 - rate) ** crossed
    return int(packets * hits / max(arriving, 1 - _MOST_LOST))  # what is lost is sent again


def recoveries(experiment: Experiment, window: int) -> int:
    """Records of what is done about these packets in one run: decisions, and packets sent again.

    Of each loss two, and where a queue pair goes back, the `window` of packets behind it.
    """
    striped = all(transport.entry.striped for transport in experiment.used_transports)
    return min(MOST_RECORDS, count(experiment) * (2 if striped else 2 + window))


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


def _rate(fault: Fault) -> float:
    return expected.rate(fault.effect) or 0.0


def _by_message(fault: Fault) -> bool:
    """Whether it takes single packets of messages."""
    return isinstance(fault.effect, NamedDrop) or fault.filter.tail is not None


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
