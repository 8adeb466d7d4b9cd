# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults in words, and back."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab import topology
from softroce_lab.faults.live import parse_impairments
from softroce_lab.faults.model import Impairments
from softroce_lab.faults.profile import load
from softroce_lab.faults.resolve import arm, lower
from softroce_lab.faults.text import documents, effect_text, filter_text, window_text
from softroce_lab.plan.effects import Filter, Window


def shown(words: str) -> list[str]:
    found = lower(parse_impairments(words.split()))
    return [" ".join(filter(None, (effect_text(e), filter_text(f)))) for e, f, _ in found]


@pytest.mark.parametrize(
    "words",
    [
        "down",
        "loss random 1%",
        "loss random 1e-07%",
        "loss gemodel 1% 25%",
        "loss gemodel 1% 25% 90%",
        "loss gemodel 1% 25% 90% 0.1%",
        "loss gemodel 1% 25% 100% 0.1%",
        "loss burst 1% 8",
        "loss periodic 10 3",
        "loss periodic 10 3 7",
        "loss blackout",
        "loss random 1% only data,control",
        "drop message 3 packet 5 iter 1",
        "drop qpn 1 psn 7 iter 1,3-5",
        "drop qpn 17 psn 7 absolute",
        "drop opcode RC_SEND_ONLY qpn 2",
        "drop opcode 0xc1",
        "drop qpn 2 absolute",
        "drop message 3 tail 1 iter 1-64",
        "drop only control,report",
        "corrupt 0.1%",
        "duplicate 100%",
        "reorder 1% gap 5 by 100us",
        "rate 200Mbit",
        "rate 1234567bit limit 64KiB ecn 30 trim",
        "delay 10ms",
        "delay 1500us 2ms",
        "delay 1s 2ms distribution normal reorder allow",
    ],
)
def test_what_is_shown_is_what_a_command_takes(words: str) -> None:
    assert shown(words) == [words]


@pytest.mark.parametrize(
    ("words", "short"),
    [
        ("delay 10ms reorder allow", "delay 10ms"),
        ("delay 10ms 0ms", "delay 10ms"),
        ("rate 200mbit limit 1000", "rate 200Mbit"),
        ("loss gemodel 1%", "loss gemodel 1% 99%"),
        ("loss 1%", "loss random 1%"),
        ("loss periodic 10", "loss periodic 10 1"),
    ],
)
def test_what_changes_nothing_is_not_shown(words: str, short: str) -> None:
    assert shown(words) == [short]


times = st.integers(0, 10**6).map("{}us".format)
percents = st.integers(0, 1000).map(lambda n: f"{n / 10}%")
depths = st.one_of(st.integers(500, 9999), st.integers(500, 9999).map("{}KiB".format))
impairments = st.fixed_dictionaries(
    {},
    optional={
        "loss": st.one_of(percents, st.builds("gemodel {} {}".format, percents, percents),
                          st.builds("burst {} {}".format, percents, st.integers(1, 99))),
        "corrupt": percents,
        "duplicate": percents,
        "reorder": st.builds("{} gap {} by {}".format, percents, st.integers(0, 9), times),
        "delay": st.builds("{} {} distribution {}".format, times, st.just("3us"),
                           st.sampled_from(["uniform", "normal", "pareto"])),
        "rate": st.builds("{}kbit limit {}".format, st.integers(1, 10**6), depths),
        "drop": st.lists(st.builds("message {} packet {} iter {}".format, st.integers(0, 9),
                                   st.integers(0, 9), st.integers(1, 64)), min_size=1),
    },
)  # fmt: skip


@settings(deadline=None)
@given(impairments)
def test_words_bring_back_every_effect(data: dict[str, Any]) -> None:
    effects = list(lower(Impairments.model_validate(data)))
    words = " ".join(effect_text(effect) for effect, _, _ in effects)
    again = list(lower(parse_impairments(words.split()))) if words else []
    assert [effect_text(effect) for effect, _, _ in again] == [
        effect_text(effect) for effect, _, _ in effects
    ]
    exact = [effect for effect, _, _ in effects if effect.kind != "burst"]  # shown to six digits
    assert [effect for effect, _, _ in again if effect.kind != "burst"] == exact


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (Window(), ""),
        (Window(2 * 10**9), "at 2s"),
        (Window(0, 50 * 10**6), "at 0s for 50ms"),
        (Window(1, 2, 3), "at 1ns for 2ns every 3ns"),
    ],
)
def test_windows(window: Window, words: str) -> None:
    assert window_text(window) == words


def test_everything_needs_no_words() -> None:
    assert filter_text(Filter()) == ""


def test_documents_name_rule_fault_key_and_links() -> None:
    plan = arm(topology.load("path"), load("spine-loss-1pct"))
    assert documents(plan) == [
        {
            "rule": "spine-loss",
            "fault": "loss random 1%",
            "key": "identity",
            "links": [
                "leaf1:spine1->spine1:leaf1", "spine1:leaf1->leaf1:spine1",
                "leaf2:spine1->spine1:leaf2", "spine1:leaf2->leaf2:spine1",
            ],
        }
    ]  # fmt: skip
