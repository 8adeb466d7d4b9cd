# SPDX-License-Identifier: GPL-2.0-or-later
"""perftest as Debian ships it over the lab's libibverbs, and bare frames over the same switch.

WRITEs of 1 MiB and round trips of SENDs of 64 bytes, path MTU 2 KiB.
"""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
import time

from benchmarks.traffic import PAYLOAD_BYTES, RECEIVER_CPU, SENDER_CPU, BareTraffic, lab_of
from softroce_lab.errors import RunError
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.ledger.process import Process
from softroce_lab.fabric.net.listening import listens
from softroce_lab.paths import verbs_library

_TCP_PORT = 18515  # of perftest
_RUN_S = 60.0
_ATTEMPTS = 3


def measure(short: bool) -> dict[str, float]:
    """Bytes a second, and ns a round trip. EnvironmentLackError without the library."""
    verbs_library()
    with lab_of("two-hosts") as lab:
        traffic = BareTraffic(lab, 0.1 if short else 0.5)
        frames = traffic.received_per_s(moderate=False)
        messages, trips = ("5", "100") if short else ("800", "5000")
        write = _figure(lab, 3, "ib_write_bw", "-s", "1048576", "-n", messages) * (1 << 20)
        trip_us = 2 * _figure(lab, 4, "ib_send_lat", "-s", "64", "-n", trips)
    bare = frames * PAYLOAD_BYTES
    return {
        "write_bw_bytes_per_s": write,
        "bare_bytes_per_s": bare,
        "write_bw_over_bare": write / bare,
        "send_lat_round_trip_ns": trip_us * 1e3,
    }


def _figure(lab: Lab, column: int, program: str, *options: str) -> float:
    """A column of the client's result. RunError.

    On a busy machine perftest cannot measure the processor's frequency now and then, and prints
    `inf`: it is run again.
    """
    for _ in range(_ATTEMPTS):
        output = _output(lab, [program, "-F", "-x", "0", "-m", str(PAYLOAD_BYTES), *options])
        line = re.search(r"^ *\d+ +\d+ +(inf|\d+\.).*$", output, re.MULTILINE)
        if line is None:
            raise RunError(f"{program} printed no result: {output[-400:].strip()}")
        if 0 < (found := float(line[0].split()[column])) < math.inf:
            return found
    raise RunError(f"{program} measured nothing, {_ATTEMPTS} times", hint="is the machine busy?")


def _output(lab: Lab, command: list[str]) -> str:
    """What the client prints. RunError."""
    client, server = lab.plan.hosts[0], lab.plan.hosts[-1]
    serving = _spawn(lab, server.name, RECEIVER_CPU, command)
    try:
        until_s = time.monotonic() + _RUN_S
        while not _listens(lab, server.name):
            if serving.poll() is not None or time.monotonic() > until_s:
                raise RunError(f"{command[0]} does not begin: {_text(serving)}")
            time.sleep(0.02)
        asking = _spawn(lab, client.name, SENDER_CPU, [*command, str(server.address)])
        try:
            status = asking.wait(_RUN_S)
            if status != 0:
                raise RunError(f"{command[0]} ended with {status}: {_text(asking)}")
            return _text(asking)
        finally:
            asking.end()
    finally:
        if serving.wait(5) is None:
            serving.signal(signal.SIGKILL)
        serving.end()


def _listens(lab: Lab, host: str) -> bool:
    with lab.enter(host):
        return listens(_TCP_PORT)


def _text(process: Process) -> str:
    """The output of a process that has ended: less than a pipe holds."""
    ended = process.poll() is not None and process.stdout
    return process.stdout.read().decode("utf-8", "replace") if ended and process.stdout else ""


def _spawn(lab: Lab, host: str, cpu: int, command: list[str]) -> Process:
    at = ["-m", "softroce_lab.cli", "exec", "--verbs", "--lab", lab.plan.name, host, "--"]
    return lab.spawn(
        [sys.executable, *at, "taskset", "-c", str(cpu), *command],
        role=command[0], node=host, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
