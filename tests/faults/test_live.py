# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults that change while traffic runs: only what is named, and nothing by half."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.faults import profile
from softroce_lab.faults.live import clear_on, notes, parse_cleared, parse_impairments, set_on
from softroce_lab.faults.resolve import arm, links_of
from softroce_lab.faults.text import text
from softroce_lab.plan.plan import Plan

PLAN = topology.load("leaf-spine")
ARMED = arm(PLAN, profile.load("spine-loss-1pct"))
UP = links_of(PLAN, "leaf1->spine1")
(LINK,) = UP


def after(plan: Plan, words: str, links: tuple[int, ...] = UP) -> Plan:
    return set_on(plan, links, parse_impairments(words.split()))


def on(plan: Plan, link: int = LINK) -> list[str]:
    return [f"{f.rule}: {text(f)}" for f in plan.faults if f.directed_link == link]


def test_exactly_what_is_named_is_replaced() -> None:
    plan = after(ARMED, "delay 10ms 2ms rate 200mbit limit 100")
    assert on(plan) == [
        "spine-loss: loss random 1%",
        "live:rate: rate 200Mbit limit 100",
        "live:delay: delay 10ms 2ms",
    ]
    plan = after(plan, "loss gemodel 1% 25%")
    assert on(plan)[0] == "live:loss: loss gemodel 1% 25%"
    assert on(plan)[1:] == ["live:rate: rate 200Mbit limit 100", "live:delay: delay 10ms 2ms"]
    plan = after(plan, "loss 2%")
    assert on(plan)[0] == "live:loss: loss random 2%"


def test_faults_that_stay_keep_their_ids_and_new_ones_get_new_ids() -> None:
    plan = after(ARMED, "loss 2%")
    before = {fault.directed_link: fault for fault in ARMED.faults}
    others = [fault for fault in plan.faults if fault.directed_link != LINK]
    assert others == [before[fault.directed_link] for fault in others]
    (new,) = [fault for fault in plan.faults if fault.directed_link == LINK]
    assert new.rule_id == len(ARMED.faults)
    again = after(plan, "loss 3% delay 1ms")
    ids = [fault.rule_id for fault in again.faults]
    assert len(set(ids)) == len(ids)


def test_down_and_up_take_both_directions() -> None:
    down = after(PLAN, "down")
    assert [fault.directed_link for fault in down.faults] == [LINK, LINK + 1]
    other_side = links_of(PLAN, "spine1->leaf1")
    assert after(down, "up", other_side).faults == ()
    assert clear_on(down, other_side, ("down",)).faults == ()


def test_clearing_takes_the_words_that_are_named_or_all() -> None:
    plan = after(ARMED, "delay 10ms rate 1gbit")
    assert on(clear_on(plan, UP, parse_cleared(["limit", "rate", "loss"]))) == [
        "live:delay: delay 10ms"
    ]
    assert on(clear_on(plan, UP)) == []
    assert len(clear_on(plan, UP).faults) == len(ARMED.faults) - 1


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("delay 10ms reorder 1%", ["reorder 1%", "delay 10ms"]),
        ("delay 10ms 1ms reorder allow reorder 1% gap 5",
         ["reorder 1% gap 5", "delay 10ms 1ms reorder allow"]),
        ("rate 1gbit delay 1ms limit 50 jitter 1ms",
         ["rate 1Gbit limit 50", "delay 1ms 1ms"]),
        ("loss 1% only data", ["loss random 1% only data"]),
        ("drop only control drop tail 1", ["drop only control", "drop tail 1"]),
        ("drop message 1 packet 2 iter 1 loss 1%", ["drop message 1 packet 2 iter 1",
                                                    "loss random 1%"]),
        ("loss periodic every 10 length 2", ["loss periodic 10 2"]),
        ("delay 10 ms 2 ms", ["delay 10ms 2ms"]),
    ],
)  # fmt: skip
def test_words_as_tc_takes_them(words: str, shown: list[str]) -> None:
    assert [text(fault) for fault in after(PLAN, words).faults] == shown


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", "no fault is named\n  hint: such as: loss random 1%"),
        ("los 1%", "unknown fault 'los'\n  hint: did you mean 'loss'?"),
        ("loss rndom 1%", "unknown key 'rndom'\n  hint: did you mean 'random'?"),
        ("loss 1% loss 2%", "'loss' stands twice"),
        ("up down", "'down' stands twice"),
        ("limit 100", "'limit' without a rate"),
        ("loss 5% at 3s", "'at' belongs in a rule of a file, not in a live change\n  hint: write"),
        ("loss 5% 25%", "loss random with a correlation is not supported"),
        ("1% leaf1<->spine1", "unexpected link 'leaf1<->spine1'\n  hint: LINK comes first"),
        ("jitter 1ms", "'jitter' without a delay\n  hint: name the delay again: delay 10ms 2ms"),
        ("delay 10ms jiter 2ms", "unexpected 'jiter'\n  hint: did you mean 'jitter'?"),
        ("delay", "'delay' has no value after it\n  hint: such as: delay 10ms 2ms"),
        ("rate 1gbit delay 1ms ecn", "'ecn' has no value after it\n  hint: such as: rate 200Mbit"),
        ("only data", "'only' without anything that happens"),
        ("rate 1kbit", "rate 1 kbit/s on leaf1:spine1 -> spine1:leaf1 is below one frame a second"),
        ("reorder 1%", "reorder lets packets skip the delay"),
    ],
)
def test_nonsense_is_a_user_error_with_nothing_changed(words: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        after(PLAN, words)
    assert str(caught.value).startswith(error)


def test_a_number_on_the_wire_without_absolute_is_noted() -> None:
    def noted(words: str) -> list[str]:
        return list(notes(after(PLAN, words).faults))

    for words in ("drop qpn 4106 psn 7", "drop qpn 4106"):
        (note,) = noted(words)
        assert "connection number 4,106" in note
        assert "absolute" in note
    assert not noted("drop qpn 0x100a psn 7 absolute true")
    assert not noted("drop qpn 2 psn 4106")


def test_what_stays_may_not_be_left_without_what_it_needs() -> None:
    plan = after(PLAN, "delay 10ms reorder 1%")
    with pytest.raises(UserError, match="reorder lets packets skip the delay"):
        clear_on(plan, UP, ("delay",))


@pytest.mark.parametrize(
    ("word", "home"),
    [("ecn", "rate"), ("limit", "rate"), ("trim", "rate"), ("queue", "rate"), ("jitter", "delay")],
)
def test_a_part_of_an_effect_is_not_cleared_with_the_whole(word: str, home: str) -> None:
    with pytest.raises(UserError, match=f"^'{word}' is a part of '{home}'") as caught:
        parse_cleared(["loss", word])
    assert caught.value.hint == f"set the {home} again without it, or clear the whole {home}"


sets = st.sampled_from(
    ["loss 1%", "loss gemodel 1%", "loss burst 1% 8", "delay 1ms 1ms", "rate 1gbit", "corrupt 1%",
     "drop message 1 packet 1-3", "drop tail 1", "duplicate 1%", "reorder 1% by 1ms", "down", "up"]
)  # fmt: skip
changes = st.one_of(st.tuples(st.just("set"), sets), st.tuples(st.just("clear"), st.just("loss")))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["leaf1<->spine1", "leaf1->*", "h1"]), changes)))
def test_any_changes_leave_one_fault_a_word_at_most(
    calls: list[tuple[str, tuple[str, str]]],
) -> None:
    plan = PLAN
    for pattern, (verb, words) in calls:
        links = links_of(PLAN, pattern)
        kept = [f for f in plan.faults if f.word != words.split()[0] and words != "up"]
        if verb == "set":
            plan = after(plan, words, links)
        else:
            plan = clear_on(plan, links, parse_cleared([words]))
        assert set(kept) <= set(plan.faults)
    found = [(f.directed_link, f.word) for f in plan.faults if f.effect.kind != "named-drop"]
    assert len(found) == len(set(found))
    assert len({fault.rule_id for fault in plan.faults}) == len(plan.faults)
