# SPDX-License-Identifier: GPL-2.0-or-later
"""What a user of tc(8) would type for the faults of one directed link, as far as tc can say it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from softroce_lab.faults.check import ETHERNET_BYTES
from softroce_lab.faults.lines import grouped, line
from softroce_lab.faults.text import effect_text, rate_text, text, time_text
from softroce_lab.plan.effects import (
    Corrupt,
    Delay,
    Duplicate,
    Effect,
    Fault,
    LossModel,
    Queue,
    Reorder,
    percent,
)

_NETEM_ORDER = ("delay", "loss", "corrupt", "duplicate", "reorder")


def commands(faults: Iterable[Fault], interface: str, mtu: int) -> list[str]:
    """Commands for the transmitting interface; a line with `#` names what tc does otherwise."""
    chosen: dict[str, Fault] = {}
    notes: list[str] = []
    for group in grouped(faults):
        fault = group[0]
        if (why := _beyond(fault)) is not None:
            notes.append(f"# {line(group)}: {why}")
        elif fault.word in chosen:
            notes.append(f"# {text(fault)}: one netem takes one {fault.word} only")
        else:
            chosen[fault.word] = fault
            notes += [f"# {effect_text(fault.effect)}: {note}" for note in _notes(fault)]
    return [*_lines(chosen, interface, mtu), *notes]


def _lines(chosen: dict[str, Fault], interface: str, mtu: int) -> Iterator[str]:
    if "down" in chosen:
        yield f"ip link set dev {interface} down"
    words = [_netem(chosen[word].effect) for word in _NETEM_ORDER if word in chosen]
    if words:
        yield f"tc qdisc add dev {interface} root handle 1: netem {' '.join(words)}"
    if "rate" in chosen:
        place = "parent 1:1" if words else "root"
        queue = chosen["rate"].effect
        assert isinstance(queue, Queue)  # noqa: S101 - what the word means
        yield f"tc qdisc add dev {interface} {place} handle 2: tbf {_tbf(queue, mtu)}"


def _beyond(fault: Fault) -> str | None:
    """Why tc has nothing like it."""
    if fault.word == "drop":
        return "tc cannot name packets of RoCE"
    if not fault.filter.everything:
        return "netem takes all packets alike, whatever they carry"
    if not fault.window.always:
        return "tc has no timeline; add the qdisc then, and delete it"
    if isinstance(fault.effect, Reorder) and fault.effect.extra_ns:
        return "netem's packets skip the delay; it holds none back"
    if isinstance(fault.effect, LossModel) and fault.effect.netem_words is None:
        return fault.effect.netem or "netem has none"
    return None


def _notes(fault: Fault) -> Iterator[str]:
    """What tc does otherwise."""
    match fault.effect:
        case LossModel(netem=str(note)):
            yield note
        case Delay(jitter_ns=jitter, preserve=True) if jitter:
            yield "netem lets packets overtake each other"
        case Delay(delay_ns=delay, jitter_ns=jitter) if jitter > delay:
            yield "below nothing is nothing"
        case Queue() as queue:
            if queue.ecn_bytes is not None or queue.ecn_packets is not None:
                yield "tbf marks nothing; red does, by a moving average"
            if queue.trim:
                yield "nothing in tc trims packets"


def _netem(effect: Effect) -> str:
    match effect:
        case LossModel(netem_words=str(words)):
            return words
        case Corrupt() | Duplicate():
            return f"{effect.kind} {percent(effect.threshold)}"
        case Reorder():
            gap = f" gap {effect.gap}" if effect.gap else ""
            return f"reorder {percent(effect.threshold)}{gap}"
        case Delay():
            return _delay(effect)
    raise ValueError(effect.kind)


def _delay(effect: Delay) -> str:
    words = ["delay", time_text(effect.delay_ns)]
    if effect.jitter_ns:
        words.append(time_text(effect.jitter_ns))
        words += [] if effect.distribution == "uniform" else ["distribution", effect.distribution]
    return " ".join(words)


def _tbf(queue: Queue, mtu: int) -> str:
    """With a bucket of one frame: the lab's transmitter sends one after the other."""
    frame = mtu + ETHERNET_BYTES
    limit = queue.limit_bytes
    if limit is None:
        limit = (queue.limit_packets or 0) * frame
    return f"rate {rate_text(queue.rate_bps)} burst {frame} limit {max(limit, frame)}"
