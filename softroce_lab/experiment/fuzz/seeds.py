# SPDX-License-Identifier: GPL-2.0-or-later
"""Deterministic simulation testing: seeds in, failed invariants out, each with a small example.

Every seed is an experiment (fuzz_draw), run over every transport, and looked at (invariants). What
fails is made smaller as long as it still fails in the same way.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import io
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from softroce_lab.errors import LabError, UserError, ibv_wc_status
from softroce_lab.experiment import spec
from softroce_lab.experiment.figure_table import RETRANSMITTED
from softroce_lab.experiment.fuzz import draw, invariants, pool, workloads
from softroce_lab.experiment.fuzz.draw import Case
from softroce_lab.experiment.kinds.collectives import OPERATIONS
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports import written
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.inputs import yaml_source
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.plan.effects import Delay
from softroce_lab.transports import congestion, registry
from softroce_lab.transports.registry import Kind

_RETRY_EXC = int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)
_MTU = 4300  # of a case that names none
_AGAIN_EVERY = 50  # seeds: one of so many is run twice and compared
_MOST_SHRINKS = 300
_MOST_SLOTS = 1024  # of an engine without settings


@dataclasses.dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that failed for a transport."""

    seed: int
    transport: Transport
    what: str  # its first word states in which way
    case: str  # the experiment file
    file: str | None = None  # that it was read from; None: drawn from the seed

    @property
    def manner(self) -> str:
        """In which way: what shrinking keeps."""
        return self.what.partition(":")[0]

    @property
    def shrinks(self) -> bool:
        """Whether it can be tried in this process."""
        return self.manner not in ("dies", "loops", "refused")

    @property
    def replay(self) -> str:
        """The command that shows it again."""
        name = self.transport.reference
        if self.file is not None:
            return shlex.join(["lab", "fuzz", "--transport", name, "--case", self.file])
        return f"lab fuzz --seed {self.seed} --seeds 1 --transport {shlex.quote(name)}"


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What one seed came to."""

    seed: int
    hosts: int
    features: frozenset[str]
    violations: tuple[Violation, ...]
    runs: int


def run_seed(seed: int, transports: Sequence[Transport]) -> Seen:
    """One seed over these transports."""
    return run_case(draw.draw(seed), seed, transports)


def run_case(case: Case, seed: int, transports: Sequence[Transport]) -> Seen:
    """One case over these transports; its faults' streams come from `seed`."""
    features: set[str] = set()
    found: list[Violation] = []
    try:
        experiment = _experiment(case)
    except LabError as error:  # what is drawn is an experiment
        found.append(Violation(seed, transports[0], f"refused: {error}", text(case)))
        return Seen(seed, 0, frozenset(), tuple(found), 0)
    for chosen in transports:
        transport = _like(experiment.transports[0], chosen, case)
        made, run, broken = _try(experiment, transport, seed, draw.may_fail(case))
        if run is not None and made is not None:
            features |= set(_features(case, made, run))
            if seed % _AGAIN_EVERY == 0 and not broken:
                broken = _same_again(experiment, transport, seed, run)
        if broken:
            found.append(Violation(seed, chosen, broken[0], text(case, chosen)))
    hosts = len(experiment.plan(seed).plain_hosts)
    return Seen(seed, hosts, frozenset(features), tuple(found), len(transports))


def _experiment(case: Case) -> Experiment:
    """Of a case as it was drawn: nobody would look for the places of what is wrong in it."""
    return spec.of(Source(None, case, {}, {}))


def _like(drawn: Transport, chosen: Transport, case: Case) -> Transport:
    """The chosen transport, with as much of what was drawn as it knows."""
    entry = chosen.entry
    known = {option.name for option in entry.options}
    known_knobs = {knob.name for knob in entry.knobs}
    drawn_knobs = {name: value for name, value in drawn.set_knobs if name in known_knobs}
    takes_framing = entry.kind is Kind.SESSION and drawn.framing in entry.framings
    seeds = case["seeds"]  # one that was written by hand may say how many
    seed = seeds[0] if isinstance(seeds, list) else 1
    own = draw.codes(seed, case.get("mtu", _MTU)) | draw.detection(seed)
    own |= dict(drawn.set_options)
    # An option of a user's policy that has the name of a drawn one takes other values.
    built_in = chosen.file is None
    drawn_options = {name: value for name, value in own.items() if built_in and name in known}
    return dataclasses.replace(
        chosen,
        congestion_control=chosen.congestion_control or drawn.congestion_control,
        framing=chosen.framing or (drawn.framing if takes_framing else None),
        set_options=tuple((drawn_options | chosen.options).items()),
        set_knobs=tuple((drawn_knobs | dict(chosen.set_knobs)).items()),
    )


def _written(transport: Transport) -> dict[str, Any]:
    which = "name" if transport.file is None else "policy"
    fields = {
        which: transport.reference,
        "congestion_control": transport.congestion_control,
        "framing": transport.framing,
        "options": transport.options,
        **dict(transport.set_knobs),
    }
    return {key: value for key, value in fields.items() if value not in (None, {})}


def text(case: Case, transport: Transport | None = None) -> str:
    """The case as an experiment file, of one transport or as it is."""
    from ruamel.yaml import YAML  # what `topology.yaml_source` reads with

    written = case
    if transport is not None:
        chosen = _like(_experiment(case).transports[0], transport, case)
        written = {**case, "transports": [_written(chosen)]}
    out = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None
    yaml.dump(written, out)
    return out.getvalue()


def _try(
    experiment: Experiment, transport: Transport, seed: int, may_fail: bool
) -> tuple[VirtualRun | None, WorkloadRun | None, list[str]]:
    try:
        made = VirtualRun(experiment, transport, seed, lambda _: None)
        run = made.go()
        return made, run, invariants.violations(made, run, may_fail=may_fail)
    except Exception as error:  # a bug of ours is what this is for
        return None, None, [f"crashes: {type(error).__name__}: {error}"]


def _same_again(
    experiment: Experiment, transport: Transport, seed: int, run: WorkloadRun
) -> list[str]:
    again = VirtualRun(experiment, transport, seed, lambda _: None).go()
    same = (
        np.array_equal(again.messages, run.messages)
        and again.counters == run.counters
        and list(again.links) == list(run.links)
    )
    return [] if same else ["differs: the same seed went otherwise the second time"]


# --- Coverage -------------------------------------------------------------------------------

_BY_POLICIES = {
    "keepalives": "keepalives",
    "losses by gap": "lost_by_gap",
    "losses by probe": "lost_by_probe",
    "losses by timer": "lost_by_timer",
    "fell back from parity": "fallbacks",
}
_COUNTED = {
    "late generations": "rx_stale_generation",
    "late parity": "rx_late_parity",
    "restored from parity": "rx_restored",
}
_ON_LINKS = {"tail drops": "dropped_by_queue", "ECN marks": "marked", "trimmed": "trimmed"}


def expected_features() -> tuple[str, ...]:
    """What a campaign over all transports is to meet, each in five of a hundred seeds."""
    return (
        *registry.transports(),
        *(f"fault: {name}" for name in (*draw.FAULTS, "jitter", "stall")),
        *(f"fabric: {name}" for name in draw.FABRICS),
        *(f"collective: {name}" for name in OPERATIONS),
        *(f"workload: {name}" for name in workloads.KINDS),
        *(f"queue: {name}" for name in _ON_LINKS),
        *(f"congestion control: {name}" for name in congestion.names()),
        *(
            *_BY_POLICIES,
            *_COUNTED,
            "retransmissions",
            "RETRY_EXC",
            "generation reuse",
        ),
        "RNIC's limits",
    )


def _drawn(case: Case) -> Iterator[str]:
    yield f"fabric: {case['topology'].get('generator', {}).get('kind')}"
    if case["workload"]["kind"] == "collective":
        yield f"collective: {case['workload']['op']}"
    elif case["workload"]["kind"] in workloads.KINDS:
        yield f"workload: {case['workload']['kind']}"
    if any("transport" in job for job in case["workload"].get("jobs", ())):
        yield "jobs of two transports"
    if case.get("stalls"):
        yield "fault: stall"


def _features(case: Case, made: VirtualRun, run: WorkloadRun) -> Iterator[str]:
    """What this run met; a fault is met where it hit a packet."""
    yield run.transport
    yield f"congestion control: {run.congestion_control}"
    yield from _drawn(case)
    yield from (f"fault: {name}" for name in set(run.events["rule"].tolist()))
    if any(
        isinstance(fault.effect, Delay) and fault.effect.jitter_ns for fault in made.plan.faults
    ):
        yield "fault: jitter"
    for name, counter in _ON_LINKS.items():
        if any(link["wire"][counter] for link in run.links):
            yield f"queue: {name}"
    if run.count(RETRANSMITTED):
        yield "retransmissions"
    if case.get("rnic"):
        yield "RNIC's limits"
    if (run.messages["status"] == _RETRY_EXC).any():
        yield "RETRY_EXC"
    for policy in run.policies.values():
        yield from (name for name, counted in _BY_POLICIES.items() if policy.get(counted))
    slots = case.get("message_slots") or _MOST_SLOTS
    pairs = collections.Counter(
        zip(run.messages["source"].tolist(), run.messages["destination"].tolist(), strict=True)
    )
    if pairs and max(pairs.values()) > slots:
        yield "generation reuse"
    yield from (name for name, counter in _COUNTED.items() if run.count((counter,)))


# --- Smaller ---------------------------------------------------------------------------------


def shrink(violation: Violation, say: Callable[[str], None] = lambda _: None) -> Violation:
    """The smallest case found for which the same invariant fails."""

    def smaller(best: tuple[Case, Violation]) -> Iterator[tuple[Case, Violation] | None]:
        for candidate in _simpler(best[0]):
            found = _fails(candidate, violation)
            if found is not None:
                say(f"smaller: {len(found.case)} characters")
            yield None if found is None else (candidate, found)

    case = yaml_source.parse(violation.case).data
    return pool.smallest((case, violation), smaller, _MOST_SHRINKS)[1]


def _fails(case: Case, like: Violation) -> Violation | None:
    try:
        seen = run_case(case, like.seed, [like.transport])
    except Exception:  # no experiment any more
        return None
    return next((each for each in seen.violations if each.manner == like.manner), None)


def _simpler(case: Case) -> Iterator[Case]:
    """Each a step smaller: fewer faults, less work, fewer hosts, plainer links."""
    for number in range(len(case["faults"])):
        yield _with(case, faults=[f for at, f in enumerate(case["faults"]) if at != number])
    for key in ("stalls", "message_slots", "rnic"):
        if key in case:
            yield {name: value for name, value in case.items() if name != key}
    yield from (_with(case, workload=work) for work in workloads.less(case["workload"]))
    shapes = _plainer(case["topology"]["generator"])
    yield from (_with(case, topology={"generator": shape}) for shape in shapes)
    for key, plain in (("depth", 1), ("lb", "flow")):
        if case[key] != plain:
            yield _with(case, **{key: plain})


_SIZES = ("hosts", "hosts_per_side", "hosts_per_leaf", "paths", "spines", "leaves", "pods")


def _plainer(shape: Case) -> Iterator[Case]:
    """What is too small to be a fabric, or lacks a link that a fault names, fails in no manner."""
    for key in _SIZES:
        if shape.get(key, 1) > 1:
            yield {**shape, key: shape[key] - 1}
    for links in ("core", "bottleneck"):
        if shape.get(links, shape["access"]) != shape["access"]:
            yield {**shape, links: shape["access"]}


def _with(case: Case, **changes: Any) -> Case:
    return {**copy.deepcopy(case), **changes}


# --- Many seeds ------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class Campaign(pool.Campaign):
    """Of seeds over transports."""

    transports: tuple[Transport, ...] = ()
    runs: int = 0
    hosts: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)

    def add(self, seen: Seen) -> None:
        """One more."""
        self.seeds += 1
        self.runs += seen.runs
        self.hosts[seen.hosts] += 1
        self.features.update(seen.features)
        self.violations.extend(seen.violations)

    @property
    def median_hosts(self) -> int:
        """Of the seeds' fabrics."""
        sizes = sorted(self.hosts.elements())
        return sizes[len(sizes) // 2] if sizes else 0

    @property
    def coverage(self) -> dict[str, float]:
        """In what share of the seeds each thing was met; what is expected stands there anyway."""
        every = {each.label for each in self.transports} >= set(registry.transports())
        expected = expected_features() if every else ()
        return self.shares(dict.fromkeys((*expected, *sorted(self.features))))

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "seeds": self.seeds,
            "runs": self.runs,
            "violations": [
                {"seed": v.seed, "transport": v.transport.label, "what": v.what, "replay": v.replay,
                 "case": v.case} for v in self.violations
            ],
            "transports": [each.label for each in self.transports],
            "median_hosts": self.median_hosts,
            "coverage": self.coverage,
        }  # fmt: skip


def transports_of(chosen: Iterable[str] | None) -> tuple[Transport, ...]:
    """Those chosen, NAME or FILE:CLASS, or all built-in ones. UserError for an unknown one.

    Nor for one that needs several rails: drawn fabrics have one.
    """
    found = [written.of_argument(text) for text in chosen or registry.transports()]
    for each in found:
        if each.entry.rails > 1:
            what = f"{each.label} needs hosts with {each.entry.rails} rails, drawn ones have one"
            raise UserError(what, hint="lab fuzz failover draws failures of NICs")
    return tuple(written.labelled(found).values())


def campaign(
    seen: Iterable[Seen],
    transports: tuple[Transport, ...],
    *,
    until: Callable[[], bool] = lambda: False,
    progress: Callable[[Campaign], None] = lambda _: None,
) -> Campaign:
    """As `Campaign.gather`."""
    return Campaign(transports=transports).gather(seen, until, progress)


def in_process(seeds: Iterable[int], transports: tuple[Transport, ...]) -> Iterator[Seen]:
    """What each seed came to, in this process: with whatever was registered here."""
    return (run_seed(seed, transports) for seed in seeds)


@dataclasses.dataclass(frozen=True, slots=True)
class _OverTransports:
    transports: tuple[Transport, ...]

    def run(self, seed: int) -> Seen:
        return run_seed(seed, self.transports)

    def lost(self, seed: int, what: str) -> Seen:
        return _alone(seed, self.transports, what)


def in_processes(
    seeds: Iterable[int], transports: tuple[Transport, ...], jobs: int
) -> Iterator[Seen]:
    """What each seed came to, in the order of the seeds."""
    return pool.over(seeds, _OverTransports(transports), jobs)


def _alone(seed: int, transports: tuple[Transport, ...], what: str) -> Seen:
    """Which transport it was: each is run by itself."""
    case = draw.draw(seed)
    if len(transports) == 1:
        violation = Violation(seed, transports[0], what, text(case, transports[0]))
        return Seen(seed, 0, frozenset(), (violation,), 1)
    each = [seen for one in transports for seen in in_processes([seed], (one,), 1)]
    violations = tuple(violation for seen in each for violation in seen.violations)
    if not violations:
        violations = (Violation(seed, transports[0], f"{what}, once", text(case)),)
    return Seen(
        seed,
        max(seen.hosts for seen in each),
        frozenset().union(*(seen.features for seen in each)),
        violations,
        len(transports),
    )
