# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect path` against the fabric it speaks of."""

import socket

import pytest

import softroce_lab.fabric.lab as fabric


def test_a_file_that_is_not_up(lab):
    document = lab.json(
        "inspect", "path", "h1", "h3", "--lab", "leaf-spine", "--sport", "0xC000-0xC003"
    )
    assert [flow["sport"] for flow in document["flows"]] == [49152, 49153, 49154, 49155]
    assert {flow["nodes"][0] + flow["nodes"][-1] for flow in document["flows"]} == {"h1h3"}
    assert sum(document["shares"]["leaf1"].values()) == 4


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_the_fabric_takes_the_paths_that_are_foretold(lab, family):
    """A UDP datagram from every port: exactly the foretold links count one frame more."""
    assert lab.run("up", "leaf-spine", "--name", lab.name).returncode == 0
    ports = range(40000, 40024)
    arguments = ["--proto", "udp", "--dport", "9", "--sport", f"{ports[0]}-{ports[-1]}"]
    arguments += ["-6"] if family == "ipv6" else []
    document = lab.json("inspect", "path", "h1", "h3", "--lab", lab.name, *arguments)
    paths = {flow["sport"]: set(flow["links"]) for flow in document["flows"]}
    here, there = (document[end]["address"] for end in ("from", "to"))
    assert len({frozenset(links) for links in paths.values()}) == 2
    with fabric.Lab.open(lab.name) as held, opened(held, "h3", there, 9) as receiver:
        for port in ports:
            before = received(held)
            with opened(held, "h1", here, port) as sender:
                sender.sendto(b"x", (there, 9))
            receiver.recv(16)
            after = received(held)
            assert {number for number in after if after[number] != before[number]} == paths[port]


TRUNK = """
name: trunk
topology:
  defaults: {kind: switch}
  nodes: {h1: {kind: host}, h2: {kind: host}, s1: , s2: }
  links:
    - endpoints: ["h1:eth1", "s1:p1"]
    - endpoints: ["h2:eth1", "s2:p1"]
    - endpoints: ["s1:p2", "s2:p2"]
    - endpoints: ["s1:p3", "s2:p3"]
"""


def test_parallel_links_are_paths_of_their_own(lab, tmp_path):
    file = tmp_path / "trunk.yaml"
    file.write_text(TRUNK)
    text = lab.run("inspect", "path", "h1", "h2", "--lab", str(file)).stdout
    assert "8 flows over 2 paths" in text
    assert "h1 > s1:p2 > s2 > h2" in text
    assert "h1 > s1:p3 > s2 > h2" in text
    one = lab.run("inspect", "path", "h1", "h2", "--lab", str(file), "--sport", "49152").stdout
    assert "1 flow over 1 path\n" in one


def opened(held, node, address, port):
    """A UDP socket at a node."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with held.enter(node):
        end = socket.socket(family, socket.SOCK_DGRAM)
    end.settimeout(5)
    end.bind((address, port))
    return end


def received(held):
    """Frames at the end of every directed link."""
    counters = held.xdp.counters()
    halves = (half for link in held.plan.links for half in link.halves)
    return {number: counters[far.ifindex].rx_packets for number, _, far in halves}


def test_spray_has_no_path_of_its_own(lab, tmp_path):
    file = tmp_path / "spray.yaml"
    file.write_text(
        "name: spray\nlb: spray\n"
        "topology: {generator: {kind: leaf-spine, leaves: 2, spines: 3, hosts_per_leaf: 1}}\n"
    )
    document = lab.json("inspect", "path", "h1", "h2", "--lab", str(file))
    assert len(document["paths"]) == 3
    assert "flows" not in document
    assert "spread evenly" in lab.run("inspect", "path", "h1", "h2", "--lab", str(file)).stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("h1", "h1"), "both ends"),
        (("h1", "leaf1"), "leaf1 is a switch"),
        (("h1", "h3", "--sport", "5-1"), "no range of ports"),
        (("h1", "h3", "--sport", "http"), "no range of ports"),
        (("h1", "h3", "--proto", "tcp"), "--dport N"),
    ],
)
def test_bad_input(lab, arguments, complaint):
    result = lab.run("inspect", "path", *arguments, "--lab", "leaf-spine")
    assert result.returncode == 2
    assert complaint in result.stderr


def test_live_ports_need_a_process_that_uses_some(lab):
    assert lab.up().returncode == 0
    result = lab.run("inspect", "path", "h1", "h2", "--sport", "live", "--lab", lab.name)
    assert result.returncode == 1
    assert "no process has queue pairs at h1:eth1" in result.stderr
    result = lab.run(
        "inspect", "path", "h1", "h2", "--sport", "live", "--proto", "udp", "--dport", "9",
        "--lab", lab.name,
    )  # fmt: skip
    assert result.returncode == 2
    assert (
        lab.run("inspect", "path", "h1", "h2", "--sport", "live", "--lab", "two-hosts").returncode
        == 2
    )
