# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules on links: which directed links, in which order, and with which streams."""

import hashlib

import pytest

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.faults import live
from softroce_lab.faults import resolve as faults
from softroce_lab.faults.model import FaultRule
from softroce_lab.faults.resolve import FaultRules
from softroce_lab.faults.text import text as text_of
from softroce_lab.inputs.validation import validate
from softroce_lab.inputs.yaml_source import parse
from softroce_lab.plan.effects import Fault, FaultKey
from softroce_lab.plan.plan import Plan

PLAN = topology.load("leaf-spine")


def rule(links: str, name: str = "r", key: FaultKey = "identity", loss: str = "1%") -> FaultRule:
    text = f"{{name: {name}, links: '{links}', key: {key}, loss: {loss}}}"
    return validate(FaultRule, parse(text))


def resolved(*rules: FaultRule, plan: Plan = PLAN, seed: int = 1) -> tuple[Fault, ...]:
    return faults.arm(plan, FaultRules(rules), seed=seed).faults


def places(rules: tuple[Fault, ...], plan: Plan = PLAN) -> list[str]:
    names = {n: f"{a.node}->{b.node}" for link in plan.links for n, a, b in link.halves}
    return [names[found.directed_link] for found in rules]


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


def load(text: str) -> Plan:
    from softroce_lab.topology.model import TopologyFile
    from softroce_lab.topology.resolve import resolve

    source = parse(text, "x.yaml")
    return resolve(validate(TopologyFile, source), source)


def test_arming_adds_after_the_plans_own_rules() -> None:
    once = faults.arm(PLAN, FaultRules((rule("h1->*", "a"),)))
    twice = faults.arm(once, FaultRules((rule("*->h1", "b"),)), seed=5)
    assert [(f.rule, f.rule_id) for f in twice.faults] == [("a", 0), ("b", 1)]
    assert twice.faults[0] == once.faults[0]
    assert twice.faults[1].stream == documented(b'[5,"b",0,"down"]')
    assert len({PLAN.digest, once.digest, twice.digest}) == 3


def test_arming_keeps_the_ids_of_what_is_there() -> None:
    once = faults.arm(PLAN, FaultRules((rule("h1->*", "a"), rule("h2->*", "b"))))
    down = validate(FaultRule, parse("{name: c, links: h1->*, down: true}"))
    twice = faults.arm(once, FaultRules((down,)))
    assert set(once.faults) <= set(twice.faults)
    assert [(f.rule, f.rule_id) for f in twice.faults] == [("c", 2), ("c", 3), ("a", 0), ("b", 1)]


def target(text: str) -> list[str]:
    found = validate(FaultRule, parse(f"{{name: r, {text}, loss: 1%}}"))
    return places(resolved(found))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("links: ['h1->*', 'h2->*']", ["h1->leaf1", "h2->leaf1"]),
        ("links: ['h1->*', 'h*->leaf1']", ["h1->leaf1", "h2->leaf1"]),
        ("links: 'h1:eth1->*'", ["h1->leaf1"]),
        ("links: '*:spine[12]->spine2'", ["leaf1->spine2", "leaf2->spine2"]),
        ("links: '*->leaf1:h2'", ["h2->leaf1"]),
        ("nodes: h1", ["h1->leaf1", "leaf1->h1"]),
        ("nodes: [h1, 'h[2]']", ["h1->leaf1", "leaf1->h1", "h2->leaf1", "leaf1->h2"]),
        ("nodes: spine2", ["leaf1->spine2", "spine2->leaf1", "leaf2->spine2", "spine2->leaf2"]),
        ("ports: 'h*:eth1'", [f"{a}->{b}" for h, s in (("h1", "leaf1"), ("h2", "leaf1"),
                              ("h3", "leaf2"), ("h4", "leaf2")) for a, b in ((h, s), (s, h))]),
        ("ports: 'leaf1:spine1'", ["leaf1->spine1", "spine1->leaf1"]),
    ],
)  # fmt: skip
def test_targets(text: str, expected: list[str]) -> None:
    assert target(text) == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("links: ['h1->*', 'h1->h2']", "1:28: pattern 'h1->h2' matches no link"),
        ("links: 'h1:eth2->*'", "1:18: pattern 'h1:eth2->*' matches no link"),
        ("nodes: spine3", "1:18: pattern 'spine3' matches no node"),
        ("ports: 'h1:eth2'", "1:18: pattern 'h1:eth2' matches no port"),
    ],
)
def test_targets_that_match_nothing(text: str, error: str) -> None:
    source = parse(f"{{name: r, {text}, loss: 1%}}", "x.yaml")
    rules = FaultRules((validate(FaultRule, source),), source, ())
    with pytest.raises(UserError) as caught:
        faults.arm(PLAN, rules)
    assert str(caught.value).startswith(f"x.yaml:{error}")


def test_down_acts_on_both_directions() -> None:
    found = resolved(validate(FaultRule, parse("{name: r, links: h1->*, down: true, loss: 1%}")))
    assert list(zip(places(found), [fault.word for fault in found], strict=True)) == [
        ("h1->leaf1", "down"), ("leaf1->h1", "down"), ("h1->leaf1", "loss"),
    ]  # fmt: skip


def test_faults_are_sorted_into_the_order_in_which_they_act() -> None:
    text = (
        "{name: a, links: h1->*, delay: 1ms, rate: 1Gbit, reorder: 1%, duplicate: 1%,"
        " corrupt: 1%, loss: 1%, drop: [tail 1, message 3 packet 5]}"
    )
    found = resolved(rule("h1->*", "b"), validate(FaultRule, parse(text)), rule("h1->*", "c"))
    assert [(fault.rule, fault.effect.kind) for fault in found] == [
        ("a", "named-drop"), ("a", "drop"), ("b", "random"), ("a", "random"), ("c", "random"),
        ("a", "corrupt"), ("a", "duplicate"), ("a", "reorder"), ("a", "queue"), ("a", "delay"),
    ]  # fmt: skip
    assert [fault.rule_id for fault in found] == list(range(len(found)))


@pytest.mark.parametrize(
    ("effect", "keys"),
    [
        ("loss: 1%", {"identity"}),
        ("loss: gemodel 1%", {"index"}),
        ("loss: burst 1% 8", {"index"}),
        ("loss: periodic 10", {"index"}),
        ("reorder: 1% gap 5 by 1ms", {"index"}),
        ("reorder: 1% gap 1 by 1ms", {"identity"}),
        ("loss: gemodel 1%, corrupt: 1%", {"identity", "index"}),
        ("loss: gemodel 1%, corrupt: 1%, key: index", {"index"}),
        ("delay: 1ms 1ms, key: index", {"index"}),
    ],
)
def test_keys(effect: str, keys: set[str]) -> None:
    found = resolved(validate(FaultRule, parse(f"{{name: a, links: h1->*, {effect}}}")))
    assert {fault.key for fault in found} == keys


def test_impairments_of_one_direction() -> None:
    text = (
        "name: x\ntopology:\n  nodes: {h1: {kind: host}, s1: {kind: switch}}\n"
        "  links:\n  - endpoints: ['h1:a', 's1:a']\n    delay: 1ms\n"
        "    forward: {loss: 1%}\n    backward: {loss: 2%, rate: 1Gbit}\n"
    )
    plan = load(text)
    shown = [(fault.rule, text_of(fault)) for fault in plan.faults]
    assert list(zip(places(plan.faults, plan), shown, strict=True)) == [
        ("h1->s1", ("link:loss", "loss random 1%")),
        ("s1->h1", ("link:loss", "loss random 2%")),
        ("s1->h1", ("link:rate", "rate 1Gbit")),
        ("h1->s1", ("link:delay", "delay 1ms")),
        ("s1->h1", ("link:delay", "delay 1ms")),
    ]
    twice = text.replace("{loss: 1%}", "{delay: 2ms}")
    with pytest.raises(UserError, match=r"^x.yaml:7:22: h1:a -> s1:a has a delay already"):
        load(twice)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("h1->leaf1", ["h1->leaf1"]),
        ("leaf1<->h[12]", ["h1->leaf1", "leaf1->h1", "h2->leaf1", "leaf1->h2"]),
        ("h1", ["h1->leaf1", "leaf1->h1"]),
        ("h1:eth1", ["h1->leaf1", "leaf1->h1"]),
        ("*", [f"{a.node}->{b.node}" for link in PLAN.links for _, a, b in link.halves]),
    ],
)
def test_links_that_a_command_names(pattern: str, expected: list[str]) -> None:
    names = {n: f"{a.node}->{b.node}" for link in PLAN.links for n, a, b in link.halves}
    assert [names[number] for number in faults.links_of(PLAN, pattern)] == expected


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("h1->h2", "'h1->h2' matches no link\n  hint: h1 is linked to leaf1"),
        ("h1->leaf9", "'h1->leaf9' matches no link\n  hint: the nodes are h1, "),
        ("h9", "'h9' matches no link\n  hint: the nodes are h1, "),
        ("loss", "'loss' matches no link\n  hint: LINK comes first, '*' for all: '*' loss"),
        ("leaf1-spine1", "'leaf1-spine1' matches no link\n  hint: 'leaf1<->spine1' for both"),
        ("leaf*--spine*", "'leaf*--spine*' matches no link\n  hint: 'leaf*<->spine*' for both"),
        ("leaf1-spine9", "'leaf1-spine9' matches no link\n  hint: the nodes are "),
        ("h1:", "'h1:' is not a pattern of links, nodes or ports"),
        ("h1->", "'h1->' is not a pattern of links"),
        ("", "'' is not a pattern"),
    ],
)
def test_links_that_there_are_not(pattern: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        faults.links_of(PLAN, pattern)
    assert str(caught.value).startswith(error)


def test_a_name_used_twice() -> None:
    with pytest.raises(UserError, match="rule name 'r' is used twice"):
        resolved(rule("h1->*"), rule("h2->*"))
    once = faults.arm(PLAN, FaultRules((rule("h1->*"),)))
    with pytest.raises(UserError, match="rule name 'r' is used twice"):
        faults.arm(once, FaultRules((rule("h2->*", "new"), rule("h2->*"))))


UET = """\
name: uet
topology:
  nodes: {h1: {kind: host}, h2: {kind: host}, s1: {kind: switch}, s2: {kind: switch}}
  links:
  - {endpoints: ["h1:s1", "s1:h1"], rate: 8Gbit queue uet, delay: 10us}
  - {endpoints: ["s1:s2", "s2:s1"], rate: 8Gbit queue uet MORE, delay: 10us}
  - {endpoints: ["s2:h2", "h2:s2"], rate: 4Gbit, delay: 10us, queue: uet}
"""
UET_RTT_NS = 60_000 + 2154 * (1 + 1 + 2) + 200 * (1 + 1 + 2)  # at 1 ns a byte, the last link at 2


def uet_queues(more: str) -> dict[str, str]:
    plan = load(UET.replace("MORE", more))
    queues = [each for each in plan.faults if each.word == "rate"]
    return dict(zip(places(tuple(queues), plan), map(text_of, queues), strict=True))


def test_sizes_in_bandwidth_delay_products_follow_the_fabric_and_the_hop() -> None:
    bdp = UET_RTT_NS
    sizes = uet_queues("")
    core = f"rate 8Gbit limit {5 * bdp}B ecn {bdp // 2}B trim {bdp}B"
    assert sizes["s1->s2"] == sizes["s2->s1"] == core
    assert sizes["s1->h1"] == core.replace(f"trim {bdp}B", f"trim {bdp * 3 // 2}B")
    bdp //= 2
    last = f"rate 4Gbit limit {5 * bdp}B ecn {bdp // 2}B trim {bdp * 3 // 2}B"
    assert sizes["s2->h2"] == last


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("limit 500", "limit 500 ecn ECN trim TRIM"),
        ("ecn 9", "limit LIMIT ecn 9 trim TRIM"),
        ("trim", "limit LIMIT ecn ECN trim"),
        ("trim 99kB trim_share 25%", "limit LIMIT ecn ECN trim 99000B trim_share 25%"),
    ],
)
def test_written_sizes_override_those_in_bandwidth_delay_products(more: str, words: str) -> None:
    sizes = {"LIMIT": 5 * UET_RTT_NS, "ECN": UET_RTT_NS // 2, "TRIM": UET_RTT_NS}
    for word, size in sizes.items():
        words = words.replace(word, f"{size}B")
    assert uet_queues(more)["s1->s2"] == f"rate 8Gbit {words}"


def test_a_live_change_takes_the_sizes_of_the_fabric_as_it_is() -> None:
    plan = load(UET.replace("queue uet MORE", ""))
    found = live.set_on(
        plan,
        faults.links_of(plan, "s1->s2"),
        live.parse_impairments(["rate", "8Gbit", "queue", "uet"]),
    )
    (changed,) = (each for each in found.faults if each.rule.startswith("live"))
    assert f" trim {UET_RTT_NS}B" in text_of(changed)
