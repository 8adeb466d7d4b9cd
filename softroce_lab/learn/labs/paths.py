# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 4: many paths. Spraying, and a grey link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softroce_lab.learn.lab import Dice, Lab, Task, ask, predict
from softroce_lab.learn.labs import judging
from softroce_lab.learn.labs.experiments import figure, loss, paths
from softroce_lab.learn.trial import Trial, Written

_MOST_OF_GREY = 0.3
"""A hash may put six of eight ports on one link: a fifth of the packets crosses it meanwhile."""
_LEAST_SHARE = 8
"""How many times more packets than another a path may have, where all lose alike: chance decides,
not only the last weights."""
_WEIGH = "what is sent again takes a path by the weights, too"


# --- The experiment and the answers ----------------------------------------------------------


def _loss_percent(dice: Dice) -> int:
    return dice.number("loss", 4, 9)


def _experiment(dice: Dice) -> Written:
    faults = [loss(f"{_loss_percent(dice)}%", f"s1->m{dice.number('path', 1, 4)}")]
    return {
        "name": "grey-link",
        **paths(4, "1us", faults=faults, total="8MiB"),
        "transports": ["rc", "ud_rto"],
        "seeds": [dice.number("seed", 1, 30_000)],
    }


def _other_paths(dice: Dice) -> int:
    return dice.number("spread", 3, 12)


_LOST_PERCENT = figure(_experiment, "ud_rto", "injected_drops", per="packets_sent", unit=0.01)


# --- Tasks -----------------------------------------------------------------------------------


def _fabric(dice: Dice, fault: Mapping[str, Any]) -> Written:
    count = dice.number("paths", 3, 4)
    return paths(count, "1us", faults=[fault], total="6MiB", lb="flow")


def _one_path(dice: Dice, share: str) -> Written:
    return _fabric(dice, loss(share, f"s1->m{dice.number('path', 1, 2)}"))


def _grey(dice: Dice) -> Written:
    return _one_path(dice, f"{dice.number('loss', 8, 20)}%")


def _even(dice: Dice) -> Written:
    return _fabric(dice, loss(dice.one_of("loss", ("1%", "1.5%", "2%")), "s1->m*"))


def _share_of_grey(trial: Trial) -> float:
    """The grey path's share of the packets that entered the middle."""
    grey = str(trial.written["faults"][0]["links"])
    crossed = {
        str(link["name"]): int(link["received"]) + int(link["injected_drops"])
        for link in trial.run.links
        if str(link["name"]).startswith("s1->m")
    }
    return crossed[grey] / max(sum(crossed.values()), 1)


def _loss(trial: Trial) -> str:
    return str(trial.written["faults"][0]["loss"]).removeprefix("random ")


def _avoids(trial: Trial) -> list[str]:
    share, decisions = _share_of_grey(trial), trial.record.weightings
    if share <= _MOST_OF_GREY:
        return []
    last = decisions[-1].weights if decisions else "none"
    return [
        f"{100 * share:.0f} % of all packets took the path that loses {_loss(trial)}; at most "
        f"{100 * _MOST_OF_GREY:.0f} % are needed to find out. The last weights: {last}. Compare "
        "the share that each path lost, not the number"
    ]


def _leaves(trial: Trial) -> list[str]:
    return [*_avoids(trial), *judging.limit_repair(trial, 30, _WEIGH, median=True)]


def _keeps_all(trial: Trial) -> list[str]:
    if not trial.record.weightings:
        return ["the weights were never set, although packets were lost"]
    last = trial.record.weightings[-1]
    if min(last.sent) * _LEAST_SHARE >= max(last.sent):
        return []
    return [
        f"all paths lose {_loss(trial)} alike, and of {sum(last.sent):,} packets they were "
        f"given {last.sent}: a path is bad only if it loses clearly more than the others"
    ]


LAB = Lab(
    number=4,
    title="Many paths: spraying, and a grey link",
    minutes=75,
    experiment=_experiment,
    values=lambda dice: {
        "path": dice.number("path", 1, 4), "loss": _loss_percent(dice),
        "spread": _other_paths(dice),
    },
    questions=(
        predict(
            "p1",
            "Prediction: one of four paths loses {{loss}} %. The switches spray. How many percent "
            "of ud_rto's packets are lost?",
            "%", _LOST_PERCENT,
        ),
        predict("p2", "Prediction: and how much goodput does rc reach, on links of 25 Gbit/s?",
                "Gbit/s", figure(_experiment, "rc", "goodput_bps", unit=1e9)),
        ask(
            "q1", "How many of ud_rto's packets were lost? (injected drops)", "packets",
            figure(_experiment, "ud_rto", "injected_drops"),
            "read the row 'injected drops' of lab run experiment.yaml", tolerance=0,
        ),
        ask(
            "q2", "How many percent of the data packets that ud_rto sent is that?", "%",
            _LOST_PERCENT, "divide by the row 'data packets sent', times 100", tolerance=0.03,
        ),
        ask(
            "q3", "How many packets did rc retransmit?", "packets",
            figure(_experiment, "rc", "retransmitted"),
            "read the row 'retransmitted', without the comma", tolerance=0,
        ),
        ask(
            "q4",
            "Exercise without code: a sender gives a path whose weight is 1 its share beside "
            "{{spread}} paths of weight 16. How many percent of its packets still take it?",
            "%", lambda dice: 100 / (1 + 16 * _other_paths(dice)),
            "a path's share is its weight, divided by the sum of all weights",
            tolerance=0.05, points=2,
        ),
        ask(
            "q5",
            "Exercise without code: a link of the fabric loses {{loss}} % and a message has 128 "
            "packets, of which a quarter crosses it. In how many percent of the messages is at "
            "least one packet lost?",
            "%", lambda dice: 100 * (1 - (1 - _loss_percent(dice) / 100) ** 32),
            "with which probability do all 32 packets arrive?", tolerance=0.03, points=2,
        ),
    ),
    tasks=(
        Task("grey", "avoids a path that loses many packets", _grey, _avoids),
        Task("even", "keeps using all paths if they lose alike", _even, _keeps_all,
             needs="grey", because="who never changes a weight does so, too"),
        Task("black", "leaves a path that loses everything", lambda dice: _one_path(dice, "100%"),
             _leaves, points=3),
    ),
    policy="Paths",
    hole="weights",
)  # fmt: skip
