# SPDX-License-Identifier: GPL-2.0-or-later
"""Fabrics and faults that several labs use, and what built-in transports measure in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from softroce_lab.learn.lab import Dice
from softroce_lab.learn.trial import Written, measure

PACKET_US_GBIT = 2048 * 8 / 1000
"""How long a packet of 2,048 bytes takes to leave, in us, times the rate in Gbit/s."""


def line(delay: str, *, rate: str = "25Gbit", **more: Any) -> Written:
    """One host sends to another over two switches: h1 - s1 - s2 - h2."""
    access, bottleneck = {"rate": rate, "delay": "1us"}, {"rate": rate, "delay": delay}
    shape = {"kind": "dumbbell", "access": access, "bottleneck": bottleneck}
    return {"topology": {"generator": shape}, **_transfer(**more)}


def paths(count: int, jitter: str, *, lb: str = "spray", **more: Any) -> Written:
    """The same over some paths, whose delays vary by `jitter`: h1 - s1 - {m1, m2 ...} - s2 - h2."""
    core = {"rate": "25Gbit", "delay": "5us", "jitter": jitter}
    access = {"rate": "25Gbit", "delay": "1us"}
    shape = {"kind": "parallel-paths", "paths": count, "access": access, "core": core}
    return {"topology": {"generator": shape}, "lb": lb, **_transfer(**more)}


def _transfer(
    *,
    faults: Sequence[Mapping[str, Any]] = (),
    total: str = "4MiB",
    message: str = "256KiB",
    **more: Any,
) -> dict[str, Any]:
    return {
        "workload": {"kind": "point-to-point", "bytes": total, "message": message},
        "faults": [dict(fault) for fault in faults],
        "deadline": "50ms",
        **more,
    }


def loss(share: str, links: str = "s1->s2") -> dict[str, Any]:
    """Each packet is lost with this probability."""
    return {"name": "loss", "links": links, "loss": f"random {share}"}


def drop(which: str, name: str = "drop") -> dict[str, Any]:
    """Packets are lost by their names: `tail 1 iter 1`."""
    return {"name": name, "links": "h1->s1", "drop": which}


def outage(at: str, lasting: str) -> dict[str, Any]:
    """A link is down for a time."""
    return {"name": "outage", "links": "s1<->s2", "down": True, "at": at, "for": lasting}


# --- What several tasks draw -----------------------------------------------------------------


def draw_delay(dice: Dice, least_us: int = 10, most_us: int = 40) -> str:
    """The delay of a line."""
    return f"{dice.number('delay', least_us, most_us)}us"


def lossy_line(dice: Dice, shares: Sequence[str], **more: Any) -> Written:
    """A line that loses one of these shares."""
    return line(draw_delay(dice), faults=[loss(dice.one_of("loss", shares))], **more)


def line_without_tails(
    dice: Dice, most: int, *, times: str = "1", delays_us: tuple[int, int] = (10, 40), **more: Any
) -> Written:
    """Every message loses up to `most` packets at its end; `times`: which transmissions."""
    faults = [drop(f"tail {dice.number('tail', 1, most)} iter {times}")]
    return line(draw_delay(dice, *delays_us), faults=faults, **{"total": "1MiB", **more})


def line_that_loses_again(dice: Dice, first: int, last: int) -> Written:
    """A packet and some of its retransmissions are lost."""
    message, packet = dice.number("message", 0, 7), dice.number("packet", first, last)
    faults = [drop(f"message {message} packet {packet} iter 1-{dice.number('times', 2, 4)}")]
    return line(draw_delay(dice), faults=faults, total="2MiB")


def dark_line(dice: Dice, least_ms: int, most_ms: int, most_us: int = 40, **more: Any) -> Written:
    """A line that is down for some milliseconds."""
    at = f"{dice.number('at', 100, 400)}us"
    faults = [outage(at, f"{dice.number('for', least_ms, most_ms)}ms")]
    return line(draw_delay(dice, 10, most_us), faults=faults, **more)


# --- What is measured ------------------------------------------------------------------------


def figure(
    experiment: Callable[[Dice], Written],
    transport: str,
    name: str,
    *,
    per: str | None = None,
    unit: float = 1,
    control: str | None = None,
) -> Callable[[Dice], float]:
    """A figure of a built-in transport, divided by the figure `per` and by `unit`."""

    def right(dice: Dice) -> float:
        figures = measure(experiment(dice), transport, control)
        return float(figures[name]) / (float(figures[per]) if per else 1) / unit

    return right
