# SPDX-License-Identifier: GPL-2.0-or-later
"""Draws small workloads of the kinds that have times or dependencies of their own, and less of any.

Each is valid by construction on every fabric that is drawn: all have four hosts, h1 to h4 among
them, and the links of hosts have a rate.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from softroce_lab.experiment.kinds.collectives import algorithms
from softroce_lab.plan.effects import stream_key
from softroce_lab.transports import registry
from softroce_lab.workloads.streams import Stream

T = TypeVar("T")
Work = dict[str, Any]

_PERCENT = 40
_HOSTS = 4  # of the least fabric
_MOST_OPERATIONS = 16  # of a GOAL program: messages and computations
_PAIRS = (("h1", "h2"), ("h3", "h4")), (("h1", "h3"), ("h2", "h4")), (("h1", "h4"), ("h3", "h2"))


class Dice:
    """What cases are drawn from."""

    def __init__(self, seed: int, what: str = "fuzz") -> None:
        self._stream = Stream(stream_key(seed, what))

    def below(self, bound: int) -> int:
        """0 to bound - 1."""
        return self._stream.below(bound)

    def between(self, low: int, high: int) -> int:
        """Low to high, both included."""
        return low + self.below(high - low + 1)

    def one(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[self.below(len(choices))]

    def chance(self, percent: int) -> bool:
        """True so often."""
        return self.below(100) < percent

    def shuffled(self, things: Sequence[T]) -> list[T]:
        """All of them, in any order."""
        return [things[place] for place in self._stream.permutation(len(things))]


def drawn(dice: Dice, rate: str) -> Work | None:
    """A workload, or None for most; `rate` is that of the hosts' links."""
    if not dice.chance(_PERCENT):
        return None
    kind = dice.one((*SINGLE, "jobs"))
    return _jobs(dice, rate) if kind == "jobs" else SINGLE[kind](dice, rate, _hosts(dice))


def _hosts(dice: Dice) -> int:
    return dice.between(2, _HOSTS)


def _jobs(dice: Dice, rate: str) -> Work:
    """Two of the other kinds on two hosts each, at the same time."""
    jobs = []
    for name, hosts in zip(("a", "b"), dice.one(_PAIRS), strict=True):
        kind = dice.one((*SINGLE, "incast"))
        work = _incast(dice) if kind == "incast" else SINGLE[kind](dice, rate, len(hosts))
        jobs.append({"name": name, "workload": {**work, "hosts": list(hosts)}})
    return {"kind": "jobs", "jobs": jobs}


def mixed(work: Work, dice: Dice) -> Work:
    """Jobs, one of which may have a transport of its own."""
    if work["kind"] != "jobs" or not dice.chance(_PERCENT):
        return work
    first, second = work["jobs"]
    return {**work, "jobs": [first, {**second, "transport": dice.one(registry.transports())}]}


def _incast(dice: Dice) -> Work:
    return {"kind": "incast", "bytes": f"{dice.one((0, 100, 20_000))}B", "message": "4KiB"}


# --- Open loop -------------------------------------------------------------------------------


def _open_loop(dice: Dice, rate: str, hosts: int) -> Work:
    """So few flows that a duration has them in whole numbers: else no draw has the load."""
    load = dice.one((10, 30, 60, 90))
    flows = dice.between(5, 12)  # of a host
    sizes, mean_bytes = dice.one((
        ({"from": "1B", "to": "3999B"}, 2000),
        ({"points": [["0B", "0%"], ["200B", "50%"], ["7799B", "100%"]]}, 2050),
        (["40B", "610B", "1290B", "2060B", "6000B"], 2000),
    ))  # fmt: skip
    work: Work = {"kind": "open-loop", "hosts": hosts, "load": f"{load}%", "sizes": sizes}
    sent_bytes = flows * mean_bytes
    if hosts > 2 and dice.chance(50):  # one event a host, a tenth of the load
        degree = dice.between(2, hosts - 1)
        work["incast"] = {
            "degree": degree, "share": "10%", "bytes": f"{sent_bytes // (10 * degree)}B"
        }  # fmt: skip
    # A rate of so many Gbit/s is as many bits a nanosecond.
    gbit = int(rate.removesuffix("Gbit"))
    work["duration"] = f"{sent_bytes * 8 * 100 // (load * gbit)}ns"
    return work


# --- Training --------------------------------------------------------------------------------


def _moe(dice: Dice, _: str, hosts: int) -> Work:
    experts = hosts * dice.one((1, 2, 4))
    work: Work = {"kind": "moe", "hosts": hosts, "tokens": dice.between(1, 16), "experts": experts}
    work |= {"hidden": dice.one((8, 40, 100)), "message": dice.one(("1KiB", "4KiB", "1MiB"))}
    # With all experts it is known who gets how much, which a gate that repeats itself would break.
    work["top_k"] = dice.one((1, dice.between(1, experts), experts))
    if dice.chance(50):
        work["skew"] = dice.one((0.5, 2.0))
    if dice.chance(70):
        work["token_time"] = dice.one(("50ns", "1us"))
    if dice.chance(30):
        work["repeat"] = 2
    return work


_PARALLEL: dict[int, Sequence[Work]] = {
    2: ({}, {"tensor": 2}, {"pipeline": 2}, {"expert": 2}),
    3: ({}, {"tensor": 3}, {"pipeline": 3}, {"expert": 3}),
    4: ({}, {"tensor": 2}, {"pipeline": 2}, {"tensor": 2, "pipeline": 2}, {"expert": 2},
        {"pipeline": 2, "expert": 2}, {"tensor": 2, "expert": 2}, {"pipeline": 4}),
}  # fmt: skip


def _training(dice: Dice, _: str, hosts: int) -> Work:
    parallel = dice.one(_PARALLEL[hosts])
    work: Work = {
        "kind": "training",
        "hosts": hosts,
        "layers": parallel.get("pipeline", 1) * dice.between(1, 2),
        "forward": f"{dice.one((0, 500, 5000))}ns",
        "gradient": f"{dice.one((4000, 12_000))}B",
        "message": dice.one(("2KiB", "16KiB")),
        "algorithm": dice.one(algorithms("all-reduce")),
    }
    if parallel:
        work |= {"parallel": parallel, "activation": f"{dice.one((400, 4000))}B"}
        work["microbatches"] = dice.between(1, 2)
    if dice.chance(50):
        work["jitter"] = dice.one(("1%", "30%"))
    if dice.chance(50):
        work["bucket"] = "6000B"
    if dice.chance(30):
        work["steps"] = 2
    return work


# --- GOAL ------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class _Rank:
    """The statements of a rank, and what they require, in the order in which they could be done."""

    statements: list[str] = dataclasses.field(default_factory=list)
    dependencies: list[str] = dataclasses.field(default_factory=list)

    def add(self, dice: Dice, statement: str) -> None:
        """A statement that may require some of those before it."""
        label = f"l{len(self.statements)}"
        for earlier in range(len(self.statements)):
            if dice.chance(30):
                word = "irequires" if dice.chance(20) else "requires"
                self.dependencies.append(f"{label} {word} l{earlier}")
        self.statements.append(f"{label}: {statement}")


def _goal(dice: Dice, _: str, hosts: int) -> Work:
    """A graph whose operations can be done in the order in which they are drawn: no cycle.

    In some, statements stand in any order; messages then have a tag each, which names them. In the
    others messages share tags, and the order matches them.
    """
    ranks = [_Rank() for _ in range(hosts)]
    own_tags = dice.chance(40)
    sizes = (0, 1, 100, 4096, 9000) if dice.chance(50) else (dice.one((1, 4096)),)
    for number in range(dice.between(2, _MOST_OPERATIONS)):
        source, destination = dice.shuffled(range(hosts))[:2]
        if number and dice.chance(30):
            cpu = dice.below(2)
            ranks[source].add(dice, f"calc {dice.one((0, 100, 3000, 20_000))} cpu {cpu}")
            continue
        size, tag = dice.one(sizes), number if own_tags else dice.below(2)
        ranks[source].add(dice, f"send {size}b to {destination} tag {tag}")
        ranks[destination].add(dice, f"recv {size}b from {source} tag {tag}")
    lines = [f"num_ranks {hosts}"]
    for number, rank in enumerate(ranks):
        inside = [*rank.statements, *rank.dependencies]
        lines += [f"rank {number} {{", *(dice.shuffled(inside) if own_tags else inside), "}"]
    return {"kind": "goal", "hosts": hosts, "program": "\n".join(lines) + "\n"}


SINGLE: dict[str, Callable[[Dice, str, int], Work]] = {
    "open-loop": _open_loop,
    "moe": _moe,
    "training": _training,
    "goal": _goal,
}
KINDS = (*SINGLE, "jobs")
"""All kinds that are drawn here."""


# --- Less -----------------------------------------------------------------------------------

_PLAIN = {  # keys that a workload of the kind can do without
    "collective": ("algorithm", "peers"),
    "open-loop": ("incast",),
    "moe": ("repeat", "skew", "token_time"),
    "training": ("steps", "jitter", "bucket", "microbatches", "algorithm"),
}
_NUMBERS = ("tokens", "top_k", "experts", "layers", "hosts")
_POINT_TO_POINT = ("bytes", "message", "repeat", "every")


def less(work: Work) -> Iterator[Work]:
    """Each a step smaller; some may be none that can run."""
    kind = work["kind"]
    if kind == "jobs":
        yield from _fewer_jobs(work)
        return
    if "repeat" in work:
        yield _without(work, "repeat", "every")
    if "every" in work:
        yield _without(work, "every")
    if kind != "point-to-point":
        kept = {key: work[key] for key in _POINT_TO_POINT if key in work}
        yield {"kind": "point-to-point", "bytes": "4096B", **kept}
    if plain := [key for key in _PLAIN.get(kind, ()) if key in work]:
        yield _without(work, *plain)
    for key in _NUMBERS if kind in ("moe", "training") else ():
        if isinstance(work.get(key), int) and work[key] > 1:
            yield {**work, key: work[key] // 2}
            yield {**work, key: work[key] - 1}
    if kind == "goal" and "program" in work:
        yield from ({**work, "program": text} for text in _shorter(work["program"]))


def _without(work: Work, *keys: str) -> Work:
    return {key: value for key, value in work.items() if key not in keys}


def _fewer_jobs(work: Work) -> Iterator[Work]:
    jobs = work["jobs"]
    for number, job in enumerate(jobs):
        yield job["workload"]
        if "transport" in job:
            plain = _without(job, "transport")
            yield {**work, "jobs": [*jobs[:number], plain, *jobs[number + 1 :]]}
        for smaller in less(job["workload"]):
            if hosts := job["workload"].get("hosts"):
                smaller.setdefault("hosts", hosts)
            changed = {**job, "workload": smaller}
            yield {**work, "jobs": [*jobs[:number], changed, *jobs[number + 1 :]]}


_OPERATION = re.compile(r"(\w+): (?:(send|recv) (\d+)b (?:to|from) (\d+) tag (\d+)|calc)")


def _shorter(program: str) -> Iterator[str]:
    """Without a dependency, a computation or a message, of a program with a statement a line."""
    lines = program.splitlines()
    rank = -1
    transfers: dict[tuple[int, int, int], list[list[tuple[int, int, str]]]] = {}
    for number, line in enumerate(lines):
        if line.startswith("rank "):
            rank = int(line.split()[1])
        elif "requires" in line:
            yield _joined(lines, {number})
        elif found := _OPERATION.match(line):
            label, word, _, peer, tag = found.groups()
            if word is None:
                yield _joined(lines, _of_label(lines, number, label))
                continue
            ends = (rank, int(peer)) if word == "send" else (int(peer), rank)
            sides = transfers.setdefault((*ends, int(tag)), [[], []])
            sides[word == "recv"].append((number, rank, label))
    for sends, receives in transfers.values():
        for send, receive in zip(sends, receives, strict=False):
            gone = _of_label(lines, send[0], send[2]) | _of_label(lines, receive[0], receive[2])
            yield _joined(lines, gone)


def _of_label(lines: list[str], number: int, label: str) -> set[int]:
    """The line of an operation, and those of what depends on it or the reverse, in its rank."""
    begin = max(n for n in range(number) if lines[n].startswith("rank "))
    end = lines.index("}", number)
    return {number} | {
        n for n in range(begin, end) if "requires" in lines[n] and label in lines[n].split()
    }


def _joined(lines: list[str], gone: set[int]) -> str:
    return "".join(f"{line}\n" for number, line in enumerate(lines) if number not in gone)
