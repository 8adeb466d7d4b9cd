# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as a trace for Perfetto: the JSON of Chromium's trace event format.

A host is a process, a message a slice from its post to its completion, a loss an instant, and a
retransmission a slice with an arrow from the loss. What was sampled over time is a counter: of each
host packets in flight and window, of each link its queue, in a process of their own. Times are
microseconds since the run began.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from softroce_lab.results import aside
from softroce_lab.results.incidents import What
from softroce_lab.results.recorded import Columns, Recorded, Run, name_of, need_messages
from softroce_lab.results.story import SENT, Explained
from softroce_lab.sim.samples import IN_FLIGHT, QUEUE, WINDOW

Event: TypeAlias = dict[str, Any]

_LOSSES, _MESSAGES = 1, 2  # threads of each process
_COUNTERS = {
    IN_FLIGHT: ("packets in flight", "packets"),
    WINDOW: ("window", "packets"),
    QUEUE: ("queue of {}", "bytes"),
}
_LINKS = "links"  # the process of their queues
_SHORT_US = 0.05  # of a slice for a packet, so that an arrow has two ends


def write(path: Path, recorded: Recorded, run: Run) -> int:
    """Write the trace aside, rename it; its number of events. UserError, RunError."""
    need_messages(run)
    samples = recorded.table("samples", run) if recorded.has("samples") else None
    events = list(trace(Explained.of(recorded, run), samples))
    document = {
        "displayTimeUnit": "ns",
        "otherData": {"run": name_of(run), "directory": recorded.name},
        "traceEvents": events,
    }
    with aside.writing(path, "--output FILE") as fresh, fresh.open("w", encoding="utf-8") as file:
        json.dump(document, file)
    return len(events)


def trace(known: Explained, samples: Columns | None = None) -> Iterator[Event]:
    """The events, in no order; Perfetto sorts them. `samples`: of samples.parquet."""
    of = known.messages.columns
    hosts = sorted({*of["source"].tolist(), *of["destination"].tolist()},
                   key=lambda host: (len(host), host))  # fmt: skip
    numbers = {host: number for number, host in enumerate(hosts, 1)}
    for host, number in numbers.items():
        yield _meta("process_name", number, 0, host)
        yield _meta("thread_name", number, _LOSSES, "losses and retransmissions")
        yield _meta("thread_name", number, _MESSAGES, "messages")
    yield from _messages(known, numbers)
    yield from _packets(known, numbers)
    if samples is not None:
        yield from _sampled(samples, numbers)


def _meta(name: str, process: int, thread: int, value: str) -> Event:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "args": {"name": value}}


def _messages(known: Explained, numbers: dict[str, int]) -> Iterator[Event]:
    """Slices that may overlap, and how many messages each host has outstanding."""
    of = known.messages.columns
    changes: dict[int, list[tuple[int, int]]] = {}
    for row in range(len(known.messages)):
        posted, over = int(of["posted_ns"][row]), int(of["completed_ns"][row])
        if posted < 0 or over < posted:
            continue
        host = numbers[str(of["source"][row])]
        head = {"cat": "message", "name": known.messages.name(row), "id": row, "pid": host,
                "tid": _MESSAGES}  # fmt: skip
        about = {"bytes": int(of["bytes"][row]), "retransmitted": int(of["retransmitted"][row])}
        yield {**head, "ph": "b", "ts": posted / 1000, "args": about}
        yield {**head, "ph": "e", "ts": over / 1000}
        changes.setdefault(host, []).extend(((posted, 1), (over, -1)))
    for host, found in changes.items():
        found.sort()
        counts = np.cumsum([change for _, change in found]).tolist()
        for (time_ns, _), count in zip(found, counts, strict=True):
            yield {"ph": "C", "name": "messages outstanding", "pid": host, "tid": 0,
                   "ts": time_ns / 1000, "args": {"messages": count}}  # fmt: skip


def _packets(known: Explained, numbers: dict[str, int]) -> Iterator[Event]:
    """Losses, and an arrow from each to the transmission, or the restoration, that follows it."""
    lost: dict[tuple[int, int], list[float]] = {}
    arrow = 0
    for each in known.incidents:
        if each.message < 0:
            continue
        source = numbers[str(known.messages.columns["source"][each.message])]
        head = {"pid": source, "tid": _LOSSES, "ts": each.time_ns / 1000}
        name = f"packet {each.first} of {known.messages.name(each.message)}"
        key = each.message, each.first
        if each.what is What.DROP and each.kind in SENT:
            about = {"link": each.where, "why": each.why, "attempt": each.attempt}
            yield {**head, "ph": "i", "s": "t", "cat": "loss", "name": f"lost: {name}",
                   "args": about}  # fmt: skip
            yield {**head, "ph": "X", "dur": _SHORT_US, "cat": "loss", "name": f"lost: {name}",
                   "args": about}  # fmt: skip
            lost.setdefault(key, []).append(each.time_ns / 1000)
        elif each.what is What.PARITY:
            over = f"packets {each.first} to {each.last} of {known.messages.name(each.message)}"
            about = {"packets": each.packets, "why": each.why}
            yield {**head, "ph": "X", "dur": _SHORT_US, "cat": "parity",
                   "name": f"parity of {over}", "args": about}  # fmt: skip
        elif each.what in (What.SENT_AGAIN, What.RESTORED):
            about = {"attempt": each.attempt} if each.what is What.SENT_AGAIN else {}
            cat = "retransmission" if each.what is What.SENT_AGAIN else "parity"
            yield {**head, "ph": "X", "dur": _SHORT_US, "cat": cat,
                   "name": f"{each.what}: {name}", "args": about}  # fmt: skip
            for begin in lost.pop(key, ()):
                arrow += 1
                flow = {"cat": "recovery", "name": "recovery", "id": arrow, "pid": source,
                        "tid": _LOSSES}  # fmt: skip
                yield {**flow, "ph": "s", "ts": begin}
                yield {**flow, "ph": "f", "bp": "e", "ts": each.time_ns / 1000}


def _sampled(samples: Columns, numbers: dict[str, int]) -> Iterator[Event]:
    """Counters of queues that ever held something, and of hosts."""
    links = len(numbers) + 1
    yield _meta("process_name", links, 0, _LINKS)
    rows = zip(*(samples[name].tolist() for name in ("time_ns", "figure", "at", "value")),
               strict=True)  # fmt: skip
    for time_ns, figure, at, value in rows:
        title, unit = _COUNTERS[figure]
        process = links if figure == QUEUE else numbers.get(at)
        if process is not None:  # a host that sends and receives nothing has no process
            yield {"ph": "C", "name": title.format(at), "pid": process, "tid": 0,
                   "ts": time_ns / 1000, "args": {unit: value}}  # fmt: skip
