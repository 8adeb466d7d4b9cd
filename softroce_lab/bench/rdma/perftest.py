# SPDX-License-Identifier: GPL-2.0-or-later
"""perftest's programs over native/verbs, and what they print of a test of one size."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from softroce_lab.bench.bare_traffic import RECEIVER_CPU, SENDER_CPU
from softroce_lab.errors import RunError
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.ledger.process import Process
from softroce_lab.fabric.net.listening import listens

_TCP_PORT = 18515  # of perftest
_BEGIN_S, _RUN_S = 20.0, 60.0
_ATTEMPTS = 3
_TURN_S = 0.02

_MIB = 1 << 20  # perftest's "MB"
_WORDS = 400  # characters of the output that an error shows


def write_bw_rate(output: str, message_bytes: int) -> float:
    """Bytes a second on average; 0 if it had no time to count. RunError without a result.

    perftest prints `inf` where it could not measure the processor's frequency.
    """
    return float(_columns(output, message_bytes)[3]) * _MIB


def send_lat_trip_ns(output: str, message_bytes: int) -> float:
    """Nanoseconds of the median round trip, which is twice what perftest prints. RunError."""
    return 2e3 * float(_columns(output, message_bytes)[4])


def _columns(output: str, message_bytes: int) -> list[str]:
    found = re.search(rf"^ *{message_bytes} +\d+ .*$", output, re.MULTILINE)
    columns = found[0].split() if found else []
    if len(columns) < 5:
        raise RunError(f"perftest printed no result; its output: {output[-_WORDS:].strip()}")
    return columns


class Perftest:
    """perftest's programs between the first and the last host of a lab, over native/verbs."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._client, self._server = lab.plan.hosts[0], lab.plan.hosts[-1]

    def figure(
        self, program: str, options: Sequence[str], size: int, read: Callable[[str, int], float]
    ) -> float:
        """What `read` finds in the client's output. RunError.

        On a busy machine perftest measures no frequency of the processor now and then, and prints
        `inf`: it is run again.
        """
        for _ in range(_ATTEMPTS):
            found = read(self._converse([program, "-F", "-x", "0", *options]), size)
            if 0 < found < math.inf:
                return found
        raise RunError(
            f"{program} measured nothing, {_ATTEMPTS} times", hint="is the machine busy?"
        )

    def _converse(self, command: Sequence[str]) -> str:
        """The client's output."""
        server = self._spawn(self._server.name, RECEIVER_CPU, command)
        try:
            self._await_listener(server)
            client = self._spawn(
                self._client.name, SENDER_CPU, [*command, str(self._server.address)]
            )
            try:
                return self._output(client, _RUN_S)
            finally:
                client.end()
        finally:
            if server.wait(_BEGIN_S) is None:
                server.signal(signal.SIGKILL)
            server.end()

    def _spawn(self, host: str, cpu: int, command: Sequence[str]) -> Process:
        lab = ["-m", "softroce_lab.cli", "exec", "--verbs", "--lab", self._lab.plan.name, host]
        return self._lab.spawn(
            [sys.executable, *lab, "--", "taskset", "-c", str(cpu), *command],
            role=command[0], node=host, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def _await_listener(self, server: Process) -> None:
        until_s = time.monotonic() + _BEGIN_S
        while not self._listens():
            if server.poll() is not None:
                self._output(server, 0)
            if time.monotonic() > until_s:
                raise RunError(f"perftest did not begin within {_BEGIN_S:g} s")
            time.sleep(_TURN_S)

    def _listens(self) -> bool:
        with self._lab.enter(self._server.name):
            return listens(_TCP_PORT)

    def _output(self, process: Process, timeout_s: float) -> str:
        """All of it: a program of perftest prints less than a pipe holds. RunError if it failed."""
        status = process.wait(timeout_s)
        if status is None:
            raise RunError(f"perftest did not end within {timeout_s:g} s")
        text = process.stdout.read().decode("utf-8", "replace") if process.stdout else ""
        if status:
            raise RunError(f"perftest ended with {status}; its output: {text[-_WORDS:].strip()}")
        return text
