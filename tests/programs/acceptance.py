# SPDX-License-Identifier: GPL-2.0-or-later
"""A program at both hosts: without faults, over a lossy link, and again after a SIGKILL.

It passes when it ends well and the switch has counted the RoCE packets that carry its bytes.
"""

import dataclasses
import math
import subprocess
import time
from collections.abc import Callable, Mapping

from tests.programs.pair import MTU_BYTES, TIMEOUT_S, ended, finished

CONDITIONS = "none", "loss", "kill"
LOSS = "1%"
_TRAFFIC_PACKETS = 100  # a program that has sent so many is in the midst of its work
_LOOK_S = 0.1  # between counts: the wire stage answers each, beside its work
_SURVIVES_S = 1  # what the other side may go on for


@dataclasses.dataclass(frozen=True)
class Line:
    """What runs at both hosts, and how much of it the network must have seen."""

    command: tuple[str, ...]
    # Of what the client printed: packets that each host has sent at least, or `h1+h2` together.
    packets: Callable[[str], Mapping[str, int]]
    port: int  # of TCP, where the server awaits its client
    endless: tuple[str, ...]  # the same, which runs until it is killed
    tries: int = 1
    timeout_s: int = 2 * TIMEOUT_S

    @property
    def name(self):
        return " ".join(word for word in self.command if word != "env")


def packets_of(messages, message_bytes):
    """That carry so many messages."""
    return messages * max(1, math.ceil(message_bytes / MTU_BYTES))


def run(pair, line, condition, victim="h1"):
    """The line under that condition; AssertionError if it does not pass."""
    if condition == "loss":
        pair.lose(LOSS)
    if condition == "kill":
        kill_midway(pair, line, victim)
    before = {host: pair.roce_packets(host) for host in ("h1", "h2")}
    _, client = pair.converse(
        *line.command, timeout_s=line.timeout_s, port=line.port, tries=line.tries
    )
    for hosts, least in line.packets(client.stdout).items():
        assert least > 0, client.stdout
        sent = sum(pair.roce_packets(host) - before[host] for host in hosts.split("+"))
        assert sent >= least, (line.name, hosts, sent, client.stdout)
    pair.clear()


def kill_midway(pair, line, victim):
    """SIGKILL of the program at one host while messages are under way."""
    command = line.endless
    goal = pair.roce_packets("h1") + _TRAFFIC_PACKETS
    with ended(pair.start("h2", *command)) as server:
        pair.await_listener(server, line.port)
        with ended(pair.start("h1", *command, pair.address("h2"))) as client:
            deadline = time.monotonic() + TIMEOUT_S
            while pair.roce_packets("h1") < goal:
                assert server.poll() is None, finished(server)
                assert client.poll() is None, finished(client)
                assert time.monotonic() < deadline, "nothing is sent"
                time.sleep(_LOOK_S)
            killed, other = (client, server) if victim == "h1" else (server, client)
            killed.kill()
            killed.communicate(timeout=TIMEOUT_S)
            try:  # it may wait for ever, as it would with any RNIC
                other.communicate(timeout=_SURVIVES_S)
            except subprocess.TimeoutExpired:
                other.kill()
