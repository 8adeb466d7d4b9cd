# SPDX-License-Identifier: GPL-2.0-or-later
"""Written impairments -> effects: the numbers they come to, and their defaults."""

from fractions import Fraction
from typing import Any

import pytest

from softroce_lab.errors import UserError
from softroce_lab.faults.model import Impairments
from softroce_lab.faults.resolve import lower
from softroce_lab.plan.effects import (
    CERTAIN,
    Blackout,
    Burst,
    Corrupt,
    Cut,
    Delay,
    Down,
    Drop,
    Duplicate,
    Filter,
    Gemodel,
    NamedDrop,
    Periodic,
    Queue,
    RandomLoss,
    Reorder,
)
from softroce_lab.units import threshold


def effects(**words: Any) -> list[tuple[Any, Filter]]:
    return [(effect, packets) for effect, packets, _ in lower(Impairments.model_validate(words))]


def share(percent: str) -> int:
    return threshold(Fraction(percent) / 100)


@pytest.mark.parametrize(
    ("words", "effect"),
    [
        ({"down": True}, Down()),
        ({"loss": "1%"}, RandomLoss(share("1"))),
        ({"loss": "random 0%"}, RandomLoss(0)),
        ({"loss": "random 100%"}, RandomLoss(CERTAIN)),
        ({"loss": "gemodel 1%"}, Gemodel(share("1"), share("99"), CERTAIN, 0)),
        ({"loss": "gemodel 1% 25%"}, Gemodel(share("1"), share("25"), CERTAIN, 0)),
        ({"loss": "gemodel 1% 25% 50% 2%"},
         Gemodel(share("1"), share("25"), share("50"), share("2"))),
        ({"loss": "gemodel 1% 0%"}, Gemodel(share("1"), 0, CERTAIN, 0)),
        ({"loss": "periodic 100"}, Periodic(100, 1, 0)),
        ({"loss": "periodic 10 3 7"}, Periodic(10, 3, 7)),
        ({"loss": "burst 0% 8"}, Burst(0, 8)),
        ({"loss": "burst 100% 8"}, Burst(CERTAIN, 8)),
        ({"loss": "burst 1% 1"}, Burst(share("1"), 1)),
        ({"loss": "burst 50% 4"}, Burst(share("20"), 4)),
        ({"loss": "blackout"}, Blackout()),
        ({"cut": "1%"}, Cut(share("1"))),
        ({"corrupt": "0.1%"}, Corrupt(share("0.1"))),
        ({"duplicate": "1%"}, Duplicate(share("1"))),
        ({"reorder": "25%"}, Reorder(share("25"), 0, 0)),
        ({"reorder": "25% gap 5"}, Reorder(share("25"), 5, 0)),
        ({"reorder": "25% gap 1 by 100us"}, Reorder(share("25"), 0, 100_000)),
        ({"rate": "200Mbit"}, Queue(200_000_000, None, 1000, None, None, trim=False)),
        ({"rate": "200Mbit limit 64KiB"}, Queue(200_000_000, 65536, None, None, None, trim=False)),
        ({"rate": "1Gbit limit 9 ecn 5 trim"}, Queue(10**9, None, 9, None, 5, trim=True)),
        ({"rate": "1Gbit trim 20KiB trim_share 0.1%"},
         Queue(10**9, None, 1000, None, None, True, 20480, None, 1000)),
        ({"rate": "1Gbit trim 30"}, Queue(10**9, None, 1000, None, None, True, None, 30)),
        ({"rate": "1Gbit", "trim": False}, Queue(10**9, None, 1000, None, None, trim=False)),
        ({"rate": "1Gbit", "ecn": "20KiB"}, Queue(10**9, None, 1000, 20480, None, trim=False)),
        ({"delay": "10ms"}, Delay(10**7, 0, "uniform", preserve=True)),
        ({"delay": "1ms 2ms"}, Delay(10**6, 2 * 10**6, "uniform", preserve=True)),
        ({"delay": "1ms 1ms distribution pareto reorder allow"},
         Delay(10**6, 10**6, "pareto", preserve=False)),
        ({"drop": "qpn 1 psn 7"}, NamedDrop(None, None, 1, 7, absolute=False, iters=())),
        ({"drop": "qpn 17 psn 0 absolute iter 1,3"},
         NamedDrop(None, None, 17, 0, absolute=True, iters=(1, 3))),
    ],
)  # fmt: skip
def test_one_effect(words: dict[str, Any], effect: object) -> None:
    assert effects(**words) == [(effect, Filter())]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("tail 1", Filter(tail=1)),
        ("tail 2 iter 1 message 3", Filter(tail=2, iters=(1,), message=3)),
        ("only control", Filter(kinds=("control",))),
        ("only other,data", Filter(kinds=("data", "other"))),
        ("opcode CNP", Filter(opcode=0x81)),
        ("qpn 2", Filter(qpn=2)),
        ("qpn 17 absolute", Filter(qpn=17, absolute=True)),
        ("message 0", Filter(message=0)),
        ("opcode UD_SEND_ONLY tail 1", Filter(opcode=0x64, tail=1)),
    ],
)
def test_drops_by_a_filter(words: str, wanted: Filter) -> None:
    assert effects(drop=words) == [(Drop(), wanted)]


def test_each_packet_of_a_range_is_named() -> None:
    found = effects(drop="message 3 packet 5-7 iter 1")
    names = [NamedDrop(3, packet, None, None, absolute=False, iters=(1,)) for packet in (5, 6, 7)]
    assert found == [(name, Filter()) for name in names]


def test_only_is_a_filter_of_all_that_match_packets() -> None:
    found = effects(only="data", loss="1%", cut="1%", corrupt="1%", duplicate="1%", drop="tail 1")
    assert {packets.kinds for _, packets in found} == {("data",)}
    assert len(found) == 5


def test_bursts_too_rare_for_64_bits() -> None:
    with pytest.raises(UserError, match="cannot be expressed in 64 bits"):
        effects(loss="burst 0.00000000000001% 16000000")
