# SPDX-License-Identifier: GPL-2.0-or-later
"""Contradictions between the faults of one directed link."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.faults.check import overlap
from softroce_lab.faults.profile import ProfileFile
from softroce_lab.faults.resolve import FaultRules, arm
from softroce_lab.inputs.validation import validate
from softroce_lab.inputs.yaml_source import parse
from softroce_lab.plan.effects import Window
from softroce_lab.plan.plan import Plan

PLAN = topology.load("leaf-spine")


def armed(*rules: str) -> Plan:
    """Rules, each in a line, on `leaf1->spine1` unless they say otherwise."""
    lines = []
    for number, rule in enumerate(rules):
        where = "" if "links:" in rule else "links: leaf1->spine1, "
        lines.append(f"- {{name: r{number}, {where}{rule}}}\n")
    source = parse("faults:\n" + "".join(lines), "x.yaml")
    return arm(PLAN, FaultRules(tuple(validate(ProfileFile, source).faults), source))


@pytest.mark.parametrize(
    "rules",
    [
        ("loss: 1%", "loss: 2%"),
        ("loss: 1%", "loss: blackout"),
        ("loss: gemodel 1% 10%", "loss: blackout, at: 2s, for: 1s"),
        ("loss: 1%, only: data", "loss: gemodel 1%, only: [control, report]"),
        ("loss: 1%, for: 1s", "loss: gemodel 1%, at: 1s"),
        ("loss: 1%", "loss: gemodel 1%, links: spine1->leaf1"),
        ("delay: 1ms, at: 0s, for: 1s, every: 2s", "delay: 2ms, at: 1s, for: 1s, every: 2s"),
        ("delay: 1ms", "reorder: 25% gap 5"),
        ("delay: 0s 1ms", "reorder: 25%"),
        ("rate: 1Gbit ecn 9 limit 10",),
        ("rate: 1Gbit ecn 999",),
        ("rate: 1Gbit ecn 2213kB",),
        ("rate: 1Gbit ecn 10 limit 20kB",),
        ("reorder: 1% by 1ms", "reorder: 2% by 1ms"),
        ("corrupt: 1%", "corrupt: 2%"),
        ("drop: message 3 packet 5 iter 1", "drop: message 3 packet 6 iter 1"),
        ("drop: qpn 1 psn 5", "drop: qpn 1 psn 5 absolute"),
        ("rate: 17712bit",),
        ("loss: 1%",) * 8,
        ("drop: message 3 packet 0-4095",),
    ],
)
def test_what_goes_together(rules: tuple[str, ...]) -> None:
    assert armed(*rules).faults


WHERE = "leaf1:spine1 -> spine1:leaf1"


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        (("loss: 1%", "loss: gemodel 1%"),
         f"3:42: loss gemodel contradicts loss random of rule 'r0' on {WHERE}"),
        (("loss: gemodel 1%", "loss: gemodel 2%"), "3:42: loss gemodel contradicts loss gemodel"),
        (("loss: 1%, only: data", "loss: gemodel 1%, only: [data, other]"),
         "3:42: loss gemodel contradicts"),
        (("loss: 1%, for: 2s", "loss: gemodel 1%, at: 1s"), "3:42: loss gemodel contradicts"),
        (("loss: 1%, links: '*->*'", "loss: burst 1% 8, links: 'leaf*<->spine2'"),
         "3:20: loss burst contradicts loss random of rule 'r0' on leaf1:spine2"),
        (("delay: 1ms", "delay: 2ms"), f"3:43: {WHERE} has a delay already, by rule 'r0'"),
        (("rate: 1Gbit, for: 1s, every: 2s", "rate: 1Gbit, at: 1s, for: 1s, every: 3s"),
         "3:42: "),
        (("reorder: 1%",), f"2:45: reorder lets packets skip the delay, and {WHERE} has none"),
        (("delay: 1ms, for: 1s", "reorder: 1%, at: 2s"), "3:45: reorder lets packets skip"),
        (("delay: 0s", "reorder: 1%"), "3:45: reorder lets packets skip the delay"),
        (("rate: 1Gbit ecn 10 limit 10",),
         f"2:42: ecn on {WHERE} can mark nothing: the queue is full at 10"),
        (("rate: 1Gbit limit 1KiB, ecn: 2KiB",), "2:42: ecn on "),
        (("rate: 1Gbit ecn 20kB limit 20kB",),
         f"2:42: ecn on {WHERE} can mark nothing: the queue is full at 20000 bytes"),
        (("rate: 1Gbit limit 10 trim 10",),
         f"2:42: trim on {WHERE} can cut nothing: the queue is full at 10"),
        (("rate: 1Gbit queue uet limit 64KiB trim 1MiB",), "2:42: trim on "),
        (("drop: message 3 packet 5 iter 1", "drop: message 3 packet 4-6 iter 2"),
         f"3:42: the packet is named twice on {WHERE}, first by rule 'r0'"),
        (("drop: [qpn 1 psn 5, qpn 1 psn 5]",), "2:56: the packet is named twice"),
        (("rate: 17711bit",), f"2:42: rate 17.7 kbit/s on {WHERE} is below one frame a second"),
        (("loss: 1%",) * 9, f"10:42: more than 8 rules act on {WHERE}"),
        (tuple(f"rate: 1Gbit, at: {n}s, for: 1s" for n in range(5)),
         f"6:42: more than 4 rates act on {WHERE}"),
        (("drop: [message 3 packet 0-4095, message 4 packet 0]",),
         f"2:68: more than 4096 named drops act on {WHERE}"),
        (("drop: message 3 packet 0-4095, links: '*->*'",),
         "2:20: more than 8192 named drops act in the lab"),
    ],
)  # fmt: skip
def test_contradictions_are_pointed_at(rules: tuple[str, ...], error: str) -> None:
    with pytest.raises(UserError) as caught:
        armed(*rules)
    assert str(caught.value).startswith(f"x.yaml:{error}")


def test_a_profile_may_contradict_the_topology_it_is_armed_on() -> None:
    once = armed("loss: gemodel 1%")
    source = parse("faults:\n- {name: more, links: leaf1->*, loss: 1%}\n", "y.yaml")
    rules = FaultRules(tuple(validate(ProfileFile, source).faults), source)
    with pytest.raises(UserError, match=r"^y.yaml:2:39: loss random contradicts loss gemodel"):
        arm(once, rules)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    period = draw(st.integers(0, 12))
    length = draw(st.integers(1, period) if period else st.integers(0, 12))
    return Window(draw(st.integers(0, 20)), length, period)


@settings(deadline=None, max_examples=300)
@given(windows(), windows())
def test_windows_overlap_if_they_share_a_moment(a: Window, b: Window) -> None:
    horizon = 20 + 12 * 12 + 24  # all begun, and a common period behind that
    shared = any(a.acts(now) and b.acts(now) for now in range(horizon))
    assert overlap(a, b) is overlap(b, a) is shared
