# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 3: selective repeat. A SACK sender, reordering against loss, RACK."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from softroce_lab.learn import trial
from softroce_lab.learn.lab import Lab, Question, Task
from softroce_lab.learn.labs import fabrics, judging
from softroce_lab.learn.seeds import Dice
from softroce_lab.learn.trial import Trial, Written

_PACKET_US_GBIT = 2048 * 8 / 1000
"""How long a packet takes to leave, in us, times the rate in Gbit/s."""
_ORDER = "a SACK that shows later packets proves the loss; do not wait for the timer"
_TIMER = "nothing follows a lost tail: only the timer set in on_sent can find it"


# --- The experiment --------------------------------------------------------------------------


def _drawn(dice: Dice) -> tuple[int, int, int]:
    """Jitter in us, loss in tenths of a percent, and the seed."""
    jitter, share = dice.number("jitter", 6, 10), dice.number("loss", 5, 12)
    return jitter, share, dice.number("seed", 1, 30_000)


def _written(drawn: tuple[int, int, int]) -> Written:
    jitter, share, seed = drawn
    return {
        "name": "selective-repeat",
        **fabrics.paths(
            4, f"{jitter}us", faults=[fabrics.loss(f"{share / 10:g}%", "s2->h2")], total="8MiB"
        ),
        "transports": ["irn", "ud_rto"],
        "seeds": [seed],
    }


@functools.lru_cache(maxsize=512)
def _figures(drawn: tuple[int, int, int], name: str, kind: str) -> dict[str, Any]:
    written = dict(_written(drawn))
    if kind == "reordered":
        written["faults"] = []
    if kind == "in order":
        core = {"rate": "25Gbit", "delay": "5us"}
        shape = written["topology"]["generator"]
        written["topology"] = {"generator": {**shape, "core": core}}
    return trial.of_transport(written, drawn[2], name).summary()


def _of(name: str, figure: str, kind: str = "both") -> Callable[[Dice], float]:
    return lambda dice: float(_figures(_drawn(dice), name, kind)[figure])


def _of_spray(figure: str, kind: str) -> Callable[[Dice], float]:
    """Of irn, whose packets stay on one path unless they are sprayed by the switches."""
    return _of("irn", figure, kind)


def _difference_us(dice: Dice) -> int:
    return dice.number("difference", 5, 20)


def _rate(dice: Dice) -> int:
    return int(dice.one_of("rate", (10, 40, 50, 200)))


def _overtaking(dice: Dice) -> float:
    return float(math.ceil(_difference_us(dice) * 25 / _PACKET_US_GBIT))


# --- Tasks -----------------------------------------------------------------------------------


def _losses(dice: Dice) -> Written:
    return fabrics.line(
        f"{dice.number('delay', 10, 40)}us",
        faults=[fabrics.loss(dice.one_of("loss", ("0.5%", "1%", "2%")))],
        message="1MiB",
    )


def _repairs_losses(found: Trial) -> list[str]:
    return [
        *judging.wasteful(found, 1.25, free=8),
        *judging.slow(found, 3.5, median=True, advice=_ORDER),
    ]


def _reordered(dice: Dice) -> Written:
    jitter = f"{dice.number('jitter', 2, 5)}us"
    return fabrics.paths(dice.number("paths", 2, 6), jitter, total="2MiB")


def _waits_for_late_packets(found: Trial) -> list[str]:
    again, sent = found.figures["retransmitted"], found.figures["packets_sent"]
    if again <= sent // 100:
        return []
    return [
        f"nothing was lost, and {again:,} of {sent:,} packets were sent again. "
        f"{_too_early(found)}. Paths differ: a packet that was overtaken may only be late. "
        "Leave it a reordering window before it counts as lost: a part of SRTT, and, because RTTs "
        "vary, some RTTVAR more"
    ]


def _too_early(found: Trial) -> str:
    for each in found.retransmissions:
        if each.missing is None:
            continue
        arrived = np.setdiff1d(np.arange(each.sent), each.missing)
        packets = np.intersect1d(each.packets[each.packets < each.sent], each.missing)
        if not packets.size or not arrived.size:
            continue
        newest_ns = int(each.sent_ns[arrived].max())
        packet = int(packets[np.argmax(each.sent_ns[packets])])
        behind_us = (newest_ns - int(each.sent_ns[packet])) / 1000
        return (
            f"The first: {judging.at(each)}, packet {packet}, sent {behind_us:.1f} us before the "
            f"newest one that has arrived (SRTT {each.srtt_ns / 1000:.1f} us)"
        )
    return judging.wasted(found)


def _tail(dice: Dice) -> Written:
    faults = [fabrics.drop(f"tail {dice.number('tail', 1, 4)} iter 1")]
    delay = f"{dice.number('delay', 10, 40)}us"
    return fabrics.line(delay, faults=faults, total="1MiB", message="64KiB")


def _repairs_tails(found: Trial) -> list[str]:
    return [
        *judging.wasteful(found, 1.5, free=16),
        *judging.slow(found, 12, median=False, advice=_TIMER),
    ]


def _twice(dice: Dice) -> Written:
    message, packet = dice.number("message", 0, 7), dice.number("packet", 3, 90)
    last = dice.number("times", 2, 4)
    faults = [fabrics.drop(f"message {message} packet {packet} iter 1-{last}")]
    return fabrics.line(f"{dice.number('delay', 10, 40)}us", faults=faults, total="2MiB")


def _repairs_again(found: Trial) -> list[str]:
    advice = "its retransmission was lost, too: a packet may have to be sent more than twice"
    return [
        *judging.wasteful(found, 2, free=8),
        *judging.slow(found, 30, median=False, advice=advice),
    ]


def _dark(dice: Dice) -> Written:
    faults = [fabrics.outage(f"{dice.number('at', 100, 400)}us", f"{dice.number('for', 3, 6)}ms")]
    return fabrics.line(f"{dice.number('delay', 10, 25)}us", faults=faults, total="2MiB")


def _is_patient(found: Trial) -> list[str]:
    """That all was delivered is enough: a sender's window bounds what it repeats."""
    return []


def _many(dice: Dice) -> Written:
    return fabrics.line(
        f"{dice.number('delay', 5, 15)}us",
        faults=[fabrics.loss("2%"), fabrics.drop("tail 2 iter 1")],
        total="512KiB",
        message="16KiB",
        message_slots=4,
        depth=4,
    )


def _keeps_messages_apart(found: Trial) -> list[str]:
    return judging.wasteful(found, 1.5, free=32)


LAB = Lab(
    number=3,
    slug="selective-repeat",
    title="Selective repeat: write a SACK sender",
    minutes=90,
    experiment=lambda dice: _written(_drawn(dice)),
    values=lambda dice: {"difference": str(_difference_us(dice)), "rate": str(_rate(dice))},
    questions=(
        Question(
            "p1",
            "Prediction: four paths of different delays, no loss. Of 100 packets, how many does "
            "irn send again?",
            "%", "prediction",
            lambda dice: 100 * _of_spray("retransmitted", "reordered")(dice)
            / _of_spray("packets_sent", "reordered")(dice),
        ),
        Question(
            "p2",
            "Prediction: the same for ud_rto, which waits three round trips before it calls a "
            "packet lost",
            "%", "prediction",
            lambda dice: 100 * _of("ud_rto", "retransmitted", "reordered")(dice)
            / _of("ud_rto", "packets_sent", "reordered")(dice),
        ),
        Question(
            "q1", "How many packets did irn retransmit without any loss? (--set faults=[])",
            "packets", "answer", _of_spray("retransmitted", "reordered"), 0.0, 1,
            "run lab run experiment.yaml --set 'faults=[]' and read the row 'retransmitted'",
        ),
        Question(
            "q2", "With the loss of your experiment: how many packets were lost, of ud_rto's?",
            "packets", "answer", _of("ud_rto", "injected_drops"), 0.0, 1,
            "run lab run experiment.yaml and read the row 'injected drops'",
        ),
        Question(
            "q3",
            "And how long did ud_rto take to repair half of them? (p50 repair, as microseconds)",
            "us", "answer",
            lambda dice: _of("ud_rto", "repair_p50_ns")(dice) / 1000, 0.02, 1,
            "read the row 'p50 repair' of lab run experiment.yaml; 1 ms is 1,000 us",
        ),
        Question(
            "q4",
            "Exercise without code: packets of 2,048 bytes leave at 25 Gbit/s, one after the "
            "other, over paths whose delays differ by at most {{difference}} us. By how many later "
            "packets can one be overtaken? Round up",
            "packets", "answer", _overtaking, 0.0, 2,
            "how long does one packet take to leave? How many leave within the difference?",
        ),
        Question(
            "q5",
            "Exercise without code: an acknowledgement counts a packet as lost when three later "
            "ones have arrived (as TCP's three duplicate ACKs do). From which difference of delays "
            "on can it err, at {{rate}} Gbit/s and 2,048 bytes a packet?",
            "us", "answer", lambda dice: 3 * _PACKET_US_GBIT / _rate(dice), 0.05, 2,
            "three packets have to leave after it, and to arrive before it",
        ),
    ),
    tasks=(
        Task("losses", "repairs random losses within some round trips, and sends nothing else",
             _losses, _repairs_losses, points=4),
        Task("reordering", "does not take reordering for loss",
             _reordered, _waits_for_late_packets, points=4, needs="tail"),
        Task("tail", "repairs lost tails by its timer", _tail, _repairs_tails, points=3),
        Task("twice", "repairs a packet whose retransmissions are lost, too",
             _twice, _repairs_again, points=3),
        Task("dark", "survives an outage of some milliseconds", _dark, _is_patient, points=3,
             needs="losses", because="who repeats everything survives it, too"),
        Task("many", "keeps messages apart whose ids are used again",
             _many, _keeps_messages_apart, points=3),
    ),
    policy="SackSender",
    hole="on_feedback, on_sent and on_send_timer",
)  # fmt: skip
