# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults in words, and back."""

import pytest

from softroce_lab import topology
from softroce_lab.faults.live import parse_impairments
from softroce_lab.faults.profile import load
from softroce_lab.faults.resolve import arm, lower
from softroce_lab.faults.text import documents, effect_text, filter_text


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
        "cut 1% only data",
        "corrupt 0.1%",
        "duplicate 100%",
        "reorder 1% gap 5 by 100us",
        "rate 200Mbit",
        "rate 1234567bit limit 64KiB ecn 30 trim",
        "rate 200Mbit trim 64KiB trim_share 12.5%",
        "rate 200Mbit limit 100 trim 30 trim_share 100%",
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
        ("rate 200mbit trim trim_share 50%", "rate 200Mbit trim"),
        ("loss gemodel 1%", "loss gemodel 1% 99%"),
        ("loss 1%", "loss random 1%"),
        ("loss periodic 10", "loss periodic 10 1"),
    ],
)
def test_what_changes_nothing_is_not_shown(words: str, short: str) -> None:
    assert shown(words) == [short]


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
