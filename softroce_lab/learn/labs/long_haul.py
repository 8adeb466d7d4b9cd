# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 6: long haul. Selective repeat against codes that repair without asking."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from softroce_lab.learn.lab import Dice, Lab, Task, ask, predict
from softroce_lab.learn.labs import judging
from softroce_lab.learn.labs.experiments import figure, line, loss
from softroce_lab.learn.remote import Retransmission
from softroce_lab.learn.trial import Trial, Written
from softroce_lab.transports.model import sdr

_WANTED = 0.99
_MOST_COPIES = 16
_SENT_MANY = "a round trip is long here: send so many copies that asking again is rare"


# --- The experiment and the answers ----------------------------------------------------------


def _loss_percent(dice: Dice) -> str:
    return f"{dice.number('loss', 20, 50) / 10:g}"


def _far_line(delay_ms: int, share: str, size: str) -> Written:
    made = line(f"{delay_ms}ms", rate="10Gbit", faults=[loss(share)], total=size, message=size)
    return {**made, "deadline": "2s"}


def _experiment(dice: Dice) -> Written:
    return {
        "name": "long-haul",
        **_far_line(dice.number("delay", 8, 14), f"{_loss_percent(dice)}%", "8MiB"),
        "transports": ["irn", "ud_rto"],
        "seeds": [dice.number("seed", 1, 30_000)],
    }


def _km(dice: Dice) -> int:
    return 250 * dice.number("km", 6, 16)


def _lost_chunks(dice: Dice) -> str:
    """In percent."""
    return dice.one_of("chunks", ("0.1", "0.2", "0.5", "1"))


def _model_mean_ms(scheme: str) -> Callable[[Dice], float]:
    def right(dice: Dice) -> float:
        scenario = sdr.Scenario(
            message_bytes=128 << 20, loss=float(_lost_chunks(dice)) / 100,
            rtt_ns=sdr.rtt_of_ns(_km(dice)), bandwidth_bps=400 * 10**9, chunk_bytes=1 << 16,
            alpha=2.0, beta=1.0, data_chunks=32, parity_chunks=8,
        )  # fmt: skip
        return float(sdr.predict(scenario)[scheme].mean_ns) / 1e6

    return right


# --- Tasks -----------------------------------------------------------------------------------


def needed_copies(loss_rate: float, packets: int) -> int:
    """The fewest copies with which all packets arrive, with a probability of `_WANTED`."""
    for copies in range(1, _MOST_COPIES + 1):
        if (1 - loss_rate**copies) ** packets >= _WANTED - 1e-12:
            return copies
    return _MOST_COPIES


def _lossy(low: int, high: int) -> Callable[[Dice], Written]:
    return lambda dice: _far_line(
        dice.number("delay", 4, 12), f"{dice.number('loss', low, high)}%", "4MiB"
    )


def _right_copies(trial: Trial) -> list[str]:
    lost = 0
    for made in trial.record.retransmissions:
        if blind := judging.find_blind(made):
            return blind
        if made.missing is not None and (arrived := np.setdiff1d(made.packets, made.missing)).size:
            return [
                f"{judging.place(made)}: you sent packet {arrived[0]} again, which the receiver "
                "has by its newest feedback: send again what is missing, and nothing else"
            ]
        lost += len(made.packets)
        loss_rate = min(lost / made.sent_in_all, 1.0)
        wanted = needed_copies(loss_rate, len(made.packets))
        if made.copies != wanted:
            return [_explain(made, loss_rate, wanted)]
    return [] if trial.record.retransmissions else [judging.NOTHING_SENT_AGAIN]


def _explain(made: Retransmission, loss_rate: float, wanted: int) -> str:
    count = len(made.packets)
    chance = 100 * (1 - loss_rate**made.copies) ** count
    why = "too few" if made.copies < wanted else "more than needed"
    return (
        f"{judging.place(made)}: {count} packets in {made.copies} copies, at a loss of "
        f"{100 * loss_rate:.1f} %. All of them arrive with a probability of {chance:.2f} %: {why}, "
        f"{wanted} copies are the fewest that reach 99 %"
    )


def _repairs_soon(trial: Trial) -> list[str]:
    return [*_right_copies(trial), *judging.limit_repair(trial, 6, _SENT_MANY)]


LAB = Lab(
    number=6,
    title="Long haul: selective repeat against codes",
    minutes=75,
    experiment=_experiment,
    values=lambda dice: {
        "delay": dice.number("delay", 8, 14), "loss": _loss_percent(dice), "km": _km(dice),
        "chunks": _lost_chunks(dice),
    },
    questions=(
        predict(
            "p1",
            "Prediction: 8 MiB at 10 Gbit/s take a third of a round trip to leave here, and then "
            "one way to arrive. How many round trips does irn need in all, with {{loss}} % loss?",
            "round trips", figure(_experiment, "irn", "makespan_ns", per="base_rtt_ns"),
        ),
        predict("p2", "Prediction: and ud_rto?", "round trips",
                figure(_experiment, "ud_rto", "makespan_ns", per="base_rtt_ns")),
        ask(
            "q1", "How long did irn take? (makespan, in ms)", "ms",
            figure(_experiment, "irn", "makespan_ns", unit=1e6),
            "read the row 'makespan' of lab run experiment.yaml", tolerance=0.01,
        ),
        ask("q2", "How many of irn's packets were lost?", "packets",
            figure(_experiment, "irn", "injected_drops"), "read the row 'injected drops'",
            tolerance=0),
        ask(
            "q3",
            "By the model: mean completion time of sr_rto (selective repeat) over {{km}} km, with "
            "{{chunks}} % of the chunks lost?",
            "ms", _model_mean_ms("sr_rto"),
            "read the column 'mean' of lab model sdr --distance ...km --loss ...%", tolerance=0.01,
        ),
        ask("q4", "And of mds, an erasure code with 8 chunks of parity for 32 of data?", "ms",
            _model_mean_ms("mds"), "read the column 'mean' of the row mds", tolerance=0.01),
        ask(
            "q5",
            "Exercise without code: with {{chunks}} % of the chunks lost, with which probability "
            "does a group of 32 chunks lose none?",
            "%", lambda dice: 100 * (1 - float(_lost_chunks(dice)) / 100) ** 32,
            "32 times the same independent event", tolerance=0.003, points=2,
        ),
        ask(
            "q6",
            "Exercise without code: how many percent more bytes does a code of 32 data and 8 "
            "parity chunks send, even if nothing is lost?",
            "%", lambda dice: 25.0, "parity divided by data", tolerance=0,
        ),
    ),
    tasks=(
        Task("few", "sends the right number of copies at a few percent of loss", _lossy(1, 5),
             _right_copies),
        Task("many", "sends the right number of copies at much loss", _lossy(8, 20), _right_copies),
        Task("soon", "repairs everything within a few round trips", _lossy(4, 9), _repairs_soon,
             points=3),
    ),
    policy="LongHaul",
    hole="copies",
)  # fmt: skip
