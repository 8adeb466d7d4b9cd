# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect` and `lab top`: nodes, links, paths, round trips and pictures of a lab."""

import json
import os
import pty
import signal
import socket
import subprocess
import threading
import time

import pytest
from typer.testing import CliRunner

import softroce_lab.fabric.lab as fabric
from softroce_lab.cli.app import app
from softroce_lab.paths import PROJECT_ROOT
from tests.cli.conftest import COMMAND

FAULTED = """
name: faulted
topology: {generator: {kind: star, hosts: 2}}
faults:
  - {name: half, links: "s1->h2", loss: random 50%, key: index}
  - {name: off, links: "h1<->s1", down: true, at: 400s, for: 500s}
"""
TIMELINE = """
name: timeline
topology: {generator: {kind: star, hosts: 2}}
faults:
  - {name: off, links: "h1<->s1", down: true, at: 1ms, for: 500s}
  - {name: late, links: "h2->s1", loss: 1%, at: 500s}
"""
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
SPRAY = """
name: spray
lb: spray
topology: {generator: {kind: leaf-spine, leaves: 2, spines: 3, hosts_per_leaf: 1}}
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "lab.yaml").write_text(text)
        return str(tmp_path / "lab.yaml")

    return write


def inspect(*arguments):
    """`lab inspect`, in this process."""
    return CliRunner().invoke(app, ["inspect", *arguments], env={"COLUMNS": "200"})


def document_of(*arguments):
    found = inspect(*arguments, "--json")
    assert found.exit_code == 0, found.stderr
    return json.loads(found.stdout)


def test_a_switch_and_a_host(up):
    node = up.inspect("node", "s1")["node"]
    assert (node["kind"], node["namespace"]) == ("switch", f"{up.name}-s1")
    assert [port["peer"] for port in node["ports"]] == ["h1:eth1", "h2:eth1"]
    routes = {route["host"]: route["ports"] for route in node["routes"]}
    assert routes == {"h1": ["p1"], "h2": ["p2"]}
    assert node["ports"][0]["counters"]["answered"] >= 1  # of `lab up`'s own probe
    (port,) = up.inspect("node", "h2")["node"]["ports"]
    assert port["address"] == "10.0.0.2"
    assert port["address6"].endswith(":a00:2")
    text = up.run("inspect", "node", "h2", "--lab", up.name).stdout
    assert port["mac"] in text
    assert "10.0.0.2" in text
    for part, what in (
        ("node", "h9"), ("link", "h1->h2"), ("link", "h1:eth7"), ("link", "h9"), ("node", "h1->s1"),
    ):  # fmt: skip
        assert "hint:" in up.refused("inspect", part, what, "--lab", up.name)


def test_links_with_faults_that_hit_and_that_come_later(lab, written):
    assert lab.up(file=written(FAULTED)).returncode == 0
    sent = json.loads(lab.ping("-c", "60", "-W", "200ms", "--json").stdout)
    there, back = lab.inspect("link", "s1<->h2")["links"]
    (fault,) = back["faults"]
    assert there["faults"] == []
    assert (back["from"]["port"], back["to"]["port"]) == ("s1:h2", "h2:eth1")
    assert (fault["text"], fault["rule"]) == ("loss random 50%", "half")
    assert back["tc"] == ["tc qdisc add dev h2 root handle 1: netem loss random 50%"]
    assert fault["hits"] == back["counters"]["loss"] == sent["sent"] - sent["received"]
    assert fault["seen"] == sent["sent"]
    assert back["counters"]["emulator"] == 0
    text = lab.run("inspect", "link", "h2:eth1", "--lab", lab.name).stdout
    assert "netem loss random 50%" in text
    assert f"hit {fault['hits']} of 60" in text
    assert lab.run("inspect", "link", "h1", "--lab", lab.name).stdout.startswith("timeline at ")


def test_a_topology_that_is_not_up():
    document = document_of("node", "leaf1", "--lab", "leaf-spine")
    assert not document["up"]
    assert document["node"]["ports"][0]["counters"] is None
    (route,) = [r for r in document["node"]["routes"] if r["host"] == "h3"]
    assert route["ports"] == ["spine1", "spine2"]
    links = document_of("link", "leaf1", "--lab", "leaf-spine")["links"]
    assert len(links) == 8
    assert {each["from"]["port"].partition(":")[0] for each in links} == {
        "leaf1", "h1", "h2", "spine1", "spine2",
    }  # fmt: skip
    host = document_of("node", "k2", "--lab", "kernel-two")["node"]["kernel_host"]
    assert (host["kernel"], host["cpus"], host["memory_bytes"]) == ("6.1", 1, 1 << 30)
    assert (host["rdma_devices"], host["pid"]) == ({"rxe0": "eth1"}, None)


# --- Round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [(), ("-6",)])
def test_round_trips(up, family):
    document = json.loads(up.ping("-c", "4", "--json", *family).stdout)
    assert (document["sent"], document["received"], document["loss"]) == (4, 4, 0)
    assert {reply["hops"] for reply in document["replies"]} == {1}
    times = document["rtt_ns"]
    assert 0 < times["min"] <= times["avg"] <= times["max"] < 10**9
    assert ":" in document["to"]["address"] if family else document["to"]["address"] == "10.0.0.2"
    text = up.ping("-c", "2", *family).stdout
    assert "2 sent, 2 received, 0 % lost" in text
    assert "1 hop\n" in text
    assert "round trip: min" in text


def test_the_largest_request_that_fits(up):
    assert up.ping("-c", "1", "-s", "2172").returncode == 0
    result = up.ping("-c", "1", "-s", "2173")
    assert (result.returncode, "at most 2172" in result.stderr) == (2, True)


def test_every_rail_of_a_host(lab):
    assert lab.up(file="dual-rail").returncode == 0
    for rail, network in (("1", "10.0."), ("2", "10.1.")):
        line = ("path", "--ping", "h1", "h3", "-c", "2", "-i", "1ms", "--rail", rail)
        document = lab.inspect(*line)
        assert document["to"]["address"].startswith(network)
        assert document["received"] == 2


def test_nothing_comes_back(up):
    up.fault("set", "s1->h2", "loss", "random", "100%")
    result = up.ping("-c", "2", "-W", "100ms", "--json")
    up.fault("clear")
    assert result.returncode == 1
    assert json.loads(result.stdout)["rtt_ns"] is None


# --- Paths ---------------------------------------------------------------------------------------


def test_paths_of_files(written):
    document = document_of("path", "h1", "h3", "--lab", "leaf-spine", "--sport", "0xC000-0xC003")
    assert [flow["sport"] for flow in document["flows"]] == [49152, 49153, 49154, 49155]
    assert {flow["nodes"][0] + flow["nodes"][-1] for flow in document["flows"]} == {"h1h3"}
    assert sum(document["shares"]["leaf1"].values()) == 4
    text = inspect("path", "h1", "h2", "--lab", written(TRUNK)).stdout
    for words in ("8 flows over 2 paths", "h1 > s1:p2 > s2 > h2", "h1 > s1:p3 > s2 > h2"):
        assert words in text
    document = document_of("path", "h1", "h2", "--lab", written(SPRAY))
    assert (len(document["paths"]), "flows" in document) == (3, False)
    assert "spread evenly" in inspect("path", "h1", "h2", "--lab", written(SPRAY)).stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("h1", "h1"), "both ends"),
        (("h1", "leaf1"), "leaf1 is a switch"),
        (("h1", "h9"), "no node h9"),
        (("h1", "h3", "--sport", "5-1"), "no range of ports"),
        (("h1", "h3", "--sport", "http"), "no range of ports"),
        (("h1", "h3", "--proto", "tcp"), "--dport N"),
        (("h1", "h3", "--sport", "live"), "leaf-spine is not up"),
        (("h1", "h3", "--sport", "live", "--proto", "udp", "--dport", "9"), "leave --proto out"),
    ],
)
def test_paths_that_make_no_sense(arguments, complaint):
    found = inspect("path", *arguments, "--lab", "leaf-spine")
    assert (found.exit_code, complaint in found.stderr) == (2, True), found.stderr


def test_live_ports_need_a_process_that_uses_some(up):
    result = up.run("inspect", "path", "h1", "h2", "--sport", "live", "--lab", up.name)
    assert result.returncode == 1
    assert "no process has queue pairs at h1:eth1" in result.stderr


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_the_fabric_takes_the_paths_that_are_foretold(lab, family):
    """A UDP datagram from every port: exactly the foretold links count one frame more."""
    assert lab.up(file="leaf-spine").returncode == 0
    ports = range(40000, 40024)
    arguments = ["--proto", "udp", "--dport", "9", "--sport", f"{ports[0]}-{ports[-1]}"]
    arguments += ["-6"] if family == "ipv6" else []
    document = lab.inspect("path", "h1", "h3", *arguments)
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


# --- Pictures ------------------------------------------------------------------------------------


def test_pictures_of_files(tmp_path, written):
    result = inspect("graph", "leaf-spine")
    assert result.exit_code == 0, result.stderr
    assert "│ spine1 │" in result.stdout
    assert result.stdout.splitlines()[-1].split() == ["h1", "h2", "h3", "h4"]
    assert inspect("graph", "kernel-two").stdout.splitlines()[-2:] == [
        "k1: Linux 6.12; rxe0 at eth1; 1 GiB, 1 CPU", "k2: Linux 6.1; rxe0 at eth1; 1 GiB, 1 CPU",
    ]  # fmt: skip
    lossy = inspect("graph", written(FAULTED)).stdout
    assert "┆" in lossy
    assert "loss random 50%: s1->h2" in lossy.splitlines()
    asked = inspect("graph", "leaf-spine", "--ascii").stdout
    assert asked.isascii()
    assert "| spine1 |" in asked
    large = inspect("graph", "star-100").stdout  # which is summarised
    assert (len(large.splitlines()), "100 links" in large) == (3, True)
    file = tmp_path / "x.svg"
    assert inspect("graph", "leaf-spine", "-o", str(file)).exit_code == 0
    assert file.read_text("utf-8") == inspect("graph", "leaf-spine", "-o", "-").stdout
    assert file.read_text("utf-8").startswith("<svg ")
    refused = inspect("graph", "leaf-spine", "-o", str(tmp_path / "no" / "x.svg"))
    assert (refused.exit_code, "cannot write" in refused.stderr) == (2, True)
    assert "did you mean 'leaf-spine'?" in inspect("graph", "leaf-spin").stderr


def test_a_terminal_without_lines_gets_ascii():
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "200"}
    line = [*COMMAND, "inspect", "graph", "leaf-spine"]
    found = subprocess.run(line, env=environment, cwd=PROJECT_ROOT, capture_output=True, check=True)
    assert found.stdout.isascii()


def test_a_picture_of_a_lab_with_a_timeline(lab, written):
    file = written(TIMELINE)
    assert "x" not in inspect("graph", file).stdout.partition("down at")[0]
    assert lab.up(file=file).returncode == 0
    document = lab.json("inspect", "graph", lab.name)
    assert (document["up"], document["tiers"]) == (True, [["s1"], ["h1", "h2"]])
    down, late = (document["marks"][i] for i in (0, 2))
    assert (down["down"], down["acts"], late["acts"]) == (True, True, False)
    text = inspect("graph", lab.name).stdout
    assert "x" in text
    assert "down at 1ms for 500s (acts now): h1<->s1" in text
    shown = lab.fault("show").stdout
    assert shown.startswith("timeline at ")
    assert "acts in 8 min" in shown


# --- `lab top` -----------------------------------------------------------------------------------


@pytest.fixture
def busy(up):
    """A lab with a ping that runs."""
    # For two minutes, more than a test takes; nobody reads its lines, so they may not fill a pipe.
    line = ("inspect", "path", "h1", "h2", "--ping", "-c", "60000", "-i", "2ms", "--lab", up.name)
    with up.start(*line, stdout=subprocess.DEVNULL) as ping:
        time.sleep(1)
        yield up
        ping.send_signal(signal.SIGINT)
        ping.communicate(timeout=30)


def test_what_links_carry(busy):
    document = busy.json("top", busy.name, "--interval", "500ms")
    links = {link["name"]: link for link in document["links"]}
    assert set(links) == {"h1->s1", "s1->h1", "h2->s1", "s1->h2"}
    for name, link in links.items():
        # 500 a second, and more where a late ping catches up; 1000 would be each of them twice.
        assert 50 < link["frames_per_second"] <= 750, name
        bits_a_frame = link["bits_per_second"] / link["frames_per_second"]
        assert bits_a_frame == pytest.approx(8 * 98, rel=0.01)  # 56 of data, ICMP, IP, Ethernet
        assert link["counts"]["emulator"] in (None, 0)
    with fabric.Lab.open(busy.name):  # another process holds it
        result = busy.run("top", busy.name, "--interval", "200ms")
    assert result.returncode == 0
    assert "frames/s" in result.stdout
    assert "s1->h2" in result.stdout
    assert "\x1b" not in result.stdout
    assert "50ms at least" in busy.refused("top", busy.name, "--interval", "1ms")


def test_on_a_terminal_it_goes_on_until_it_is_interrupted(busy):
    terminal, inner = pty.openpty()
    watched = subprocess.Popen(
        [*COMMAND, "top", busy.name, "--interval", "100ms"], cwd=PROJECT_ROOT,
        env=os.environ | {"TERM": "xterm"}, stdin=inner, stdout=inner, stderr=inner,
    )  # fmt: skip
    os.close(inner)
    seen = bytearray()
    guard = threading.Timer(30, watched.kill)
    guard.start()
    try:
        while seen.count(b"frames/s") < 3:
            seen += os.read(terminal, 65536)
        watched.send_signal(signal.SIGINT)
        while True:
            seen += os.read(terminal, 65536)
    except OSError:  # the terminal's other end is closed
        pass
    guard.cancel()
    assert watched.wait() == 130
    assert seen.count(b"\x1b[?1049h") == seen.count(b"\x1b[?1049l") == 1
    os.close(terminal)
