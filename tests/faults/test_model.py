# SPDX-License-Identifier: GPL-2.0-or-later
"""Fault rules in tc-netem's words."""

from fractions import Fraction

import pytest

from softroce_lab.errors import UserError
from softroce_lab.faults.model import FaultRule, LinkPattern
from softroce_lab.topology.validation import validate
from softroce_lab.topology.yaml_source import parse


def read(loss: str, links: str = "'a->b'") -> FaultRule:
    return validate(FaultRule, parse(f"name: x\nlinks: {links}\n{loss}\n", "x.yaml"))


@pytest.mark.parametrize(
    "loss",
    [
        "loss: random 1%",
        "loss: 'random 1 %'",
        "loss: {random: 1%}",
        "loss: 1%",
        "loss: random  1.0%",
        "loss:\n  random: 1%",
    ],
)
def test_spellings_of_one_loss(loss: str) -> None:
    assert read(loss).loss.random == Fraction(1, 100)


@pytest.mark.parametrize(("text", "value"), [("0%", 0), ("100%", 1), ("1e-7%", Fraction(1, 10**9))])
def test_the_ends_of_the_range(text: str, value: Fraction) -> None:
    assert read(f"loss: {text}").loss.random == value


@pytest.mark.parametrize(
    ("loss", "error"),
    [
        ("loss: state 1%", "3:7: 'state' is not supported yet"),
        ("loss: random 1% 25%", "3:7: loss random with a correlation is not supported"),
        ("loss: rndom 1%", "3:7: unknown key 'rndom'\n  hint: did you mean 'random'?"),
        ("loss: random", "3:7: '' is not a percentage"),
        ("loss: random one", "3:7: 'one' is not a percentage"),
        ("loss: {random: 150%}", "3:16: percentage '150%' is above 100%"),
        ("loss: {random: 0.01}", "3:16: percentage '0.01' has no unit"),
        ("loss: {random: -1%}", "3:16: percentage '-1%' is negative"),
        ("loss: {random: true}", "3:16: expected a percentage"),
        ("loss: {random: [1%]}", "3:16: expected a percentage"),
        ("loss: {}", "3:7: loss has no model"),
        ("loss: [1%]", "3:7: expected keys and values, found a list"),
        ("loss:", "3:1: 'loss' has no value"),
        ("loss: 1%\nqpn: 1", "4:1: unknown key 'qpn'"),
        ("loss: 1%\nkey: both", "4:6: expected 'identity' or 'index', found 'both'"),
    ],
)
def test_mistakes_are_pointed_at(loss: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        read(loss)
    assert str(caught.value).startswith(f"x.yaml:{error}")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("a->b", LinkPattern("a", "b", both=False)),
        ("a <-> b", LinkPattern("a", "b", both=True)),
        ("leaf*<->spine*", LinkPattern("leaf*", "spine*", both=True)),
        ("*->*", LinkPattern("*", "*", both=False)),
        ("a-b->c-d", LinkPattern("a-b", "c-d", both=False)),
        ("h[1-3]->s?", LinkPattern("h[1-3]", "s?", both=False)),
        ("h[!2]->s1", LinkPattern("h[!2]", "s1", both=False)),
    ],
)
def test_link_patterns(text: str, pattern: LinkPattern) -> None:
    assert read("loss: 1%", f"'{text}'").links == (pattern,)


@pytest.mark.parametrize(
    "text", ["", "a", "a->", "->b", "a<-b", "a--b", "a->b->c", "a b->c", "A->b"]
)
def test_what_is_no_link_pattern(text: str) -> None:
    with pytest.raises(UserError, match=r"x.yaml:2:8: '.*' is not a pattern of links"):
        read("loss: 1%", f"'{text}'")


@pytest.mark.parametrize("name", ["", "a b", "A", "link:loss", "x" * 33])
def test_rule_names(name: str) -> None:
    with pytest.raises(UserError, match=r"^x.yaml:1:7: rule name"):
        validate(FaultRule, parse(f"name: '{name}'\nlinks: a->b\nloss: 1%", "x.yaml"))
