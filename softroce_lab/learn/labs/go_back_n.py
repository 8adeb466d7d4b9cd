# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 1: go-back-N, and why one loss in a thousand halves it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from softroce_lab.learn import trial
from softroce_lab.learn.hosted import Retransmission
from softroce_lab.learn.lab import Lab, Question, Task
from softroce_lab.learn.labs import fabrics, judging
from softroce_lab.learn.seeds import Dice
from softroce_lab.learn.trial import Trial, Written

_PACKET_BYTES = 2048


def _delay_us(dice: Dice) -> int:
    return dice.number("delay", 70, 95)


def _experiment(dice: Dice) -> Written:
    return {
        "name": "go-back-n",
        **fabrics.line(
            f"{_delay_us(dice)}us",
            rate="100Gbit",
            faults=[fabrics.loss("0.1%")],
            total="32MiB",
            message="1MiB",
        ),
        "transports": ["rc", "irn"],
        "seeds": [dice.number("seed", 1, 30_000)],
    }


def _of(name: str, figure: str) -> Any:
    return lambda dice: float(_figures(_key(dice), name, True)[figure])


def _key(dice: Dice) -> tuple[int, int]:
    return _delay_us(dice), dice.number("seed", 1, 30_000)


class _Fixed(Dice):
    """A variant of known values."""

    def __init__(self, delay: int, seed: int) -> None:
        super().__init__("")
        self._values = {"delay": delay, "seed": seed}

    def number(self, name: str, least: int, most: int) -> int:
        """As it was drawn."""
        return self._values[name]


@functools.lru_cache(maxsize=512)
def _figures(key: tuple[int, int], name: str, lossy: bool) -> Mapping[str, Any]:
    written = dict(_experiment(_Fixed(*key)))
    if not lossy:
        written["faults"] = []
    return trial.of_transport(written, key[1], name).summary()


def _share(name: str) -> Any:
    """Goodput with the loss, as a share of that without, in percent."""

    def right(dice: Dice) -> float:
        with_loss, without = (_figures(_key(dice), name, lossy) for lossy in (True, False))
        return 100 * float(with_loss["goodput_bps"]) / float(without["goodput_bps"])

    return right


def _in_flight(dice: Dice) -> float:
    """Packets of one round trip at full rate."""
    rtt_ns = float(_figures(_key(dice), "rc", True)["base_rtt_ns"])
    return 100 * rtt_ns / 8 / _PACKET_BYTES


def _per_loss(dice: Dice) -> float:
    found = _figures(_key(dice), "rc", True)
    return float(found["retransmitted"]) / float(found["injected_drops"])


def _goes_back(found: Trial) -> list[str]:
    """Each retransmission is from the first missing packet to the last one sent."""
    lost = _lost_at_ns(found)
    for each in found.retransmissions:
        if judging.blind(each):
            return [judging.unasked(each)]
        first = 0 if each.missing is None else int(each.missing[0])  # None: nothing has arrived
        packets = np.unique(each.packets[each.packets < each.sent])
        if not np.array_equal(packets, np.arange(first, each.sent)):
            return [f"{judging.at(each)}: {_difference(packets, first, each.sent)}"]
        if lost.get((*each.key, first), each.at_ns) >= each.at_ns:
            return [f"{judging.at(each)}: {_not_lost(first)}"]
        if each.at_ns - int(each.sent_ns[first]) < 3 * found.rtt_ns // 4:
            return [f"{judging.at(each)}: {_under_way(each, first, found.rtt_ns)}"]
    if not found.retransmissions:
        return ["nothing was ever sent again, although packets were lost"]
    return []


def _lost_at_ns(found: Trial) -> dict[tuple[int, ...], int]:
    """By operation, step, message and packet: when it was lost for the first time."""
    names = ("operation", "step", "message", "index")
    when: dict[tuple[int, ...], int] = {}
    for each in judging.lost(found):
        when.setdefault(tuple(int(each[name]) for name in names), int(each["dropped_ns"]))
    return when


def _not_lost(first: int) -> str:
    return (
        f"you went back to packet {first}, which was never lost: it was on its way when the "
        "receiver wrote its feedback. Let the receiver report when a gap shows (on_gap)"
    )


def _under_way(each: Retransmission, first: int, rtt_ns: int) -> str:
    age_us = (each.at_ns - int(each.sent_ns[first])) / 1000
    return (
        f"you went back to packet {first}, which was sent {age_us:.1f} us before; a round trip "
        f"takes {rtt_ns / 1000:.1f} us: nobody can know yet that it is missing again"
    )


def _difference(packets: np.ndarray[Any, Any], first: int, sent: int) -> str:
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
        f"you stopped at packet {end}, but packets up to {sent - 1} had been sent after the lost "
        "one: go-back-N sends them all again"
    )


def _lossy(dice: Dice) -> Written:
    share = dice.one_of("loss", ("0.3%", "0.5%", "1%"))
    return fabrics.line(f"{dice.number('delay', 10, 40)}us", faults=[fabrics.loss(share)])


def _lost_again(dice: Dice) -> Written:
    message, packet = dice.number("message", 0, 7), dice.number("packet", 5, 100)
    last = dice.number("times", 2, 4)
    faults = [fabrics.drop(f"message {message} packet {packet} iter 1-{last}")]
    delay = f"{dice.number('delay', 10, 40)}us"
    return fabrics.line(delay, faults=faults, total="2MiB")


def _tail(dice: Dice) -> Written:
    faults = [fabrics.drop(f"tail {dice.number('tail', 1, 3)} iter 1")]
    return fabrics.line(f"{dice.number('delay', 10, 40)}us", faults=faults, total="1MiB")


def _dark(dice: Dice) -> Written:
    faults = [fabrics.outage(f"{dice.number('at', 100, 400)}us", f"{dice.number('for', 2, 5)}ms")]
    return fabrics.line(f"{dice.number('delay', 10, 40)}us", faults=faults)


LAB = Lab(
    number=1,
    slug="go-back-n",
    title="Go-back-N, and why one loss in a thousand halves it",
    minutes=75,
    experiment=_experiment,
    values=lambda dice: {"delay": str(_delay_us(dice))},
    questions=(
        Question(
            "p1",
            "Prediction: without loss, rc moves about 92 Gbit/s. How much of that is left if one "
            "packet in a thousand is lost? 100 means: all of it",
            "%", "prediction", _share("rc"),
        ),
        Question(
            "p2",
            "Prediction: the same for irn, which sends again the lost packets only",
            "%", "prediction", _share("irn"),
        ),
        Question(
            "q1",
            "How long is a round trip when nothing waits in a queue? (base_rtt_ns of lab run "
            "--json, as microseconds)",
            "us", "answer",
            lambda dice: float(_figures(_key(dice), "rc", True)["base_rtt_ns"]) / 1000, 0.02, 1,
            "look for base_rtt_ns in lab run experiment.yaml --json; 1 us is 1,000 ns",
        ),
        Question(
            "q2",
            "Exercise without code: how many packets of 2,048 bytes leave a host in one such round "
            "trip at 100 Gbit/s?",
            "packets", "answer", _in_flight, 0.05, 2,
            "bits in a round trip are rate times time; a packet has 2,048 x 8 of them",
        ),
        Question(
            "q3",
            "How many packets did rc retransmit in your experiment?",
            "packets", "answer", _of("rc", "retransmitted"), 0.0, 1,
            "read the row 'retransmitted' of lab run experiment.yaml, without the comma",
        ),
        Question(
            "q4",
            "And irn?",
            "packets", "answer", _of("irn", "retransmitted"), 0.0, 1,
            "read the row 'retransmitted' of lab run experiment.yaml",
        ),
        Question(
            "q5",
            "How many packets did rc retransmit for each packet that was lost?",
            "packets", "answer", _per_loss, 0.02, 1,
            "divide the row 'retransmitted' by the row 'injected drops'",
        ),
        Question(
            "q6",
            "Exercise without code: suppose each loss costs as many packets as leave in one round "
            "trip (q2). At which loss rate do retransmissions take half of the link?",
            "%", "answer", lambda dice: 100 / _in_flight(dice), 0.06, 2,
            "half of the link: one packet sent again for each new one. If N are sent again for "
            "each loss, how often may a packet be lost?",
        ),
    ),
    tasks=(
        Task("goes-back", "goes back to the first missing packet, after random loss",
             _lossy, _goes_back, points=4),
        Task("lost-again", "repairs a packet whose retransmissions are lost, too",
             _lost_again, _goes_back, points=2),
        Task("tail", "repairs a lost tail", _tail, _goes_back, points=2),
        Task("dark", "survives some milliseconds in which everything is lost",
             _dark, _goes_back, points=2),
    ),
    policy="GoBackN",
    hole="packets_to_retransmit",
)  # fmt: skip
