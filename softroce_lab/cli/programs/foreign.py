# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that a command does not take and its model does: what to do instead."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

from typer.core import TyperCommand

from softroce_lab.errors import UserError

_DEVICE = "the device is the host's: name the hosts, as in `lab {} h1 h2`"
_ONE_PORT = "a host's device has one port"


class ForeignOptions(TyperCommand):
    """A command with such options."""

    instead: ClassVar[Mapping[str, str]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As always. UserError for a foreign option."""
        for word in itertools.takewhile(lambda each: each != "--", args):
            option = word.partition("=")[0]
            if option in self.instead:
                what = f"`lab {self.name}` does not take {option}"
                raise UserError(what, hint=self.instead[option])
        rest: list[str] = super().parse_args(ctx, args)
        return rest


class PerftestOptions(ForeignOptions):
    """perftest's."""

    _RDMA_CM = "queue pairs are connected out of band; for RDMA CM see docs/connections.md"
    _MULTICAST = "there is no multicast"
    _INLINE = "messages are never inline here"
    _READS = "16 READs or atomics are under way at a queue pair"
    _NO_FREQUENCY = "leave it out: the CPU's frequency is not read"
    _PEAK = "leave it out: the peak costs nothing, and none is looked for beyond 20,000 messages"
    _VALUES = "--json tells percentiles"
    instead: ClassVar[Mapping[str, str]] = {
        "-d": _DEVICE.format("perf TEST"),
        "--ib-dev": _DEVICE.format("perf TEST"),
        "-i": _ONE_PORT,
        "--ib-port": _ONE_PORT,
        "-R": _RDMA_CM,
        "--rdma_cm": _RDMA_CM,
        "-z": _RDMA_CM,
        "--comm_rdma_cm": _RDMA_CM,
        "-I": _INLINE,
        "--inline_size": _INLINE,
        "-g": _MULTICAST,
        "--mcg": _MULTICAST,
        "-o": _READS,
        "--outs": _READS,
        "-F": _NO_FREQUENCY,
        "--CPU-freq": _NO_FREQUENCY,
        "-N": _PEAK,
        "--noPeak": _PEAK,
        "-H": _VALUES,
        "--report-histogram": _VALUES,
        "-U": _VALUES,
        "--report-unsorted": _VALUES,
    }


class PingpongOptions(ForeignOptions):
    """Those of ibv_rc_pingpong and its like."""

    instead: ClassVar[Mapping[str, str]] = {
        "-d": _DEVICE.format("pingpong"),
        "--ib-dev": _DEVICE.format("pingpong"),
        "-i": _ONE_PORT,
        "--ib-port": _ONE_PORT,
        "-l": "there are no service levels",
        "--sl": "there are no service levels",
    }
