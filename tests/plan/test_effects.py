# SPDX-License-Identifier: GPL-2.0-or-later
"""Windows of time, and the order of effects."""

from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab.plan import effects
from softroce_lab.plan.effects import Window, turn, word_of

EFFECTS = (
    effects.Down(),
    effects.NamedDrop(3, 5, None, None, False, ()),
    effects.Drop(),
    effects.Gemodel(1, 1, 1, 1),
    effects.Corrupt(1),
    effects.Duplicate(1),
    effects.Reorder(1, 0, 0),
    effects.Queue(1, None, 1, None, None, False),
    effects.Delay(1, 0, "uniform", True),
)


def test_effects_stand_in_the_documented_order() -> None:
    turns = [turn(effect) for effect in EFFECTS]
    assert turns == sorted(set(turns))


def test_models_of_loss_have_one_turn() -> None:
    losses = (
        effects.RandomLoss(1), effects.Gemodel(1, 1, 1, 1), effects.Burst(1, 1),
        effects.Periodic(1, 1, 0), effects.Blackout(),
    )  # fmt: skip
    assert {turn(loss) for loss in losses} == {turn(EFFECTS[3])}
    assert {word_of(loss) for loss in losses} == {"loss"}


@st.composite
def windows(draw: st.DrawFn) -> Window:
    period = draw(st.integers(0, 12))
    length = draw(st.integers(1, period) if period else st.integers(0, 12))
    return Window(draw(st.integers(0, 20)), length, period)


@settings(deadline=None)
@given(windows(), st.integers(0, 60))
def test_nothing_changes_before_the_next_change(window: Window, now: int) -> None:
    change = window.next_change_ns(now)
    horizon = 100 if change is None else change
    assert horizon > now
    assert {window.acts(t) for t in range(now, horizon)} == {window.acts(now)}
    touching = window.period_ns == window.length_ns  # an end that is a beginning
    if change is not None and not touching:
        assert window.acts(change) is not window.acts(now)
