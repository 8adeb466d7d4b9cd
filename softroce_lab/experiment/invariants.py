# SPDX-License-Identifier: GPL-2.0-or-later
"""What holds of every run on the virtual clock, whatever happened to its packets."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np

from softroce_lab.errors import ibv_wc_status
from softroce_lab.experiment.messenger import RcSettings
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.experiment.workload_run import NEVER_NS, NOT_DONE, WorkloadRun
from softroce_lab.faults.effects import Blackout, Burst, Down, Gemodel, Periodic
from softroce_lab.recovery import registry
from softroce_lab.sim.fabric import SimFabric

NEVER_HAPPENS = (
    "rx_bad_header", "rx_bad_count", "rx_bad_index", "rx_bad_length", "rx_bad_report",
    "rx_bad_control", "rx_bad_opcode", "rx_inconsistent", "rx_unknown_peer", "rx_unknown_qp",
    "rx_wrong_qkey", "rx_wrong_pkey", "rx_not_ours", "rx_message_too_long", "rx_slot_busy",
)  # fmt: skip
"""Counters that only a broken peer, or a broken fabric, moves."""

_HEAVY = 0.1  # of all packets lost
_OUTAGES = (Down, Blackout, Burst, Gemodel, Periodic)
_SUCCESS = int(ibv_wc_status.IBV_WC_SUCCESS)
_JUSTIFIED = {
    int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR),
    int(ibv_wc_status.IBV_WC_RNR_RETRY_EXC_ERR),
    int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR),  # behind one that failed
    int(ibv_wc_status.IBV_WC_REM_OP_ERR),
}


def violations(made: VirtualRun, run: WorkloadRun, *, may_fail: bool) -> list[str]:
    """What does not hold; [] as it should be. `may_fail`: somebody was not to be reached."""
    return [
        *_ends(run, may_fail=may_fail or _gives_up(run, made)),
        *_order(run),
        *_bytes(run),
        *_counters(run),
        *_links(made.fabric),
        *_switches(made.fabric),
        *_ports(made.fabric),
    ]


def _ends(run: WorkloadRun, *, may_fail: bool) -> Iterator[str]:
    """Every run ends, and a message fails only where it may."""
    if any("deadline" in problem for problem in run.problems):
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


def _gives_up(run: WorkloadRun, made: VirtualRun) -> bool:
    """Whether a transport with few retries may have run out of them: only where loss is heavy."""
    if run.transport == registry.RC:
        return _rc_gives_up(run, made)
    if run.transport not in registry.NATIVE:
        return False
    sent = sum(totals["sent"] for _, totals in made.fabric.port_totals())
    return sum(map(_lost, run.links)) > _HEAVY * sent


def _rc_gives_up(run: WorkloadRun, made: VirtualRun) -> bool:
    """Whether a queue pair may have met eight timeouts in a row.

    RC's retry count has three bits (IBA 9.7.6.1.3), so an outage of eight timeouts ends a
    connection, and so does what takes the same packets of each round, or a tenth of all that comes
    to some links.
    """
    outages = any(isinstance(fault.effect, _OUTAGES) for fault in made.plan.faults)
    if outages or made.experiment.raw.stalls:
        return True
    lossy = [link for link in run.links if _lost(link)]
    lost, came = sum(map(_lost, lossy)), sum(link["sent"] + _lost(link) for link in lossy)
    return lost > max(_HEAVY * came, RcSettings().retry_count)


def _lost(link: dict[str, Any]) -> int:
    return int(link["injected_drops"] + link["corrupted"])


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
