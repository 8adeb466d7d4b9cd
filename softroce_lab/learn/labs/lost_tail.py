# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 2: the lost tail. Timers against knowing what to expect."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from softroce_lab.learn import trial
from softroce_lab.learn.lab import Lab, Question, Task
from softroce_lab.learn.labs import fabrics, judging
from softroce_lab.learn.seeds import Dice
from softroce_lab.learn.trial import Trial, Written

_PACKET_US_GBIT = 2048 * 8 / 1000
_SOONER = (
    "the receiver knows how many packets are to come and how fast they came so far: it can look "
    "when they should all be there"
)


def _drawn(dice: Dice) -> tuple[int, int, int]:
    """Delay in us, messages, and the seed."""
    return dice.number("delay", 20, 60), dice.number("count", 8, 24), dice.number("seed", 1, 30_000)


def _written(drawn: tuple[int, int, int]) -> Written:
    delay, count, seed = drawn
    faults = [fabrics.drop("tail 1 iter 1", "lost-tail")]
    return {
        "name": "lost-tail",
        **fabrics.line(f"{delay}us", faults=faults, total=f"{64 * count}KiB", message="64KiB"),
        "depth": 1,
        "transports": ["rc", "irn", "ud_rto"],
        "seeds": [seed],
    }


@functools.lru_cache(maxsize=512)
def _figures(drawn: tuple[int, int, int], name: str) -> dict[str, Any]:
    return trial.of_transport(_written(drawn), drawn[2], name).summary()


def _of(name: str, figure: str, unit: float = 1) -> Callable[[Dice], float]:
    return lambda dice: float(_figures(_drawn(dice), name)[figure]) / unit


def _in_rtts(name: str) -> Callable[[Dice], float]:
    def right(dice: Dice) -> float:
        found = _figures(_drawn(dice), name)
        return float(found["repair_p50_ns"]) / float(found["base_rtt_ns"])

    return right


# --- Tasks -----------------------------------------------------------------------------------


def _delay(dice: Dice) -> str:
    return f"{dice.number('delay', 15, 60)}us"


def _tail(dice: Dice) -> Written:
    faults = [fabrics.drop(f"tail {dice.number('tail', 1, 3)} iter 1")]
    return fabrics.line(_delay(dice), faults=faults, total="1MiB", message="64KiB", depth=1)


def _soon(found: Trial) -> list[str]:
    return [
        *judging.slow(found, 3, median=False, advice=_SOONER),
        *judging.wasteful(found, 1.25, free=4),
    ]


def _twice(dice: Dice) -> Written:
    faults = [fabrics.drop(f"tail {dice.number('tail', 1, 3)} iter 1-2")]
    return fabrics.line(_delay(dice), faults=faults, total="1MiB", message="64KiB")


def _soon_again(found: Trial) -> list[str]:
    advice = "the retransmission was lost, too: look again, and report again"
    return [
        *judging.slow(found, 6, median=False, advice=advice),
        *judging.wasteful(found, 1.25, free=4),
    ]


def _clean(dice: Dice) -> Written:
    return fabrics.line(_delay(dice), total="1MiB", message="64KiB")


def _quiet(found: Trial) -> list[str]:
    messages = found.figures["messages"]
    looks, most = found.calls.get("on_receive_timer", 0), 8 * messages
    if looks <= most:
        return []
    return [
        f"nothing was lost, and the receiver looked {looks:,} times for {messages} messages; at "
        f"most {most} looks are needed. Each costs processor time: wait until the packets can be "
        "there. All times are in ns"
    ]


def _small(dice: Dice) -> Written:
    faults = [fabrics.drop("tail 1 iter 1")]
    size = dice.one_of("size", ("4KiB", "8KiB"))
    return fabrics.line(_delay(dice), faults=faults, total="64KiB", message=size, depth=1)


LAB = Lab(
    number=2,
    slug="lost-tail",
    title="The lost tail: timers against knowing what to expect",
    minutes=75,
    experiment=lambda dice: _written(_drawn(dice)),
    values=lambda dice: {"delay": str(_drawn(dice)[0]), "rate": str(_rate(dice))},
    questions=(
        Question(
            "p1", "Prediction: how many round trips does rc take to repair a lost last packet?",
            "round trips", "prediction", _in_rtts("rc"),
        ),
        Question(
            "p2", "Prediction: and ud_rto, whose sender waits three round trips?",
            "round trips", "prediction", _in_rtts("ud_rto"),
        ),
        Question(
            "q1", "How long does rc take to repair half of its lost tails? (p50 repair)",
            "us", "answer", _of("rc", "repair_p50_ns", 1000), 0.02, 1,
            "read the row 'p50 repair' of lab run experiment.yaml; 1 ms is 1,000 us",
        ),
        Question(
            "q2", "And irn?",
            "us", "answer", _of("irn", "repair_p50_ns", 1000), 0.02, 1,
            "read the row 'p50 repair' of lab run experiment.yaml; 1 ms is 1,000 us",
        ),
        Question(
            "q3", "And ud_rto?",
            "us", "answer", _of("ud_rto", "repair_p50_ns", 1000), 0.02, 1,
            "read the row 'p50 repair' of lab run experiment.yaml; 1 ms is 1,000 us",
        ),
        Question(
            "q4", "How many round trips are ud_rto's? Divide q3 by base_rtt_ns of --json",
            "round trips", "answer", _in_rtts("ud_rto"), 0.03, 1,
            "1 us is 1,000 ns; base_rtt_ns is the round trip of the empty fabric",
        ),
        Question(
            "q5",
            "Exercise without code: at {{rate}} Gbit/s, a receiver gets the first packet of a "
            "message of 33 packets of 2,048 bytes. How long after it is the last one there, if "
            "they come one behind the other?",
            "us", "answer", lambda dice: 32 * _PACKET_US_GBIT / _rate(dice), 0.03, 2,
            "how many packets follow the first one? How long does each take?",
        ),
        Question(
            "q6",
            "Exercise without code: a step of a training ends with its last message. 512 hosts "
            "send a message each, and each loses its tail with a probability of 0.1 %. In how "
            "many percent of the steps does somebody wait for a timer?",
            "%", "answer", lambda dice: 100 * (1 - 0.999**512), 0.03, 2,
            "with which probability does nobody lose a tail?",
        ),
    ),
    tasks=(
        Task("tail", "repairs lost tails within three round trips", _tail, _soon, points=4),
        Task("twice", "repairs tails whose retransmission is lost, too", _twice, _soon_again,
             points=3),
        Task("small", "does so for messages of a few packets, too", _small, _soon, points=3),
        Task("clean", "looks seldom where nothing is lost", _clean, _quiet, points=3, needs="tail"),
    ),
    policy="Expecting",
    hole="check_at",
)  # fmt: skip


def _rate(dice: Dice) -> int:
    return int(dice.one_of("rate", (10, 40, 50, 100)))
