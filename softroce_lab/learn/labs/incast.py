# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 5: congestion and incast. What loss is not."""

from __future__ import annotations

from softroce_lab.learn.lab import Dice, Lab, Task, ask, predict
from softroce_lab.learn.labs import judging
from softroce_lab.learn.labs.experiments import draw_delay, drop, figure, line
from softroce_lab.learn.trial import Trial, Written

_SHORT = "where no queue is, the timeout should be a few RTTs"
_MOST_IN_VAIN = 0.04  # of the packets


def _fabric(hosts: int, limit: str, total: str) -> Written:
    """Senders on both sides of a line. All but one send to that one."""
    access = {"rate": "25Gbit", "delay": "2us", "limit": limit}
    shape = {"kind": "dumbbell", "hosts_per_side": hosts, "access": access, "bottleneck": access}
    workload = {"kind": "incast", "bytes": total, "message": "64KiB"}
    return {"topology": {"generator": shape}, "workload": workload, "deadline": "50ms"}


# --- The experiment and the answers ----------------------------------------------------------


def _hosts(dice: Dice) -> int:
    return dice.number("hosts", 4, 6)


def _queue_kib(dice: Dice) -> int:
    return 32 * dice.number("limit", 3, 6)


def _experiment(dice: Dice, limit: str | None = None) -> Written:
    chosen = [{"name": "ud_rto", "congestion_control": name} for name in ("bdp", "swift")]
    return {
        "name": "incast",
        **_fabric(_hosts(dice), limit or f"{_queue_kib(dice)}KiB", "512KiB"),
        "transports": ["rc", *chosen],
        "seeds": [dice.number("seed", 1, 30_000)],
    }


def _deep_experiment(dice: Dice) -> Written:
    return _experiment(dice, "64MiB")


def _waiting_kib(dice: Dice) -> int:
    return 64 * dice.number("waiting", 2, 20)


_BDP_PERCENT, _SWIFT_PERCENT = (
    figure(_experiment, "ud_rto", "queue_drops", per="packets_sent", unit=0.01, control=name)
    for name in ("bdp", "swift")
)
_BDP_DROPS, _SWIFT_DROPS = (
    figure(_experiment, "ud_rto", "queue_drops", control=name) for name in ("bdp", "swift")
)


# --- Tasks -----------------------------------------------------------------------------------


def _deep(dice: Dice) -> Written:
    return _fabric(dice.number("hosts", 3, 6), "64MiB", "256KiB")


def _tail(dice: Dice) -> Written:
    return line(draw_delay(dice), faults=[drop("tail 1 iter 1")], total="1MiB")


def _shallow(dice: Dice) -> Written:
    limit = f"{64 * dice.number('limit', 2, 4)}KiB"
    return _fabric(dice.number("hosts", 3, 5), limit, "256KiB")


def _takes_no_queue_for_loss(trial: Trial) -> list[str]:
    share = trial.figures["retransmitted"] / trial.figures["packets_sent"]
    if share <= _MOST_IN_VAIN:
        return []
    return [
        f"nothing was lost, and {100 * share:.0f} % of all packets were sent again (at most "
        f"{100 * _MOST_IN_VAIN:.0f} %): they waited in a queue. Base the timeout on what is "
        "measured, and leave room for more"
    ]


def _repairs_soon(trial: Trial) -> list[str]:
    return [
        *judging.limit_repair(trial, 9, _SHORT),
        *judging.limit_waste(trial, 2, free=4),
    ]


def _sends_what_is_lost(trial: Trial) -> list[str]:
    sent, spurious = (trial.figures[name] for name in ("packets_sent", "spurious_retransmissions"))
    most = sent // 20
    if spurious <= most:
        return []
    return [
        f"{spurious:,} of {sent:,} packets were sent again although they had arrived, at most "
        f"{most:,} should be: while a queue is full, the timeout has to be longer than the wait in "
        "it"
    ]


LAB = Lab(
    number=5,
    title="Congestion and incast: what loss is not",
    minutes=75,
    experiment=_experiment,
    values=lambda dice: {
        "hosts": 2 * _hosts(dice) - 1, "limit": _queue_kib(dice), "waiting": _waiting_kib(dice),
    },
    questions=(
        predict(
            "p1",
            "Prediction: {{hosts}} hosts send to one at the same time, through a queue of "
            "{{limit}} KiB. How many percent of ud_rto's packets does the queue drop, with a "
            "window of fixed size (bdp)?",
            "%", _BDP_PERCENT,
        ),
        predict("p2", "Prediction: the same with swift, which slows down when the RTT grows", "%",
                _SWIFT_PERCENT),
        ask(
            "q1", "How many packets did the queues drop with ud_rto+bdp? (of these, full queues)",
            "packets", _BDP_DROPS,
            "read the row 'of these, full queues' of lab run experiment.yaml", tolerance=0,
        ),
        ask(
            "q2", "And with ud_rto+swift?", "packets", _SWIFT_DROPS,
            "read the row 'of these, full queues' of lab run experiment.yaml; no row: 0",
            tolerance=0,
        ),
        ask(
            "q3",
            "Queues of 64 MiB lose nothing. How long does half of the messages of ud_rto+bdp take "
            "then? (p50 message completion, with --set topology.generator.access.limit=64MiB "
            "--set topology.generator.bottleneck.limit=64MiB)",
            "us", figure(_deep_experiment, "ud_rto", "fct_p50_ns", unit=1000, control="bdp"),
            "read the row 'p50 message completion'; 1 ms is 1,000 us",
        ),
        ask(
            "q4",
            "Exercise without code: {{waiting}} KiB wait in a queue before a link of 25 Gbit/s. "
            "How long does a packet wait that comes last?",
            "us", lambda dice: _waiting_kib(dice) * 1024 * 8 / 25_000,
            "1 KiB is 1,024 bytes, a byte 8 bits; time is bits divided by the rate",
            tolerance=0.03, points=2,
        ),
        ask(
            "q5",
            "Exercise without code: a timeout of three times an RTT of 14 us is fixed. From how "
            "many KiB in that queue on does it err? Leave the 14 us of the empty fabric out of "
            "the wait",
            "KiB", lambda dice: (3 * 14 - 14) * 25_000 / 8 / 1024,
            "the packet has 42 us in all, 14 of them for the way. What can wait before it?",
            tolerance=0.05, points=2,
        ),
    ),
    tasks=(
        Task("deep", "does not take a long queue for loss", _deep, _takes_no_queue_for_loss,
             points=5, needs="tail"),
        Task("tail", "repairs a lost tail within some round trips all the same", _tail,
             _repairs_soon, points=3),
        Task("shallow", "sends again what a full queue drops, and little else", _shallow,
             _sends_what_is_lost, points=3),
    ),
    policy="Patient",
    hole="rto_ns",
)  # fmt: skip
