# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo: a real file over a lossy leaf-spine fabric, each transport with the same losses."""

from __future__ import annotations

import ctypes.util
import dataclasses
import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from softroce_lab import topology, units
from softroce_lab.errors import EnvironmentLackError, RunError, UserError
from softroce_lab.experiment import capturing, demo_virtual, record, transfer
from softroce_lab.experiment.capturing import RunCapture, Wanted
from softroce_lab.experiment.demo_outcome import DemoOutcome
from softroce_lab.experiment.files import saving, size_to_send
from softroce_lab.experiment.forecast import idle_rules
from softroce_lab.experiment.transfer import Job, TransferRun
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric import lacks
from softroce_lab.fabric.daemons import wire
from softroce_lab.faults import profile
from softroce_lab.faults.resolve import arm
from softroce_lab.faults.text import documents as fault_documents
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.paths import need_live
from softroce_lab.plan.plan import Plan
from softroce_lab.recovery import registry
from softroce_lab.telemetry import event_log
from softroce_lab.telemetry.rundir import RunDirectory, environment
from softroce_lab.topology import routing

TRANSPORTS = ("csa_ud", "ud_rto")
DEFAULT_BYTES = 128 << 20
DEFAULT_BYTES_VIRTUAL = 32 << 20  # a simulation takes a few seconds for it

Clock: TypeAlias = Literal["auto", "real", "virtual"]
LEAF_TO_SPINE = Wanted(("leaf1->spine1",))
_QKEY_BASE = 0x1EE70000  # the top bit stays clear: set, it would name a privileged key (IBA 10.2.5)


class Reporter(Protocol):
    """Hears how the demo gets on."""

    def say(self, text: str) -> None:
        """A step begins."""

    def transfer(self, transport: str, total_bytes: int) -> Callable[[int], None]:
        """A transfer begins; what is returned is told the bytes received so far."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    file: Path | None = None  # None: the first 128 MiB of bcc's libLLVM
    transports: Sequence[str] = TRANSPORTS
    topology: str = "leaf-spine"
    faults: Sequence[str] = ("spine-loss-1pct",)
    source: str | None = None
    destination: str | None = None
    name: str = "demo"
    seed: int | None = None
    mode: fabric.Mode = "auto"
    capture: Wanted = LEAF_TO_SPINE
    message_bytes: int = transfer.MESSAGE_BYTES
    depth: int = transfer.DEPTH
    ip_version: int = 4
    runs: Path = Path("runs")
    event_log: Path | None = None
    save: Path | None = None
    clock: Clock = "auto"  # the real one where it can run, else the virtual one


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome(DemoOutcome):
    """What the demo found."""

    directory: Path
    runs: list[TransferRun]
    captured: RunCapture | None = None

    clock = "real"

    @property
    def captures(self) -> list[dict[str, Any]]:
        """One file has all runs."""
        return [] if self.captured is None else [self.captured.document()]

    @property
    def same_fates(self) -> bool | None:  # noqa: D102
        lost = [run.first_attempts_lost() for run in self.telling if run.recorded]
        if not lost or len(lost) < len(self.telling):
            return None
        return all(each == lost[0] for each in lost)

    @property
    def lost_any_first(self) -> bool:  # noqa: D102
        return any(run.first_attempts_lost() for run in self.telling)

    @property
    def idle_rules(self) -> list[str]:  # noqa: D102
        return idle_rules.of_all([run.idle_rules for run in self.runs])


def run(options: Options, reporter: Reporter) -> Outcome | demo_virtual.Outcome:
    """Send the file over each transport: on a lab of its own, or where none comes up, simulated.

    UserError, EnvironmentLackError (if the real clock was insisted on), RunError; whatever
    happens, the lab is gone afterwards.
    """
    _check(options)
    if options.clock != "virtual":
        try:
            return _run_real(options, reporter)
        except EnvironmentLackError as lack:
            if options.clock == "real":
                raise
            _refuse_what_only_a_lab_has(options, lack)
            reporter.say(f"{lack.what}" + (f" ({lack.hint})" if lack.hint else ""))
            reporter.say("so the demo runs on the virtual clock, as a simulation")
    return _run_virtual(options, reporter)


def _refuse_what_only_a_lab_has(options: Options, lack: EnvironmentLackError) -> None:
    """EnvironmentLackError where the user asked for what a simulation does not give."""
    asked = {
        "--save": options.save is not None,
        "--event-log": options.event_log is not None,
        "--ip 6": options.ip_version != 4,
    }
    if names := [name for name, wanted in asked.items() if wanted]:
        what = f"{lack.what}, and the virtual clock has no {', no '.join(names)}"
        raise EnvironmentLackError(lack.capability, what, hint=lack.hint) from lack


def _run_virtual(options: Options, reporter: Reporter) -> demo_virtual.Outcome:
    path, size = _file(options, DEFAULT_BYTES_VIRTUAL)
    plan = _armed(options)
    source, destination = _ends(plan, options)
    job = demo_virtual.Job(
        name=options.name,
        plan=plan,
        topology=options.topology,
        faults=options.faults,
        transports=options.transports,
        source=source,
        destination=destination,
        path=path,
        size_bytes=size,
        message_bytes=options.message_bytes,
        depth=options.depth,
        runs=options.runs,
        capture=options.capture,
    )
    return demo_virtual.run(job, reporter)


def _file(options: Options, most_by_default: int) -> tuple[Path, int]:
    """What is sent, and how much of it."""
    path = options.file or default_file()
    size = size_to_send(path)
    return path, size if options.file else min(size, most_by_default)


def _armed(options: Options) -> Plan:
    quiet = topology.load(options.topology, name=options.name, seed=options.seed)
    return arm(quiet, *(profile.load(name) for name in options.faults))


def _run_real(options: Options, reporter: Reporter) -> Outcome:
    _check_machine(options)
    path, size = _file(options, DEFAULT_BYTES)
    armed = _armed(options)
    source, destination = _ends(armed, options)
    options.capture.links(armed, (source, destination))
    job = Job(
        source,
        destination,
        path.resolve(),
        size,
        options.message_bytes,
        options.depth,
        ip_version=options.ip_version,
        event_log=None if options.event_log is None else event_log.create(options.event_log),
    )
    with saving(options.save, job.path) as saved:
        if saved is not None:
            job = dataclasses.replace(job, save=saved.path)
        directory = RunDirectory.create(options.name, under=options.runs)
        directory.manifest(state="running", **_facts(armed, options, job))
        try:
            runs, capture = _run_all(options, armed, job, directory, reporter)
        except BaseException as error:
            state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            directory.manifest(state=state, error=str(error) or type(error).__name__)
            if state == "interrupted":
                directory.withdraw()
            raise
        outcome = Outcome(directory.path, runs, capture)
        if saved is not None and outcome.verified:
            saved.commit()
    verdicts = {"verified": outcome.verified, "same_first_attempt_drops": outcome.same_fates}
    directory.manifest(state="done", verdicts=verdicts, runs=[_figures(run) for run in runs])
    return outcome


def _check(options: Options) -> None:
    """UserError for what works on no clock, before anything."""
    for transport in options.transports:
        registry.find(transport)
    if len(set(options.transports)) < len(options.transports):
        raise UserError("a transport is named twice", hint="run the demo twice, with one --seed")


def _check_machine(options: Options) -> None:
    """EnvironmentLackError where no lab comes up, UserError for what no lab can do."""
    need_live()
    if os.geteuid() != 0:
        raise EnvironmentLackError("the rights of root", hint="run it as root, or with sudo")
    lacks.need(lacks.AF_XDP)
    lacks.need_compiler()
    buffers = 3 * options.depth * options.message_bytes  # the receiver has twice the sender's
    available = wire.available_bytes()
    if buffers > available // 2:
        need, have = units.format_bytes(buffers), units.format_bytes(available)
        raise UserError(
            f"{options.depth} messages at once need {need} of buffers, {have} of memory are free",
            hint="a smaller --depth or --message",
        )


def _run_all(
    options: Options,
    plan: Plan,
    job: Job,
    directory: RunDirectory,
    reporter: Reporter,
) -> tuple[list[TransferRun], RunCapture | None]:
    wanted = dataclasses.replace(options.capture, path=directory.path / capturing.FILE)
    with fabric.owned(plan, mode=options.mode, say=reporter.say) as lab:
        if lacks.RING_BUFFERS in lab.lacks:
            wanted = Wanted(())
        directory.manifest(xdp_mode=lab.mode, lacks=lab.lacks)
        with capturing.capturing(lab, wanted, (job.source, job.destination)) as capture:
            runs: list[TransferRun] = []
            for transport in options.transports:
                progress = reporter.transfer(transport, job.size_bytes)
                qkey = _QKEY_BASE + len(runs)
                runs.append(transfer.run(lab, transport, job, qkey=qkey, progress=progress))
        directory.manifest(capture=capture and capture.document())
        record.write(directory, runs)
        return runs, capture


def _facts(plan: Plan, options: Options, job: Job) -> dict[str, Any]:
    return {
        "name": options.name,
        "clock": "real",
        "grade": "identity" if all(f.key == "identity" for f in plan.faults) else "index",
        "seed": plan.seed,
        "topology": options.topology,
        "topology_hash": plan.digest,
        "faults": fault_documents(plan),
        "file": {"path": str(job.path), "bytes": job.size_bytes},
        "source": job.source,
        "destination": job.destination,
        "ip_version": job.ip_version,
        "message_bytes": job.message_bytes,
        "depth": job.depth,
        "environment": environment(),
    }


def _figures(run: TransferRun) -> dict[str, Any]:
    return {
        **run.summary(),
        "sha256": {"sent": run.sent["sha256"], "received": run.received["sha256"]},
        "begun_monotonic_ns": run.epoch_ns,
        "sender": run.sent,
        "receiver": run.received,
        "ports": [dataclasses.asdict(port) for port in run.ports],
        "stage": dataclasses.asdict(run.stage),
        "idle_rules": run.idle_rules,
        "live_rules": sorted({f.rule for f in run.faults if f.rule.startswith("live")}),
    }


# ---------------------------------------------------------------- what is sent, and where


def default_file() -> Path:
    """A real file that every machine has: libbcc's libLLVM of some 100 MB, else a part of pyarrow.

    RunError if there is neither.
    """
    found = _loaded_by_bcc() or _largest_of_pyarrow()
    if found is None:
        raise RunError("neither libLLVM nor pyarrow's library is here", hint="--file PATH")
    return found


def _loaded_by_bcc() -> Path | None:
    bcc = ctypes.util.find_library("bcc")
    if bcc is None:
        return None
    try:
        ctypes.CDLL(bcc)
    except OSError:  # it is named, but cannot be loaded here
        return None
    for line in Path("/proc/self/maps").read_text().splitlines():
        if match := re.search(r"\s(/\S*/libLLVM\S*)$", line):
            return Path(match[1])
    return None


def _largest_of_pyarrow() -> Path | None:
    module = importlib.util.find_spec("pyarrow")
    folders = [] if module is None else module.submodule_search_locations or []
    libraries = [path for folder in folders for path in Path(folder).glob("libarrow.so*")]
    return max(libraries, key=lambda path: path.stat().st_size, default=None)


def _ends(plan: Plan, options: Options) -> tuple[str, str]:
    """Who sends to whom: as chosen, else the first host and the first of those farthest from it."""
    names = [host.name for host in plan.plain_hosts]  # soft RNICs cannot live in kernel hosts
    for name in (options.source, options.destination):
        if name is not None and name not in names:
            raise UserError(f"{plan.name} has no host {name!r}", hint=did_you_mean(name, names))
    if len(names) < 2:
        raise UserError(f"the topology of {plan.name} has one host only, a transfer needs two")
    source = options.source or next(name for name in names if name != options.destination)
    hops = routing.distances([source], routing.neighbours((n.name for n in plan.nodes), plan.links))
    farthest = max((name for name in names if name != source), key=lambda name: hops[name])
    destination = options.destination or farthest
    if source == destination:
        raise UserError(f"{source} would send to itself", hint="choose two hosts")
    return source, destination
