# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a test between two hosts of a lab that is up: server, client, and a verdict.

Both are started as `lab exec` does: over the lab's verbs library at a host with a soft RNIC, in the
guest at a kernel host. Every wait is bounded, and neither process outlives the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from softroce_lab.errors import EnvironmentLackError, ExitCode, UserError
from softroce_lab.experiment.capturing import RunCapture, Wanted, capturing
from softroce_lab.experiment.hosts import program_words
from softroce_lab.experiment.hosts.commands import ExecProcess, read_output
from softroce_lab.experiment.hosts.program_records import OfProcess, ProgramCounters
from softroce_lab.experiment.perftest import losses, tests
from softroce_lab.experiment.perftest.losses import Losses
from softroce_lab.experiment.perftest.tests import Row, Test
from softroce_lab.fabric.net.listening import listens
from softroce_lab.fabric.observe.view import View
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.plan.plan import Node
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

Say = Callable[[str], None]

_TURN_S = 0.05
_PARTING_S = 10.0  # that the other gets when one has ended
_SETTLE_S = 0.2  # between what a server prints and its call of listen()
_TRIES = 3
_OUTPUT_CHARACTERS = 300  # of a line in a verdict


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    lab: str
    test: Test
    hosts: tuple[str, str]  # client and server
    outputs: tuple[str, str]
    rows: list[Row]
    units: Mapping[str, str]
    losses: Losses
    rnics: Mapping[str, Sequence[OfProcess]]  # by host with a soft RNIC
    capture: RunCapture | None
    problems: list[str]

    def document(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "lab": self.lab,
            "test": self.test.name,
            "program": self.test.program,
            "options": list(self.test.options),
            "client": self.hosts[0],
            "server": self.hosts[1],
            "results": self.rows,
            "units": self.units,
            "fabric": losses.document(self.losses),
            "rnics": {host: [each.brief() for each in found] for host, found in self.rnics.items()},
            "capture": None if self.capture is None else self.capture.document(),
            "outputs": dict(zip(self.hosts, self.outputs, strict=True)),
            "problems": self.problems,
            "environment": environment(),
        }


def run(
    seen: View,
    test: Test,
    hosts: tuple[str, str],
    *,
    timeout_s: float | None,
    wanted: Wanted,
    say: Say,
) -> Outcome:
    """Run the test between client and server. UserError, LabError.

    EnvironmentLackError without the program.
    """
    nodes = [_host(seen, name) for name in hosts]
    if hosts[0] == hosts[1]:
        raise UserError(f"{hosts[0]} is client and server", hint="name two hosts")
    limit_s = test.longest_s(*nodes) if timeout_s is None else timeout_s
    soft = [host.name for host in nodes if host.kind != "kernel"]
    if soft and shutil.which(test.program) is None:
        raise _absent(test)
    with (
        losses.watching(seen) as watch,
        tempfile.TemporaryDirectory(prefix="softroce_lab-counters-") as folder,
        _ends(seen, test, nodes, counters := ProgramCounters(soft, Path(folder))) as (
            asking,
            serving,
        ),
        capturing(seen, wanted, hosts) as captured,
    ):
        for left in reversed(range(_TRIES)):
            problems = _converse(asking, serving, limit_s)
            rows, units = (tests.pingpong if test.is_pingpong else tests.table)(asking.output)
            if problems or all(map(tests.is_usable, rows)):
                break
            if left:
                say(f"{test.program} could not measure the processor's clock; again")
        else:
            problems = [f"{test.program} could not measure the processor's clock, {_TRIES} times"]
        if not problems and not rows and not test.prints_otherwise:
            problems = [f"{hosts[0]}: its output has no table of results"]
        return Outcome(
            lab=seen.plan.name,
            test=test,
            hosts=hosts,
            outputs=(asking.output, serving.output),
            rows=rows,
            units=units,
            losses=watch.losses(),
            rnics=counters.end(),
            capture=captured,
            problems=problems,
        )


def _host(seen: View, name: str) -> Node:
    names = [node.name for node in seen.plan.hosts]
    if name not in names:
        hint = did_you_mean(name, names)
        raise UserError(f"the lab {seen.plan.name} has no host {name!r}", hint=hint)
    return seen.plan.node(name)


def _absent(test: Test, where: str = "") -> EnvironmentLackError:
    what = f"the program {test.program} is not installed{where}"
    hint = f"apt install {test.package}" if not where else "lab kernel-host prepare"
    return EnvironmentLackError(test.program, what, hint=hint)


class _End:
    def __init__(
        self, seen: View, test: Test, host: Node, words: Sequence[str], counters: ProgramCounters
    ) -> None:
        self.host = host.name
        self.process = ExecProcess(seen.plan.name, host.name)
        self.status: int | None = None
        self.was_killed = False
        self._seen, self._test = seen, test
        self._is_kernel = host.kind == "kernel"
        self._words = [*test.arguments(host), *words]
        self._environment = {} if self._is_kernel else counters.environment

    def begin(self) -> None:
        self.status, self.was_killed = None, False
        self.process.begin(self._words, verbs=not self._is_kernel, environment=self._environment)

    @property
    def is_over(self) -> bool:
        if self.status is None and self.process.has_begun:
            self.status = self.process.status()
        return self.status is not None

    @property
    def output(self) -> str:
        return self.process.printed.text

    def is_ready(self) -> bool:
        if self._test.is_ready_when not in self.output:
            return False
        port = self._test.tcp_port
        if port is None or self._is_kernel:
            time.sleep(_SETTLE_S)
            return True
        with self._seen.inside(self.host):
            return listens(port)

    def end(self) -> None:
        if self.process.has_begun:
            self.was_killed = not self.is_over
            status = self.process.end()
            self.status = status if self.status is None else self.status

    def problem(self) -> str:
        """How it failed. EnvironmentLackError if the program is missing."""
        if self.status == ExitCode.NOT_FOUND:
            raise _absent(self._test, f" at {self.host}" if self._is_kernel else "")
        lines = [line.strip() for line in self.output.splitlines() if line.strip(" -*")]
        # A complaint of `lab exec` itself, or else the program's last words.
        said = next((line for line in lines if line.startswith("lab: ")), "".join(lines[-1:]))
        how = f"{self.host}: {self._test.program} {program_words.ended(self.status)}"
        return f"{how}: {said[:_OUTPUT_CHARACTERS]}" if said else how


@contextlib.contextmanager
def _ends(
    seen: View, test: Test, hosts: Sequence[Node], counters: ProgramCounters
) -> Iterator[tuple[_End, _End]]:
    client, server = hosts
    asking = _End(seen, test, client, [test.address(server)], counters)
    serving = _End(seen, test, server, [], counters)
    try:
        yield asking, serving
    finally:
        for end in (asking, serving):
            end.end()
            end.process.printed.close()


def _converse(asking: _End, serving: _End, limit_s: float) -> list[str]:
    """Run both once; what went wrong. Both have ended afterwards."""
    until_s = time.monotonic() + limit_s
    serving.begin()
    ends = [serving]
    while not all(end.is_over for end in ends) and time.monotonic() < until_s:
        read_output([end.process.printed for end in ends], _TURN_S)
        if any(end.is_over for end in ends):
            until_s = min(until_s, time.monotonic() + _PARTING_S)
        elif len(ends) == 1 and serving.is_ready():
            asking.begin()
            ends.append(asking)
    for end in reversed(ends):
        end.end()
    read_output([end.process.printed for end in ends], _TURN_S)
    failed = [end.problem() for end in ends if end.status != 0 and not end.was_killed]
    killed = [f"{end.host}: still at work after {limit_s:g} s" for end in ends if end.was_killed]
    if failed or not killed or len(killed) == len(ends):
        return failed or killed
    return [f"{end.host}: still at work {_PARTING_S:g} s after its peer had ended"
            for end in ends if end.was_killed]  # fmt: skip
