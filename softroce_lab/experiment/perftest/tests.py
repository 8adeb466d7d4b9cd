# SPDX-License-Identifier: GPL-2.0-or-later
"""The tests of `lab perf`: their programs, their options at a host, and what the client prints."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.plan.plan import Node

_PERFTEST = ("write_bw", "write_lat", "send_bw", "send_lat", "read_bw", "read_lat", "atomic_bw",
             "atomic_lat")  # fmt: skip
_PINGPONGS = ("rc_pingpong", "uc_pingpong", "ud_pingpong", "srq_pingpong")
TESTS = _PERFTEST + _PINGPONGS

_TCP_PORT = 18515  # of both
_GID_INDICES = {"kernel": "1"}  # of the IPv4 address; index 0 at a host with a soft RNIC
_KERNEL_DEVICE = "rxe0"
_USUAL_S, _KERNEL_S = 60.0, 180.0  # a kernel host may be emulated
_ALL_SIZES_S = 300.0  # perftest looks at the processor's clock for each size


@dataclasses.dataclass(frozen=True, slots=True)
class Test:
    """A test, and the options that the user added."""

    name: str
    options: tuple[str, ...]

    @classmethod
    def of(cls, name: str, options: Sequence[str]) -> Test:
        """`name` with or without `ib_` or `ibv_`. UserError for a name that is not a test's."""
        short = name.removeprefix("ibv_").removeprefix("ib_")
        if short not in TESTS:
            hint = did_you_mean(short, TESTS)
            if not hint.startswith("known"):
                hint = f"{hint} The tests are {', '.join(TESTS)}"
            raise UserError(f"there is no test {name}", hint=hint)
        return cls(short, tuple(options))

    @property
    def is_pingpong(self) -> bool:
        return self.name in _PINGPONGS

    @property
    def program(self) -> str:
        return f"{'ibv' if self.is_pingpong else 'ib'}_{self.name}"

    @property
    def package(self) -> str:
        return "ibverbs-utils" if self.is_pingpong else "perftest"

    @property
    def is_ready_when(self) -> str:
        """What the server prints just before it listens."""
        return "local address:" if self.is_pingpong else "Waiting for client"

    @property
    def prints_otherwise(self) -> bool:
        """Whether the user asked for a number in place of the table."""
        return not self.is_pingpong and self._has("--output")

    @property
    def tcp_port(self) -> int | None:
        """Where the server listens; None: for connections of RDMA CM. UserError."""
        if not self.is_pingpong and self._has("-R", "--rdma_cm"):
            return None
        text = self._value("-p", "--port")
        if text is None:
            return _TCP_PORT
        if not text.isdecimal() or not 0 < int(text) < 1 << 16:
            raise UserError(f"-p {text} is not a TCP port", hint="1 to 65535")
        return int(text)

    def arguments(self, host: Node) -> list[str]:
        added = [] if self.is_pingpong else ["-F"]  # there is no processor frequency to warn about
        is_kernel = host.kind == "kernel"
        device = ("-d", "--ib-dev")
        index = ("-g", "--gid-idx") if self.is_pingpong else ("-x", "--gid-index")
        if is_kernel and not self._has(*device):
            added += [device[0], _KERNEL_DEVICE]
        if self.tcp_port is not None and not self._has(*index):
            added += [index[0], _GID_INDICES.get(host.kind, "0")]
        # A pipe would get the output when the program ends, and nobody would see it listen.
        return ["stdbuf", "-oL", self.program, *added, *self.options]

    def address(self, server: Node) -> str:
        port = server.ports[0]
        return str(port.address6 if self._has("--ipv6", "--ipv6-addr") else port.address)

    def longest_s(self, *hosts: Node) -> float:
        """How long it may take, if the user does not say. UserError."""
        text = None if self.is_pingpong else self._value("-D", "--duration")
        try:
            duration_s = float(text or 0)
        except ValueError:
            raise UserError(f"-D {text} is not a number of seconds", hint="-D 5") from None
        usual_s = _KERNEL_S if "kernel" in (host.kind for host in hosts) else _USUAL_S
        more_s = _ALL_SIZES_S if not self.is_pingpong and self._has("-a", "--all") else 0.0
        return duration_s + usual_s + more_s

    def _has(self, *names: str) -> bool:
        return self._value(*names) is not None or any(name in self.options for name in names)

    def _value(self, *names: str) -> str | None:
        """What stands behind an option: `-D 5`, `-D5`, `--duration=5`; the last one counts."""
        found = None
        for number, word in enumerate(self.options):
            for name in names:
                glue = "=" if name.startswith("--") else ""
                if word == name:
                    found = next(iter(self.options[number + 1 : number + 2]), None)
                elif word.startswith(name + glue) and (glue or len(name) == 2):
                    found = word.removeprefix(name + glue)
        return found


# --- What the client prints ----------------------------------------------------------------------

# perftest's own `--out_json` is not used: version 4.5 writes no valid JSON, and with `-a` only the
# last size. The names of the fields are those of its JSON.

Row: TypeAlias = Mapping[str, float | int | None]
"""A line of results; None where perftest printed `inf` or `nan`."""

_COLUMN = re.compile(r"(#\w+|BW \w+|[\d.]+% percentile|tps average|\w+)(?:\[([^\]]+)\])?")
_NAMES = {
    "#bytes": "MsgSize",
    "#iterations": "n_iterations",
    "BW peak": "BW_peak",
    "BW average": "BW_average",
    "99% percentile": "percentile_99",
    "99.9% percentile": "percentile_99.9",
    "tps average": "tps_average",
}
_PINGPONG = re.compile(
    r"(\d+) bytes in ([\d.]+) seconds = ([\d.]+) Mbit/sec\s+"
    r"(\d+) iters in [\d.]+ seconds = ([\d.]+) usec"
)


def table(text: str) -> tuple[list[Row], dict[str, str]]:
    """The rows of perftest's table of results, and the units of its columns."""
    columns: list[str] = []
    units: dict[str, str] = {}
    rows: list[Row] = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["#bytes"]:
            found = _COLUMN.findall(line)
            columns = [_NAMES.get(name, name) for name, _ in found]
            units = {_NAMES.get(name, name): unit for name, unit in found if unit}
        elif columns and words and words[0].isdecimal():
            values = [_number(word) for word in words]
            rows.append(dict(zip(columns, values, strict=False)))
    return rows, units


def pingpong(text: str) -> tuple[list[Row], dict[str, str]]:
    """The same of the two lines that ibv_rc_pingpong and its like print."""
    units = {"rate": "Mbit/sec", "t_avg": "usec/iter", "time": "seconds"}
    found = _PINGPONG.search(text)
    if found is None:
        return [], units
    names = "bytes", "time", "rate", "n_iterations", "t_avg"
    return [dict(zip(names, map(_number, found.groups()), strict=True))], units


def is_usable(row: Row) -> bool:
    """Whether perftest found out how fast its clock goes.

    It compares the time stamp counter with the clock for 0.2 s when it begins (src/get_clock.c). If
    they agree too little, and it has -F, its rates are 0 and its times endless.
    """
    told = [row[name] for name in ("BW_average", "MsgRate", "t_avg") if name in row]
    return not told or any(told)


def _number(word: str) -> float | int | None:
    try:
        value = float(word)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(word) if word.isdecimal() else value
