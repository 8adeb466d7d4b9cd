# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 4: many paths. Spraying, and a grey link."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from softroce_lab.learn import trial
from softroce_lab.learn.lab import Lab, Question, Task
from softroce_lab.learn.labs import fabrics, judging
from softroce_lab.learn.seeds import Dice
from softroce_lab.learn.trial import Trial, Written


def _drawn(dice: Dice) -> tuple[int, int, int]:
    """Which of the four paths is grey, how many percent it loses, and the seed."""
    return dice.number("path", 1, 4), dice.number("loss", 4, 9), dice.number("seed", 1, 30_000)


def _written(drawn: tuple[int, int, int], lb: str = "spray") -> Written:
    path, share, seed = drawn
    faults = [fabrics.loss(f"{share}%", f"s1->m{path}")]
    return {
        "name": "grey-link",
        **fabrics.paths(4, "1us", faults=faults, total="8MiB"),
        "lb": lb,
        "transports": ["rc", "ud_rto"],
        "seeds": [seed],
    }


@functools.lru_cache(maxsize=512)
def _figures(drawn: tuple[int, int, int], name: str) -> dict[str, Any]:
    return trial.of_transport(_written(drawn), drawn[2], name).summary()


def _of(name: str, figure: str) -> Callable[[Dice], float]:
    return lambda dice: float(_figures(_drawn(dice), name)[figure])


def _lost_share(dice: Dice) -> float:
    found = _figures(_drawn(dice), "ud_rto")
    return 100 * float(found["injected_drops"]) / float(found["packets_sent"])


def _paths_of_four(dice: Dice) -> int:
    return dice.number("spread", 3, 12)


# --- Tasks -----------------------------------------------------------------------------------


def _fabric(dice: Dice, faults: list[Any], least: int = 3) -> Written:
    made = fabrics.paths(dice.number("paths", least, 4), "1us", faults=faults, total="6MiB")
    return {**made, "lb": "flow"}


def _grey(dice: Dice) -> Written:
    share = f"{dice.number('loss', 8, 20)}%"
    return _fabric(dice, [fabrics.loss(share, f"s1->m{dice.number('path', 1, 2)}")])


_MOST_OF_GREY = 0.3
"""A hash may put six of eight ports on one link: before they are found out, a fifth took it."""
_LEAST_SHARE = 8
"""How many times more packets than another a path may have, where all lose alike: chance decides,
not the last weights alone."""


def _share_of_grey(found: Trial) -> float:
    """Of the packets that entered the middle, by any path: those of the grey one."""
    grey = str(found.written["faults"][0]["links"])
    crossed = {
        str(link["name"]): int(link["received"]) + int(link["injected_drops"])
        for link in found.run.links
        if str(link["name"]).startswith("s1->m")
    }
    return crossed[grey] / max(sum(crossed.values()), 1)


def _avoids(found: Trial) -> list[str]:
    share, most = _share_of_grey(found), _MOST_OF_GREY
    if share <= most:
        return []
    last = found.weightings[-1].weights if found.weightings else "none"
    return [
        f"{100 * share:.0f} % of all packets took the path that loses {_loss_of(found)}; at most "
        f"{100 * most:.0f} % are needed to find out. The last weights: {last}. Compare the share "
        "that each path lost, not the number"
    ]


def _loss_of(found: Trial) -> str:
    return str(found.written["faults"][0]["loss"]).removeprefix("random ")


def _even(dice: Dice) -> Written:
    share = dice.one_of("loss", ("1%", "1.5%", "2%"))
    return _fabric(dice, [fabrics.loss(share, "s1->m*")])


def _keeps_all(found: Trial) -> list[str]:
    if not found.weightings:
        return ["the weights were never set, although packets were lost"]
    last = found.weightings[-1]
    if min(last.sent) * _LEAST_SHARE >= max(last.sent):
        return []
    return [
        f"all paths lose {_loss_of(found)} alike, and of {sum(last.sent):,} packets they were "
        f"given {last.sent}: a path is bad only if it loses clearly more than the others"
    ]


def _black(dice: Dice) -> Written:
    return _fabric(dice, [fabrics.loss("100%", f"s1->m{dice.number('path', 1, 2)}")])


def _leaves(found: Trial) -> list[str]:
    return [
        *_avoids(found),
        *judging.slow(
            found, 30, median=True, advice="what is sent again takes a path by the weights, too"
        ),
    ]


LAB = Lab(
    number=4,
    slug="many-paths",
    title="Many paths: spraying, and a grey link",
    minutes=75,
    experiment=lambda dice: _written(_drawn(dice)),
    values=lambda dice: {
        "path": str(_drawn(dice)[0]), "loss": str(_drawn(dice)[1]),
        "spread": str(_paths_of_four(dice)),
    },
    questions=(
        Question(
            "p1",
            "Prediction: one of four paths loses {{loss}} %. The switches spray. How many percent "
            "of ud_rto's packets are lost?",
            "%", "prediction", _lost_share,
        ),
        Question(
            "p2", "Prediction: and how much goodput does rc reach, on links of 25 Gbit/s?",
            "Gbit/s", "prediction",
            lambda dice: _of("rc", "goodput_bps")(dice) / 1e9,
        ),
        Question(
            "q1", "How many of ud_rto's packets were lost? (injected drops)",
            "packets", "answer", _of("ud_rto", "injected_drops"), 0.0, 1,
            "read the row 'injected drops' of lab run experiment.yaml",
        ),
        Question(
            "q2", "How many percent of the data packets that ud_rto sent is that?",
            "%", "answer", _lost_share, 0.03, 1,
            "divide by the row 'data packets sent', times 100",
        ),
        Question(
            "q3", "How many packets did rc retransmit?",
            "packets", "answer", _of("rc", "retransmitted"), 0.0, 1,
            "read the row 'retransmitted', without the comma",
        ),
        Question(
            "q4",
            "Exercise without code: a sender gives a path whose weight is 1 its share beside "
            "{{spread}} paths of weight 16. How many percent of its packets still take it?",
            "%", "answer", lambda dice: 100 / (1 + 16 * _paths_of_four(dice)), 0.05, 2,
            "a path's share is its weight, divided by the sum of all weights",
        ),
        Question(
            "q5",
            "Exercise without code: a link of the fabric loses {{loss}} % and a message has 128 "
            "packets, of which a quarter crosses it. In how many percent of the messages is at "
            "least one packet lost?",
            "%", "answer",
            lambda dice: 100 * (1 - (1 - _drawn(dice)[1] / 100) ** 32), 0.03, 2,
            "with which probability do all 32 packets arrive?",
        ),
    ),
    tasks=(
        Task("grey", "avoids a path that loses many packets", _grey, _avoids, points=4),
        Task("even", "keeps using all paths if they lose alike", _even, _keeps_all, points=4,
             needs="grey", because="who never changes a weight does so, too"),
        Task("black", "leaves a path that loses everything", _black, _leaves, points=3),
    ),
    policy="Paths",
    hole="weights",
)  # fmt: skip
