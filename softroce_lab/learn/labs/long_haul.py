# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 6: long haul. Selective repeat against codes that repair without asking."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from softroce_lab.learn import trial
from softroce_lab.learn.hosted import Retransmission
from softroce_lab.learn.lab import Lab, Question, Task
from softroce_lab.learn.labs import fabrics, judging
from softroce_lab.learn.seeds import Dice
from softroce_lab.learn.trial import Trial, Written
from softroce_lab.model import sdr

_WANTED = 0.99
_MOST_COPIES = 16


def _drawn(dice: Dice) -> tuple[int, int, int]:
    """Delay one way in ms, loss in tenths of a percent, and the seed."""
    return dice.number("delay", 8, 14), dice.number("loss", 20, 50), dice.number("seed", 1, 30_000)


def _written(drawn: tuple[int, int, int]) -> Written:
    delay, share, seed = drawn
    faults = [fabrics.loss(f"{share / 10:g}%")]
    made = fabrics.line(f"{delay}ms", rate="10Gbit", faults=faults, total="8MiB", message="8MiB")
    return {"name": "long-haul", **made, "deadline": "2s", "transports": ["irn", "ud_rto"],
            "seeds": [seed]}  # fmt: skip


@functools.lru_cache(maxsize=512)
def _figures(drawn: tuple[int, int, int], name: str) -> dict[str, Any]:
    return trial.of_transport(_written(drawn), drawn[2], name).summary()


def _in_rtts(name: str) -> Callable[[Dice], float]:
    def right(dice: Dice) -> float:
        found = _figures(_drawn(dice), name)
        return float(found["makespan_ns"]) / float(found["base_rtt_ns"])

    return right


def _of(name: str, figure: str, unit: float = 1) -> Callable[[Dice], float]:
    return lambda dice: float(_figures(_drawn(dice), name)[figure]) / unit


# --- The model -------------------------------------------------------------------------------


def _model(dice: Dice) -> tuple[int, str]:
    """Distance in km and lost chunks in percent."""
    return 250 * dice.number("km", 6, 16), dice.one_of("chunks", ("0.1", "0.2", "0.5", "1"))


def _mean_ms(scheme: str) -> Callable[[Dice], float]:
    def right(dice: Dice) -> float:
        km, share = _model(dice)
        scenario = sdr.Scenario(
            message_bytes=128 << 20, loss=float(share) / 100, rtt_ns=sdr.rtt_of_ns(km),
            bandwidth_bps=400 * 10**9, chunk_bytes=1 << 16, alpha=2.0, beta=1.0, data_chunks=32,
            parity_chunks=8,
        )  # fmt: skip
        return float(sdr.predict(scenario)[scheme].mean_ns) / 1e6

    return right


def _no_loss(dice: Dice) -> float:
    """Of a group of 32 + 8 chunks, that none of the 32 is lost, in percent."""
    return 100 * (1 - float(_model(dice)[1]) / 100) ** 32


# --- Tasks -----------------------------------------------------------------------------------


def needed(loss: float, packets: int) -> int:
    """The fewest copies with which all packets arrive, with a probability of `_WANTED`."""
    for copies in range(1, _MOST_COPIES + 1):
        if (1 - loss**copies) ** packets >= _WANTED - 1e-12:
            return copies
    return _MOST_COPIES


def _far(low: int, high: int) -> Callable[[Dice], Written]:
    def build(dice: Dice) -> Written:
        share = f"{dice.number('loss', low, high)}%"
        return {
            **fabrics.line(
                f"{dice.number('delay', 4, 12)}ms", rate="10Gbit", faults=[fabrics.loss(share)],
                total="4MiB", message="4MiB",
            ),
            "deadline": "2s",
        }  # fmt: skip

    return build


def _right_number(found: Trial) -> list[str]:
    if not found.retransmissions:
        return ["nothing was ever sent again, although packets were lost"]
    lost = 0
    for each in found.retransmissions:
        if judging.blind(each):
            return [judging.unasked(each)]
        if each.missing is not None and (there := np.setdiff1d(each.packets, each.missing)).size:
            return [
                f"{judging.at(each)}: you sent packet {there[0]} again, which the receiver has by "
                "its newest feedback: send again what is missing, and nothing else"
            ]
        lost += len(each.packets)
        loss = min(lost / each.sent_in_all, 1.0)
        wanted = needed(loss, len(each.packets))
        if each.copies != wanted:
            return [_other(each, loss, wanted)]
    return []


def _other(each: Retransmission, loss: float, wanted: int) -> str:
    count = len(each.packets)
    chance = 100 * (1 - loss**each.copies) ** count
    why = "too few" if each.copies < wanted else "more than needed"
    return (
        f"{judging.at(each)}: {count} packets in {each.copies} copies, at a loss of "
        f"{100 * loss:.1f} %. All of them arrive with a probability of {chance:.2f} %: {why}, "
        f"{wanted} copies are the fewest that reach 99 %"
    )


def _soon(found: Trial) -> list[str]:
    advice = "a round trip is long here: send so many copies that asking again is rare"
    return [*_right_number(found), *judging.slow(found, 6, median=False, advice=advice)]


LAB = Lab(
    number=6,
    slug="long-haul",
    title="Long haul: selective repeat against codes",
    minutes=75,
    experiment=lambda dice: _written(_drawn(dice)),
    values=lambda dice: {
        "delay": str(_drawn(dice)[0]), "loss": f"{_drawn(dice)[1] / 10:g}",
        "km": str(_model(dice)[0]), "chunks": _model(dice)[1],
    },
    questions=(
        Question(
            "p1",
            "Prediction: 8 MiB at 10 Gbit/s take a third of a round trip to leave here, and then "
            "one way to arrive. How many round trips does irn need in all, with {{loss}} % loss?",
            "round trips", "prediction", _in_rtts("irn"),
        ),
        Question(
            "p2", "Prediction: and ud_rto?", "round trips", "prediction", _in_rtts("ud_rto"),
        ),
        Question(
            "q1", "How long did irn take? (makespan, in ms)",
            "ms", "answer", _of("irn", "makespan_ns", 1e6), 0.01, 1,
            "read the row 'makespan' of lab run experiment.yaml",
        ),
        Question(
            "q2", "How many of irn's packets were lost?",
            "packets", "answer", _of("irn", "injected_drops"), 0.0, 1,
            "read the row 'injected drops'",
        ),
        Question(
            "q3",
            "By the model: mean completion time of sr_rto (selective repeat) over {{km}} km, with "
            "{{chunks}} % of the chunks lost?",
            "ms", "answer", _mean_ms("sr_rto"), 0.01, 1,
            "read the column 'mean' of lab model sdr --set distance=...km --set loss=...%",
        ),
        Question(
            "q4", "And of mds, an erasure code with 8 chunks of parity for 32 of data?",
            "ms", "answer", _mean_ms("mds"), 0.01, 1,
            "read the column 'mean' of the row mds",
        ),
        Question(
            "q5",
            "Exercise without code: with {{chunks}} % of the chunks lost, with which probability "
            "does a group of 32 chunks lose none?",
            "%", "answer", _no_loss, 0.003, 2,
            "32 times the same independent event",
        ),
        Question(
            "q6",
            "Exercise without code: how many percent more bytes does a code of 32 data and 8 "
            "parity chunks send, even if nothing is lost?",
            "%", "answer", lambda dice: 25.0, 0.0, 1,
            "parity divided by data",
        ),
    ),
    tasks=(
        Task("few", "sends the right number of copies at a few percent of loss", _far(1, 5),
             _right_number, points=4),
        Task("many", "sends the right number of copies at much loss", _far(8, 20), _right_number,
             points=4),
        Task("soon", "repairs everything within a few round trips", _far(4, 9), _soon, points=3),
    ),
    policy="LongHaul",
    hole="copies",
)  # fmt: skip
