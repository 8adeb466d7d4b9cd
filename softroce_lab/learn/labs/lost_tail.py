# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 2: the lost tail. Timers against knowing what to expect."""

from __future__ import annotations

from softroce_lab.learn.lab import Dice, Lab, Task, ask, predict
from softroce_lab.learn.labs import judging
from softroce_lab.learn.labs.experiments import (
    PACKET_US_GBIT,
    draw_delay,
    drop,
    figure,
    line,
    line_without_tails,
)
from softroce_lab.learn.trial import Trial, Written

_DELAYS_US = (15, 60)
_LOOK_SOONER = (
    "the receiver knows how many packets are to come and how fast they came so far: it can look "
    "when they should all be there"
)
_LOOK_AGAIN = "the retransmission was lost, too: look again, and report again"
_READ_REPAIR = "read the row 'p50 repair' of lab run experiment.yaml; 1 ms is 1,000 us"


# --- The experiment and the answers ----------------------------------------------------------


def _experiment(dice: Dice) -> Written:
    total = f"{64 * dice.number('count', 8, 24)}KiB"
    faults = [drop("tail 1 iter 1", "lost-tail")]
    return {
        "name": "lost-tail",
        **line(draw_delay(dice, 20, 60), faults=faults, total=total, message="64KiB"),
        "depth": 1,
        "transports": ["rc", "irn", "ud_rto"],
        "seeds": [dice.number("seed", 1, 30_000)],
    }


def _rate(dice: Dice) -> int:
    return int(dice.one_of("rate", (10, 40, 50, 100)))


_RC_RTTS, _UD_RTO_RTTS = (
    figure(_experiment, name, "repair_p50_ns", per="base_rtt_ns") for name in ("rc", "ud_rto")
)
_RC_US, _IRN_US, _UD_RTO_US = (
    figure(_experiment, name, "repair_p50_ns", unit=1000) for name in ("rc", "irn", "ud_rto")
)


# --- Tasks -----------------------------------------------------------------------------------


def _tail(dice: Dice) -> Written:
    return line_without_tails(dice, 3, delays_us=_DELAYS_US, message="64KiB", depth=1)


def _twice(dice: Dice) -> Written:
    return line_without_tails(dice, 3, times="1-2", delays_us=_DELAYS_US, message="64KiB")


def _small(dice: Dice) -> Written:
    size = dice.one_of("size", ("4KiB", "8KiB"))
    return line_without_tails(dice, 1, delays_us=_DELAYS_US, total="64KiB", message=size, depth=1)


def _repairs_soon(trial: Trial, rtts: float = 3, advice: str = _LOOK_SOONER) -> list[str]:
    return [
        *judging.limit_repair(trial, rtts, advice),
        *judging.limit_waste(trial, 1.25, free=4),
    ]


def _looks_seldom(trial: Trial) -> list[str]:
    messages = trial.figures["messages"]
    looks, most = trial.record.calls.get("on_receive_timer", 0), 8 * messages
    if looks <= most:
        return []
    return [
        f"nothing was lost, and the receiver looked {looks:,} times for {messages} messages; at "
        f"most {most} looks are needed. Each costs processor time: wait until the packets can be "
        "there. All times are in ns"
    ]


LAB = Lab(
    number=2,
    title="The lost tail: timers against knowing what to expect",
    minutes=75,
    experiment=_experiment,
    values=lambda dice: {"delay": dice.number("delay", 20, 60), "rate": _rate(dice)},
    questions=(
        predict("p1", "Prediction: how many round trips does rc take to repair a lost last packet?",
                "round trips", _RC_RTTS),
        predict("p2", "Prediction: and ud_rto, whose sender waits three round trips?",
                "round trips", _UD_RTO_RTTS),
        ask("q1", "How long does rc take to repair half of its lost tails? (p50 repair)", "us",
            _RC_US, _READ_REPAIR),
        ask("q2", "And irn?", "us", _IRN_US, _READ_REPAIR),
        ask("q3", "And ud_rto?", "us", _UD_RTO_US, _READ_REPAIR),
        ask(
            "q4", "How many round trips are ud_rto's? Divide q3 by base_rtt_ns of --json",
            "round trips", _UD_RTO_RTTS,
            "1 us is 1,000 ns; base_rtt_ns is the round trip of the empty fabric", tolerance=0.03,
        ),
        ask(
            "q5",
            "Exercise without code: at {{rate}} Gbit/s, a receiver gets the first packet of a "
            "message of 33 packets of 2,048 bytes. How long after it is the last one there, if "
            "they come one behind the other?",
            "us", lambda dice: 32 * PACKET_US_GBIT / _rate(dice),
            "how many packets follow the first one? How long does each take?",
            tolerance=0.03, points=2,
        ),
        ask(
            "q6",
            "Exercise without code: a step of a training ends with its last message. 512 hosts "
            "send a message each, and each loses its tail with a probability of 0.1 %. In how "
            "many percent of the steps does somebody wait for a timer?",
            "%", lambda dice: 100 * (1 - 0.999**512),
            "with which probability does nobody lose a tail?", tolerance=0.03, points=2,
        ),
    ),
    tasks=(
        Task("tail", "repairs lost tails within three round trips", _tail, _repairs_soon),
        Task("twice", "repairs tails whose retransmission is lost, too", _twice,
             lambda trial: _repairs_soon(trial, 6, _LOOK_AGAIN), points=3),
        Task("small", "does so for messages of a few packets, too", _small, _repairs_soon,
             points=3),
        Task("clean", "looks seldom where nothing is lost",
             lambda dice: line(draw_delay(dice, *_DELAYS_US), total="1MiB", message="64KiB"),
             _looks_seldom, points=3, needs="tail"),
    ),
    policy="Expecting",
    hole="check_at",
)  # fmt: skip
