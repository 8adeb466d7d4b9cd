# SPDX-License-Identifier: GPL-2.0-or-later
"""What holds of every run on the virtual clock, whatever happened to its packets."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from softroce_lab.errors import ibv_wc_status
from softroce_lab.experiment.figure_table import SPURIOUS
from softroce_lab.experiment.forecast.memory import longest_path
from softroce_lab.experiment.fuzz import workload_invariants
from softroce_lab.experiment.hosts.messenger import RcSettings
from softroce_lab.experiment.messages import NEVER_NS, NOT_DONE
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.plan.effects import Blackout, Burst, Delay, Down, Gemodel, Periodic, Reorder
from softroce_lab.sim.fabric import SimFabric
from softroce_lab.telemetry.drops import (
    EFFECT_CORRUPT,
    EFFECT_CUT,
    EFFECT_DROP,
    EFFECT_REORDER,
    PACKET_KINDS,
    Drops,
)
from softroce_lab.transports.registry import Kind

NEVER_HAPPENS = (
    "rx_bad_header", "rx_bad_count", "rx_bad_index", "rx_bad_length", "rx_bad_report",
    "rx_bad_control", "rx_bad_opcode", "rx_inconsistent", "rx_unknown_peer", "rx_unknown_qp",
    "rx_wrong_qkey", "rx_wrong_pkey", "rx_not_ours", "rx_message_too_long", "rx_slot_busy",
)  # fmt: skip
"""Counters that only a broken peer, or a broken fabric, moves."""

Pair: TypeAlias = frozenset[int]  # two hosts, by their indices

_HEAVY_ROUND_TRIP = 1 / 6  # of the packets that go there and back are lost
_DATA, _CONTROL = PACKET_KINDS.index("data"), PACKET_KINDS.index("control")
_BOUNDED = 0.3  # lost in a direction: so far the bounds of policies hold
_DEAD = (Down, Blackout)
_OUTAGES = (*_DEAD, Burst, Gemodel, Periodic)
_SUCCESS = int(ibv_wc_status.IBV_WC_SUCCESS)
_RETRY_EXC = int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)
_JUSTIFIED = {
    _RETRY_EXC,
    int(ibv_wc_status.IBV_WC_RNR_RETRY_EXC_ERR),
    int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR),  # behind one that failed
    int(ibv_wc_status.IBV_WC_REM_OP_ERR),
}


def violations(made: VirtualRun, run: WorkloadRun, *, may_fail: bool) -> list[str]:
    """What does not hold; [] as it should be. `may_fail`: somebody was not to be reached."""
    if made.policy_error is not None:
        return [f"crashes: {made.policy_error.what}"]
    return [
        *_ends(run, may_fail=may_fail or _all_give_up(run, made)),
        *_order(run),
        *_knows(made, run),
        *workload_invariants.violations(made, run),
        *_bytes(run),
        *_counters(run),
        *_links(made.fabric),
        *_switches(made.fabric),
        *_ports(made.fabric),
    ]


def _ends(run: WorkloadRun, *, may_fail: bool) -> Iterator[str]:
    """Every run ends, and a message fails only where it may."""
    if any(problem.endswith("hosts were not done") for problem in run.problems):
        yield f"hangs: {run.problems[0]}"
        return
    status = run.messages["status"]
    failed = set(np.unique(status).tolist()) - {_SUCCESS, NOT_DONE}
    if failed and not may_fail:
        yield f"fails: {ibv_wc_status(min(failed)).name} although everybody could be reached"
    if unknown := failed - _JUSTIFIED:
        yield f"fails: {ibv_wc_status(min(unknown)).name}"
    if (status == NOT_DONE).any() and not failed:
        yield "forgets: messages without an end, although none failed"


def _all_give_up(run: WorkloadRun, made: VirtualRun) -> bool:
    """Whether each two hosts whose messages failed may have run out of retries."""
    return all(_gives_up(run, made, *failed) for failed in _first_failures(run))


def _gives_up(run: WorkloadRun, made: VirtualRun, pair: Pair, failed_ns: int) -> bool:
    """Whether two hosts of a transport with few retries may have run out of them.

    A session has enough of them, unless a knob is set otherwise, or outages take more than it is
    made for. A queue pair: only where loss is heavy or comes in outages, and between the two hosts
    so much was lost that every retry in a row can have met a loss.
    """
    transport = _of_pair(made, pair)
    if transport.entry.kind == Kind.QUEUE_PAIR:
        return _rc_gives_up(run, made, pair, failed_ns)
    if transport.entry.virtual_only:
        return False
    chosen = transport.knobs.retry_count is not None
    return (
        chosen
        or _keepalives_lost(run, made, pair, failed_ns)
        or _attempts_lost(run, made, pair, failed_ns)
    )


def _keepalives_lost(run: WorkloadRun, made: VirtualRun, pair: Pair, failed_ns: int) -> bool:
    """Whether outages may have taken every keepalive in a row, or its answer.

    A link that flaps in step with a round trip answers few of them, although it is up most of the
    time. More than `_BOUNDED` of what the two hosts sent was lost then.
    """
    losses = _losses(made, pair, failed_ns)
    lost = len(losses) + _unrouted(made)
    ends = {made.plan.plain_hosts[host].name for host in pair}
    sent = sum(
        int(link["sent"] + link["injected_drops"])
        for (_, near, _), link in zip(made.plan.halves, run.links, strict=True)
        if near.node in ends
    )
    heavy = lost > _BOUNDED * sent and lost >= made.tuning.timing.keepalive_probes
    return heavy and (_took(made, losses, _DEAD) or _unrouted(made) > 0)


def _attempts_lost(run: WorkloadRun, made: VirtualRun, pair: Pair, failed_ns: int) -> bool:
    """Whether as many attempts of one packet as a session makes each met a loss.

    A peer that is heard is sent a packet `most_attempts` times. An outage that counts packets takes
    all of them, or their answers, where each round has as many packets as its period. A record
    names the attempt that was lost; an attempt that no record names needs a lost answer, which an
    outage may have taken.
    """
    most = made.tuning_of(_of_pair(made, pair)).timing.most_attempts
    losses = _losses(made, pair, failed_ns)
    losses = losses[(losses["effect"] & (EFFECT_DROP | EFFECT_CUT | EFFECT_CORRUPT)) != 0]
    outage = _took(made, losses, _OUTAGES)
    failed = run.messages[run.messages["status"] == _RETRY_EXC]
    for row in failed[failed["completed_ns"] == failed_ns]:
        if {int(row["source"]), int(row["destination"])} != pair:
            continue
        back = losses["src"] == _address(made, row["destination"])
        answers = back & (losses["kind"] == _CONTROL) & (losses["time_ns"] >= row["posted_ns"])
        if _most_lost(losses[~back], row, int(outage and answers.sum())) >= most:
            return True
    return False


def _most_lost(sent: Drops, row: np.void, answers: int) -> int:
    """How many attempts of one packet of a message may have met a loss, of it or of an answer.

    Up to the last one that was lost, a packet's attempts are known. What the message sent beyond
    those of all its packets may be of one packet, unless more than the lost answers: what goes back
    sends much again that was never lost.
    """
    sent = sent[sent["kind"] == _DATA]
    for name in ("operation", "step", "message"):
        sent = sent[sent[name] == row[name]]
    named = np.unique(sent[["index", "attempt"]])
    lost = np.unique(named["index"], return_counts=True)[1]
    known = named["attempt"][np.cumsum(lost) - 1].astype(int) + 1
    beyond = int(row["retransmitted"]) + 1 - int(known.sum())
    beyond = beyond if 0 < beyond <= answers else 0
    packets: list[tuple[int, int]] = [
        *zip(lost.tolist(), known.tolist(), strict=True),
        (0, 0),
    ]  # one that was never lost
    return max(n + min(answers, attempts - n + beyond) for n, attempts in packets)


def _took(made: VirtualRun, losses: Drops, kinds: tuple[type, ...]) -> bool:
    """Whether a rule with such an effect took one of these."""
    rules = {fault.rule_id for fault in made.plan.faults if isinstance(fault.effect, kinds)}
    return bool(np.isin(losses["rule_id"], list(rules)).any())


def _of_pair(made: VirtualRun, pair: Pair) -> Transport:
    """Both hosts are of one job."""
    return made.own.get(min(pair), made.transport)


def _rc_gives_up(run: WorkloadRun, made: VirtualRun, pair: Pair, failed_ns: int) -> bool:
    """Whether a queue pair may have met eight timeouts in a row.

    RC's retry count has three bits (IBA 9.7.6.1.3), so an outage of eight timeouts ends a
    connection, and so does what takes the same packets of each round, or a sixth of all that goes
    there and back. Each of the eight met a loss, of what was sent or of the answer; in one of them
    jitter may have let a packet overtake another, which no record has: RC drops it, and asks once.
    Unless pacing or a peer that was not ready put timers off, all of these lie within sixteen
    timeouts: what is late, or tells of progress, makes the timer begin anew. A knob that sets
    fewer retries needs no heavy loss: only as many losses as retries, and one.
    """
    transport = _of_pair(made, pair)
    settings = made.tuning_of(transport).rc
    control = made.tuning_of(transport).congestion_control
    losses = _losses(made, pair, failed_ns)
    stalled_ns = sum(for_ns for _, _, for_ns in made.experiment.stalls(run.seed))
    outage = _took(made, losses, _OUTAGES) or _unrouted(made)
    chosen = transport.knobs.retry_count is not None
    if not (chosen or stalled_ns or outage or _rc_heavy(run, made, settings)):
        return False
    if control == "bdp" and not any(each.get("tx_rnr_nak") for each in run.counters.values()):
        lasts_ns = 2 * (settings.retry_count + 1) * (4096 << settings.timeout) + stalled_ns
        losses = losses[losses["time_ns"] + lasts_ns >= failed_ns]
    unseen = _unrecorded(run, made, pair) + _was_overtaken(run, made, pair)
    return len(losses) + unseen > settings.retry_count


def _was_overtaken(run: WorkloadRun, made: VirtualRun, pair: Pair) -> bool:
    """Whether packets came out of sequence to two hosts, and jitter may be why."""
    delays = [fault.effect for fault in made.plan.faults if isinstance(fault.effect, Delay)]
    if not any(delay.jitter_ns and not delay.preserve for delay in delays):
        return False
    return any(run.counters[run.hosts[n]].get("out_of_sequence") for n in pair)


def _rc_heavy(run: WorkloadRun, made: VirtualRun, settings: RcSettings) -> bool:
    """Eight round trips in a row fail once in two million where each does with a sixth.

    A packet that a rule holds up for longer than a timeout is as good as lost.
    """
    timeout_ns = 4096 << settings.timeout
    late = {
        fault.directed_link
        for fault in made.plan.faults
        if isinstance(fault.effect, Reorder) and fault.effect.extra_ns > timeout_ns
    }
    missed = [
        _lost(link) + (link["wire"]["reordered"] if link["directed_link"] in late else 0)
        for link in run.links
    ]
    lost = sum(missed)
    came = lost + sum(int(link["sent"]) for link, n in zip(run.links, missed, strict=True) if n)
    arriving = (1 - lost / max(came, 1)) ** (2 * longest_path(made.plan))
    return lost > settings.retry_count and 1 - arriving > _HEAVY_ROUND_TRIP


def _first_failures(run: WorkloadRun) -> list[tuple[Pair, int]]:
    """Each two hosts of which messages failed, and when the first one did."""
    found: dict[Pair, int] = {}
    for row in run.messages[~np.isin(run.messages["status"], (_SUCCESS, NOT_DONE))]:
        pair = frozenset((int(row["source"]), int(row["destination"])))
        at_ns = run.end_ns if row["completed_ns"] == NEVER_NS else int(row["completed_ns"])
        found[pair] = min(at_ns, found.get(pair, at_ns))
    return list(found.items())


def _address(made: VirtualRun, host: int) -> int:
    return int(made.fabric.endpoints[host].address) & 0xFFFFFFFF


def _losses(made: VirtualRun, pair: Pair, until_ns: int) -> Drops:
    """What rules took of the packets between two hosts, or spoilt, or held up: a timeout each."""
    ends = [_address(made, host) for host in pair]
    found = made.fabric.injections()
    between = np.isin(found["src"], ends) & np.isin(found["dst"], ends)
    taken = EFFECT_DROP | EFFECT_CUT | EFFECT_CORRUPT | EFFECT_REORDER
    lost = (found["effect"] & taken) != 0
    losses: Drops = found[between & lost & (found["time_ns"] <= until_ns)]
    return losses


def _unrecorded(run: WorkloadRun, made: VirtualRun, pair: Pair) -> int:
    """What was lost of anybody's packets where those of two hosts may pass: no record has it."""
    hosts = made.plan.plain_hosts
    others = {host.name for n, host in enumerate(hosts) if n not in pair}
    found = 0
    for (_, near, far), link in zip(made.plan.halves, run.links, strict=True):
        if others.isdisjoint((near.node, far.node)):
            found += link["wire"]["dropped_by_queue"] + link["wire"]["trimmed"]
            found += link["records_lost"]
    return found + _unrouted(made)


def _unrouted(made: VirtualRun) -> int:
    """What switches dropped while a link was not in the routes, or before they knew of it."""
    switches = made.fabric.switches().values()
    return sum(each["no_route"] + each["ttl_exceeded"] for each in switches)


def _lost(link: Mapping[str, Any]) -> int:
    return int(link["injected_drops"] + link["corrupted"])


def _knows(made: VirtualRun, run: WorkloadRun) -> Iterator[str]:
    """A transport that knows every loss, beside no other, retransmits nothing else."""
    knows = made.transport.entry.virtual_only and not made.own
    if knows and run.count(SPURIOUS) > _duplicated(run):
        yield f"guesses: {run.count(SPURIOUS)} packets came twice, {_duplicated(run)} by a rule"


def _duplicated(run: WorkloadRun) -> int:
    return sum(link["wire"]["duplicated"] for link in run.links)


def _order(run: WorkloadRun) -> Iterator[str]:
    """A sender's success means that the receiver has it all."""
    done = run.messages[run.messages["status"] == _SUCCESS]
    if (done["received_ns"] == NEVER_NS).any():
        yield "lies: a send succeeded that was not received"
    elif (done["completed_ns"] < done["received_ns"]).any():
        yield "lies: a send completed before its receive"
    if (done["posted_ns"] > done["completed_ns"]).any():
        yield "lies: a send completed before it was posted"


def _bytes(run: WorkloadRun) -> Iterator[str]:
    """Where nothing failed, every byte is right."""
    if run.verified is False and (run.messages["status"] == _SUCCESS).all():
        yield f"corrupts: {run.problems[0] if run.problems else 'wrong bytes'}"


def _counters(run: WorkloadRun) -> Iterator[str]:
    """None of them has moved."""
    for name in NEVER_HAPPENS:
        hosts = [host for host, counters in run.counters.items() if counters.get(name)]
        if hosts:
            yield f"misunderstands: {name} at {hosts[0]}"


# --- Conservation of packets -----------------------------------------------------------------


def _links(fabric: SimFabric) -> Iterator[str]:
    for link in fabric.links():
        came = link["entered"] + link["duplicated"]
        went = sum(
            link[name]
            for name in ("delivered", "on_its_way", "dropped", "dropped_down", "dropped_limit")
        )
        if came != went:
            yield f"leaks: {came} packets came to {link['name']}, {went} are accounted for"


def _switches(fabric: SimFabric) -> Iterator[str]:
    into: dict[str, int] = collections.Counter()
    out: dict[str, int] = collections.Counter()
    for (_, near, far), link in zip(fabric.plan.halves, fabric.links(), strict=True):
        into[far.node] += link["delivered"]
        out[near.node] += link["entered"]
    for name, totals in fabric.switches().items():
        if totals["received"] != into[name] or totals["forwarded"] != out[name]:
            yield f"leaks: switch {name}: {totals}, {into[name]} in, {out[name]} out"


def _ports(fabric: SimFabric) -> Iterator[str]:
    ends: dict[Any, tuple[int, int]] = {}
    for (_, near, far), link in zip(fabric.plan.halves, fabric.links(), strict=True):
        ends[near] = (link["entered"], ends.get(near, (0, 0))[1])
        ends[far] = (ends.get(far, (0, 0))[0], link["delivered"])
    for port, totals in fabric.port_totals():
        if (totals["sent"], totals["received"]) != ends[port]:
            yield f"leaks: port {port}: {totals}, {ends[port]} on its link"
    held = sum(totals["held"] for _, totals in fabric.port_totals())
    under_way = held + sum(link["on_its_way"] for link in fabric.links())
    if under_way != fabric.native.in_flight:
        yield f"leaks: {fabric.native.in_flight} packets in flight, {under_way} accounted for"
