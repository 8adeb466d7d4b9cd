# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what the client of perftest or of a pingpong prints.

perftest's own `--out_json` is not used: version 4.5 writes no valid JSON, and with `-a` only the
last size. The names of the fields are those of its JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TypeAlias

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
