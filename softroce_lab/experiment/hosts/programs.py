# SPDX-License-Identifier: GPL-2.0-or-later
"""A run of unmodified programs: each host's command as `lab exec --verbs` runs it, and a verdict.

The real clock only. Every wait ends with the experiment's deadline.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any

from softroce_lab import units
from softroce_lab.experiment import real
from softroce_lab.experiment.observation import Observation, Observed
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.workload_run import MessageLog, WorkloadRun
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.observe import damage
from softroce_lab.paths import PROJECT_ROOT, verbs_library
from softroce_lab.workloads.programs import Command, Programs

_TURN_S = 0.02
_AGAIN_S = 0.2  # before a failed command is run again
_PARTING_S = 5.0  # that the others get when one has failed for good
_OUTPUT_BYTES = 1 << 16  # of each command's end that are kept
_LISTENING = "0A"  # state in /proc/net/tcp


def run(experiment: Experiment, transport: Transport, seed: int, lab: Lab) -> WorkloadRun:
    """All commands with one seed. EnvironmentLackError without AF_XDP or the libraries."""
    workload = experiment.workload(seed)
    if not isinstance(workload, Programs):
        raise TypeError("a workload of programs")
    verbs_library()
    names = tuple(node.name for node in lab.plan.plain_hosts)
    observation = Observation(lab)
    lab.faults.restart(time.monotonic_ns())
    begun_ns = time.monotonic_ns() - observation.epoch_ns
    with _crew(workload, names, lab) as crew:
        problems = _until_over(crew, experiment.deadline_ns)
    end_ns = time.monotonic_ns() - observation.epoch_ns - begun_ns
    problems += map(str, damage.of_lab(lab.plan.name, lab.ledger.history, lab.plan))
    observed = observation.end({}, striped=False, hosts=list(crew))
    packets = _packets(observed, lab)
    if not problems:
        problems = [each.wrong(packets[each.host]) for each in crew.values()]
    return WorkloadRun(
        transport=transport.label,
        protocol=experiment.protocol(transport),
        congestion_control="none",
        seed=seed,
        clock="real",
        hosts=names,
        messages=MessageLog(()).table(),
        end_ns=end_ns,
        links=[dataclasses.asdict(link) for link in observed.links],
        events=real.events(observed, {}, begun_ns),
        problems=[each for each in problems if each],
        fidelity=observed.fidelity.document(),
        facts=real.facts(observed, {}, lab)
        | {"programs": {name: each.document(packets[name]) for name, each in crew.items()}},
    )


def _packets(observed: Observed, lab: Lab) -> dict[str, int]:
    """RoCE packets that the first switch got of each host, on all of its rails."""
    found = {node.name: 0 for node in lab.plan.plain_hosts}
    for number, near, _ in lab.plan.halves:
        if near.node in found:
            found[near.node] += observed.links[number].received
    return found


class _Process:
    """A host's command: not begun, running, or over."""

    def __init__(self, host: str, command: Command, lab: Lab, output: IO[bytes]) -> None:
        self.host = host
        self.command = command
        self.status: int | None = None  # in the end
        self.tries = 0
        self.after: _Process | None = None
        self._lab = lab
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_s = self._took_s = self._again_s = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and is not run again."""
        return self.status is not None

    @property
    def is_ready(self) -> bool:
        """Whether those that come after it may begin."""
        return self.is_over or (self.command.listens is not None and self._listens())

    def move(self, *, may_begin: bool) -> None:
        """Begin, or find out that it has ended."""
        if self.is_over or time.monotonic() < self._again_s:
            return
        if self._process is None:
            if may_begin:
                self._begin()
            return
        status = self._process.poll()
        if status is None:
            return
        self._process = None
        self._took_s = time.monotonic() - self._begun_s
        if status != self.command.status and self.tries <= self.command.retries:
            self._again_s = time.monotonic() + _AGAIN_S
            return
        self.status = status

    def _begin(self) -> None:
        self.tries += 1
        self._output.seek(0)
        self._output.truncate()
        self._begun_s = time.monotonic()
        argv = [sys.executable, "-m", "softroce_lab.cli", "exec", "--lab", self._lab.plan.name]
        self._process = subprocess.Popen(
            [*argv, "--verbs", self.host, "--", "sh", "-c", self.command.run],
            cwd=PROJECT_ROOT,
            env={**os.environ, **self.command.environment},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def kill(self) -> None:
        """End it, and all of its session."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.status = self._process.wait()
        self._took_s = time.monotonic() - self._begun_s
        self._process = None

    def _listens(self) -> bool:
        with self._lab.enter(self.host):
            lines: list[list[str]] = []
            for family in ("tcp", "tcp6"):
                with open(f"/proc/thread-self/net/{family}", encoding="ascii") as file:  # noqa: PTH123
                    lines += [line.split() for line in file][1:]
        return any(
            words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == self.command.listens
            for words in lines
        )

    @property
    def output(self) -> str:
        """The end of what it printed."""
        self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, self._output.tell() - _OUTPUT_BYTES))
        return self._output.read().decode("utf-8", "replace")

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than it should."""
        return self.is_over and self.status != self.command.status

    def wrong(self, packets: int) -> str:
        """Why it did not succeed; nothing if it did."""
        command = self.command
        if self.status is None:
            return f"{self.host}: did not begin"
        if self.failed:
            last = next((line for line in reversed(self.output.splitlines()) if line.strip()), "")
            return f"{self.host}: {_ended(self.status)}, not with {command.status}: {last.strip()}"
        if command.prints is not None and not re.search(command.prints, self.output, re.MULTILINE):
            return f"{self.host}: its output has no {command.prints!r}"
        if command.roce and not packets:
            return f"{self.host}: no RoCE packet left the host"
        return ""

    def document(self, packets: int) -> dict[str, Any]:
        """For the manifest."""
        return {
            "run": self.command.run,
            "status": self.status,
            "tries": self.tries,
            "took_s": round(self._took_s, 3),
            "roce_packets": packets,
            "output": self.output,
        }


def _ended(status: int) -> str:
    return f"ended with {status}" if status >= 0 else f"ended by {signal.Signals(-status).name}"


@contextlib.contextmanager
def _crew(workload: Programs, names: tuple[str, ...], lab: Lab) -> Iterator[dict[str, _Process]]:
    """All commands by host; none of them runs afterwards."""
    crew: dict[str, _Process] = {}
    for index, command in workload.commands.items():
        output = tempfile.TemporaryFile()  # noqa: SIM115 - goes with its process
        crew[names[index]] = _Process(names[index], command, lab, output)
    for index, command in workload.commands.items():
        if command.after is not None:
            crew[names[index]].after = crew[names[command.after]]
    try:
        yield crew
    finally:
        for each in crew.values():
            each.kill()


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
        time.sleep(_TURN_S)
    return []


def _overdue(crew: Mapping[str, _Process], deadline_ns: int, *, failed: bool) -> list[str]:
    """The causes: what failed, or what was still at work at the deadline."""
    if failed:
        return [each.wrong(1) for each in crew.values() if each.failed]
    most = units.format_duration(deadline_ns)
    return [
        f"{name}: {'still at work' if each.tries else 'not begun'} after {most}"
        for name, each in crew.items()
        if not each.is_over
    ]
