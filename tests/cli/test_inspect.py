# SPDX-License-Identifier: GPL-2.0-or-later
import json

import pytest

FAULTED = """
name: faulted
topology:
  defaults: {kind: switch}
  nodes: {h1: {kind: host}, h2: {kind: host}, s1: }
  links:
    - endpoints: ["h1:eth1", "s1:p1"]
    - endpoints: ["h2:eth1", "s1:p2"]
faults:
  - {name: half, links: "s1->h2", loss: random 50%, key: index}
"""


@pytest.fixture
def faulted(lab, tmp_path):
    file = tmp_path / "f.yaml"
    file.write_text(FAULTED)
    assert lab.run("up", str(file), "--name", lab.name).returncode == 0
    return lab


def test_a_switch(lab):
    lab.up()
    node = lab.json("inspect", "node", "s1", "--lab", lab.name)["node"]
    assert (node["kind"], node["namespace"]) == ("switch", f"{lab.name}-s1")
    assert [port["peer"] for port in node["ports"]] == ["h1:eth1", "h2:eth1"]
    assert {route["host"]: route["ports"] for route in node["routes"]} == {
        "h1": ["p1"],
        "h2": ["p2"],
    }
    assert node["ports"][0]["counters"]["answered"] >= 1  # of `lab up`'s own probe


def test_a_host_has_addresses(lab):
    lab.up()
    (port,) = lab.json("inspect", "node", "h2", "--lab", lab.name)["node"]["ports"]
    assert port["address"] == "10.0.0.2"
    assert port["address6"].endswith(":a00:2")
    text = lab.run("inspect", "node", "h2", "--lab", lab.name).stdout
    assert port["mac"] in text
    assert "10.0.0.2" in text


def test_a_link_with_a_fault_that_hits(faulted):
    sent = json.loads(
        faulted.run("inspect", "path", "--ping", "h1", "h2", "--lab", faulted.name,
                    "-c", "60", "-i", "1ms",
                    "-W", "200ms", "--json").stdout
    )  # fmt: skip
    there, back = faulted.json("inspect", "link", "s1<->h2", "--lab", faulted.name)["links"]
    (fault,) = back["faults"]
    assert there["faults"] == []
    assert (back["from"]["port"], back["to"]["port"]) == ("s1:p2", "h2:eth1")
    assert (fault["text"], fault["rule"]) == ("loss random 50%", "half")
    assert back["tc"] == ["tc qdisc add dev p2 root handle 1: netem loss random 50%"]
    assert fault["hits"] == back["counters"]["loss"] == sent["sent"] - sent["received"]
    assert fault["seen"] == sent["sent"]
    assert back["counters"]["emulator"] == 0
    text = faulted.run("inspect", "link", "h2:eth1", "--lab", faulted.name).stdout
    assert "netem loss random 50%" in text
    assert f"hit {fault['hits']} of 60" in text


def test_a_file_that_is_not_up(lab):
    document = lab.json("inspect", "node", "leaf1", "--lab", "leaf-spine")
    assert not document["up"]
    assert document["node"]["ports"][0]["counters"] is None
    (route,) = [r for r in document["node"]["routes"] if r["host"] == "h3"]
    assert route["ports"] == ["spine1", "spine2"]


def test_a_kernel_host_is_a_machine(lab):
    host = lab.json("inspect", "node", "k2", "--lab", "kernel-two")["node"]["kernel_host"]
    assert (host["kernel"], host["cpus"], host["memory_bytes"]) == ("6.1", 1, 1 << 30)
    assert (host["rdma_devices"], host["pid"]) == ({"rxe0": "eth1"}, None)
    text = lab.run("inspect", "node", "k2", "--lab", "kernel-two").stdout
    assert "k2: Linux 6.1; rxe0 at eth1; 1 GiB, 1 CPU" in text.splitlines()


def test_what_is_not_there(lab):
    lab.up()
    for part, what in (
        ("node", "h9"), ("link", "h1->h2"), ("link", "h1:eth7"), ("link", "h9"), ("node", "h1->s1"),
    ):  # fmt: skip
        result = lab.run("inspect", part, what, "--lab", lab.name)
        assert result.returncode == 2, what
        assert "hint:" in result.stderr


def test_the_links_of_a_node(lab):
    links = lab.json("inspect", "link", "leaf1", "--lab", "leaf-spine")["links"]
    assert {each["from"]["port"].partition(":")[0] for each in links} == {
        "leaf1", "h1", "h2", "spine1", "spine2",
    }  # fmt: skip
    assert len(links) == 8
