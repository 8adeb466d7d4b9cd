# SPDX-License-Identifier: GPL-2.0-or-later
"""A fault in words: those that `lab fault set` and a topology file take."""

from __future__ import annotations

from collections.abc import Iterable

from softroce_lab.faults.opcodes import opcode_name
from softroce_lab.faults.resolve import DEFAULT_LIMIT_PACKETS
from softroce_lab.plan.effects import (
    TRIM_SHARE,
    Corrupt,
    Cut,
    Delay,
    Duplicate,
    Effect,
    Fault,
    Filter,
    LossModel,
    NamedDrop,
    Queue,
    Reorder,
    Window,
    percent,
    word_of,
)
from softroce_lab.plan.plan import Plan


def text(fault: Fault) -> str:
    """`loss gemodel 1% 25% only data at 2s for 50ms`: all of it but links, name and key."""
    parts = (effect_text(fault.effect), filter_text(fault.filter), window_text(fault.window))
    return " ".join(part for part in parts if part)


def documents(plan: Plan) -> list[dict[str, object]]:
    """The plan's faults for `--json` and manifests: what each does, and on which links."""
    ends = {n: f"{a}->{b}" for n, a, b in plan.halves}
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for fault in plan.faults:
        where = grouped.setdefault((fault.rule, text(fault), fault.key), [])
        where.append(ends[fault.directed_link])
    return [
        {"rule": rule, "fault": what, "key": key, "links": links}
        for (rule, what, key), links in grouped.items()
    ]


def comments(fault: Fault) -> list[str]:
    """What captures say of a packet that it hit; of a gemodel in its good state, then in its bad.

    Behind `dropped: ` or `cut: `, which is why there is no second word for it.
    """
    words = ["gemodel good", "gemodel bad"] if fault.effect.kind == "gemodel" else [_done(fault)]
    packets = filter_text(fault.filter)
    return [f"{f'{word} {packets}'.strip()}, rule {fault.rule}" for word in words]


def _done(fault: Fault) -> str:
    """Without the word that means the same as "dropped"."""
    if isinstance(fault.effect, NamedDrop):
        return "named"
    word, _, rest = effect_text(fault.effect).partition(" ")
    return rest if fault.word != "down" else word


def effect_text(effect: Effect) -> str:
    match effect:
        case LossModel():
            return f"loss {effect.words}"
        case NamedDrop():
            return f"drop {_name(effect)}"
        case Cut() | Corrupt() | Duplicate():
            return f"{effect.kind} {percent(effect.threshold)}"
        case Reorder():
            gap = f" gap {effect.gap}" if effect.gap else ""
            by = f" by {time_text(effect.extra_ns)}" if effect.extra_ns else ""
            return f"reorder {percent(effect.threshold)}{gap}{by}"
        case Queue():
            return f"rate {_queue(effect)}"
        case Delay():
            return f"delay {_delay(effect)}"
    return word_of(effect)  # down, or drop with all of its filter


def filter_text(packets: Filter) -> str:
    parts = {
        "only": ",".join(packets.kinds),
        "opcode": "" if packets.opcode is None else opcode_name(packets.opcode),
        "qpn": _shown(packets.qpn),
        "message": _shown(packets.message),
        "tail": _shown(packets.tail),
        "iter": spans(packets.iters),
    }
    words = [f"{key} {value}" for key, value in parts.items() if value]
    return " ".join([*words, "absolute"] if packets.absolute else words)


def window_text(window: Window) -> str:
    at = window.begin_ns or window.length_ns
    parts = (
        f"at {time_text(window.begin_ns)}" if at else "",
        f"for {time_text(window.length_ns)}" if window.length_ns else "",
        f"every {time_text(window.period_ns)}" if window.period_ns else "",
    )
    return " ".join(part for part in parts if part)


def _name(effect: NamedDrop) -> str:
    words = {
        "message": _shown(effect.message),
        "packet": _shown(effect.packet),
        "qpn": _shown(effect.qpn),
        "psn": _shown(effect.psn),
        "iter": spans(effect.iters),
    }
    shown = " ".join(f"{key} {value}" for key, value in words.items() if value)
    return f"{shown} absolute" if effect.absolute else shown


def _queue(effect: Queue) -> str:
    limit = _depth(effect.limit_packets, effect.limit_bytes)
    ecn = _depth(effect.ecn_packets, effect.ecn_bytes)
    words = [rate_text(effect.rate_bps)]
    if limit and limit != str(DEFAULT_LIMIT_PACKETS):
        words.append(f"limit {limit}")
    if ecn:
        words.append(f"ecn {ecn}")
    if effect.trim:
        depth = _depth(effect.trim_packets, effect.trim_bytes)
        words.append(f"trim {depth}" if depth else "trim")
    if effect.trim and effect.trim_share != TRIM_SHARE:
        words.append(f"trim_share {effect.trim_share / 10**4:g}%")
    return " ".join(words)


def _depth(packets: int | None, size_bytes: int | None) -> str:
    return _shown(packets) if size_bytes is None else _in(size_bytes, _SIZES)


def _delay(effect: Delay) -> str:
    words = [time_text(effect.delay_ns)]
    if effect.jitter_ns:
        words.append(time_text(effect.jitter_ns))
        words += [] if effect.distribution == "uniform" else [f"distribution {effect.distribution}"]
        words += [] if effect.preserve else ["reorder allow"]
    return " ".join(words)


def _shown(number: int | None) -> str:
    return "" if number is None else str(number)


def spans(numbers: Iterable[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    return ",".join("-".join(map(str, span)) for span in spans)


# --- Quantities, exactly and without a space --------------------------------------------------

_TIMES = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))
_RATES = (("Gbit", 10**9), ("Mbit", 10**6), ("kbit", 10**3), ("bit", 1))
_SIZES = (("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))


def time_text(time_ns: int) -> str:
    return _in(time_ns, _TIMES)


def rate_text(rate_bps: int) -> str:
    return _in(rate_bps, _RATES)


def _in(value: int, units: tuple[tuple[str, int], ...]) -> str:
    """In the largest unit of which it is a whole number."""
    unit, size = next((unit, size) for unit, size in units if value % size == 0)
    return f"{value // size}{unit}"
