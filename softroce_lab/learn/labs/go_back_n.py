# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 1: go-back-N, and why one loss in a thousand halves it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from softroce_lab.learn.lab import Dice, Lab, Task, ask, predict
from softroce_lab.learn.labs import judging
from softroce_lab.learn.labs.experiments import (
    PACKET_US_GBIT,
    dark_line,
    draw_delay,
    figure,
    line,
    line_that_loses_again,
    line_without_tails,
    loss,
    lossy_line,
)
from softroce_lab.learn.remote import Retransmission
from softroce_lab.learn.trial import Trial, Written, measure

# --- The experiment and the answers ----------------------------------------------------------


def _experiment(dice: Dice) -> Written:
    made = line(
        draw_delay(dice, 70, 95), rate="100Gbit", faults=[loss("0.1%")], total="32MiB",
        message="1MiB",
    )  # fmt: skip
    seeds = [dice.number("seed", 1, 30_000)]
    return {"name": "go-back-n", **made, "transports": ["rc", "irn"], "seeds": seeds}


def _goodput_left(transport: str) -> Callable[[Dice], float]:
    """Goodput with the loss, as a share of the goodput without loss, in percent."""

    def right(dice: Dice) -> float:
        written = _experiment(dice)
        lossy, clean = (measure(made, transport) for made in (written, {**written, "faults": []}))
        return 100 * float(lossy["goodput_bps"]) / float(clean["goodput_bps"])

    return right


def _packets_per_rtt(dice: Dice) -> float:
    rtt_us = figure(_experiment, "rc", "base_rtt_ns", unit=1000)(dice)
    return 100 * rtt_us / PACKET_US_GBIT


# --- Tasks -----------------------------------------------------------------------------------


def _goes_back(trial: Trial) -> list[str]:
    """Each retransmission is from the first missing packet to the last one sent."""
    lost_at_ns: dict[tuple[int, ...], int] = {}  # by operation, step, message and packet
    for row in trial.lost:
        place = tuple(int(row[name]) for name in ("operation", "step", "message", "index"))
        lost_at_ns.setdefault(place, int(row["dropped_ns"]))
    for made in trial.record.retransmissions:
        if blind := judging.find_blind(made):
            return blind
        first = 0 if made.missing is None else int(made.missing[0])  # None: nothing has arrived
        lost_ns = lost_at_ns.get((*made.key, first), made.at_ns)
        problem = _compare(made, first) or _doubt(made, first, lost_ns, trial.rtt_ns)
        if problem is not None:
            return [f"{judging.place(made)}: {problem}"]
    return [] if trial.record.retransmissions else [judging.NOTHING_SENT_AGAIN]


def _compare(made: Retransmission, first: int) -> str | None:
    """What is wrong with the packets that were sent again."""
    packets = np.unique(made.packets[made.packets < made.sent])
    if np.array_equal(packets, np.arange(first, made.sent)):
        return None
    if not packets.size:
        return f"packet {first} is missing, and no packet was sent again"
    begin, end = int(packets[0]), int(packets[-1])
    lacks = f"the receiver lacks packet {first}"
    if begin > first:
        return f"{lacks}, and you went back to packet {begin} only"
    if begin < first:
        return f"you went back to packet {begin}, but {lacks} first: all before it has arrived"
    if len(packets) < end - begin + 1:
        return (
            f"from packet {begin} on you left some out, the first of them "
            f"{int(np.setdiff1d(np.arange(begin, end), packets)[0])}; go-back-N sends all again"
        )
    return (
        f"you stopped at packet {end}, but packets up to {made.sent - 1} had been sent after the "
        "lost one: go-back-N sends them all again"
    )


def _doubt(made: Retransmission, first: int, lost_ns: int, rtt_ns: int) -> str | None:
    """Why nobody can know yet that the packet is missing."""
    age_ns = made.at_ns - int(made.sent_ns[first])
    if lost_ns >= made.at_ns:
        return (
            f"you went back to packet {first}, which was never lost: it was on its way when the "
            "receiver wrote its feedback. Let the receiver report when a gap shows (on_gap)"
        )
    if age_ns < 3 * rtt_ns // 4:
        return (
            f"you went back to packet {first}, which was sent {age_ns / 1000:.1f} us before; a "
            f"round trip takes {rtt_ns / 1000:.1f} us: nobody can know yet that it is missing again"
        )
    return None


LAB = Lab(
    number=1,
    title="Go-back-N, and why one loss in a thousand halves it",
    minutes=75,
    experiment=_experiment,
    values=lambda dice: {"delay": dice.number("delay", 70, 95)},
    questions=(
        predict(
            "p1",
            "Prediction: without loss, rc moves about 92 Gbit/s. How much of that is left if one "
            "packet in a thousand is lost? 100 means: all of it",
            "%", _goodput_left("rc"),
        ),
        predict("p2", "Prediction: the same for irn, which sends again the lost packets only", "%",
                _goodput_left("irn")),
        ask(
            "q1",
            "How long is a round trip when nothing waits in a queue? (base_rtt_ns of lab run "
            "--json, as microseconds)",
            "us", figure(_experiment, "rc", "base_rtt_ns", unit=1000),
            "look for base_rtt_ns in lab run experiment.yaml --json; 1 us is 1,000 ns",
        ),
        ask(
            "q2",
            "Exercise without code: how many packets of 2,048 bytes leave a host in one such round "
            "trip at 100 Gbit/s?",
            "packets", _packets_per_rtt,
            "bits in a round trip are rate times time; a packet has 2,048 x 8 of them",
            tolerance=0.05, points=2,
        ),
        ask(
            "q3", "How many packets did rc retransmit in your experiment?", "packets",
            figure(_experiment, "rc", "retransmitted"),
            "read the row 'retransmitted' of lab run experiment.yaml, without the comma",
            tolerance=0,
        ),
        ask(
            "q4", "And irn?", "packets", figure(_experiment, "irn", "retransmitted"),
            "read the row 'retransmitted' of lab run experiment.yaml", tolerance=0,
        ),
        ask(
            "q5", "How many packets did rc retransmit for each packet that was lost?", "packets",
            figure(_experiment, "rc", "retransmitted", per="injected_drops"),
            "divide the row 'retransmitted' by the row 'injected drops'",
        ),
        ask(
            "q6",
            "Exercise without code: suppose each loss costs as many packets as leave in one round "
            "trip (q2). At which loss rate do retransmissions take half of the link?",
            "%", lambda dice: 100 / _packets_per_rtt(dice),
            "half of the link: one packet sent again for each new one. If N are sent again for "
            "each loss, how often may a packet be lost?",
            tolerance=0.06, points=2,
        ),
    ),
    tasks=(
        Task("goes-back", "goes back to the first missing packet, after random loss",
             lambda dice: lossy_line(dice, ("0.3%", "0.5%", "1%")), _goes_back),
        Task("lost-again", "repairs a packet whose retransmissions are lost, too",
             lambda dice: line_that_loses_again(dice, 5, 100), _goes_back, points=2),
        Task("tail", "repairs a lost tail", lambda dice: line_without_tails(dice, 3), _goes_back,
             points=2),
        Task("dark", "survives some milliseconds in which everything is lost",
             lambda dice: dark_line(dice, 2, 5), _goes_back, points=2),
    ),
    policy="GoBackN",
    hole="packets_to_retransmit",
)  # fmt: skip
