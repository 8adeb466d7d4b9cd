# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 8: parity. Repair without a round trip, and when not to send parity.

The lab has questions only: the student changes options of `csa_ud` instead of writing a policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from softroce_lab.learn.lab import Dice, Lab, ask, predict
from softroce_lab.learn.labs.experiments import loss
from softroce_lab.learn.trial import Written, measure

CONDITIONS = ("parity_idle", "parity_unacknowledged", "parity_uncongested")
"""When `csa_ud` may send parity."""
PROTECTS = "parity_uncongested"
"""The only condition that protects an incast without loss."""
WITHOUT: Mapping[str, Any] = {"parity": "0"}
AUTO: Mapping[str, Any] = {}
ALWAYS: Mapping[str, Any] = {
    "parity": "2",
    "parity_budget": 1,
    **dict.fromkeys(CONDITIONS, False),
}
_READ_MAKESPAN = "read the row 'makespan' of lab run experiment.yaml; 1 ms is 1,000 us"


# --- The experiment and the answers ----------------------------------------------------------


def _incast_kib(dice: Dice) -> int:
    return 64 * dice.number("incast", 16, 40)


def _seed(dice: Dice) -> int:
    return dice.number("seed", 1, 30_000)


def _experiment(dice: Dice) -> Written:
    link = {"rate": "100Gbit", "delay": "1us", "limit": "1MiB", "ecn": "200KiB"}
    total = f"{dice.number('ring', 3, 6)}MiB"
    return {
        "name": "parity",
        "topology": {"generator": {"kind": "fat-tree", "k": 4, "access": link, "core": link}},
        "mtu": 4200,
        "workload": {"kind": "ring-all-reduce", "bytes": total, "message": "64KiB"},
        "depth": 1,
        "faults": [loss("1%", "agg*<->core*")],
        "transports": [
            {"name": "csa_ud", "label": "without", "options": dict(WITHOUT)},
            {"name": "csa_ud", "label": "auto"},
            {"name": "csa_ud", "label": "always", "options": dict(ALWAYS)},
        ],
        "seeds": [_seed(dice)],
        "deadline": "1s",
    }


def _incast(dice: Dice) -> Written:
    workload = {"kind": "incast", "bytes": f"{_incast_kib(dice)}KiB", "message": "64KiB"}
    return {**_experiment(dice), "workload": workload, "faults": []}


def ring_figure(name: str, options: Mapping[str, Any], unit: float = 1) -> Callable[[Dice], float]:
    """A figure of the ring all-reduce with 1 % loss."""
    return lambda dice: float(measure(_experiment(dice), "csa_ud", options=options)[name]) / unit


def incast_figure(
    name: str, options: Mapping[str, Any], unit: float = 1
) -> Callable[[Dice], float]:
    """A figure of the incast without loss."""
    return lambda dice: float(measure(_incast(dice), "csa_ud", options=options)[name]) / unit


def _ring_percent(dice: Dice) -> float:
    without, auto = (ring_figure("makespan_ns", options)(dice) for options in (WITHOUT, AUTO))
    return 100 * auto / without


def _incast_percent(dice: Dice) -> float:
    without, always = (incast_figure("makespan_ns", options)(dice) for options in (WITHOUT, ALWAYS))
    return 100 * (always / without - 1)


def _block(dice: Dice) -> tuple[int, int]:
    """Packets of data, and packets of parity behind them."""
    return dice.number("packets", 12, 40), dice.number("parity", 1, 2)


def _loss_percent(dice: Dice) -> int:
    return dice.number("loss", 2, 5)


def _unrestored_percent(dice: Dice) -> float:
    (packets, parity), lost = _block(dice), _loss_percent(dice) / 100
    sent = packets + parity
    enough = (
        math.comb(sent, count) * lost**count * (1 - lost) ** (sent - count)
        for count in range(parity + 1)
    )
    return 100 * (1 - math.fsum(enough))


def _cost_percent(dice: Dice) -> float:
    packets, parity = _block(dice)
    return 100 * parity / packets


LAB = Lab(
    number=8,
    title="Parity: repair without a round trip, at the right time",
    minutes=45,
    experiment=_experiment,
    values=lambda dice: {
        "incast": _incast_kib(dice), "seed": _seed(dice), "loss": _loss_percent(dice),
        "packets": _block(dice)[0], "parity": _block(dice)[1],
    },
    questions=(
        predict(
            "p1",
            "Prediction: links between switches lose 1 % of the packets of a ring all-reduce. How "
            "long does it take with parity (auto), in percent of its time without parity?",
            "%", _ring_percent,
        ),
        predict(
            "p2",
            "Prediction: 15 hosts send to one, and nothing is lost. By how many percent longer "
            "does this incast take if every message has two packets of parity (always)?",
            "%", _incast_percent,
        ),
        ask(
            "q1", "Ring: how long does it take with 'without'? (makespan)", "us",
            ring_figure("makespan_ns", WITHOUT, 1000), _READ_MAKESPAN, tolerance=0.01,
        ),
        ask(
            "q2", "Ring: and with 'auto'?", "us", ring_figure("makespan_ns", AUTO, 1000),
            _READ_MAKESPAN, tolerance=0.01,
        ),
        ask(
            "q3", "Ring: how many packets did the receivers of 'auto' restore?", "packets",
            ring_figure("restored", AUTO), "read the row 'restored from parity'", tolerance=0,
        ),
        ask(
            "q4", "Incast of {{incast}} KiB: how long does it take with 'always'? (makespan)", "us",
            incast_figure("makespan_ns", ALWAYS, 1000),
            "read the row 'makespan' of the run with workload.kind=incast; 1 ms is 1,000 us",
            tolerance=0.01,
        ),
        ask(
            "q5",
            "Incast: give 'always' one condition back. With exactly one of the three, the incast "
            "takes at most 2 % longer than 'without'. How many packets do the queues mark with "
            "that condition? (ECN marks)",
            "packets", incast_figure("marked", {**ALWAYS, PROTECTS: True}),
            "run the incast once for each condition, and compare the makespans of 'always' and "
            "'without'; then read the row 'ECN marks', column 'always'",
            tolerance=0, points=3,
        ),
        ask(
            "q6",
            "Exercise without code: each packet is lost with a probability of {{loss}} %. "
            "{{parity}} packets of parity follow {{packets}} packets of data. In how many percent "
            "of the messages are more packets lost than parity can restore? Count lost parity, too",
            "%", _unrestored_percent,
            "the binomial distribution: at most as many of all packets may be lost as there are "
            "packets of parity",
            tolerance=0.03, points=2,
        ),
        ask(
            "q7",
            "Exercise without code: a link is busy all the time. By how many percent longer does "
            "it need if {{parity}} packets of parity follow every {{packets}} packets of data?",
            "%", _cost_percent, "all packets have the same size", tolerance=0.03, points=2,
        ),
    ),
)  # fmt: skip
