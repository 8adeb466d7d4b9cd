# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiments: a YAML file in, an `Experiment` out that makes a plan and a workload for each seed.

Nothing here needs root, or depends on a clock.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import hashlib
import os
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from softroce_lab import paths, units
from softroce_lab.errors import UserError
from softroce_lab.experiment import trust
from softroce_lab.experiment.forecast import assumed_links
from softroce_lab.experiment.kinds.base import Setting
from softroce_lab.experiment.spec_model import Clock, ExperimentFile, Payload
from softroce_lab.experiment.transports import policy_file, written
from softroce_lab.experiment.transports.transport import USERS, Transport
from softroce_lab.faults import profile
from softroce_lab.faults.model import FaultRule
from softroce_lab.faults.resolve import FaultRules, arm
from softroce_lab.inputs import yaml_source
from softroce_lab.inputs.ready import find
from softroce_lab.inputs.validation import KeyedError, did_you_mean, validate
from softroce_lab.inputs.yaml_source import Data, Origin, Place, Source
from softroce_lab.plan import base_rtt
from softroce_lab.plan.path_mtu import path_mtu_bytes
from softroce_lab.plan.plan import Node, Plan
from softroce_lab.sim.presets import RNICS
from softroce_lab.topology import limits, resolve
from softroce_lab.topology.model import Graph, TopologyFile
from softroce_lab.transports import registry
from softroce_lab.transports.options import OptionError
from softroce_lab.workloads.jobs import Jobs
from softroce_lab.workloads.work import Workload

MAX_RC_MESSAGE_BYTES = 1 << 31  # IBA 9.7.1
MAX_UC_SLOTS = 1 << 10  # for messages outstanding, in the framing uc_immediate
MAX_UC_PACKETS = 1 << 18  # of a message in the framing uc_immediate (docs/reference/wire-format.md)

Overrides = Sequence[tuple[str, Data]]
"""Keys with dots, such as `workload.bytes`, and what they are to be instead."""


_MOST_RTT_NS = 500 * 10**6
"""Packet timestamps span one second (native/engine/units.hpp), and queues add to a round trip."""


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
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
    job_transports: Mapping[str, Transport] = dataclasses.field(default_factory=dict)

    @property
    def used_transports(self) -> tuple[Transport, ...]:
        """Those of the runs, and those of jobs that have one of their own; each once."""
        runs = () if self.raw.workload.has_transports else self.transports
        return tuple(dict.fromkeys((*runs, *self.job_transports.values())))

    def beside(self, transport: Transport) -> tuple[Transport, ...]:
        """All that a run with this transport has, each once."""
        run = () if self.raw.workload.has_transports else (transport,)
        return tuple(dict.fromkeys((*run, *self.job_transports.values())))

    def protocol(self, transport: Transport) -> str:
        """Whose rules the striped messages of such a run follow, whatever its label is.

        Beside others only those of the session are known.
        """
        beside = self.beside(transport)
        striped = {each.protocol for each in beside if each.entry.striped}
        if not striped:
            return beside[0].protocol
        return striped.pop() if len(striped) == 1 else USERS

    def place_of(self, transport: Transport) -> Place:
        """Where the file has this transport; the whole file, if the command line has it."""
        for place, spec in (
            *((("transports", n), each) for n, each in enumerate(self.raw.transports or ())),
            *self.raw.workload.own_transports.values(),
        ):
            if self.raw.workload.fitted(written.one(spec, self.source, place)) == transport:
                return place
        return ()

    def own_transports(self, seed: int) -> dict[int, Transport]:
        """Of hosts whose job has its own, whatever the run's is."""
        work = self.workload(seed)
        jobs = work.jobs if isinstance(work, Jobs) else {}
        return {
            host: transport
            for name, transport in self.job_transports.items()
            for host in jobs[name].ranks
        }

    def plan(self, seed: int) -> Plan:
        """The fabric, its faults armed with this seed. UserError."""
        return _plan(self, seed)

    def workload(self, seed: int) -> Workload:
        """What hosts do; hosts are counted as in `plan(seed).plain_hosts`. UserError."""
        return _workload(self, seed)

    def rails(self, seed: int) -> dict[int, int]:
        """Of hosts that use another rail than the first: which, counted from 0. UserError."""
        plan, found = self.plan(seed), {}
        for host, (rail, place) in self.raw.workload.rails_of(self.workload(seed)).items():
            node = plan.plain_hosts[host]
            if rail >= len(node.ports):
                count = units.format_count(len(node.ports), "rail")
                what = f"{node.name} has {count}, not a rail {rail + 1}"
                raise self.source.error(place, what, hint="such as topology: dual-rail")
            if rail:
                found[host] = rail
        return found

    def rails_used(self, transport: Transport, seed: int) -> dict[str, tuple[int, ...]]:
        """By name, all rails of the hosts that use others than rail 0, their own first. UserError.

        Hosts' own rails are those of `rails`, further ones of `other_rails`.
        """
        own, others = self.rails(seed), self.other_rails(transport, seed)
        hosts = self.plan(seed).plain_hosts
        return {
            hosts[host].name: (own.get(host, 0), *others.get(host, ()))
            for host in dict.fromkeys((*own, *others))
        }

    def other_rails(self, transport: Transport, seed: int) -> dict[int, tuple[int, ...]]:
        """Of hosts that use several rails, all but the first that they use. UserError.

        They are those behind it, and behind the last the first: of `shift` the backup's, else as
        many as the workload's `rails` asks for.
        """
        plan, rails, own = self.plan(seed), self.rails(seed), self.own_transports(seed)
        asked = self.raw.workload.spread(self.workload(seed))
        found = {}
        for host in self.workload(seed).ranks:
            used, node = own.get(host, transport), plan.plain_hosts[host]
            count, place = asked.get(host, (used.entry.rails, ("topology",)))
            if count == 1:
                continue
            if host in asked and used.entry.rails > 1:
                what = f"{used.label} uses one rail of {node.name}, and one for its backup"
                raise self.source.error(place, what, hint="leave out 'rails'")
            if count > len(node.ports):
                raise self.source.error(place, _too_few(node, count, used, asked=host in asked),
                                        hint="such as topology: dual-rail")  # fmt: skip
            first = rails.get(host, 0)
            found[host] = tuple((first + n) % len(node.ports) for n in range(1, count))
        return found

    def stalls(self, seed: int) -> list[tuple[int, int, int]]:
        """(host, when, for how long) timers stand still; nanoseconds. UserError."""
        names = [host.name for host in self.plan(seed).plain_hosts]
        for n, each in enumerate(self.raw.stalls):
            if each.host not in names:
                what = f"the topology has no host {each.host!r}"
                hint = did_you_mean(each.host, names)
                raise self.source.error(("stalls", n, "host"), what, hint=hint)
        return [(names.index(each.host), each.at, each.for_) for each in self.raw.stalls]

    def document(self) -> dict[str, Any]:
        """For the manifest: the experiment as it was run, defaults filled in."""
        document = self.raw.model_dump(
            mode="json", by_alias=True, exclude={"topology", "faults", "transports"}
        )
        if not document["expect"]:
            del document["expect"]
        return document | {
            "depth": self.depth,
            "topology": self.topology,
            "faults": [each if isinstance(each, str) else each.name for each in self.raw.faults],
            "transports": [transport.document() for transport in self.transports],
        }


def _payload(raw: ExperimentFile) -> Payload:
    if raw.workload.carries_bytes and "payload" not in raw.model_fields_set:
        return "verify"
    return raw.payload


_OTHERS = {"lab up": paths.TOPOLOGIES}


def load(
    where: str | os.PathLike[str], overrides: Overrides = (), origin: Origin = Origin.USER
) -> Experiment:
    """Read an experiment by path, or a ready one by name; then what is to be otherwise.

    UserError with file, line and column if the file is wrong, with the key if an override is.
    """
    source = yaml_source.read(find(where, paths.WORKLOADS, "experiment", _OTHERS), origin)
    _check_kind(source)
    if not overrides:
        return of(source)
    changed = with_overrides(source, overrides)
    try:
        return of(changed)
    except UserError as error:
        if error.file not in (None, source.file):
            raise  # another file's mistake has its place there
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
        kind, hint = "a sweep", "lab run runs it"
    elif "topology" in keys and not {"workload", "transports"} & keys:
        kind, hint = "a topology", "lab up brings it up"
    elif keys == {"faults"}:
        kind, hint = "a fault profile", "lab fault apply arms it; faults: [NAME] in an experiment"
    else:
        return
    raise source.error((), f"this is {kind}, not an experiment", hint=hint)


def of(source: Source) -> Experiment:
    """The experiment that a source holds. UserError; also if it may not do what it is to do."""
    raw = validate(ExperimentFile, source)
    if source.origin is Origin.RUN:
        trust.check(raw, source)
    own = _of_jobs(raw, source)
    experiment = _experiment(raw, source, _transports_to_run(raw, source, own), own)
    experiment.workload(raw.seeds[0])  # reports what does not fit now
    experiment.stalls(raw.seeds[0])
    experiment.rails(raw.seeds[0])
    _check_rails(experiment)
    _check_clock(experiment)
    _check_round_trip(experiment)
    _check_lengths(experiment)
    _check_slots(experiment)
    return experiment


def recorded(file: Path) -> Experiment:
    """The experiment of a run directory, for its fabric and its jobs: it has no transports.

    Nothing that the directory brings is executed, no file outside is read. UserError.
    """
    source = yaml_source.read(file, Origin.RUN)
    raw = validate(ExperimentFile, source)
    trust.check_reading(raw, source)
    return _experiment(raw, source, (), {})


def _experiment(
    raw: ExperimentFile,
    source: Source,
    transports: tuple[Transport, ...],
    of_jobs: Mapping[str, Transport],
) -> Experiment:
    return Experiment(
        name=raw.name,
        file=source.file or "",
        transports=transports,
        seeds=tuple(raw.seeds),
        clock=raw.clock,
        payload=_payload(raw),
        rnic=_rnic(raw.rnic, source),
        depth=raw.depth or raw.workload.usual_depth,
        deadline_ns=raw.deadline,
        topology=raw.topology if isinstance(raw.topology, str) else "inline",
        raw=raw,
        source=source,
        job_transports=of_jobs,
    )


def _of_jobs(raw: ExperimentFile, source: Source) -> dict[str, Transport]:
    """Of the jobs that have one of their own. UserError for two of one label that differ."""
    runs = () if raw.transports is None else written.of_file(raw.transports, source)
    known = {each.label: each for each in runs}
    found = {}
    for name, (place, spec) in raw.workload.own_transports.items():
        found[name] = transport = written.one(spec, source, place)
        if transport.entry.lossless:
            what = f"a job has no {transport.name}: a run has one fabric, with losses or without"
            raise source.error(place, what, hint="transports: [..., lossless], for all jobs")
        if known.setdefault(transport.label, transport) != transport:
            what = f"another transport is called {transport.label!r}, too"
            raise source.error(place, what, hint="give each a label of its own")
    return found


def _transports_to_run(
    raw: ExperimentFile, source: Source, own: Mapping[str, Transport]
) -> tuple[Transport, ...]:
    """A run each; the one run of jobs that all have their own is called by these."""
    if raw.transports is not None:
        of_file = written.of_file(raw.transports, source)
        return tuple(_fitted(raw, source, n, each) for n, each in enumerate(of_file))
    if raw.workload.default_transport is not None:
        return (Transport.named(raw.workload.default_transport),)
    first, *_ = own.values()
    labels = dict.fromkeys(each.label for each in own.values())
    return (dataclasses.replace(first, label=" & ".join(labels)),)


def _fitted(raw: ExperimentFile, source: Source, number: int, transport: Transport) -> Transport:
    """An entry of `transports` as the workload uses it. UserError with its place."""
    try:
        return raw.workload.fitted(transport)
    except UserError as error:
        key = (error.key,) if isinstance(error, KeyedError) else ()
        raise source.error(("transports", number, *key), error.what, hint=error.hint) from None


def _check_rails(experiment: Experiment) -> None:
    for transport in experiment.transports:
        experiment.other_rails(transport, experiment.seeds[0])


def _too_few(node: Node, count: int, transport: Transport, *, asked: bool) -> str:
    have = "one rail" if len(node.ports) == 1 else f"{len(node.ports)} rails"
    if asked:
        return f"{node.name} has {have}, not {count}"
    return f"{node.name} has {have}: {transport.label} needs another for its backup"


def _check_clock(experiment: Experiment) -> None:
    """UserError for programs in simulated time: they would have to run in it."""
    if experiment.clock == "virtual" and experiment.raw.workload.kind == "program":
        place: Place = ("clock",) if "clock" in experiment.source.data else ("workload", "kind")
        what = "programs run on the real clock alone"
        raise experiment.source.error(place, what, hint="clock: real")


def _check_round_trip(experiment: Experiment) -> None:
    """UserError for distances that make timestamp echoes of striped messages ambiguous."""
    plan = experiment.plan(experiment.seeds[0])
    rtt_ns = base_rtt.of(plan, path_mtu_bytes(plan.mtu, 4)).rtt_ns
    striped = [each.label for each in experiment.used_transports if each.entry.striped]
    if rtt_ns > _MOST_RTT_NS and striped:
        trip, most = map(units.format_duration, (rtt_ns, _MOST_RTT_NS))
        what = f"a round trip takes {trip}; {', '.join(striped)}: {most} at most"
        raise experiment.source.error(("topology",), what, hint="shorter delays, or rc alone")


def _check_lengths(experiment: Experiment) -> None:
    seed = experiment.seeds[0]
    longest = experiment.workload(seed).longest_message_bytes
    path_mtu = path_mtu_bytes(experiment.plan(seed).mtu, 4)
    for transport in experiment.used_transports:
        most = MAX_RC_MESSAGE_BYTES
        if transport.entry.striped:
            _check_chunk(experiment, transport, path_mtu)
            most = longest
            if transport.frames == "uc_immediate":
                most = transport.most_data_packets(MAX_UC_PACKETS, path_mtu) * path_mtu
        if longest > most:
            what = f"messages of {transport.label} have {units.format_bytes(most)} at most"
            raise experiment.source.error(("workload", "message"), what, hint="smaller messages")


def _check_chunk(experiment: Experiment, transport: Transport, path_mtu: int) -> None:
    try:
        transport.coding(path_mtu)
    except OptionError as error:
        of_file = [index for index, each in enumerate(experiment.transports) if each == transport]
        place: Place = ("transports", *of_file[:1], "options", error.option)
        where = place if place in experiment.source.values else ("workload",)
        raise experiment.source.error(where, error.what, hint=error.hint) from None


def _check_slots(experiment: Experiment) -> None:
    slots = experiment.raw.message_slots or 0
    for transport in experiment.used_transports:
        if transport.frames == "uc_immediate" and slots > MAX_UC_SLOTS:
            what = f"{transport.label} has {MAX_UC_SLOTS} slots at most, in its framing"
            raise experiment.source.error(("message_slots",), what, hint="fewer, or framing: ud")


def with_transports(experiment: Experiment, names: Sequence[str]) -> Experiment:
    """The experiment with these transports alone: the file's of that label or name, or plain ones.

    FILE:CLASS is a user's own, and LABEL= before either calls it so. UserError if there is no such
    transport, or if the workload cannot use it.
    """
    if experiment.raw.workload.has_transports:
        what = f"every job of {experiment.name} has a transport of its own"
        raise UserError(what, hint="without --transport")
    found: list[Transport] = []
    for name in names:
        own = [each for each in experiment.transports if name in (each.label, each.name)]
        found += own or [experiment.raw.workload.fitted(_chosen_transport(experiment, name))]
    transports = tuple(written.labelled(found).values())
    chosen = dataclasses.replace(experiment, transports=transports)
    _check_rails(chosen)
    _check_lengths(chosen)
    _check_slots(chosen)
    return chosen


def _chosen_transport(experiment: Experiment, name: str) -> Transport:
    _, plain = written.labelled_argument(name)
    if not policy_file.is_reference(plain) and plain not in registry.known():
        known = [*(each.label for each in experiment.transports), *registry.known()]
        hint = did_you_mean(plain, dict.fromkeys(known))
        raise UserError(f"unknown transport {plain!r}", hint=hint)
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


_MOST_PLANS = 8
_plans: collections.OrderedDict[bytes, Plan] = collections.OrderedDict()  # by what they are made of


@functools.lru_cache(maxsize=4)
def _plan(experiment: Experiment, seed: int) -> Plan:
    """Combinations of a sweep that differ in their workload alone share a plan."""
    raw = experiment.raw
    if isinstance(raw.topology, str) or any(isinstance(each, str) for each in raw.faults):
        return _made_plan(experiment, seed)  # of files, which may change
    parts = (raw.topology, raw.faults, raw.lb, raw.mtu, raw.name, experiment.clock, seed)
    key = hashlib.sha256(pickle.dumps(parts)).digest()
    if key not in _plans:
        _plans[key] = _made_plan(experiment, seed)
    _plans.move_to_end(key)
    while len(_plans) > _MOST_PLANS:
        _plans.popitem(last=False)
    return _plans[key]


def _made_plan(experiment: Experiment, seed: int) -> Plan:
    raw, source = experiment.raw, experiment.source
    if isinstance(raw.topology, Graph):
        file = TopologyFile(name=raw.name, topology=raw.topology, faults=[])
        where = source
    else:
        where = named_topology(raw.topology, source)
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


def named_topology(name: str, source: Source) -> Source:
    """The file of a topology that an experiment names: beside it, here, or a ready one."""
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
def _workload(experiment: Experiment, seed: int) -> Workload:
    verified = experiment.payload == "verify"
    setting = Setting(experiment.plan(seed), experiment.source, seed, experiment.depth, verified)
    return experiment.raw.workload.build(setting)
