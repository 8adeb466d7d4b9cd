# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo: a real file over a lossy leaf-spine fabric, each transport with the same losses."""

from __future__ import annotations

import ctypes.util
import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from softroce_lab import topology, units
from softroce_lab.errors import EnvironmentLackError, RunError, UserError
from softroce_lab.experiment import record, transfer
from softroce_lab.experiment.files import saving, size_to_send
from softroce_lab.experiment.transfer import Job, TransferRun
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric import lacks, wire
from softroce_lab.faults import profile
from softroce_lab.faults.resolve import arm
from softroce_lab.faults.text import documents as fault_documents
from softroce_lab.recovery import registry
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, RunDirectory, environment
from softroce_lab.topology import routing
from softroce_lab.topology.plan import Plan
from softroce_lab.topology.validation import did_you_mean

TRANSPORTS = ("csa_ud", "ud_rto")
DEFAULT_BYTES = 128 << 20
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
    capture: str | None = "leaf1->spine1"
    message_bytes: int = transfer.MESSAGE_BYTES
    depth: int = transfer.DEPTH
    ip_version: int = 4
    runs: Path = Path("runs")
    save: Path | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo found."""

    directory: Path
    runs: list[TransferRun]

    @property
    def verified(self) -> bool:
        """Whether every transport delivered the file, bit by bit."""
        return all(run.verified for run in self.runs)

    @property
    def same_fates(self) -> bool | None:
        """Whether all transports lost the same packets of those sent first; None: not recorded."""
        if not all(run.recorded for run in self.runs):
            return None
        first = self.runs[0].first_attempts_lost()
        return all(run.first_attempts_lost() == first for run in self.runs[1:])

    @property
    def lost_any_first(self) -> bool:
        """Whether any packet was lost when it was sent first."""
        return any(run.first_attempts_lost() for run in self.runs)

    @property
    def idle_rules(self) -> list[str]:
        """The rules that did nothing in any of the runs."""
        idle = [run.idle_rules for run in self.runs]
        return [rule for rule in idle[0] if all(rule in others for others in idle)]

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "run_dir": str(self.directory),
            "same_first_attempt_drops": self.same_fates,
            "idle_rules": self.idle_rules,
            "runs": [run.summary() for run in self.runs],
        }


def run(options: Options, reporter: Reporter) -> Outcome:
    """Bring the lab up, send the file over each transport, take the lab down.

    UserError, EnvironmentLackError, RunError; whatever happens, the lab is gone afterwards.
    """
    _check(options)
    path = options.file or default_file()
    size = size_to_send(path)
    if options.file is None:
        size = min(size, DEFAULT_BYTES)
    quiet = topology.load(options.topology, name=options.name, seed=options.seed)
    armed = arm(quiet, *(profile.load(name) for name in options.faults))
    captured = None if options.capture is None else _directed_link(armed, options.capture)
    source, destination = _ends(armed, options)
    job = Job(
        source,
        destination,
        path.resolve(),
        size,
        options.message_bytes,
        options.depth,
        ip_version=options.ip_version,
    )
    with saving(options.save, job.path) as saved:
        if saved is not None:
            job = dataclasses.replace(job, save=saved.path)
        directory = RunDirectory.create(options.name, under=options.runs)
        directory.manifest(state="running", **_facts(armed, options, job))
        try:
            runs = _run_all(options, armed, job, captured, directory, reporter)
        except BaseException as error:
            state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            directory.manifest(state=state, error=str(error) or type(error).__name__)
            raise
        outcome = Outcome(directory.path, runs)
        if saved is not None and outcome.verified:
            saved.commit()
    verdicts = {"verified": outcome.verified, "same_first_attempt_drops": outcome.same_fates}
    directory.manifest(state="done", verdicts=verdicts, runs=[_figures(run) for run in runs])
    return outcome


def _check(options: Options) -> None:
    """UserError for what cannot work, EnvironmentLackError without the rights, before anything."""
    for transport in options.transports:
        registry.find(transport)
    if len(set(options.transports)) < len(options.transports):
        raise UserError("a transport is named twice", hint="run the demo twice, with one --seed")
    if os.geteuid() != 0:
        raise EnvironmentLackError("the rights of root", hint="run it as root, or with sudo")
    lacks.need(lacks.AF_XDP)
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
    captured: int | None,
    directory: RunDirectory,
    reporter: Reporter,
) -> list[TransferRun]:
    lab = fabric.up(plan, mode=options.mode, ephemeral=True, say=reporter.say)
    try:
        directory.manifest(xdp_mode=lab.mode, lacks=lab.lacks)
        if lacks.RING_BUFFERS in lab.lacks:
            captured = None
        if captured is not None:
            lab.xdp.capture(captured)
        runs: list[TransferRun] = []
        for transport in options.transports:
            progress = reporter.transfer(transport, job.size_bytes)
            qkey = _QKEY_BASE + len(runs)
            runs.append(transfer.run(lab, transport, job, qkey=qkey, progress=progress))
        record.write(directory, lab, runs, captured is not None)
        return runs
    finally:
        lab.down(reporter.say)


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
        "capture": options.capture,
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
    """bcc's libLLVM: a real file of about 100 MB that every machine of the lab's has.

    RunError if bcc is there without it.
    """
    bcc = ctypes.util.find_library("bcc")
    if bcc is None:
        raise RunError("libbcc is not installed", hint="name a file: --file PATH")
    ctypes.CDLL(bcc)
    for line in Path("/proc/self/maps").read_text().splitlines():
        if match := re.search(r"\s(/\S*/libLLVM\S*)$", line):
            return Path(match[1])
    raise RunError("libbcc does not use a shared libLLVM", hint="name a file: --file PATH")


def _ends(plan: Plan, options: Options) -> tuple[str, str]:
    """Who sends to whom: as chosen, else the first host and the first of those farthest from it."""
    names = [host.name for host in plan.hosts]
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


def _directed_link(plan: Plan, text: str) -> int:
    names = {f"{near.node}->{far.node}": number for number, near, far in plan.halves}
    if text not in names:
        raise UserError(
            f"no link {text} to capture", hint=f"links of {plan.name}: {', '.join(names)}"
        )
    return names[text]
