# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 3: selective repeat. A SACK sender, reordering against loss, RACK."""

from __future__ import annotations

import math

import numpy as np

from softroce_lab.learn.lab import Dice, Lab, Task, ask, predict
from softroce_lab.learn.labs import judging
from softroce_lab.learn.labs.experiments import (
    PACKET_US_GBIT,
    dark_line,
    draw_delay,
    drop,
    figure,
    line,
    line_that_loses_again,
    line_without_tails,
    loss,
    lossy_line,
    paths,
)
from softroce_lab.learn.trial import Trial, Written

_ORDER = "a SACK that shows later packets proves the loss; do not wait for the timer"
_TIMER = "nothing follows a lost tail: only the timer set in on_sent can find it"
_AGAIN = "its retransmission was lost, too: a packet may have to be sent more than twice"


# --- The experiment and the answers ----------------------------------------------------------


def _experiment(dice: Dice) -> Written:
    jitter, share = dice.number("jitter", 6, 10), dice.number("loss", 5, 12)
    faults = [loss(f"{share / 10:g}%", "s2->h2")]
    return {
        "name": "selective-repeat",
        **paths(4, f"{jitter}us", faults=faults, total="8MiB"),
        "transports": ["irn", "ud_rto"],
        "seeds": [dice.number("seed", 1, 30_000)],
    }


def _without_loss(dice: Dice) -> Written:
    return {**_experiment(dice), "faults": []}


def _difference_us(dice: Dice) -> int:
    return dice.number("difference", 5, 20)


def _rate(dice: Dice) -> int:
    return int(dice.one_of("rate", (10, 40, 50, 200)))


_IRN_SHARE, _UD_RTO_SHARE = (  # in percent
    figure(_without_loss, name, "retransmitted", per="packets_sent", unit=0.01)
    for name in ("irn", "ud_rto")
)


# --- Tasks -----------------------------------------------------------------------------------


def _reordered(dice: Dice) -> Written:
    jitter = f"{dice.number('jitter', 2, 5)}us"
    return paths(dice.number("paths", 2, 6), jitter, total="2MiB")


def _many(dice: Dice) -> Written:
    return line(
        draw_delay(dice, 5, 15), faults=[loss("2%"), drop("tail 2 iter 1")], total="512KiB",
        message="16KiB", message_slots=4, depth=4,
    )  # fmt: skip


def _repairs_losses(trial: Trial) -> list[str]:
    return [
        *judging.limit_waste(trial, 1.25, free=8),
        *judging.limit_repair(trial, 3.5, _ORDER, median=True),
    ]


def _repairs_tails(trial: Trial) -> list[str]:
    return [
        *judging.limit_waste(trial, 1.5, free=16),
        *judging.limit_repair(trial, 12, _TIMER),
    ]


def _repairs_again(trial: Trial) -> list[str]:
    return [
        *judging.limit_waste(trial, 2, free=8),
        *judging.limit_repair(trial, 30, _AGAIN),
    ]


def _waits_for_late_packets(trial: Trial) -> list[str]:
    again, sent = trial.figures["retransmitted"], trial.figures["packets_sent"]
    if again <= sent // 100:
        return []
    return [
        f"nothing was lost, and {again:,} of {sent:,} packets were sent again. "
        f"{_find_too_early(trial)}. Paths differ: a packet that was overtaken may only be late. "
        "Leave it a reordering window before it counts as lost: a part of SRTT, and, because RTTs "
        "vary, some RTTVAR more"
    ]


def _find_too_early(trial: Trial) -> str:
    for made in trial.record.retransmissions:
        if made.missing is None:
            continue
        arrived = np.setdiff1d(np.arange(made.sent), made.missing)
        packets = np.intersect1d(made.packets[made.packets < made.sent], made.missing)
        if not packets.size or not arrived.size:
            continue
        newest_ns = int(made.sent_ns[arrived].max())
        packet = int(packets[np.argmax(made.sent_ns[packets])])
        behind_us = (newest_ns - int(made.sent_ns[packet])) / 1000
        return (
            f"The first: {judging.place(made)}, packet {packet}, sent {behind_us:.1f} us before "
            f"the newest one that has arrived (SRTT {made.srtt_ns / 1000:.1f} us)"
        )
    return judging.find_first_waste(trial)


LAB = Lab(
    number=3,
    title="Selective repeat: write a SACK sender",
    minutes=90,
    experiment=_experiment,
    values=lambda dice: {"difference": _difference_us(dice), "rate": _rate(dice)},
    questions=(
        predict(
            "p1",
            "Prediction: four paths of different delays, no loss. Of 100 packets, how many does "
            "irn send again?",
            "%", _IRN_SHARE,
        ),
        predict(
            "p2",
            "Prediction: the same for ud_rto, which waits three round trips before it calls a "
            "packet lost",
            "%", _UD_RTO_SHARE,
        ),
        ask(
            "q1", "How many packets did irn retransmit without any loss? (--set faults=[])",
            "packets", figure(_without_loss, "irn", "retransmitted"),
            "run lab run experiment.yaml --set 'faults=[]' and read the row 'retransmitted'",
            tolerance=0,
        ),
        ask(
            "q2", "With the loss of your experiment: how many packets were lost, of ud_rto's?",
            "packets", figure(_experiment, "ud_rto", "injected_drops"),
            "run lab run experiment.yaml and read the row 'injected drops'", tolerance=0,
        ),
        ask(
            "q3",
            "And how long did ud_rto take to repair half of them? (p50 repair, as microseconds)",
            "us", figure(_experiment, "ud_rto", "repair_p50_ns", unit=1000),
            "read the row 'p50 repair' of lab run experiment.yaml; 1 ms is 1,000 us",
        ),
        ask(
            "q4",
            "Exercise without code: packets of 2,048 bytes leave at 25 Gbit/s, one after the "
            "other, over paths whose delays differ by at most {{difference}} us. By how many later "
            "packets can one be overtaken? Round up",
            "packets", lambda dice: float(math.ceil(_difference_us(dice) * 25 / PACKET_US_GBIT)),
            "how long does one packet take to leave? How many leave within the difference?",
            tolerance=0, points=2,
        ),
        ask(
            "q5",
            "Exercise without code: an acknowledgement counts a packet as lost when three later "
            "ones have arrived (as TCP's three duplicate ACKs do). From which difference of delays "
            "on can it err, at {{rate}} Gbit/s and 2,048 bytes a packet?",
            "us", lambda dice: 3 * PACKET_US_GBIT / _rate(dice),
            "three packets have to leave after it, and to arrive before it",
            tolerance=0.05, points=2,
        ),
    ),
    tasks=(
        Task("losses", "repairs random losses within some round trips, and sends nothing else",
             lambda dice: lossy_line(dice, ("0.5%", "1%", "2%"), message="1MiB"), _repairs_losses),
        Task("reordering", "does not take reordering for loss",
             _reordered, _waits_for_late_packets, needs="tail"),
        Task("tail", "repairs lost tails by its timer",
             lambda dice: line_without_tails(dice, 4, message="64KiB"), _repairs_tails, points=3),
        Task("twice", "repairs a packet whose retransmissions are lost, too",
             lambda dice: line_that_loses_again(dice, 3, 90), _repairs_again, points=3),
        # A sender's window bounds what it repeats: it is enough that everything is delivered.
        Task("dark", "survives an outage of some milliseconds",
             lambda dice: dark_line(dice, 3, 6, 25, total="2MiB"), lambda _: [], points=3,
             needs="losses", because="who repeats everything survives it, too"),
        Task("many", "keeps messages apart whose ids are used again", _many,
             lambda trial: judging.limit_waste(trial, 1.5, free=32), points=3),
    ),
    policy="SackSender",
    hole="on_feedback, on_sent and on_send_timer",
)  # fmt: skip
