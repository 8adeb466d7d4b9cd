# SPDX-License-Identifier: GPL-2.0-or-later
"""What holds of what hosts post: when, not before and not after it may be, and what the file has.

The first is checked against the graph that hosts are driven by. That graph may itself be wrong: so
programs of GOAL are read once more, by other code, and of experts and training it is known how much
there is to send and to compute at the least.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from softroce_lab.experiment.kinds.base import WorkloadSpec
from softroce_lab.experiment.kinds.goal import GoalSpec
from softroce_lab.experiment.kinds.jobs import JobsSpec
from softroce_lab.experiment.kinds.training import MoeSpec, TrainingSpec
from softroce_lab.experiment.messages import NEVER_NS, Messages
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.workloads.jobs import Jobs
from softroce_lab.workloads.moe import COMBINE, DISPATCH
from softroce_lab.workloads.open_loop import OpenLoop
from softroce_lab.workloads.schedule import Compute, Receive, Send, Vertex
from softroce_lab.workloads.training import Traffic
from softroce_lab.workloads.work import Workload

Name: TypeAlias = tuple[int, int, int, int, int]  # source, destination and the key's three parts
Times: TypeAlias = tuple[float, float, float]  # posted, acknowledged, there
_NAME = ("source", "destination", "operation", "step", "message")


@dataclasses.dataclass(slots=True)
class _Doing:
    """A vertex of a host's graph, and what a run shows of it."""

    label: str
    begun_ns: float  # when a send was posted, or when another may begin at the earliest
    takes_ns: int = 0  # of a computation
    over_ns: float = 0  # when a message was acknowledged, or had arrived
    requires: Sequence[int] = ()
    irequires: Sequence[int] = ()
    sends: bool = False


def violations(made: VirtualRun, run: WorkloadRun) -> Iterator[str]:
    """What hosts posted too early or too late, and messages that are not those of the file."""
    rows = _rows(run.messages)
    for host, vertices in made.schedule.of.items():
        doings = [_of_vertex(each, rows) for each in vertices]
        yield from _too_early(run.hosts[host], doings)
    yield from _too_late(made, run, rows)
    yield from _as_written(made.experiment.raw.workload, made.workload, run)


def _too_late(made: VirtualRun, run: WorkloadRun, rows: Mapping[Name, Times]) -> Iterator[str]:
    """Sends that were posted later than they might have been; if nothing failed or stood still."""
    if made.experiment.stalls(run.seed) or not all_arrived(rows):
        return
    for host, vertices in made.schedule.of.items():
        for found in late(vertices, rows, made.experiment.depth):
            yield f"dawdles: {run.hosts[host]} posts {found}"
            return


def _rows(messages: Messages) -> dict[Name, Times]:
    """Of each message when it was posted, acknowledged, there: infinity if that never came."""
    found: dict[Name, Times] = {}
    for row in messages:
        source, destination, *key = (int(row[each]) for each in _NAME)
        times = (int(row[each]) for each in ("posted_ns", "completed_ns", "received_ns"))
        posted, completed, received = (math.inf if at == NEVER_NS else at for at in times)
        acknowledged = completed if row["status"] == 0 else math.inf
        found[source, destination, key[0], key[1], key[2]] = posted, acknowledged, received
    return found


def _of_vertex(vertex: Vertex, rows: Mapping[Name, Times]) -> _Doing:
    needs: dict[str, Any] = {"requires": vertex.requires, "irequires": vertex.irequires}
    if isinstance(vertex, Compute):
        return _Doing("a computation", vertex.at_ns, vertex.duration_ns, **needs)
    message = vertex.message
    posted, completed, received = rows[message.source, message.destination, *message.key]
    if not isinstance(vertex, Send):
        return _Doing("a receive", 0, over_ns=received, **needs)
    label = f"message {'/'.join(map(str, message.key))}"
    if posted < vertex.at_ns:
        label += " before its time"
        needs = {"requires": (), "irequires": ()}
        return _Doing(label, -math.inf, over_ns=completed, sends=True, **needs)
    return _Doing(label, posted, over_ns=completed, sends=True, **needs)


def _too_early(host: str, doings: Sequence[_Doing]) -> Iterator[str]:
    """Sends that were posted before what they require can have been complete."""
    followers: dict[int, list[int]] = collections.defaultdict(list)
    missing = [len(each.requires) + len(each.irequires) for each in doings]
    for index, each in enumerate(doings):
        for required in (*each.requires, *each.irequires):
            followers[required].append(index)
    begins: list[float] = [0.0] * len(doings)
    ends: list[float] = [0.0] * len(doings)
    ready = [index for index, count in enumerate(missing) if not count]
    while ready:
        index = ready.pop()
        each = doings[index]
        free_ns = max(
            [0.0, *(ends[n] for n in each.requires), *(begins[n] for n in each.irequires)]
        )
        if each.sends and each.begun_ns < free_ns:
            yield f"hurries: {host} posts {each.label} before what it requires"
            return
        begins[index] = max(free_ns, each.begun_ns)
        ends[index] = max(begins[index] + each.takes_ns, each.over_ns)
        for follower in followers[index]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)


# --- Promptness ------------------------------------------------------------------------------

# Every send is posted at the first moment at which it may be, to the nanosecond. By other code than
# the hosts', and from what a run shows: when sends were posted and acknowledged and when messages
# arrived. Computations are not recorded, so they are worked out. Which of two that become ready at
# one moment is first depends on the order of events there: what follows from the two is left out.


@dataclasses.dataclass(slots=True)
class _Moment:
    """When a vertex begins or ends; not `sure` if it may be another time."""

    ns: float
    sure: bool = True

    def later(self, other: _Moment) -> _Moment:
        return _Moment(max(self.ns, other.ns), self.sure and other.sure)


@dataclasses.dataclass(slots=True)
class _Processor:
    """Computes one vertex after the other, in the order in which they become ready."""

    free_ns: float = 0.0
    sure: bool = True
    ready_ns: float = -1.0  # of the newest
    tied: bool = False  # several that became ready then


def late(vertices: Sequence[Vertex], rows: Mapping[Name, Times], depth: int) -> Iterator[str]:
    """The first send of a host that was posted later than it might have been.

    `rows`: of each message when it was posted, acknowledged and there, in ns; `depth`: sends that
    may be outstanding to a peer.
    """
    ready = _Replay(vertices, rows).ready()
    queues: dict[int, list[int]] = collections.defaultdict(list)
    for index, vertex in enumerate(vertices):
        if isinstance(vertex, Send):
            queues[vertex.message.destination].append(index)
    for queue in queues.values():
        before_ns = 0.0
        acknowledged: list[float] = []
        for number, index in enumerate(queue):
            vertex = cast("Send", vertices[index])
            posted_ns, acknowledged_ns, _ = rows[_name(vertex)]
            free_ns = acknowledged[number - depth] if number >= depth else 0.0
            may_ns = max(ready[index].ns, vertex.at_ns, before_ns, free_ns)
            if ready[index].sure and posted_ns > may_ns:
                key = "/".join(map(str, vertex.message.key))
                yield f"message {key} {posted_ns - may_ns:.0f} ns after it might have been"
                return
            before_ns = posted_ns
            acknowledged = _inserted(acknowledged, acknowledged_ns)


def _inserted(ascending: list[float], value: float) -> list[float]:
    at = len(ascending)
    while at and ascending[at - 1] > value:
        at -= 1
    ascending.insert(at, value)
    return ascending


def _name(vertex: Send | Receive) -> Name:
    message = vertex.message
    first, second, third = message.key
    return message.source, message.destination, first, second, third


class _Replay:
    """A host's graph, carried out with the times of the run."""

    def __init__(self, vertices: Sequence[Vertex], rows: Mapping[Name, Times]) -> None:
        self._vertices, self._rows = vertices, rows
        self._missing = [len(each.requires) + len(each.irequires) for each in vertices]
        self._ready = [_Moment(0.0) for _ in vertices]
        self._after: dict[int, list[tuple[int, bool]]] = collections.defaultdict(list)
        for index, each in enumerate(vertices):
            for required in each.requires:
                self._after[required].append((index, True))
            for required in each.irequires:
                self._after[required].append((index, False))
        self._processors: dict[int, _Processor] = collections.defaultdict(_Processor)
        self._waiting: list[tuple[float, bool, int]] = []  # heap: when it is ready, not a root

    def ready(self) -> list[_Moment]:
        """When all that each vertex requires is there."""
        for index in [index for index, count in enumerate(self._missing) if not count]:
            self._take(index, root=True)
        while self._waiting:
            _, later, index = heapq.heappop(self._waiting)
            self._compute(index, root=not later)
        return self._ready

    def _take(self, index: int, *, root: bool = False) -> None:
        """All moments that it requires are known; those of computations in the order of time."""
        vertex, ready = self._vertices[index], self._ready[index]
        if isinstance(vertex, Compute):
            ready.ns = max(ready.ns, vertex.at_ns)
            if vertex.duration_ns:
                heapq.heappush(self._waiting, (ready.ns, not root or vertex.at_ns > 0, index))
            else:
                self._known(index, ready, ready)
            return
        posted_ns, acknowledged_ns, there_ns = self._rows[_name(vertex)]
        if isinstance(vertex, Send):
            self._known(index, _Moment(posted_ns), _Moment(acknowledged_ns))
        else:
            self._known(index, ready, ready.later(_Moment(there_ns)))

    def _compute(self, index: int, *, root: bool) -> None:
        vertex, ready = cast("Compute", self._vertices[index]), self._ready[index]
        on = self._processors[vertex.cpu]
        waiting = [other for _, _, other in self._waiting]
        tied = not root and any(
            self._cpu(other) == vertex.cpu and self._ready[other].ns == ready.ns
            for other in waiting
        )
        on.tied = tied or (on.tied and on.ready_ns == ready.ns)
        on.ready_ns = ready.ns
        # What is ready at a time that is not sure may have come before.
        on.sure = on.sure and all(self._ready[each].sure for each in (index, *waiting))
        begin_ns = max(ready.ns, on.free_ns)
        on.free_ns = begin_ns + vertex.duration_ns
        sure = on.sure and not on.tied
        self._known(index, _Moment(begin_ns, sure), _Moment(on.free_ns, sure))

    def _cpu(self, index: int) -> int:
        return cast("Compute", self._vertices[index]).cpu

    def _known(self, index: int, begin: _Moment, end: _Moment) -> None:
        for follower, ended in self._after.pop(index, ()):
            self._ready[follower] = self._ready[follower].later(end if ended else begin)
            self._missing[follower] -= 1
            if not self._missing[follower]:
                self._take(follower)


def all_arrived(rows: Mapping[Name, Times]) -> bool:
    """Whether every message was acknowledged and is there."""
    return not any(math.inf in times for times in rows.values())


# --- What the file contains ------------------------------------------------------------------


def _as_written(spec: WorkloadSpec, work: Workload, run: WorkloadRun) -> Iterator[str]:
    if isinstance(spec, JobsSpec) and isinstance(work, Jobs):
        for job in spec.jobs:
            yield from _as_written(job.workload, work.jobs[job.name], run)
        return
    mine = run.messages[np.isin(run.messages["source"], work.ranks)]
    if isinstance(spec, GoalSpec) and spec.program is not None:
        yield from _program(spec.program, work.ranks, mine, run.hosts)
    elif isinstance(work, OpenLoop):
        yield from _arrivals(work, mine)
    elif isinstance(spec, MoeSpec):
        yield from _experts(spec, work.ranks, mine)
    elif isinstance(spec, TrainingSpec):
        yield from _steps(spec, mine)


# As programs are drawn: a statement a line, each with a label and a tag.
_RANK = re.compile(r"rank (\d+) \{")
_TRANSFER = re.compile(r"(\w+): (send|recv) (\d+)b (?:to|from) (\d+) tag (\d+)")
_CALC = re.compile(r"(\w+): calc (\d+)")
_NEEDS = re.compile(r"(\w+) (i?requires) (\w+)")


def _program(
    text: str, ranks: Sequence[int], messages: Messages, names: Sequence[str]
) -> Iterator[str]:
    rows = _rows(messages)
    sizes = {name: int(row["bytes"]) for name, row in zip(rows, messages, strict=True)}
    written: dict[Name, int] = {}
    blocks = _RANK.split(text)[1:]
    for rank, block in zip(map(int, blocks[::2]), blocks[1::2], strict=True):
        numbers: collections.Counter[tuple[str, int, int]] = collections.Counter()
        doings: dict[str, _Doing] = {}
        for label, word, size, peer, tag in _TRANSFER.findall(block):
            number = numbers[word, int(peer), int(tag)]
            numbers[word, int(peer), int(tag)] += 1
            ends = (ranks[rank], ranks[int(peer)])
            source, destination = ends if word == "send" else ends[::-1]
            name = (source, destination, int(tag) >> 16, int(tag) & 0xFFFF, number)
            written[name] = int(size)
            if sizes.get(name) != int(size):
                yield f"misreads: {names[source]} sends no {size} bytes with tag {tag}"
                return
            posted, completed, received = rows[name]
            doings[label] = (
                _Doing(f"{label} of rank {rank}", posted, over_ns=completed, sends=True)
                if word == "send"
                else _Doing(label, 0, over_ns=received)
            )
        for label, duration in _CALC.findall(block):
            doings[label] = _Doing(label, 0, int(duration))
        at = {label: index for index, label in enumerate(doings)}
        for label, word, required in _NEEDS.findall(block):
            setattr(doings[label], word, [*getattr(doings[label], word), at[required]])
        yield from _too_early(names[ranks[rank]], list(doings.values()))
    if len(written) != len(sizes):
        yield f"misreads: {len(sizes)} messages of a program that has {len(written)}"


def _arrivals(work: OpenLoop, messages: Messages) -> Iterator[str]:
    """Flows arrive before they are posted, and are of the size that was drawn."""
    flows, posted = work.flows, messages["posted_ns"]
    if messages["bytes"].tolist() != flows["bytes"].tolist():
        yield "misreads: messages are not the flows"
    elif ((posted != NEVER_NS) & (posted < flows["at_ns"])).any():
        yield "hurries: a flow is posted before it arrives"


def _experts(spec: MoeSpec, ranks: Sequence[int], messages: Messages) -> Iterator[str]:
    """A token goes to different experts, and experts compute before they answer."""
    token_bytes, each_has = spec.hidden * spec.bytes_per_element, spec.experts // len(ranks)
    most = spec.tokens * min(spec.top_k, each_has)
    least = spec.tokens * max(0, spec.top_k - spec.experts + each_has)
    for layer in range(spec.repeat):
        rows = messages[messages["operation"] == layer]
        there, back = (rows[rows["step"] == step] for step in (DISPATCH, COMBINE))
        for host in ranks:
            came = there[there["destination"] == host]
            for source in set(ranks) - {host}:
                sent = int(came["bytes"][came["source"] == source].sum())
                if not least <= sent // token_bytes <= most or sent % token_bytes:
                    yield f"misroutes: {sent} bytes of {spec.tokens} tokens to one host"
                    return
            tokens = int(came["bytes"].sum()) // token_bytes
            answers = back["posted_ns"][back["source"] == host]
            answers = answers[answers != NEVER_NS]
            if not len(came) or not len(answers):
                continue
            arrived = came["received_ns"]
            ready_ns = int(arrived.max()) + tokens * spec.token_time
            if (arrived == NEVER_NS).any() or int(answers.min()) < ready_ns:
                yield "hurries: experts answer before they have computed"
                return


def _steps(spec: TrainingSpec, messages: Messages) -> Iterator[str]:
    """No host is at a step's barrier before all passes of its stage can be over."""
    backward_ns = 2 * spec.forward if spec.backward is None else spec.backward
    passes = spec.layers // spec.parallel.pipeline * spec.microbatches
    # Each half of a layer is rounded.
    least_ns = passes * max(
        0, math.floor((spec.forward + backward_ns) * (1 - spec.jitter / 1e6)) - 4
    )
    barriers = messages[messages["step"] == Traffic.BARRIER]
    for step in range(spec.steps):
        posted = barriers["posted_ns"][barriers["operation"] == step]
        posted = posted[posted != NEVER_NS]
        if len(posted) and int(posted.min()) < (step + 1) * least_ns:
            yield f"hurries: a host is at the barrier of step {step} before it can be"
            return
