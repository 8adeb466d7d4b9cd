# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules on links: which directed links, in which order, and with which streams."""

import hashlib
from pathlib import Path

import pytest

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.faults import resolve as faults
from softroce_lab.faults.effects import Fault, FaultKey, RandomLoss
from softroce_lab.faults.model import FaultRule, LinkImpairments
from softroce_lab.faults.resolve import FaultRules, LinkFaults
from softroce_lab.topology.plan import Plan
from softroce_lab.topology.validation import validate
from softroce_lab.topology.yaml_source import parse

PLAN = topology.load("leaf-spine")


def rule(links: str, name: str = "r", key: FaultKey = "identity", loss: str = "1%") -> FaultRule:
    text = f"{{name: {name}, links: '{links}', key: {key}, loss: {loss}}}"
    return validate(FaultRule, parse(text))


def resolved(*rules: FaultRule, plan: Plan = PLAN, seed: int = 1) -> tuple[Fault, ...]:
    return faults.arm(plan, FaultRules(rules), seed=seed).faults


def places(rules: tuple[Fault, ...], plan: Plan = PLAN) -> list[str]:
    names = {n: f"{a.node}->{b.node}" for link in plan.links for n, a, b in link.halves}
    return [names[found.directed_link] for found in rules]


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ("leaf1->spine2", ["leaf1->spine2"]),
        ("spine2->leaf1", ["spine2->leaf1"]),
        ("leaf1<->spine2", ["leaf1->spine2", "spine2->leaf1"]),
        ("spine2<->leaf1", ["leaf1->spine2", "spine2->leaf1"]),
        ("h1->*", ["h1->leaf1"]),
        ("*->h1", ["leaf1->h1"]),
        ("h[12]->*", ["h1->leaf1", "h2->leaf1"]),
        ("leaf1->*", ["leaf1->h1", "leaf1->h2", "leaf1->spine1", "leaf1->spine2"]),
    ],
)
def test_patterns_choose_directed_links(links: str, expected: list[str]) -> None:
    assert places(resolved(rule(links))) == expected


def test_a_pattern_of_everything_hits_each_half_once() -> None:
    assert len(set(places(resolved(rule("*<->*"))))) == len(resolved(rule("*<->*"))) == 16


def test_thresholds() -> None:
    (found,) = resolved(rule("h1->*", loss="1%"))
    assert found.effect == RandomLoss(184467440737095516)
    (always,) = resolved(rule("h1->*", loss="100%"))
    assert always.effect == RandomLoss(2**64 - 1)


def test_rules_keep_their_order_and_are_numbered() -> None:
    found = resolved(rule("h1->*", "b"), rule("*->h1", "c"), rule("h1->*", "a"))
    assert [(f.rule, f.rule_id) for f in found] == [("b", 0), ("c", 1), ("a", 2)]


def stream(links: str, **more: object) -> int:
    name = str(more.get("name", "r"))
    key: FaultKey = "index" if more.get("key") == "index" else "identity"
    (found,) = resolved(rule(links, name, key), seed=int(str(more.get("seed", 1))))
    return found.stream


def documented(canonical: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(canonical, digest_size=8).digest(), "big")


def test_streams_are_the_documented_hash() -> None:
    assert stream("h1->leaf1") == documented(b'[1,"r",0,"up"]')
    assert stream("leaf1->h1") == documented(b'[1,"r",0,"down"]')
    assert stream("leaf1->spine1", seed=7) == documented(b'[7,"r",1,"up"]')
    assert stream("leaf1->spine1", key="index") == documented(
        b'[1,"r","leaf1:spine1","spine1:leaf1"]'
    )


def test_streams_do_not_change_from_release_to_release() -> None:
    assert stream("leaf1->spine1", name="spine-loss") == 12631746041974902752


def test_an_identity_stream_is_that_of_the_tier_never_of_the_link() -> None:
    assert stream("leaf1->spine1") == stream("leaf2->spine2")
    assert stream("leaf1->spine1") != stream("spine1->leaf1")
    assert stream("leaf1->spine1") != stream("h1->leaf1")


def test_equal_tiers_are_across() -> None:
    text = (
        "name: x\ntopology:\n  nodes: {h1: {kind: host}, h2: {kind: host},"
        " s1: {kind: switch}, s2: {kind: switch}}\n"
        "  links: [{endpoints: ['h1:a', 's1:a']}, {endpoints: ['h2:a', 's2:a']},"
        " {endpoints: ['s1:b', 's2:b']}]\n"
    )
    plan = load(text)
    found = resolved(rule("s1<->s2"), plan=plan)
    assert {f.stream for f in found} == {documented(b'[1,"r",1,"across"]')}


@pytest.mark.parametrize("key", ["identity", "index"])
def test_streams_differ_by_seed_and_by_rule(key: FaultKey) -> None:
    streams = {stream("h1->*", key=key, seed=seed, name=name) for seed in (1, 2) for name in "ab"}
    assert len(streams) == 4


def test_an_index_stream_is_that_of_one_directed_link() -> None:
    found = resolved(rule("*<->*", key="index"))
    assert len({f.stream for f in found}) == 16


def load(text: str) -> Plan:
    from softroce_lab.topology.model import TopologyFile
    from softroce_lab.topology.resolve import resolve

    source = parse(text, "x.yaml")
    return resolve(validate(TopologyFile, source), source)


@pytest.mark.parametrize("key", ["identity", "index"])
def test_adding_a_link_changes_no_other_stream(key: FaultKey) -> None:
    def streams(spines: int) -> dict[str, int]:
        shape = f"{{kind: leaf-spine, leaves: 2, spines: {spines}, hosts_per_leaf: 2}}"
        plan = load(f"name: x\ntopology: {{generator: {shape}}}")
        found = resolved(rule("*<->*", key=key), plan=plan)
        return dict(zip(places(found, plan), (f.stream for f in found), strict=True))

    before, after = streams(2), streams(3)
    assert len(after) == len(before) + 4
    assert before.items() <= after.items()


def test_losses_at_links_are_one_rule() -> None:
    plain, lossy = LinkImpairments(), LinkImpairments.model_validate({"loss": "1%"})
    links = tuple(lossy if index in (4, 7) else plain for index in range(len(PLAN.links)))
    found = faults.arm(PLAN, LinkFaults(links)).faults
    assert [(f.rule, f.directed_link) for f in found] == [
        ("link:loss", 8), ("link:loss", 9), ("link:loss", 14), ("link:loss", 15),
    ]  # fmt: skip
    assert found[0].stream == found[2].stream == documented(b'[1,"link:loss",1,"up"]')


def test_arming_adds_after_the_plans_own_rules() -> None:
    once = faults.arm(PLAN, FaultRules((rule("h1->*", "a"),)))
    twice = faults.arm(once, FaultRules((rule("*->h1", "b"),)), seed=5)
    assert [(f.rule, f.rule_id) for f in twice.faults] == [("a", 0), ("b", 1)]
    assert twice.faults[0] == once.faults[0]
    assert twice.faults[1].stream == documented(b'[5,"b",0,"down"]')
    assert len({PLAN.digest, once.digest, twice.digest}) == 3


def test_a_pattern_that_matches_no_link() -> None:
    with pytest.raises(UserError, match=r"^pattern 'h1->spine\*' matches no link") as caught:
        resolved(rule("h1->spine*"))
    assert caught.value.hint == "the nodes are h1, h2, h3, h4, leaf1, leaf2, spine1, spine2"


def test_a_name_used_twice() -> None:
    with pytest.raises(UserError, match="rule name 'r' is used twice"):
        resolved(rule("h1->*"), rule("h2->*"))
    once = faults.arm(PLAN, FaultRules((rule("h1->*"),)))
    with pytest.raises(UserError, match="rule name 'r' is used twice"):
        faults.arm(once, FaultRules((rule("h2->*"),)))


def test_eight_rules_fit_a_directed_link_and_nine_do_not() -> None:
    rules = [rule("h1->*", f"r{i}") for i in range(9)]
    eight = resolved(*rules[:8])
    assert len({f.stream for f in eight}) == len(eight) == 8
    with pytest.raises(UserError, match="more than 8 rules act on h1:eth1 -> leaf1:h1"):
        resolved(*rules)


def test_loss_at_the_link_counts_among_the_eight(tmp_path: Path) -> None:
    rules = "".join(f"  - {{name: r{i}, links: h1->s1, loss: 1%}}\n" for i in range(8))
    text = (
        "name: x\ntopology:\n  nodes: {h1: {kind: host}, s1: {kind: switch}}\n"
        f"  links: [{{endpoints: ['h1:a', 's1:a'], loss: 1%}}]\nfaults:\n{rules}"
    )
    with pytest.raises(UserError, match=r"^x.yaml:13:37: more than 8 rules act on h1:a -> s1:a"):
        load(text)
