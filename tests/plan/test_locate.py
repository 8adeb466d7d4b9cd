# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.plan import locate

PLAN = topology.load("leaf-spine")
RAILS = topology.load("dual-rail")


def names(text):
    return [f"{near.node}->{far.node}" for _, near, far in locate.halves(PLAN, text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("leaf1->spine2", ["leaf1->spine2"]),
        ("spine2->leaf1", ["spine2->leaf1"]),
        ("leaf1<->spine2", ["leaf1->spine2", "spine2->leaf1"]),
        (" spine2 <-> leaf1 ", ["leaf1->spine2", "spine2->leaf1"]),
        ("leaf1:spine2", ["leaf1->spine2", "spine2->leaf1"]),
        ("h1:eth1", ["h1->leaf1", "leaf1->h1"]),
        ("leaf1:spine1->spine1", ["leaf1->spine1"]),
        ("*->h3", ["leaf2->h3"]),
        ("leaf*->spine[2]", ["leaf1->spine2", "leaf2->spine2"]),
    ],
)
def test_a_link_by_either_notation(text, found):
    assert names(text) == found


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("leaf1->leaf2", "no link joins leaf1 and leaf2", "linked to h1, h2, spine1, spine2"),
        ("leaf1->spin1", "no node spin1", "did you mean 'spine1'"),
        ("->spine1", "is not a link", "leaf1<->spine1"),
        ("h1-", "no node h1-", "quote a link"),
        ("x*->h1", "nothing like x", "known: "),
        ("leaf1:spine9", "no port 'spine9'", "did you mean 'spine"),
    ],
)
def test_a_link_that_is_not_there(text, what, hint):
    with pytest.raises(UserError, match=what) as raised:
        locate.halves(PLAN, text) if locate.is_link(text) else locate.node(PLAN, text)
    assert hint in raised.value.hint


def test_rails():
    host = RAILS.node("h1")
    assert locate.rail(RAILS, "h1") is host.ports[0]
    assert locate.rail(RAILS, "h1", 2) is host.ports[1]
    assert locate.rail(RAILS, f"h1:{host.ports[1].name}") is host.ports[1]
    with pytest.raises(UserError, match="h1 has no rail 3"):
        locate.rail(RAILS, "h1", 3)
    with pytest.raises(UserError, match="is a switch"):
        locate.rail(PLAN, "leaf1")


def test_parallel_links_have_their_ports_in_their_names(trunk):
    names = locate.arrows(trunk)
    assert (names[0], names[4], names[7]) == ("h1->s1", "s1:p2->s2:p2", "s2:p3->s1:p3")
    assert locate.link_names(trunk, [0, 1, 5]) == ["h1<->s1", "s2:p2->s1:p2"]
    for number, name in names.items():
        assert [half[0] for half in locate.halves(trunk, name)] == [number]
    assert len(locate.halves(trunk, "s1<->s2")) == 4
