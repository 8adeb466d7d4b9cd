# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures that programs print: the tables of perftest and OSU's benchmarks, fio's JSON, patterns.

A figure's name ends in its unit (figure_table.PRINTED_UNITS). A table with several sizes has the
size in bytes in each name: `latency_8_us`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from softroce_lab.experiment.perftest import tests

FORMATS = ("perftest", "osu", "fio")

_PERFTEST = {  # by perftest's unit: that of the figure, and the factor
    "usec": ("us", 1.0),
    "MB/sec": ("gbps", (1 << 20) * 8 / 1e9),
    "MiB/sec": ("gbps", (1 << 20) * 8 / 1e9),
    "Gb/sec": ("gbps", 1.0),
    "Mpps": ("mpps", 1.0),
}
_OSU = {  # by OSU's unit: what a column without a title has, the unit of the figure, and the factor
    "us": ("latency", "us", 1.0),
    "MB/s": ("bandwidth", "gbps", 8e6 / 1e9),
    "Messages/s": ("messages", "per_s", 1.0),
}
_OSU_HEAD = re.compile(r"^# Size {2,}(.*)", re.MULTILINE)
_OSU_COLUMN = re.compile(r"(.*?) ?\(?(us|MB/s|Messages/s)\)?")
_OSU_ROW = re.compile(r"^(\d+)((?: +[\d.]+)+)(?: +Pass)?$", re.MULTILINE)
_P99 = "99.000000"


def figures(form: str, text: str) -> dict[str, float]:
    """The figures of an output of this form; {}: it has none."""
    return dict({"perftest": _perftest, "osu": _osu, "fio": _fio}[form](text))


def _named(name: str, size: str, unit: str) -> str:
    words = [*re.findall(r"[a-z0-9]+", name.lower()), *([size] if size else []), unit]
    return "_".join(words)


def _perftest(text: str) -> Iterator[tuple[str, float]]:
    rows, units = tests.table(text)
    for row in rows:
        size = str(row.get("MsgSize")) if len(rows) > 1 else ""
        for name, value in row.items():
            if value is not None and units.get(name) in _PERFTEST:
                unit, factor = _PERFTEST[units[name]]
                yield _named(name, size, unit), value * factor


def _osu(text: str) -> Iterator[tuple[str, float]]:
    head = _OSU_HEAD.search(text)
    if head is None:
        return
    columns = [_OSU_COLUMN.fullmatch(column) for column in re.split(" {2,}", head[1].strip())]
    rows = _OSU_ROW.findall(text, head.end())
    for size, values in rows:
        for column, value in zip(columns, values.split(), strict=False):
            if column is not None:
                usual, unit, factor = _OSU[column[2]]
                name = _named(column[1] or usual, size if len(rows) > 1 else "", unit)
                yield name, float(value) * factor


def _fio(text: str) -> Iterator[tuple[str, float]]:
    """Sums of rates over jobs and the worst of times, by direction."""
    try:
        jobs = json.JSONDecoder().raw_decode(text, text.index("{"))[0]["jobs"]
    except (ValueError, KeyError, TypeError):
        return
    for direction in ("read", "write"):
        parts = [job[direction] for job in jobs if job.get(direction, {}).get("total_ios")]
        if parts:
            yield f"{direction}_gbps", sum(part["bw_bytes"] for part in parts) * 8 / 1e9
            yield f"{direction}_iops", float(sum(part["iops"] for part in parts))
            yield f"{direction}_latency_mean_us", _worst(part["lat_ns"]["mean"] for part in parts)
            yield f"{direction}_latency_max_us", _worst(part["lat_ns"]["max"] for part in parts)
            tails = [part["clat_ns"].get("percentile", {}).get(_P99) for part in parts]
            if None not in tails:
                yield f"{direction}_latency_p99_us", _worst(tails)


def _worst(times_ns: Iterable[float]) -> float:
    return max(times_ns) / 1e3
