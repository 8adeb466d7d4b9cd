# SPDX-License-Identifier: GPL-2.0-or-later
"""A run of unmodified programs: each host's command as `lab exec --verbs` runs it, and a verdict.

The real clock only. Every wait ends with the experiment's deadline. Nothing that a command started
runs afterwards (commands.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from softroce_lab import units
from softroce_lab.experiment import printed, real
from softroce_lab.experiment.hosts import (
    commands,
    program_proof,
    program_records,
    program_transport,
    program_words,
)
from softroce_lab.experiment.hosts.commands import SEARCH_S, ExecProcess, Found
from softroce_lab.experiment.hosts.program_records import OfProcess, ProgramCounters
from softroce_lab.experiment.messages import MESSAGE
from softroce_lab.experiment.observation import Observation, Observed
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.net.listening import listens
from softroce_lab.fabric.observe import damage
from softroce_lab.inputs.validation import listed
from softroce_lab.paths import verbs_library
from softroce_lab.programs import execute
from softroce_lab.workloads.programs import Command, Programs

_TURN_S = 0.02
_AGAIN_S = 0.2  # before a failed command is run again
_PARTING_S = 5.0  # that the others get when one has failed for good
_LAST_CHARACTERS = 500  # of a line in a verdict
_LIBRARY = "softroce: "  # begins lines of the lab's libibverbs on stderr


def run(experiment: Experiment, transport: Transport, seed: int, lab: Lab) -> WorkloadRun:
    """All commands with one seed. EnvironmentLackError without AF_XDP or the libraries.

    A run over another transport than RC fails if a process sent RC packets.
    """
    workload = experiment.workload(seed)
    if not isinstance(workload, Programs):
        raise TypeError("a workload of programs")
    verbs_library()
    names = tuple(node.name for node in lab.plan.plain_hosts)
    observation = Observation(lab)
    lab.faults.restart(time.monotonic_ns())
    begun_ns = time.monotonic_ns() - observation.epoch_ns
    taking_part = [names[index] for index in workload.ranks]
    with tempfile.TemporaryDirectory(prefix="softroce_lab-programs-") as folder:
        counters = ProgramCounters(taking_part, Path(folder))
        losses = program_records.ProgramLosses(lab.plan, taking_part, Path(folder))
        environment = counters.environment | {execute.TRANSPORT: _settings(transport, lab)}
        with _crew(workload, names, lab, environment) as crew:
            problems = _until_over(crew, experiment.deadline_ns)
        processes = counters.end()
        messages, recoveries, missed = losses.end(observation.epoch_ns + begun_ns, processes)
    end_ns = time.monotonic_ns() - observation.epoch_ns - begun_ns
    problems += map(str, damage.of_lab(lab.plan.name, lab.ledger.history, lab.plan))
    observed = observation.end({}, striped=False, hosts=taking_part)
    packets = _packets(observed, lab)
    if not problems:
        problems = [why for each in crew.values() for why in each.wrong(packets)]
    striped = transport.entry.striped
    if striped:
        senders = [] if problems else _senders(crew)
        # A cause comes before what came of it.
        problems = [*program_proof.problems(transport.label, processes, senders), *problems]
    return WorkloadRun(
        transport=transport.label,
        protocol=experiment.protocol(transport),
        congestion_control=transport.control(lab.plan) if striped else "none",
        seed=seed,
        clock="real",
        hosts=names,
        messages=np.zeros(0, MESSAGE),
        end_ns=end_ns,
        links=[dataclasses.asdict(link) for link in observed.links],
        stats={host: program_records.stats(each) for host, each in processes.items()},
        events=real.events(observed, {}, begun_ns),
        recoveries=recoveries,
        program_messages=messages,
        problems=problems,
        printed={name: value for each in crew.values() for name, value in each.figures.items()},
        fidelity=observed.fidelity.document(),
        facts=real.facts(observed, {}, lab)
        | {
            "options": dict(transport.engine["options"]),
            "recoveries_not_recorded": missed,
            "programs": {name: each.document(packets, processes) for name, each in crew.items()},
        },
    )


def _settings(transport: Transport, lab: Lab) -> str:
    """For the environment of programs; empty: RC carries their queue pairs."""
    return program_transport.text(transport, lab.plan) if transport.entry.striped else ""


def _senders(crew: Mapping[str, _Process]) -> list[str]:
    """Hosts whose commands had to send RoCE packets."""
    return [host for each in crew.values() if each.command.roce for host in each.hosts]


def _packets(observed: Observed, lab: Lab) -> dict[str, int]:
    """RoCE packets that the first switch got of each host, on all of its rails."""
    found = {node.name: 0 for node in lab.plan.plain_hosts}
    for number, near, _ in lab.plan.halves:
        if near.node in found:
            found[near.node] += observed.links[number].received
    return found


class _Process:
    def __init__(
        self,
        host: str,
        hosts: Sequence[str],
        command: Command,
        lab: Lab,
        environment: Mapping[str, str],
    ) -> None:
        """`host` runs the command, whose processes are at `hosts`.

        `environment`: the lab's variables, beside those of the command.
        """
        self.host, self.hosts = host, hosts
        self._environment = {**command.environment, **environment}
        self.command = command
        self.status: int | None = None  # in the end
        self.tries = 0
        self.killed: str | None = None  # why, if it was
        self.after: _Process | None = None
        self._lab = lab
        self._process = ExecProcess(lab.plan.name, host)
        self.printed = self._process.printed
        self._begun_s = self._took_s = self._again_s = 0.0

    @property
    def is_over(self) -> bool:
        return self.status is not None  # it is not run again

    @property
    def is_ready(self) -> bool:
        """Whether those that come after it may begin."""
        port = self.command.listens
        if self.is_over or port is None:
            return self.is_over
        with self._lab.enter(self.host):
            return listens(port)

    def move(self, *, may_begin: bool) -> None:
        if self.is_over or time.monotonic() < self._again_s:
            return
        if not self._process.has_begun:
            if may_begin:
                self.tries += 1
                self._begun_s = time.monotonic()
                argv = ["sh", "-c", self.command.run]
                self._process.begin(argv, environment=self._environment)
            return
        status = self._process.status()
        if status is None:
            return
        self._took_s = time.monotonic() - self._begun_s
        if status != self.command.status and self.tries <= self.command.retries:
            self._process.end()
            self._again_s = time.monotonic() + _AGAIN_S
            return
        self.status = status

    def kill(self, why: str) -> None:
        if not self._process.has_begun:
            return
        status = self._process.end()
        if self.status is None:
            self.status = status
            self._took_s = time.monotonic() - self._begun_s
            if status == -signal.SIGKILL:
                self.killed = why

    @property
    def failed(self) -> bool:
        return self.is_over and self.status != self.command.status

    def wrong(self, packets: Mapping[str, int]) -> list[str]:
        """Why it did not succeed; nothing if it did. `packets`: of RoCE, by host."""
        why = self._wrong_alone
        if why or not self.command.roce:
            return [why] if why else []
        silent = [host for host in self.hosts if not packets[host]]
        return [f"{host}: {program_words.NO_PACKET}" for host in silent]

    @property
    def _wrong_alone(self) -> str:
        command = self.command
        if self.status is None:
            return f"{self.host}: did not begin"
        if self.failed:
            lines = [line.strip() for line in self.printed.text.splitlines() if line.strip()]
            of_library = [line for line in lines if line.startswith(_LIBRARY)]
            last = "".join((of_library or lines)[-1:])[:_LAST_CHARACTERS]
            how = program_words.ended(self.status)
            return f"{self.host}: {how}, not with {command.status}" + (f": {last}" if last else "")
        if command.prints is not None and self._found.has is None:
            return (
                f"{self.host}: the search of its output for {command.prints!r} did not end "
                f"within {SEARCH_S:g} s"
            )
        if command.prints is not None and not self._found.has:
            return f"{self.host}: its output has no {command.prints!r}"
        lacking = [form for form, found in self._read.items() if not found]
        return f"{self.host}: its output has no figures of {lacking[0]!r}" if lacking else ""

    @property
    def figures(self) -> dict[str, float]:
        """Those that it printed, by name; none if it did not end."""
        found = self._read.values() if self.status is not None else ()
        return {name: value for each in found for name, value in each.items()}

    @functools.cached_property
    def _read(self) -> dict[str, dict[str, float]]:
        """Figures by form or pattern: once it is over."""
        return {form: printed.figures(form, self.printed.text) if form in printed.FORMATS
                else _numbers(commands.search(form, self.printed.text).groups)
                for form in self.command.figures}  # fmt: skip

    @functools.cached_property
    def _found(self) -> Found:
        """What `prints` finds in all that it printed: once it is over."""
        return commands.search(self.command.prints or "", self.printed.text)

    def document(
        self, packets: Mapping[str, int], processes: Mapping[str, Sequence[OfProcess]]
    ) -> dict[str, Any]:
        """`packets`, `processes`: by host."""
        asked = self.command.prints is not None and self.status is not None
        return {
            "run": self.command.run,
            "environment": dict(self.command.environment),
            "status": self.status,
            "killed": self.killed,
            "tries": self.tries,
            "took_s": round(self._took_s, 3),
            "roce_packets": sum(packets[host] for host in self.hosts),
            "processes": [
                each.brief() | ({} if host == self.host else {"host": host})
                for host in self.hosts
                for each in processes.get(host, ())
            ],
            "matched": self._found.line if asked and self._found.has else None,
            "output": self.printed.text,
        }


def _numbers(groups: Mapping[str, str | None]) -> dict[str, float]:
    """Nothing if one of them is no number."""
    try:
        found = {name: float(text.replace(",", "")) for name, text in groups.items() if text}
    except ValueError:
        return {}
    return found if all(map(math.isfinite, found.values())) else {}


@contextlib.contextmanager
def _crew(
    workload: Programs, names: tuple[str, ...], lab: Lab, environment: Mapping[str, str]
) -> Iterator[dict[str, _Process]]:
    """All commands by host; none of them runs afterwards."""
    crew: dict[str, _Process] = {}
    for index, command in workload.commands.items():
        host = names[index]
        hosts = [names[each] for each in command.hosts]
        crew[host] = _Process(host, hosts, command, lab, environment)
    for index, command in workload.commands.items():
        if command.after is not None:
            crew[names[index]].after = crew[names[command.after]]
    with contextlib.ExitStack() as stack:
        for each in crew.values():
            stack.callback(each.printed.close)
        stack.enter_context(commands.guarded([lab.namespace(name) for name in names]))
        try:
            yield crew
        finally:
            failed = [each.host for each in crew.values() if each.failed]
            why = f"{listed(failed)} failed" if failed else "time was up"
            for each in crew.values():
                each.kill(why)


def _until_over(crew: Mapping[str, _Process], deadline_ns: int) -> list[str]:
    """Until all have ended, one has failed for good, or time is up; what was wrong with that."""
    until_s = time.monotonic() + deadline_ns / 1e9
    failed = False
    while not all(each.is_over for each in crew.values()):
        for each in crew.values():
            each.move(may_begin=each.after is None or each.after.is_ready)
        if not failed and any(each.failed for each in crew.values()):
            failed = True
            until_s = min(until_s, time.monotonic() + _PARTING_S)
        if time.monotonic() > until_s:
            return _overdue(crew, deadline_ns, failed=failed)
        commands.read_output([each.printed for each in crew.values()], _TURN_S)
    return []


def _overdue(crew: Mapping[str, _Process], deadline_ns: int, *, failed: bool) -> list[str]:
    """The causes: what failed, or what was still at work at the deadline."""
    if failed:
        return [why for each in crew.values() if each.failed for why in each.wrong({})]
    most = units.format_duration(deadline_ns)
    return [
        f"{name}: {'still at work' if each.tries else 'not begun'} after {most}"
        for name, each in crew.items()
        if not each.is_over
    ]
