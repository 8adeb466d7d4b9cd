# SPDX-License-Identifier: GPL-2.0-or-later
"""Draws an experiment from a seed: a fabric, work, and faults of every kind.

A case is an experiment file as a mapping, so that what fails can be written down, read, shrunk and
run by `lab run`. It is written for `csa_ud`, and every other transport is to survive it too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from softroce_lab.experiment.fuzz import workloads
from softroce_lab.experiment.fuzz.workloads import Dice
from softroce_lab.experiment.kinds.collectives import OPERATIONS, algorithms
from softroce_lab.plan.path_mtu import path_mtu_bytes

Case = dict[str, Any]

DEADLINE = "100s"  # the slowest seed known takes 41 s: rc and swift, a link that flaps in step
FAR_DEADLINE = "1000s"  # swift may let a packet go every hundred round trips, of 11 ms here
_EVERYWHERE = ("*<->*", "*->*", "leaf*->*")
_LINKS = (*_EVERYWHERE, "leaf1<->spine1", "leaf*->spine*", "h1->*", "*->h2", "h2<->*")
_FLAPPING = ("leaf1<->spine1", "leaf2->spine*", "h1->*", "*->h2", "h3<->*")


def draw(seed: int) -> Case:
    """The case of this seed."""
    dice = Dice(seed)
    final = dice.chance(_FINAL_PERCENT)
    # Who is gone is given up after the longest blackout, or 237 RTTs: the sooner, the cheaper.
    rtt_us = dice.one((8, 20, 100) if final else (2, 4, 8, 20, 100))
    case: Case = {
        "name": f"fuzz-{seed}",
        "topology": {"generator": _shape(dice, rtt_us)},
        "lb": "flow",
        "mtu": dice.one((1124, 2200, 4300)),
        "transports": ["csa_ud"],
        "seeds": [seed],
        "payload": "verify",
        "depth": dice.between(1, 4),
        "workload": _workload(dice),
        "faults": [],
        "deadline": DEADLINE,
        "blackout": dice.one(("30ms", "100ms")),
    }
    if chosen := _chosen(dice):
        case["transports"] = [{"name": "csa_ud", **chosen}]
    if case["topology"]["generator"]["spines"] > 1:  # there is something to choose
        case["lb"] = dice.one(("flow", "spray", "flow", "adaptive"))
    if dice.chance(40):
        _use_slots_again(case, dice)
    case["faults"] = _faults(dice, rtt_us, final)
    if dice.chance(20):
        stalls = [_stall(dice, rtt_us) for _ in range(dice.between(1, 2))]
        case["stalls"] = list({stall["host"]: stall for stall in stalls}.values())
    # Drawn apart, so that what is drawn here anew leaves the other seeds as they are.
    elsewhere = Dice(seed, "elsewhere")
    if elsewhere.chance(40):
        _move(case, elsewhere)
    order = Dice(seed, "order")
    if order.chance(30):
        case["transports"] = [_ordered(case["transports"][0], order)]
    if elsewhere.chance(15):
        case["rnic"] = elsewhere.one(("all-contexts", "lru-512", "lru-4096"))
    other = Dice(seed, "other work")
    if other.chance(30):
        case["workload"] = _collective(other)
    elif work := workloads.drawn(Dice(seed, "timed work"), _access_rate(case)):
        case["workload"] = workloads.mixed(work, Dice(seed, "job transports"))
        _shorten_queues(case)
    _draw_parity(case, Dice(seed, "parity"))
    return case


_PARITY_CONDITIONS = (
    "parity_idle",
    "parity_unacknowledged",
    "parity_uncongested",
    "parity_bursts",
)


def _draw_parity(case: Case, dice: Dice) -> None:
    """How much parity messages have, when it leaves, and what hits parity and nothing else."""
    hit, chosen = dice.chance(30), dice.chance(50)
    if not hit and not chosen:
        return
    options = {
        "parity": dice.one(("2", "4") if hit else ("auto", "0", "1", "2", "4")),
        "parity_budget": 1.0 if hit else dice.one((0.0, 0.15, 0.5, 1.0)),
        **{condition: False for condition in _PARITY_CONDITIONS if dice.chance(25)},
    }
    drawn = case["transports"][0]
    written = {"name": drawn} if isinstance(drawn, str) else drawn
    options = {**written.get("options", {}), **options}
    case["transports"] = [{**written, "options": options}]
    if hit:
        case["faults"] = [*case["faults"], _parity(dice, case["faults"])]


def _shorten_queues(case: Case) -> None:
    """These workloads send little at a time: where queues trim, they are to be full."""
    generator = case["topology"]["generator"]
    for links in generator.values():
        if isinstance(links, dict) and " trim" in links.get("rate", ""):
            rate = links["rate"].partition(" ")[0]
            links["rate"] = f"{rate} limit 2 trim"


def _access_rate(case: Case) -> str:
    """Of hosts' links."""
    rate: str = case["topology"]["generator"]["access"]["rate"].partition(" ")[0]
    return rate


def _use_slots_again(case: Case, dice: Dice) -> None:
    """Few slots, many messages: what comes late is of an earlier use."""
    slots = dice.one((1, 1, 2, 4))
    case |= {"message_slots": slots, "depth": min(case["depth"], slots)}
    work = case["workload"]
    if work["kind"] in _FLOWS:
        work |= {"bytes": f"{dice.one((4096, 12_000))}B", "message": dice.one(("1KiB", "4KiB"))}
        work["repeat"] = dice.between(2, 4)


def _chosen(dice: Dice) -> dict[str, Any]:
    """What transports are to do otherwise than they would by themselves; each as far as it can."""
    found: dict[str, Any] = {}
    for percent, key, choices in (
        (60, "congestion_control", ("bdp", "dcqcn", "swift")),
        (30, "framing", ("ud", "uc_immediate")),
        (30, "options", ({"path_health": False}, {"immediate_acks": False})),
    ):
        if dice.chance(percent):
            found[key] = dice.one(choices)
    return found


def _ordered(transport: str | dict[str, Any], dice: Dice) -> dict[str, Any]:
    """The transport with a schedule, and with a congestion control that may go with it."""
    written = {"name": transport} if isinstance(transport, str) else transport
    schedule = dice.one(("least-left", "fair", "fifo"))
    control = dice.one(("grants", "nscc", None))
    return {**written, "schedule": schedule} | ({"congestion_control": control} if control else {})


def codes(seed: int, mtu: int) -> dict[str, Any]:
    """The erasure code of transports that have one, for links of this MTU."""
    dice = Dice(seed, "codes")
    code, k, m = dice.one(("mds", "mds", "xor")), dice.one((1, 2, 4, 8, 32)), dice.one((1, 2, 4, 8))
    chunk = path_mtu_bytes(mtu, 4) * dice.one((1, 1, 2, 8))
    return {
        "code": code,
        "k": k,
        "m": min(m, k) if code == "xor" else m,
        "chunk": f"{chunk}B",
        "beta": dice.one((0.0, 0.25, 1.0, 2.0)),
    }


def detection(seed: int) -> dict[str, Any]:
    """How transports detect losses that number packets by connection, or answer trimmed ones."""
    dice = Dice(seed, "detection")
    return {
        "detection": dice.one(("rack", "rack", "ooo-distance")),
        "probes": dice.chance(70),
        "probe": dice.one(("first", "last")),
        "psn_window": dice.one((1, 2, 16, 128, 128, 1024)),
        "coalesced_packets": dice.one((1, 3, 10, 10)),
        "coalescing_time": dice.one(("0s", "8us", "8us", "1ms")),
        "most_early": dice.one((0, 1, 16, 16)),
        "distance": dice.one((0, 3, 3, 32)),
        "rack_window": dice.one((0.0, 0.25, 0.25, 2.0)),
        "restart_timeout": dice.one(("100us", "1ms", "8ms")),
        "first_window": dice.one((0, 0, 1, 15)),
        "pull_rate": dice.one((0.5, 1.0, 1.0)),
        "trimming": dice.chance(70),
        "sleek": dice.chance(50),
        "sleek_cwnds": dice.one((0.0, 0.5, 1.5, 1.5)),
        "rto_init": dice.one(("0s", "0s", "20us", "1ms")),
        "acknowledged_bytes": dice.one(("0B", "16384B", "16384B", "32768B")),
        "mpr": dice.one((1, 1, 32)),
        "distance_windows": dice.one((0.0, 1.0, 1.0)),
        "timeout_exponent": dice.one((0, 0, 0, 5, 9)),
        "duplicates": dice.one((1, 4, 32, 32)),
        "spaced": dice.chance(80),
        "rto": dice.one(("20us", "500us", "500us")),
        "timer_tick": dice.one(("0s", "1ms", "1ms")),
        "linear_timeouts": dice.one((0, 2, 7, 7)),
    }


def _shape(dice: Dice, rtt_us: int) -> dict[str, Any]:
    """Four to a dozen hosts, links with queues: seven of ten fabrics have eight hosts or more."""
    rate = dice.one(("10Gbit", "25Gbit", "100Gbit", "400Gbit"))
    limit = dice.one((4, 8, 16, 64, 1000))
    beyond = dice.one(("", " trim", f" ecn {max(1, limit // 8)}", " trim"))
    wire: dict[str, Any] = {
        "rate": f"{rate} limit {limit}{beyond}", "delay": f"{rtt_us * 1000 // 8}ns"
    }  # fmt: skip
    core = dict(wire)
    if dice.chance(25):
        spread_ns = max(1, rtt_us * dice.one((100, 500, 2000)) // 8)
        order = dice.one(("allow", "preserve"))
        core["delay"] = f"{rtt_us * 125}ns {spread_ns}ns reorder {order}"
    leaves = dice.between(2, 3)
    return {
        "kind": "leaf-spine",
        "leaves": leaves,
        "spines": dice.between(1, 4),
        "hosts_per_leaf": dice.between(3, 4) if dice.chance(70) or leaves == 3 else 2,
        "access": wire,
        "core": core,
    }


# --- Other fabrics -----------------------------------------------------------------------------


class Shape(NamedTuple):
    """A fabric of another kind, and what stands there for the links of a leaf-spine."""

    sizes: dict[str, Any]
    core: str | None  # the impairments of links that are not hosts'
    names: dict[str, str]


def _star(dice: Dice) -> Shape:
    return Shape({"hosts": dice.between(4, 10)}, None, {
        "leaf*->*": "s1->*", "leaf1<->spine1": "s1<->h3", "leaf*->spine*": "s1->*",
        "leaf2->spine*": "s1->h1",
    })  # fmt: skip


def _dumbbell(dice: Dice) -> Shape:
    return Shape({"hosts_per_side": dice.between(2, 5)}, "bottleneck", {
        "leaf*->*": "s*->*", "leaf1<->spine1": "s1<->s2", "leaf*->spine*": "s*->s*",
        "leaf2->spine*": "s2->s1",
    })  # fmt: skip


def _parallel_paths(dice: Dice) -> Shape:
    return Shape({"paths": dice.between(2, 4), "hosts_per_side": dice.between(2, 5)}, "core", {
        "leaf*->*": "s*->*", "leaf1<->spine1": "s1<->m1", "leaf*->spine*": "s*->m*",
        "leaf2->spine*": "s2->m*",
    })  # fmt: skip


_PODS = {"leaf1<->spine1": "leaf1-1<->spine1-1", "leaf2->spine*": "leaf2-1->spine*"}


def _fat_tree(_: Dice) -> Shape:
    return Shape({"k": 4}, "core", {
        "leaf*->*": "edge*->*", "leaf1<->spine1": "edge1-1<->agg1-1",
        "leaf*->spine*": "edge*->agg*", "leaf2->spine*": "edge2-1->agg*",
    })  # fmt: skip


def _clos(dice: Dice) -> Shape:
    return Shape({"pods": dice.between(2, 3), "leaves": 2, "hosts": 2}, "core", _PODS)


_HAULS_US = (100, 1000, 5000)


def _two_sites(dice: Dice) -> Shape:
    haul_us = dice.one(_HAULS_US)
    sizes = {"leaves": 2, "spines": dice.between(1, 2), "hosts_per_leaf": dice.between(1, 2)}
    return Shape({**sizes, "long_haul": {"delay": f"{haul_us}us"}}, "core", _PODS)


def _dual_rail(dice: Dice) -> Shape:
    """Two leaves and a spine or two of a plane: experiments use the first one."""
    sizes = {"leaves": 2, "spines": dice.between(1, 2), "hosts_per_leaf": dice.between(2, 4)}
    return Shape(sizes, "core", {**_PODS, "leaf2->spine*": "leaf1-2->spine*"})


_SHAPES: dict[str, Callable[[Dice], Shape]] = {
    "star": _star,
    "dumbbell": _dumbbell,
    "parallel-paths": _parallel_paths,
    "fat-tree": _fat_tree,
    "clos": _clos,
    "two-sites": _two_sites,
    "dual-rail": _dual_rail,
}
_ONE_WAY = ("star", "dumbbell")  # a switch has nothing to choose
FABRICS = ("leaf-spine", *_SHAPES)
"""The kinds of fabrics there are."""


def _move(case: Case, dice: Dice) -> None:
    """The same work and faults on a fabric of another kind."""
    kind = dice.one(tuple(_SHAPES))
    shape = _SHAPES[kind](dice)
    drawn = case["topology"]["generator"]
    made = {"kind": kind, **shape.sizes, "access": drawn["access"]}
    if shape.core is not None:
        made[shape.core] = drawn["core"]
    if kind == "two-sites":
        made["long_haul"] |= {"rate": drawn["access"]["rate"]}
        case["deadline"] = FAR_DEADLINE
    case["topology"]["generator"] = made
    if kind in _ONE_WAY:
        case["lb"] = "flow"
    for fault in case["faults"]:
        fault["links"] = shape.names.get(fault["links"], fault["links"])


_FLOWS = ("point-to-point", "permutation", "incast", "point-to-point", "incast")
_ALL_TO_ALL, _RING = "all-to-all", "ring-all-reduce"


def _workload(dice: Dice) -> dict[str, Any]:
    """A thousand packets at most, or so: what many of them would find, many seeds find sooner."""
    kind = dice.one((*_FLOWS, _ALL_TO_ALL, _RING, *_FLOWS))
    size = dice.one((0, 100, 4096, 12_000, 20_000, 40_000))
    work: dict[str, Any] = {"kind": kind, "bytes": f"{size}B", "message": "16KiB"}
    if dice.chance(50):
        work["message"] = dice.one(("1KiB", "4KiB", "12KiB"))
    if kind == _RING:
        work |= {"bytes": f"{dice.one((4096, 30_000))}B", "message": "16KiB",
                 "dtype": dice.one(("float32", "int32"))}  # fmt: skip
    elif kind == _ALL_TO_ALL:
        work["bytes"] = f"{min(size, 4096)}B"
    elif kind == "point-to-point" and dice.chance(50):  # bitmaps of several words
        work |= {"bytes": f"{dice.one((100_000, 300_000))}B", "message": "1MiB"}
    if dice.chance(50):
        most = 2 if kind in (_ALL_TO_ALL, _RING) else 3 if size > 4096 else 6
        work["repeat"] = dice.between(2, most)
        if dice.chance(50):
            work["every"] = f"{dice.one((1, 20, 200))}us"
    return work


def _collective(dice: Dice) -> dict[str, Any]:
    """An operation by one of its algorithms, on a vector that four hosts share evenly."""
    op = dice.one(OPERATIONS)
    algorithm = dice.one(algorithms(op))
    work: dict[str, Any] = {"kind": "collective", "op": op, "algorithm": algorithm}
    size, message = dice.one((8192, 20_000, 60_000)), dice.one(("1KiB", "4KiB", "16KiB"))
    work |= {"bytes": f"{size}B", "message": message, "dtype": dice.one(("float32", "int32"))}
    # All fabrics have four hosts; some algorithms take only powers of two, or equal parts.
    if op == "all-to-all" or algorithm.startswith("recursive"):
        work["hosts"] = 4
    else:
        work["hosts"] = dice.between(2, 4)
    if algorithm == "bounded":
        work["peers"] = 2
    if dice.chance(30):
        work["repeat"] = 2
    return work


# --- Faults ------------------------------------------------------------------------------

_FINAL_PERCENT = 19


def _faults(dice: Dice, rtt_us: int, final: bool) -> list[dict[str, Any]]:
    """Faults, each named for its kind. `final`: somebody is not to be reached for good."""
    if not final and dice.chance(8):
        return []
    drawn: list[_Kind] = [dice.one((_death, _nothing_passes))] if final else []
    if drawn != [_nothing_passes] and dice.chance(70):  # a link has one loss
        drawn.append(dice.one(_LOSSES))
    drawn += [dice.one(group) for group in _OTHERS if dice.chance(25)]
    if _death not in drawn and dice.chance(12):
        drawn.append(_flap)
    found = []
    for kind in drawn or [_random]:
        links = dice.one(_LINKS)
        hard = links not in _EVERYWHERE
        found.append({"name": _name(kind), "links": links, **kind(dice, Pain(rtt_us, hard))})
    return found


class Pain(NamedTuple):
    """What faults go by. A packet meets up to eight directed links of a leaf-spine, there and back;
    twelve of a fat-tree, fourteen between two sites.
    """

    rtt_us: int
    hard: bool  # a fifth of all packets, or a half for a while: not everywhere


def _percent(dice: Dice, pain: Pain) -> str:
    return dice.one(("0.1%", "1%", "5%", "20%") if pain.hard else ("0.1%", "1%", "1%", "3%"))


def _keyed(dice: Dice, fault: dict[str, Any]) -> dict[str, Any]:
    return fault | {"key": dice.one(("identity", "index"))}


def _random(dice: Dice, pain: Pain) -> dict[str, Any]:
    fault: dict[str, Any] = {"loss": f"random {_percent(dice, pain)}"}
    if dice.chance(30):
        fault["only"] = dice.one(("data", "control"))
    return _keyed(dice, fault)


def _gemodel(dice: Dice, pain: Pain) -> dict[str, Any]:
    # Bursts count packets, and only questions pass a path that is given up on: what lasts for 20
    # packets at the mean outlasts all 40 questions in one case of eight.
    p = ("0.1%", "1%", "5%") if pain.hard else ("0.1%", "1%")
    r = ("25%", "25%", "50%") if pain.hard else ("25%",)
    return {"loss": f"gemodel {dice.one(p)} {dice.one(r)}", "key": "index"}


def _burst(dice: Dice, pain: Pain) -> dict[str, Any]:
    begin, most = (dice.one(("2%", "5%")), 16) if pain.hard else ("2%", 4)
    return {"loss": f"burst {begin} {dice.between(2, most)}", "key": "index"}


def _periodic(dice: Dice, pain: Pain) -> dict[str, Any]:
    every = dice.between(3 if pain.hard else 24, 50)
    length = dice.between(1, max(1, every // 4)) if pain.hard else 1
    return {"loss": f"periodic {every} {length}", "key": "index"}


def _tail(dice: Dice, _: Pain) -> dict[str, Any]:
    return {"drop": {"tail": dice.between(1, 2), "iter": 1}, "links": "*->*"}


def _named(dice: Dice, _: Pain) -> dict[str, Any]:
    return {"drop": {"message": dice.below(2), "packet": dice.below(2), "iter": [1, 2]},
            "links": dice.one(("*->*", "leaf*->*"))}  # fmt: skip


def _cut(dice: Dice, pain: Pain) -> dict[str, Any]:
    return _keyed(dice, {"cut": _percent(dice, pain)})


def _corrupt(dice: Dice, pain: Pain) -> dict[str, Any]:
    return _keyed(dice, {"corrupt": _percent(dice, pain)})


def _duplicate(dice: Dice, pain: Pain) -> dict[str, Any]:
    share = dice.one(("1%", "10%", "50%")) if pain.hard else dice.one(("1%", "5%"))
    return _keyed(dice, {"duplicate": share})


def _reorder(dice: Dice, pain: Pain) -> dict[str, Any]:
    by = f" by {dice.between(1, 12 * pain.rtt_us)}us"
    share = dice.one(("0.1%", "1%", "5%", "20%"))
    return _keyed(dice, {"reorder": f"{share}{by if dice.chance(70) else ''}"})


def _parity(dice: Dice, others: list[dict[str, Any]]) -> dict[str, Any]:
    """No transport needs parity, so that much of it may be hit. A link has one kind of loss."""
    losses = {fault["loss"].partition(" ")[0] for fault in others if "loss" in fault}
    kinds = ("loss", "corrupt", "duplicate") if losses <= {"random"} else ("corrupt", "duplicate")
    kind, share = dice.one(kinds), dice.one(("20%", "50%", "90%"))
    effect = {kind: f"random {share}" if kind == "loss" else share}
    return _keyed(dice, {"name": "parity", "links": "*->*", **effect, "only": "parity"})


def _flap(dice: Dice, pain: Pain) -> dict[str, Any]:
    """Routes follow, 1.5 ms later: to the same state of the link, or to another one."""
    length = dice.between(1, 20) * pain.rtt_us
    return {"down": True, "links": dice.one(_FLAPPING), "at": f"{dice.between(0, 5)}us",
            "for": f"{length}us", "every": f"{4 * length + dice.between(10, 2000)}us"}  # fmt: skip


def _blackout(dice: Dice, pain: Pain) -> dict[str, Any]:
    return {"loss": "blackout", "at": f"{dice.between(0, 5) * pain.rtt_us}us",
            "for": f"{dice.between(1, 60) * pain.rtt_us}us"}  # fmt: skip


def _death(dice: Dice, pain: Pain) -> dict[str, Any]:
    """A host's link dies, and with it the host: for good."""
    return {"down": True, "links": "h2<->*", "at": f"{dice.between(0, 2) * pain.rtt_us}us"}


def _nothing_passes(dice: Dice, _: Pain) -> dict[str, Any]:
    return {"loss": "random 100%", "links": dice.one(("h2->*", "*->h2", "h2<->*"))}


_Kind = Callable[[Dice, Pain], dict[str, Any]]
_LOSSES: tuple[_Kind, ...] = (_random, _gemodel, _burst, _periodic, _blackout)
_ENDS_OF_LINKS: tuple[_Kind, ...] = (_flap, _death, _nothing_passes)
_OTHERS: tuple[tuple[_Kind, ...], ...] = (
    (_tail, _named, _named),
    (_corrupt, _cut),
    (_duplicate,),
    (_reorder,),
)


def _name(kind: _Kind) -> str:
    return kind.__name__.strip("_").replace("_", "-")


FAULTS = (
    *map(_name, dict.fromkeys((*_LOSSES, *itertools.chain(*_OTHERS), *_ENDS_OF_LINKS))),
    "parity",
)
"""What faults are called in a case: the kinds there are."""


def _stall(dice: Dice, rtt_us: int) -> dict[str, Any]:
    return {"host": f"h{dice.between(1, 4)}", "at": f"{dice.between(0, 8) * rtt_us}us",
            "for": f"{dice.between(1, 100) * rtt_us}us"}  # fmt: skip


def may_fail(case: Case) -> bool:
    """Whether messages may end in an error: somebody is not to be reached for good, or for long."""
    return any(_is_final(fault) for fault in case["faults"])


def _is_final(fault: dict[str, Any]) -> bool:
    dead = bool(fault.get("down")) and "for" not in fault
    return dead or fault.get("loss") == "random 100%"
