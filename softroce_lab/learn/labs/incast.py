# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 5: congestion and incast. What loss is not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from softroce_lab.learn import trial
from softroce_lab.learn.lab import Lab, Question, Task
from softroce_lab.learn.labs import fabrics, judging
from softroce_lab.learn.seeds import Dice
from softroce_lab.learn.trial import Trial, Written


def _fabric(hosts: int, limit: str, total: str, **more: Any) -> Written:
    """Senders on both sides of a line; all but one send to one."""
    access = {"rate": "25Gbit", "delay": "2us", "limit": limit}
    return {
        "topology": {
            "generator": {"kind": "dumbbell", "hosts_per_side": hosts, "access": access,
                          "bottleneck": access}
        },
        "workload": {"kind": "incast", "bytes": total, "message": "64KiB"},
        "deadline": "50ms",
        **more,
    }  # fmt: skip


def _drawn(dice: Dice) -> tuple[int, int, int]:
    """Hosts of a side, KiB of a queue, and the seed."""
    return (
        dice.number("hosts", 4, 6),
        32 * dice.number("limit", 3, 6),
        dice.number("seed", 1, 30_000),
    )


def _written(drawn: tuple[int, int, int], limit: str | None = None) -> Written:
    hosts, queue, seed = drawn
    made = _fabric(hosts, limit or f"{queue}KiB", "512KiB")
    chosen = [{"name": "ud_rto", "congestion_control": each} for each in ("bdp", "swift")]
    return {"name": "incast", **made, "transports": ["rc", *chosen], "seeds": [seed]}


@functools.lru_cache(maxsize=512)
def _figures(drawn: tuple[int, int, int], name: str, control: str, deep: bool) -> dict[str, Any]:
    written = _written(drawn, "64MiB" if deep else None)
    return trial.of_transport(written, drawn[2], name, control).summary()


def _of(
    name: str, figure: str, control: str = "bdp", deep: bool = False
) -> Callable[[Dice], float]:
    return lambda dice: float(_figures(_drawn(dice), name, control, deep)[figure])


def _lost_share(control: str) -> Callable[[Dice], float]:
    def right(dice: Dice) -> float:
        found = _figures(_drawn(dice), "ud_rto", control, False)
        return 100 * float(found["queue_drops"]) / float(found["packets_sent"])

    return right


def _queue_us(dice: Dice) -> float:
    return _waiting(dice) * 1024 * 8 / 25_000


def _waiting(dice: Dice) -> int:
    return 64 * dice.number("waiting", 2, 20)


# --- Tasks -----------------------------------------------------------------------------------


def _deep(dice: Dice) -> Written:
    return _fabric(dice.number("hosts", 3, 6), "64MiB", "256KiB")


def _takes_no_queue_for_loss(found: Trial) -> list[str]:
    figures = found.figures
    share, most = figures["retransmitted"] / figures["packets_sent"], 0.04
    if share <= most:
        return []
    return [
        f"nothing was lost, and {100 * share:.0f} % of all packets were sent again (at most "
        f"{100 * most:.0f} %): they waited in a queue. Base the timeout on what is measured, and "
        "leave room for more"
    ]


def _tail(dice: Dice) -> Written:
    faults = [fabrics.drop("tail 1 iter 1")]
    return fabrics.line(f"{dice.number('delay', 10, 40)}us", faults=faults, total="1MiB")


def _is_no_snail(found: Trial) -> list[str]:
    return [
        *judging.slow(
            found, 9, median=False, advice="where no queue is, the timeout should be a few RTTs"
        ),
        *judging.wasteful(found, 2, free=4),
    ]


def _shallow(dice: Dice) -> Written:
    limit = f"{64 * dice.number('limit', 2, 4)}KiB"
    return _fabric(dice.number("hosts", 3, 5), limit, "256KiB")


def _sends_what_is_lost(found: Trial) -> list[str]:
    figures = found.figures
    spurious, most = figures["spurious_retransmissions"], figures["packets_sent"] // 20
    if spurious <= most:
        return []
    return [
        f"{spurious:,} of {figures['packets_sent']:,} packets were sent again although they had "
        f"arrived, at most {most:,} should be: while a queue is full, the timeout has to be longer "
        "than the wait in it"
    ]


LAB = Lab(
    number=5,
    slug="incast",
    title="Congestion and incast: what loss is not",
    minutes=75,
    experiment=lambda dice: _written(_drawn(dice)),
    values=lambda dice: {
        "hosts": str(2 * _drawn(dice)[0] - 1), "limit": str(_drawn(dice)[1]),
        "waiting": str(_waiting(dice)),
    },
    questions=(
        Question(
            "p1",
            "Prediction: {{hosts}} hosts send to one at the same time, through a queue of "
            "{{limit}} KiB. How many percent of ud_rto's packets does the queue drop, with a "
            "window of fixed size (bdp)?",
            "%", "prediction", _lost_share("bdp"),
        ),
        Question(
            "p2", "Prediction: the same with swift, which slows down when the RTT grows",
            "%", "prediction", _lost_share("swift"),
        ),
        Question(
            "q1", "How many packets did the queues drop with ud_rto+bdp? (of these, full queues)",
            "packets", "answer", _of("ud_rto", "queue_drops"), 0.0, 1,
            "read the row 'of these, full queues' of lab run experiment.yaml",
        ),
        Question(
            "q2", "And with ud_rto+swift?",
            "packets", "answer", _of("ud_rto", "queue_drops", "swift"), 0.0, 1,
            "read the row 'of these, full queues' of lab run experiment.yaml; no row: 0",
        ),
        Question(
            "q3",
            "Queues of 64 MiB lose nothing. How long does half of the messages of ud_rto+bdp take "
            "then? (p50 message completion, with --set topology.generator.access.limit=64MiB "
            "--set topology.generator.bottleneck.limit=64MiB)",
            "us",
            "answer",
            lambda dice: _of("ud_rto", "fct_p50_ns", "bdp", True)(dice) / 1000,
            0.02,
            1,
            "read the row 'p50 message completion'; 1 ms is 1,000 us",
        ),
        Question(
            "q4",
            "Exercise without code: {{waiting}} KiB wait in a queue before a link of 25 Gbit/s. "
            "How long does a packet wait that comes last?",
            "us", "answer", _queue_us, 0.03, 2,
            "1 KiB is 1,024 bytes, a byte 8 bits; time is bits divided by the rate",
        ),
        Question(
            "q5",
            "Exercise without code: a timeout of three times an RTT of 14 us is fixed. From how "
            "many KiB in that queue on does it err? Leave the 14 us of the empty fabric out of "
            "the wait",
            "KiB", "answer", lambda dice: (3 * 14 - 14) * 25_000 / 8 / 1024, 0.05, 2,
            "the packet has 42 us in all, 14 of them for the way. What can wait before it?",
        ),
    ),
    tasks=(
        Task("deep", "does not take a long queue for loss", _deep, _takes_no_queue_for_loss,
             points=5, needs="tail"),
        Task("tail", "repairs a lost tail within some round trips all the same", _tail,
             _is_no_snail, points=3),
        Task("shallow", "sends again what a full queue drops, and little else", _shallow,
             _sends_what_is_lost, points=3),
    ),
    policy="Patient",
    hole="rto_ns",
)  # fmt: skip
