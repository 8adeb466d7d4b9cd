# SPDX-License-Identifier: GPL-2.0-or-later
"""Fabrics and faults that several labs use, as an experiment file has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softroce_lab.learn.trial import Written


def line(
    delay: str,
    *,
    rate: str = "25Gbit",
    faults: Sequence[Mapping[str, Any]] = (),
    total: str = "4MiB",
    message: str = "256KiB",
    **more: Any,
) -> Written:
    """One host sends to another over two switches: h1 - s1 - s2 - h2."""
    return {
        "topology": {
            "generator": {
                "kind": "dumbbell",
                "access": {"rate": rate, "delay": "1us"},
                "bottleneck": {"rate": rate, "delay": delay},
            }
        },
        **_work(faults, total, message, more),
    }


def paths(
    count: int,
    jitter: str,
    *,
    delay: str = "5us",
    rate: str = "25Gbit",
    faults: Sequence[Mapping[str, Any]] = (),
    total: str = "4MiB",
    message: str = "256KiB",
    **more: Any,
) -> Written:
    """The same over some paths, whose delays vary by `jitter`: h1 - s1 - {m1, m2 ...} - s2 - h2."""
    return {
        "topology": {
            "generator": {
                "kind": "parallel-paths",
                "paths": count,
                "access": {"rate": rate, "delay": "1us"},
                "core": {"rate": rate, "delay": delay, "jitter": jitter},
            }
        },
        "lb": "spray",
        **_work(faults, total, message, more),
    }


def _work(
    faults: Sequence[Mapping[str, Any]], total: str, message: str, more: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "workload": {"kind": "point-to-point", "bytes": total, "message": message},
        "faults": [dict(each) for each in faults],
        "deadline": "50ms",
        **more,
    }


def loss(share: str, links: str = "s1->s2") -> dict[str, Any]:
    """Each packet is lost with this probability."""
    return {"name": "loss", "links": links, "loss": f"random {share}"}


def drop(which: str, name: str = "drop", links: str = "h1->s1") -> dict[str, Any]:
    """Packets by their names: `tail 1 iter 1`."""
    return {"name": name, "links": links, "drop": which}


def outage(at: str, lasting: str, links: str = "s1<->s2") -> dict[str, Any]:
    """A link is down for a time."""
    return {"name": "outage", "links": links, "down": True, "at": at, "for": lasting}
