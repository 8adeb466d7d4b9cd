# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 7: a NIC dies. The trilemma, and a failover that keeps the semantics of memory."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence

from softroce_lab.learn.failover import outcome, scene
from softroce_lab.learn.failover.run import Result, compare_ways
from softroce_lab.learn.lab import Dice, Lab, Task, ask, predict
from softroce_lab.learn.trial import Written

_PLAIN = ("WRITE", "WRITE_IMM", "SEND")


def _size(dice: Dice, name: str) -> int:
    return 64 * dice.number(name, 1, 32)


def _drawn_requests(dice: Dice, count: int, last: Sequence[str] = ()) -> list[str]:
    """WRITEs, each third or so notified of; the second is, so that there is something to count."""
    kinds = [dice.one_of(f"kind {place}", _PLAIN) for place in range(count)]
    kinds[0], kinds[1], kinds[-1] = "WRITE", dice.one_of("first", _PLAIN[1:]), "SEND"
    made = [f"{kind} {_size(dice, f'size {place}')}" for place, kind in enumerate(kinds)]
    return [*made, *last]


def _scene(requests: Sequence[str], dies: str, after: int) -> Written:
    return {
        "name": "failover", "requests": list(requests), "dies": dies, "after": after,
        "delay": "1us", "timeout": 3, "retries": 1,
    }  # fmt: skip


# --- The experiment and the questions --------------------------------------------------------


def _experiment(dice: Dice) -> Written:
    requests = _drawn_requests(dice, 8, ["WRITE 512"])
    made = dict(_scene(requests, "acknowledgements", dice.number("after", 0, 1)))
    made["timeout"], made["retries"] = dice.number("timeout", 3, 5), dice.number("retries", 1, 3)
    return made


@functools.lru_cache(maxsize=512)
def _compared(written: str) -> dict[str, Result]:
    return compare_ways(scene.read(json.loads(written)))


def _figure(way: str, name: str, unit: float = 1) -> Callable[[Dice], float]:
    def right(dice: Dice) -> float:
        results = _compared(json.dumps(_experiment(dice)))
        return float(getattr(results[way], name)) / unit

    return right


def _timeout(dice: Dice) -> tuple[int, int]:
    return dice.number("exponent", 11, 17), dice.number("count", 3, 7)


def _gives_up_ms(dice: Dice) -> float:
    exponent, retries = _timeout(dice)
    return 4.096e-3 * (1 << exponent) * (retries + 1)


def _in_flight(dice: Dice) -> list[str]:
    kinds = [dice.one_of(f"flight {place}", ("W", "W", "I", "S")) for place in range(9)]
    kinds[1], kinds[4], kinds[7] = "S", "I", "S"
    return kinds


def _counted(dice: Dice) -> int:
    return dice.number("counted", 1, 3)


def _prefix(dice: Dice) -> float:
    left = _counted(dice)
    for place, kind in enumerate(_in_flight(dice), 1):
        left -= kind in "IS"
        if left == 0:
            return float(place)
    raise AssertionError("three notifications are always there")


# --- Tasks -----------------------------------------------------------------------------------


def _late(dice: Dice) -> Written:
    return _scene(
        _drawn_requests(dice, dice.number("count", 5, 9)), "late", dice.number("at", 0, 3)
    )


def _lost(dice: Dice) -> Written:
    requests = _drawn_requests(dice, dice.number("count", 5, 11))
    return _scene(requests, "requests", dice.number("at", 0, 4))


def _counting(dice: Dice) -> Written:
    requests = _drawn_requests(dice, dice.number("count", 5, 9), ["WRITE 640", "WRITE 64"])
    return _scene(requests, "acknowledgements", dice.number("at", 0, 1))


_READS = ["READ 256"] * 4  # as many as may be outstanding: what follows has not begun
_ONCE: tuple[tuple[str, Sequence[str]], ...] = (
    ("acknowledgements", ["WRITE 512", "SEND 64", "ADD", "WRITE 64"]),
    ("requests", ["WRITE 512", "SEND 64", "ADD", "WRITE 64"]),
    ("requests", [*_READS, "ADD", "SEND 64"]),
    ("acknowledgements", ["WRITE 256", "SEND 64 once", "WRITE 64"]),
    ("requests", ["SEND 64", "WRITE 256 once", "SEND 64"]),
    ("acknowledgements", ["READ 128", "SEND 64", "WRITE 64"]),
    ("requests", ["READ 128", "WRITE 64", "SEND 64"]),
)


def _once(dice: Dice) -> Written:
    first = _drawn_requests(dice, dice.number("count", 2, 4)) if dice.number("more", 0, 1) else []
    dies, requests = dice.one_of("which", _ONCE)
    return _scene([*first, *requests], dies, 0)


def _list_problems(ended: outcome.Outcome) -> list[str]:
    return ended.problems


LAB = Lab(
    number=7,
    title="A NIC dies: the trilemma, and a failover that keeps memory right",
    minutes=90,
    experiment=_experiment,
    values=lambda dice: {
        "timeout": _experiment(dice)["timeout"], "retries": _experiment(dice)["retries"],
        "exponent": _timeout(dice)[0], "count": _timeout(dice)[1],
        "flight": " ".join(_in_flight(dice)), "counted": _counted(dice),
    },
    questions=(
        predict(
            "p1",
            "Prediction: acknowledgements are lost, h1 posts everything in flight again on its "
            "other NIC, and asks nobody. How many notifications does h2 get twice?",
            "notifications", _figure("repeat all", "notified_twice"),
        ),
        predict("p2",
                "Prediction: after how many microseconds does h1 notice that its NIC is dead?",
                "us", _figure("SHIFT", "detected_ns", 1000)),
        ask(
            "q1", "After how long did h1 notice it with SHIFT? (detected after)", "us",
            _figure("SHIFT", "detected_ns", 1000),
            "read the row 'detected after' of lab learn failover experiment.yaml", tolerance=0.01,
        ),
        ask(
            "q2", "How many notifications did h2 get twice, when everything was repeated?",
            "notifications", _figure("repeat all", "notified_twice"),
            "read the row 'notified twice', column 'repeat all'", tolerance=0,
        ),
        ask("q3", "How many requests did SHIFT call done without posting them again?", "requests",
            _figure("SHIFT", "consumed"), "read the row 'called done', column 'SHIFT'",
            tolerance=0),
        ask("q4", "And how many did it post again?", "requests", _figure("SHIFT", "resubmitted"),
            "read the row 'posted again', column 'SHIFT'", tolerance=0),
        ask(
            "q5",
            "Exercise without code: how long does a queue pair with timeout {{exponent}} and "
            "retry_cnt {{count}} try at least before it gives up? Each try waits 4.096 us x "
            "2^timeout",
            "ms", _gives_up_ms, "the first try counts, too: retry_cnt tries come after it",
            points=2,
        ),
        ask(
            "q6",
            "Exercise without code: in flight are, in this order: {{flight}} (W is a WRITE, I a "
            "WRITE with immediate, S a SEND). h2 counts {{counted}} of their notifications. How "
            "many of these requests are certainly done?",
            "requests", _prefix,
            "find the last notification that is counted; what about everything before it?",
            tolerance=0, points=2,
        ),
    ),
    tasks=(
        Task("order", "does the steps of a failover in an order that loses nothing", _late,
             _list_problems, points=3),
        Task("lost", "posts again what was lost, in its order", _lost, _list_problems, points=2),
        Task("counted", "posts nothing again that the peer counts", _counting, _list_problems,
             points=3, public=(1, 2, 3)),
        Task("once", "never executes twice what must be executed once", _once, _list_problems,
             points=4, public=(1, 2, 3, 6, 7, 9, 17), hidden=6),
    ),
    policy="Failover",
    hole="on_failure, then on_move",
    kind="failover",
    run=outcome.run_policy,
    read=scene.read,
    draw=outcome.Outcome.draw,
    command="lab learn failover experiment.yaml",
)  # fmt: skip
