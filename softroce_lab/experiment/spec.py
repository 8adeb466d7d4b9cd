# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiments: a YAML file in, an `Experiment` out that makes a plan and a workload for each seed.

Nothing here needs root, or depends on a clock.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from softroce_lab import paths, units
from softroce_lab.errors import UserError
from softroce_lab.experiment import files
from softroce_lab.experiment.forecast import assumed_links, base_rtt
from softroce_lab.experiment.hosts.settings import path_mtu_bytes
from softroce_lab.experiment.spec_model import (
    AllToAllSpec,
    AnyWorkload,
    Clock,
    ExperimentFile,
    FileSpec,
    IncastSpec,
    Payload,
    PermutationSpec,
    PointToPointSpec,
    RingAllGatherSpec,
    RingAllReduceSpec,
    RingReduceScatterSpec,
)
from softroce_lab.experiment.transports import policy_file, written
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.faults import profile
from softroce_lab.faults.model import FaultRule
from softroce_lab.faults.resolve import FaultRules, arm
from softroce_lab.inputs import yaml_source
from softroce_lab.inputs.ready import find
from softroce_lab.inputs.validation import did_you_mean, validate
from softroce_lab.inputs.yaml_source import Data, Place, Source
from softroce_lab.plan.effects import stream_key
from softroce_lab.plan.plan import Plan
from softroce_lab.recovery import registry
from softroce_lab.sim.presets import RNICS
from softroce_lab.topology import limits, resolve, routing
from softroce_lab.topology.model import Graph, TopologyFile
from softroce_lab.workloads.file import FileTransfer
from softroce_lab.workloads.flows import AllToAll, Incast, Permutation, PointToPoint
from softroce_lab.workloads.operations import Operations, Timeline
from softroce_lab.workloads.ring import AllGather, ReduceScatter, Ring, RingAllReduce
from softroce_lab.workloads.streams import Stream
from softroce_lab.workloads.work import FLOAT32, INT32, Sized, Workload

MAX_RC_MESSAGE_BYTES = 1 << 31  # IBA 9.7.1
MAX_UC_SLOTS = 1 << 10  # for messages outstanding, in the framing uc_immediate
MAX_UC_PACKETS = 1 << 18  # of a message in the framing uc_immediate (docs/framing.md)

Overrides = Sequence[tuple[str, Data]]
"""Keys with dots, such as `workload.bytes`, and what they are to be instead."""


_MOST_RTT_NS = 500 * 10**6
"""Packet timestamps span one second (native/engine/units.hpp), and queues add to a round trip."""


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """An experiment whose parts are known to fit each other."""

    name: str
    file: str
    transports: tuple[Transport, ...]
    seeds: tuple[int, ...]
    clock: Clock
    payload: Payload
    rnic: str | None  # limits of the RNIC by name; None: none
    depth: int  # sends outstanding from a host to a peer, at most
    deadline_ns: int  # of a run, on its clock
    topology: str  # its name, or "inline"
    raw: ExperimentFile = dataclasses.field(repr=False)
    source: Source = dataclasses.field(repr=False)

    def plan(self, seed: int) -> Plan:
        """The fabric, its faults armed with this seed. UserError."""
        return _plan(self, seed)

    def workload(self, seed: int) -> Workload:
        """What hosts do; hosts are counted as in `plan(seed).plain_hosts`. UserError."""
        return _operations(self, seed)

    def stalls(self, seed: int) -> list[tuple[int, int, int]]:
        """(host, when, for how long) timers stand still; nanoseconds. UserError."""
        names = [host.name for host in self.plan(seed).plain_hosts]
        return [
            (_index(each.host, names, self.source, ("stalls", n, "host")), each.at, each.for_)
            for n, each in enumerate(self.raw.stalls)
        ]

    def document(self) -> dict[str, Any]:
        """For the manifest: the experiment as it was run, defaults filled in."""
        document = self.raw.model_dump(
            mode="json", by_alias=True, exclude={"topology", "faults", "transports"}
        )
        return document | {
            "topology": self.topology,
            "faults": [each if isinstance(each, str) else each.name for each in self.raw.faults],
            "transports": [transport.document() for transport in self.transports],
        }


def _payload(raw: ExperimentFile) -> Payload:
    """The payload of a file is carried by default."""
    if isinstance(raw.workload, FileSpec) and "payload" not in raw.model_fields_set:
        return "verify"
    return raw.payload


_OTHERS = {"lab sweep": paths.SWEEPS, "lab up": paths.TOPOLOGIES}


def load(where: str | os.PathLike[str], overrides: Overrides = ()) -> Experiment:
    """Read an experiment by path, or a ready one by name; then what is to be otherwise.

    UserError with file, line and column if the file is wrong, with the key if an override is.
    """
    source = yaml_source.read(find(where, paths.WORKLOADS, "experiment", _OTHERS))
    _check_kind(source)
    if not overrides:
        return of(source)
    changed = with_overrides(source, overrides)
    try:
        return of(changed)
    except UserError as error:
        of(source)  # the file's own mistakes come first, with their place
        wrong = [
            each
            for n, each in enumerate(overrides)
            if _fits(source, [*overrides[:n], *overrides[n + 1 :]])
        ]
        given = ", ".join(dict.fromkeys(key for key, _ in wrong or overrides))
        raise UserError(f"{given}: {error.what}", hint=error.hint) from None


def _fits(source: Source, overrides: Overrides) -> bool:
    try:
        of(with_overrides(source, overrides))
    except UserError:
        return False
    return True


def _check_kind(source: Source) -> None:
    """UserError for a file of another kind, with the command that takes it."""
    keys = source.data.keys()
    if "experiment" in keys:
        kind, hint = "a sweep", "lab sweep runs it"
    elif "topology" in keys and not {"workload", "transports"} & keys:
        kind, hint = "a topology", "lab up brings it up"
    elif keys == {"faults"}:
        kind, hint = "a fault profile", "lab fault apply arms it; faults: [NAME] in an experiment"
    else:
        return
    raise source.error((), f"this is {kind}, not an experiment", hint=hint)


def of(source: Source) -> Experiment:
    """The experiment that a source holds. UserError."""
    raw = validate(ExperimentFile, source)
    experiment = Experiment(
        name=raw.name,
        file=source.file or "",
        transports=written.of_file(raw.transports, source),
        seeds=tuple(raw.seeds),
        clock=raw.clock,
        payload=_payload(raw),
        rnic=_rnic(raw.rnic, source),
        depth=raw.depth,
        deadline_ns=raw.deadline,
        topology=raw.topology if isinstance(raw.topology, str) else "inline",
        raw=raw,
        source=source,
    )
    experiment.workload(raw.seeds[0])  # reports what does not fit now
    experiment.stalls(raw.seeds[0])
    _check_round_trip(experiment)
    _check_lengths(experiment)
    _check_slots(experiment)
    return experiment


def _check_round_trip(experiment: Experiment) -> None:
    """UserError for distances that make timestamp echoes of striped messages ambiguous."""
    plan = experiment.plan(experiment.seeds[0])
    rtt_ns = base_rtt.of(plan, path_mtu_bytes(plan.mtu, 4)).rtt_ns
    striped = [each.label for each in experiment.transports if each.entry.striped]
    if rtt_ns > _MOST_RTT_NS and striped:
        trip, most = map(units.format_duration, (rtt_ns, _MOST_RTT_NS))
        what = f"a round trip takes {trip}; {', '.join(striped)}: {most} at most"
        raise experiment.source.error(("topology",), what, hint="shorter delays, or rc alone")


def _check_lengths(experiment: Experiment) -> None:
    """UserError for messages longer than a transport can number the bytes or packets of."""
    spec = experiment.raw.workload
    seed = experiment.seeds[0]
    kind = _KINDS.get(type(spec))
    chunks = experiment.workload(seed).hosts if kind and issubclass(kind, Ring) else 1
    longest = min(spec.message, -(-spec.bytes // chunks))
    path_mtu = path_mtu_bytes(experiment.plan(seed).mtu, 4)
    for transport in experiment.transports:
        most = MAX_RC_MESSAGE_BYTES
        if transport.entry.striped:
            most = MAX_UC_PACKETS * path_mtu if transport.frames == "uc_immediate" else longest
        if longest > most:
            what = f"messages of {transport.label} have {units.format_bytes(most)} at most"
            raise experiment.source.error(("workload", "message"), what, hint="smaller messages")


def _check_slots(experiment: Experiment) -> None:
    """UserError for more messages outstanding than a framing can number."""
    slots = experiment.raw.message_slots or 0
    for transport in experiment.transports:
        if transport.frames == "uc_immediate" and slots > MAX_UC_SLOTS:
            what = f"{transport.label} has {MAX_UC_SLOTS} slots at most, in its framing"
            raise experiment.source.error(("message_slots",), what, hint="fewer, or framing: ud")


def with_transports(experiment: Experiment, names: Sequence[str]) -> Experiment:
    """The experiment with these transports alone: the file's of that label or name, or plain ones.

    FILE:CLASS is a user's own. UserError if there is no such transport.
    """
    found: list[Transport] = []
    for name in names:
        own = [each for each in experiment.transports if name in (each.label, each.name)]
        found += own or [_chosen_transport(experiment, name)]
    transports = tuple(written.labelled(found).values())
    chosen = dataclasses.replace(experiment, transports=transports)
    _check_lengths(chosen)
    _check_slots(chosen)
    return chosen


def _chosen_transport(experiment: Experiment, name: str) -> Transport:
    if not policy_file.is_reference(name) and name not in registry.transports():
        known = [*(each.label for each in experiment.transports), *registry.transports()]
        hint = did_you_mean(name, dict.fromkeys(known))
        raise UserError(f"unknown transport {name!r}", hint=hint)
    return written.of_argument(name)


def shipped() -> list[tuple[str, str]]:
    """(name, what it is about) of every experiment that comes with the lab."""
    files = sorted(paths.WORKLOADS.glob("*.yaml"))
    return [(file.stem, _about(file)) for file in files]


def _about(file: Path) -> str:
    """The comment that a file begins with, up to its first full stop."""
    lines = file.read_text().splitlines()
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        comment.append(line.lstrip("# "))
    return " ".join(comment).partition(". ")[0].rstrip(".")


# --- Overrides -------------------------------------------------------------------------------


def parse_override(text: str) -> tuple[str, Data]:
    """`workload.bytes=2MiB` -> its key and value, which is read as YAML. UserError."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise UserError(f"{text!r} sets nothing", hint="such as workload.bytes=2MiB")
    return key.strip(), yaml_source.parse(f"value: {value}").data["value"]


def with_overrides(source: Source, overrides: Overrides) -> Source:
    """The same file with other values at these keys. UserError for an unknown key."""
    data = copy.deepcopy(source.data)
    for key, value in overrides:
        _set(data, key, value)
    return dataclasses.replace(source, data=data)


def _set(data: dict[str, Data], key: str, value: Data) -> None:
    at: Any = data
    *above, last = key.split(".")
    for part in above:
        at = at.setdefault(part, {}) if isinstance(at, dict) else _item(at, part, key)
    if isinstance(at, dict):
        at[last] = value
    else:
        _item(at, last, key)
        at[int(last)] = value


def _item(entries: object, part: str, key: str) -> Any:
    if not isinstance(entries, list):
        raise UserError(f"{key!r} names nothing in the experiment: {part!r} is below a value")
    if part not in map(str, range(len(entries))):
        what = f"{key!r} names nothing in the experiment: {part!r} of a list of {len(entries)}"
        raise UserError(what, hint="entries are counted from 0")
    return entries[int(part)]


def _rnic(name: str | None, source: Source) -> str | None:
    if name is not None and name not in RNICS:
        near = did_you_mean(name, RNICS)
        raise source.error(("rnic",), f"no RNIC model is called {name!r}", hint=near)
    return name


# --- The fabric ------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
def _plan(experiment: Experiment, seed: int) -> Plan:
    raw, source = experiment.raw, experiment.source
    if isinstance(raw.topology, Graph):
        file = TopologyFile(name=raw.name, topology=raw.topology, faults=[])
        where = source
    else:
        where = _named_topology(raw.topology, source)
        file = validate(TopologyFile, where)
    given = {key: value for key in ("lb", "mtu") if (value := getattr(raw, key)) is not None}
    plan = resolve.resolve(
        file.model_copy(update=given), where, name=raw.name, seed=seed,
        with_routes=experiment.clock == "real",
    )  # fmt: skip
    if experiment.clock == "real":
        limits.check(plan, where if raw.mtu is None else source)
    plan = arm(plan, *_faults(raw.faults, source))
    return plan if experiment.clock == "real" else assumed_links.shaped(plan)


def _named_topology(name: str, source: Source) -> Source:
    beside = Path(source.file or "").parent / name
    try:
        path = beside if Path(name).suffix and not Path(name).exists() and beside.exists() else name
        return yaml_source.read(find(path, paths.TOPOLOGIES, "topology"))
    except UserError as error:
        if error.line is not None:
            raise
        raise source.error(("topology",), str(error.what), hint=error.hint) from None


def _faults(faults: Sequence[str | FaultRule], source: Source) -> Iterable[FaultRules]:
    for index, each in enumerate(faults):
        if isinstance(each, FaultRule):
            yield FaultRules((each,), source, first=index)
            continue
        try:
            yield profile.load(each)
        except UserError as error:
            if error.line is not None:
                raise
            raise source.error(("faults", index), error.what, hint=error.hint) from None


# --- The workload ----------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _operations(experiment: Experiment, seed: int) -> Workload:
    spec = experiment.raw.workload
    if isinstance(spec, FileSpec):
        return _file(experiment, spec, _ranks(experiment, seed))
    timeline = Timeline(spec.every or 0, spec.skew or 0, seed)
    return Operations(_workload(experiment, _ranks(experiment, seed), seed), spec.repeat, timeline)


def _ranks(experiment: Experiment, seed: int) -> tuple[int, ...]:
    """The hosts that take part, in the order of their ranks."""
    plan, spec, source = experiment.plan(seed), experiment.raw.workload, experiment.source
    names = [host.name for host in plan.plain_hosts]
    if len(names) < 2:
        what = f"the topology has {len(names)} hosts for soft RNICs, a workload needs two"
        raise source.error(("topology",), what)
    if isinstance(spec, PointToPointSpec | FileSpec):
        return _ends(spec, plan, names, source)
    chosen = _chosen(spec, names, source)
    if isinstance(spec, IncastSpec) and spec.to is not None:
        sink = _index(spec.to, names, source, ("workload", "to"))
        chosen = [sink, *(host for host in chosen if host != sink)]
    if spec.placement == "random":
        order = Stream(stream_key(seed, "placement")).permutation(len(chosen))
        chosen = [chosen[place] for place in order]
    return tuple(chosen)


def _chosen(spec: AnyWorkload, names: Sequence[str], source: Source) -> list[int]:
    place: Place = ("workload", "hosts")
    if isinstance(spec.hosts, list):
        return [_index(each, names, source, (*place, n)) for n, each in enumerate(spec.hosts)]
    count = spec.hosts or len(names)
    if count > len(names):
        raise source.error(place, f"{count} hosts, and the topology has {len(names)}")
    return list(range(count))


def _index(name: str, names: Sequence[str], source: Source, place: Place) -> int:
    if name not in names:
        what = f"the topology has no host {name!r}"
        raise source.error(place, what, hint=did_you_mean(name, names))
    return names.index(name)


def _ends(
    spec: PointToPointSpec | FileSpec, plan: Plan, names: Sequence[str], source: Source
) -> tuple[int, int]:
    """As chosen; else the first host, and the first of those farthest from it."""
    for key, name in (("from", spec.from_), ("to", spec.to)):
        if name is not None:
            _index(name, names, source, ("workload", key))
    begin = spec.from_ or next(name for name in names if name != spec.to)
    hops = routing.distances([begin], routing.neighbours((n.name for n in plan.nodes), plan.links))
    end = spec.to or max((name for name in names if name != begin), key=lambda name: hops[name])
    if begin == end:
        raise source.error(("workload", "to"), f"{begin} would send to itself")
    return names.index(begin), names.index(end)


_KINDS: Mapping[type, type[Sized]] = {
    PointToPointSpec: PointToPoint,
    PermutationSpec: Permutation,
    IncastSpec: Incast,
    AllToAllSpec: AllToAll,
    RingAllReduceSpec: RingAllReduce,
    RingReduceScatterSpec: ReduceScatter,
    RingAllGatherSpec: AllGather,
}
_DTYPES = {"float32": FLOAT32, "int32": INT32}


def _file(experiment: Experiment, spec: FileSpec, ranks: tuple[int, ...]) -> FileTransfer:
    """Paths are relative to the experiment's file."""
    folder = Path(experiment.source.file or "").parent.resolve()
    path = folder / spec.path
    try:
        size = min(files.size_to_send(path), spec.bytes)
    except UserError as error:
        hint = "path: a regular file, relative to the experiment's"
        raise experiment.source.error(("workload", "path"), error.what, hint=hint) from None
    save = None if spec.save is None else str(folder / spec.save)
    hashed = experiment.payload == "verify"
    return FileTransfer(ranks, str(path), size, spec.message, experiment.depth, save, hashed)


def _workload(experiment: Experiment, ranks: tuple[int, ...], seed: int) -> Sized:
    spec, source = experiment.raw.workload, experiment.source
    kind = _KINDS[type(spec)]
    more: dict[str, Any] = {"seed": seed} if kind is Permutation else {}
    if issubclass(kind, Ring):
        more["dtype"] = _DTYPES[spec.dtype]  # type: ignore[union-attr]
        if spec.bytes < 4 * len(ranks):
            what = f"{spec.bytes} bytes hold fewer elements than there are hosts, {len(ranks)}"
            raise source.error(("workload", "bytes"), what)
    return kind(ranks, spec.bytes, spec.message, **more)
