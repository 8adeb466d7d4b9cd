# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes transfer runs into a run directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from softroce_lab.experiment.hosts.journal import acted
from softroce_lab.experiment.observation import Observed
from softroce_lab.experiment.transfer import TransferRun
from softroce_lab.telemetry.drops import EFFECT_DOWN, EFFECTS, addresses
from softroce_lab.telemetry.rundir import RunDirectory

Columns: TypeAlias = dict[str, Any]


def write(directory: RunDirectory, runs: Sequence[TransferRun]) -> None:
    """Tables and links of all runs."""
    directory.links(
        {run.transport: [dataclasses.asdict(link) for link in run.links] for run in runs}
    )
    directory.stats({run.transport: run.stats for run in runs})
    directory.table("messages", _messages(runs))
    directory.table("events", _events(runs))


def _messages(runs: Sequence[TransferRun]) -> dict[str, Any]:
    rows = [_messages_of(run) for run in runs]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _messages_of(run: TransferRun) -> dict[str, Any]:
    sent = np.sort(run.sent_messages, order="message")
    received = np.sort(run.received_messages, order="message")
    return {
        "transport": np.full(len(sent), run.transport),
        "message": sent["message"],
        "bytes": sent["bytes"],
        "packets": sent["packets"],
        "resent": sent["resent"],
        "duplicates": received["duplicates"],
        "status": sent["status"],
        "posted_ns": sent["posted_ns"],
        "first_sent_ns": sent["first_ns"],
        "first_received_ns": received["first_ns"],
        "received_ns": received["completed_ns"],
        "completed_ns": sent["completed_ns"],
    }


def _events(runs: Sequence[TransferRun]) -> dict[str, Any]:
    tables = []
    for run in runs:
        mine = [injected(run), *(acted(node, acts) for node, acts in run.events.items())]
        counts = [len(table["time_ns"]) for table in mine]
        tables += [
            {"transport": np.full(count, run.transport), **table}
            for count, table in zip(counts, mine, strict=True)
        ]
    joined = joined_columns(tables)
    order = np.lexsort((joined["time_ns"], joined["transport"]))
    return {name: column[order] for name, column in joined.items()}


def joined_columns(tables: Sequence[Columns]) -> Columns:
    """Tables of the same columns, one below the other."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def injected(run: Observed) -> Columns:
    """What faults did to packets: dropped, corrupted, duplicated or reordered them."""
    found, count = run.injections, len(run.injections)
    effects = [EFFECTS[effect & ~EFFECT_DOWN] for effect in found["effect"].tolist()]
    names = np.array([link.name for link in run.links])
    rules = {fault.rule_id: fault.rule for fault in run.faults}
    kinds = np.array(["data", "control", "report"])
    kind = np.minimum(found["kind"], 3)
    return {
        "time_ns": found["time_ns"].astype(np.int64) - run.epoch_ns,
        "source": np.full(count, "injector"),
        "event": np.array(effects, dtype=np.str_),
        "link": names[found["directed_link"]] if count else np.full(0, "", dtype="U1"),
        "rule": np.array([rules.get(n, "") for n in found["rule_id"].tolist()], dtype=np.str_),
        "packet_kind": np.append(kinds, "other")[kind],
        "operation": found["operation"],
        "step": found["step"],
        "message": found["message"],
        "index": found["index"],
        "attempt": found["attempt"],
        "packets": np.ones(count, dtype=np.uint32),
        "src": addresses(found["src"]),
        "dst": addresses(found["dst"]),
        "sport": found["sport"],
        "psn": found["psn"],
        "qpn": found["qpn"],
    }
