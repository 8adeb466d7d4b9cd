# SPDX-License-Identifier: GPL-2.0-or-later
"""The topology file: what each key takes, and where a wrong one is pointed at."""

import re
from typing import Any

import pytest

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import validate
from softroce_lab.inputs.yaml_source import parse
from softroce_lab.topology.model import (
    Endpoint,
    TopologyFile,
    check_seed,
)

GOOD = """\
name: demo
topology:
  defaults: {kind: switch}
  nodes:
    h1: {kind: host}
    h2: {kind: host}
    s1:
  links:
    - endpoints: ["h1:eth1", "s1:p1"]
      loss: random 1%
    - endpoints: ["h2:eth1", "s1:p2"]
lb: spray
mtu: 3000
seed: 7
faults:
  - {name: all, links: "*->s1", loss: {random: 2%}, key: index}
"""


def read(text: str) -> TopologyFile:
    return validate(TopologyFile, parse(text, "x.yaml"))


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


def test_every_key() -> None:
    raw = read(GOOD)
    assert (raw.name, raw.lb, raw.mtu, raw.seed) == ("demo", "spray", 3000, 7)
    assert raw.topology.links is not None
    assert raw.topology.links[0].endpoints == [Endpoint("h1", "eth1"), Endpoint("s1", "p1")]
    assert raw.topology.nodes is not None
    assert list(raw.topology.nodes) == ["h1", "h2", "s1"]
    assert raw.faults[0].key == "index"


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("name: demo", "nme: demo", "1:1: unknown key 'nme'\n  hint: did you mean 'name'?"),
        ("name: demo", "name: 5", "1:7: expected text, found 5"),
        ("name: demo", "name: De mo", "1:7: lab name 'De mo' is not allowed"),
        ("name: demo", "name: demo\nname: demo", "2:1: duplicate key 'name'"),
        ("name: demo", f"name: {'a' * 33}", f"1:7: lab name '{'a' * 33}' is longer than 32"),
        ("    h1:", "    h/1:", "5:5: node name 'h/1' is not allowed"),
        ("    h1:", f"    {'h' * 32}:", f"5:5: node name '{'h' * 32}' is longer than 31"),
        ("    h1:", "    h2: {}\n    h1:", "7:5: duplicate key 'h2'"),
        (
            "h1: {kind: host}",
            "h1: {kind: router}",
            "5:16: expected 'host', 'kernel' or 'switch', found 'r",
        ),
        (
            "h1: {kind: host}",
            "h1: {kind: kernel, kernel: 6.10}",  # not 6.1, though YAML takes both for numbers
            "5:32: expected '6.1' or '6.12', found '6.10'",
        ),
        (
            "h1: {kind: host}",
            "h1: {kind: kernel, memory: 100MiB}",
            "5:32: memory '100MiB' is not between 256 MiB and 64 GiB",
        ),
        ("h1: {kind: host}", "h1: {kind: kernel, cpus: 17}", "5:30: cpus 17 is above 16"),
        ('"s1:p1"', '"s1"', "9:30: endpoint 's1' is not of the form node:port"),
        ('"s1:p1"', '"s1:a:b"', "9:30: interface name 'a:b' is not allowed"),
        ('"s1:p1"', '"s1:lo"', "9:30: interface name 'lo' is not allowed"),
        (', "s1:p1"', "", "9:18: expected at least 2 entries, found 1"),
        ("loss: random 1%", "loss: random 150%", "10:13: percentage '150%' is above 100%"),
        ("loss: random 1%", "slot: 1ms", "10:7: 'slot' is not supported yet"),
        ("mtu: 3000", "mtu: 575", "13:6: mtu 575 is below 576"),
        ("seed: 7", "seed: -1", "14:7: seed -1 is below 0"),
        ('"*->s1"', '"*--s1"', "16:24: '*--s1' is not a pattern of links"),
        (", loss: {random: 2%}", "", "16:5: the rule has no effect"),
    ],
)
def test_mistakes_are_pointed_at(old: str, new: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        read(changed(old, new))
    assert str(caught.value).startswith(f"x.yaml:{error}")


@pytest.mark.parametrize(
    ("graph", "error"),
    [
        ("{}", "2:11: the topology has neither a generator nor nodes and links"),
        (
            "{generator: {kind: parallel-paths, paths: 1}, links: []}",
            "2:11: the topology has both a generator and nodes and links",
        ),
        (
            "{defaults: {kind: switch}, generator: {kind: star, hosts: 2}}",
            "2:12: a generator knows its switches: its defaults are those of the hosts",
        ),
        ("{generator: {kind: torus}}", "2:23: unknown kind 'torus'\n  hint: known: star, dumb"),
        ("{generator: {kind: parallel-paths}}", "2:23: key 'paths' is missing"),
        ("{generator: {kind: parallel-paths, paths: 0}}", "2:53: paths 0 is below 1"),
        ("{generator: {kind: parallel-paths, paths: 20000}}", "2:23: that makes 80004 ports"),
        ("{generator: {kind: fat-tree, k: 3}}", "2:43: k 3 is not a multiple of 2"),
        (
            "{generator: {kind: clos, pods: 2, leaves: 4, hosts: 3, oversubscription: 2:1}}",
            "2:23: a leaf with 3 hosts would need 1.5 uplinks at 2:1\n"
            "  hint: choose hosts as a multiple of 2",
        ),
        (
            "{generator: {kind: clos, pods: 2, leaves: 3, hosts: 4, oversubscription: 0}}",
            "2:84: the ratio 0 has a side of nothing",
        ),
        (
            "{generator: {kind: dual-rail, leaves: 2, hosts_per_leaf: 1}}",
            "2:23: a plane of 2 leaves without spines is not connected",
        ),
    ],
)
def test_graph_mistakes_are_pointed_at(graph: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        read(f"name: x\ntopology: {graph}\n")
    assert str(caught.value).startswith(f"x.yaml:{error}")


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_out_of_range(seed: int) -> None:
    with pytest.raises(UserError, match="not between"):
        check_seed(seed)


def definition(schema: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = schema["$defs"][name]
    return found


def test_the_schema_tells_editors_what_the_models_accept() -> None:
    schema = topology.schema()
    assert schema["required"] == ["name", "topology"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["lb"]["enum"] == ["flow", "spray", "adaptive"]
    assert schema["properties"]["mtu"]["minimum"] == 576
    assert re.fullmatch(schema["properties"]["name"]["pattern"], "leaf-spine")
    link = definition(schema, "LinkSpec")["properties"]
    assert re.fullmatch(link["endpoints"]["items"]["pattern"], "h1:eth1")
    assert definition(schema, "FaultRule")["anyOf"][1]["required"] == ["name"]
    words, keys = definition(schema, "Loss")["anyOf"]
    assert words == {"type": "string"}
    probability = keys["properties"]["random"]["pattern"]
    assert re.fullmatch(probability, "1%")
    assert not re.fullmatch(probability, "0.01")
