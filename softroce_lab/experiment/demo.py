# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo: a real file over a lossy leaf-spine fabric, each transport with the same losses.

An experiment whose workload is a file, on the real clock where a lab comes up, else on the virtual
clock.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import dataclasses
import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from softroce_lab import topology
from softroce_lab.errors import EnvironmentLackError, RunError, UserError
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.hosts.settings import HostOptions
from softroce_lab.experiment.kinds.flows import size_to_send
from softroce_lab.experiment.reporter import Reporter
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports import written
from softroce_lab.experiment.workload_record import first_losses
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric import lacks
from softroce_lab.inputs import yaml_source
from softroce_lab.paths import need_live
from softroce_lab.plan import locate
from softroce_lab.plan.plan import Plan
from softroce_lab.telemetry import event_log
from softroce_lab.telemetry.capture_figures import SNAP_BYTES
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, give_to_user
from softroce_lab.topology import routing

TRANSPORTS = ("csa_ud", "ud_rto")
MESSAGE_BYTES = 1 << 20
DEPTH = 2  # what a window of 1024 packets holds; more would wait, and measure its waiting
DEFAULT_BYTES = {"real": 128 << 20, "virtual": 32 << 20}  # a simulation takes seconds for it
_DEADLINE = "3600s"  # transports give up long before

Clock: TypeAlias = Literal["auto", "real", "virtual"]
OneClock: TypeAlias = Literal["real", "virtual"]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    file: Path | None = None  # None: the first bytes of bcc's libLLVM
    transports: Sequence[str] = TRANSPORTS
    topology: str = "leaf-spine"
    faults: Sequence[str] = ("spine-loss-1pct",)
    source: str | None = None
    destination: str | None = None
    name: str = "demo"
    seed: int | None = None
    mode: fabric.Mode = "auto"
    capture: Wanted | None = None  # None: a link on the flow's path
    snap_bytes: int = SNAP_BYTES  # of each packet of that
    message_bytes: int = MESSAGE_BYTES
    depth: int = DEPTH
    ip_version: int = 4
    runs: Path = Path("runs")
    event_log: Path | None = None
    save: Path | None = None
    clock: Clock = "auto"  # the real one where it can run, else the virtual one

    @property
    def of_a_lab(self) -> list[str]:
        asked = {
            "--event-log": self.event_log is not None,
            "--ipv6": self.ip_version != 4,
        }
        return [name for name, wanted in asked.items() if wanted] + of_xdp(self.mode)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome(experiment_run.Outcome):
    @property
    def clock(self) -> str:
        return self.experiment.clock

    @property
    def verified(self) -> bool:
        return all(run.verified for run in self.runs)

    @property
    def telling(self) -> list[WorkloadRun]:
        """Runs whose packets show which they are, so that what was lost can be compared."""
        each = zip(self.runs, self.experiment.transports, strict=True)
        return [run for run, transport in each if transport.shows_messages]

    @property
    def same_fates(self) -> bool | None:
        """Whether all of these lost the same packets of those sent first; None: not recorded."""
        if not all(run.facts.get("recorded", True) for run in self.telling):
            return None
        lost = self._lost()
        return all(each == lost[0] for each in lost) if lost else None

    @property
    def lost_any_first(self) -> bool:
        return any(self._lost())

    def _lost(self) -> list[set[tuple[int, int]]]:
        """By message and index, without the parity that some transports send behind the data."""
        return [
            {
                (message, index)
                for message, index in first_losses(self.directory, run)
                if index < run.messages["packets"][message]
            }
            for run in self.telling
        ]

    @property
    def captures(self) -> list[dict[str, Any]]:
        found = (run.facts["capture"] for run in self.runs if "capture" in run.facts)
        return [{**each, "file": str(self.directory / each["file"])} for each in found]

    def rows(self) -> list[dict[str, Any]]:
        return [run.document() for run in self.runs]

    def document(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "clock": self.clock,
            "run_dir": str(self.directory),
            "same_first_attempt_drops": self.same_fates,
            "idle_rules": self.idle_rules,
            "left_out": [each.document() for each in self.left_out],
            "captures": self.captures,
            "runs": self.rows(),
        }


def run(options: Options, reporter: Reporter) -> Outcome:
    """Send the file over each transport: on a lab of its own, or where none comes up, simulated.

    UserError, EnvironmentLackError (if the real clock was insisted on), RunError; whatever
    happens, the lab is gone afterwards.
    """
    _check(options)
    return on_clock(
        options.clock,
        lambda clock: _run_on(clock, options, reporter),
        options.of_a_lab,
        reporter.say,
    )


def on_clock(
    clock: Clock,
    run_on: Callable[[OneClock], T],
    of_a_lab: list[str],
    say: Callable[[str], None],
) -> T:
    """Run on a lab, or, where none comes up and `auto` allows it, simulated, with a notice.

    EnvironmentLackError if the real clock, or an option that only a lab has, was chosen.
    """
    if clock != "virtual":
        try:
            _check_machine()
            return run_on("real")
        except EnvironmentLackError as lack:
            if clock == "real":
                raise
            _fall_back(lack, of_a_lab, say)
    return run_on("virtual")


def _fall_back(lack: EnvironmentLackError, of_a_lab: list[str], say: Callable[[str], None]) -> None:
    if of_a_lab:
        what = f"{lack.what}, and the virtual clock has no {', no '.join(of_a_lab)}"
        raise EnvironmentLackError(lack.capability, what, hint=lack.hint) from lack
    say(f"{lack.what}" + (f" ({lack.hint})" if lack.hint else ""))
    say("so the demo runs on the virtual clock, as a simulation")


def of_xdp(mode: fabric.Mode) -> list[str]:
    """The option that chose how XDP programs attach, as only a lab has it; [] if none did."""
    return [] if mode == "auto" else [f"--xdp {mode}"]


def _check(options: Options) -> None:
    chosen = [written.of_argument(transport) for transport in options.transports]
    if options.clock != "virtual":
        written.check_real(chosen)
    if len(set(options.transports)) < len(options.transports):
        raise UserError("a transport is named twice", hint="run the demo twice, with one --seed")


def _check_machine() -> None:
    need_live()
    if os.geteuid() != 0:
        raise EnvironmentLackError("the rights of root", hint="run it as root, or with sudo")
    lacks.need(lacks.AF_XDP)
    lacks.need_compiler()


def _run_on(clock: OneClock, options: Options, reporter: Reporter) -> Outcome:
    path = (options.file or default_file()).resolve()
    most = None if options.file else DEFAULT_BYTES[clock]
    with saving(options.save, path) as saved:
        document = _document(clock, options, path, most)
        if saved is not None:
            document["workload"]["save"] = str(saved.path)
        experiment = _experiment(document, options.transports)
        log = None if options.event_log is None else event_log.create(options.event_log)
        found = experiment_run.run(
            experiment,
            reporter,
            under=options.runs,
            mode=options.mode,
            capture=_capture(options, experiment),
            hosts=HostOptions(options.ip_version, log),
        )
        outcome = Outcome(found.experiment, found.directory, found.runs, found.left_out)
        if saved is not None and outcome.verified:
            saved.commit()
    return outcome


def _document(clock: str, options: Options, path: Path, most_bytes: int | None) -> dict[str, Any]:
    """The experiment, as its file would have it."""
    size = size_to_send(path)
    ends = {"from": options.source, "to": options.destination}
    return {
        "name": options.name,
        "topology": options.topology,
        "faults": list(options.faults),
        "transports": list(TRANSPORTS),
        "workload": {
            "kind": "file",
            "path": str(path),
            "bytes": f"{size if most_bytes is None else min(size, most_bytes)}B",
            "message": f"{options.message_bytes}B",
            **{key: name for key, name in ends.items() if name is not None},
        },
        "depth": options.depth,
        "seeds": [_seed(options)],
        "clock": clock,
        "deadline": _DEADLINE,
    }


def _seed(options: Options) -> int:
    """As chosen, else the topology's."""
    return topology.load(options.topology, name=options.name, seed=options.seed).seed


def _experiment(document: dict[str, Any], transports: Sequence[str]) -> Experiment:
    """UserError without a place: the user wrote no file."""
    try:
        experiment = spec.of(yaml_source.parse(json.dumps(document)))
        return spec.with_transports(experiment, transports)
    except UserError as error:
        if error.file is not None:
            raise
        raise UserError(error.what, hint=error.hint) from None


def _capture(options: Options, experiment: Experiment) -> Wanted:
    if options.capture is not None:
        return options.capture
    plan = experiment.plan(experiment.seeds[0])
    ranks = experiment.workload(experiment.seeds[0]).ranks
    source, destination = (plan.plain_hosts[rank].name for rank in ranks)
    links = links_of_flow(plan, source, destination)
    sprayed = all(transport.entry.striped for transport in experiment.transports)
    return Wanted(tuple(links[:1] if sprayed else links), options.snap_bytes, optional=True)


def links_of_flow(plan: Plan, source: str, destination: str) -> list[str]:
    """Links by which flows leave the first switch: of several next hops, a flow may take any.

    A transport that sprays takes all of them; of RC, one path is chosen by a hash.
    """
    neighbours = routing.neighbours((node.name for node in plan.nodes), plan.links)
    hops = routing.distances([destination], neighbours)
    ends = [(number, near.node, far.node) for number, near, far in plan.halves]
    first = next(far for _, near, far in ends if near == source and hops[far] == hops[source] - 1)
    arrows = locate.arrows(plan)
    onward = [n for n, near, far in ends if near == first and hops[far] == hops[first] - 1]
    return [arrows[number] for number in onward]


# ---------------------------------------------------------------- files


class SavedFile:
    def __init__(self, target: Path) -> None:
        self._target = target.resolve()
        self.path = self._target.with_name(f".{self._target.name}.{os.getpid()}.part")

    def commit(self) -> None:
        give_to_user(self.path)
        self.path.replace(self._target)


@contextlib.contextmanager
def saving(target: Path | None, source: Path) -> Iterator[SavedFile | None]:
    """A file to save to; what was not committed is gone afterwards.

    UserError if the target is the source, something other than a file, or cannot be written.
    """
    if target is None:
        yield None
        return
    if target.exists() and target.samefile(source):
        raise UserError(f"{target} is the file that is sent", hint="save to another one")
    if target.exists() and not target.is_file():
        raise UserError(f"{target} is not a regular file", hint="save to another one")
    saved = SavedFile(target)
    try:
        saved.path.touch(exist_ok=False)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}", hint="--save PATH") from error
    try:
        yield saved
    finally:
        saved.path.unlink(missing_ok=True)


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
