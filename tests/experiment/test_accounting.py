# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose loss was it? Counters in, figures of links and sockets out."""

import dataclasses

import pytest

from softroce_lab import topology
from softroce_lab.experiment.capturing import links_of
from softroce_lab.experiment.observation import Accounts, Counts, WireCounts
from softroce_lab.fabric.bpf.layout import PortCounters
from softroce_lab.fabric.daemons.wire_layout import Histogram, LinkFigures, StageFigures
from tests.topology.conftest import TRUNK

PLAN = topology.load("two-hosts")
NOTHING = PortCounters(*[0] * len(PortCounters._fields))
NO_WIRE = WireCounts(StageFigures(*[0] * len(StageFigures._fields)), {}, {})
NO_FRAMES = LinkFigures(
    *[0] * (len(LinkFigures._fields) - 2), late=Histogram(()), residence=Histogram(())
)
NONE_MISSED = [0] * 2 * len(PLAN.links)
PORTS = {str(port): port.ifindex for node in PLAN.nodes for port in node.ports}
H1, S1_TO_H1, S1_TO_H2, H2 = "h1:eth1", *(str(link.b if link.a.node != "s1" else link.a)
                                          for link in PLAN.links), "h2:eth1"  # fmt: skip


def host(sent=0, received=0, dropped=0, ring_full=0):
    return {
        "frames_sent": sent,
        "frames_received": received,
        "port": {"rx_dropped": dropped, "rx_ring_full": ring_full},
    }


def accounts(counted, hosts, before=None, missed=NONE_MISSED, wire=NO_WIRE):
    """Of ports that counted so much, by their names."""

    def counters(by_name):
        return {
            ifindex: NOTHING._replace(**by_name.get(name, {})) for name, ifindex in PORTS.items()
        }

    now = Counts(counters(counted), wire, missed)
    then = Counts(counters(before or {}), NO_WIRE, NONE_MISSED)
    return Accounts(PLAN, now - then, hosts)


def links(*arguments):
    return {link.name: link for link in accounts(*arguments).links()}


# h1 sends 100 frames: 10 are dropped by a rule of its uplink, and 5 of the others by one of the
# downlink; h2 takes 83 of the 85 that its program handed over.
COUNTED = {
    S1_TO_H1: {"rx_roce": 100, "injected_rx_roce": 10},
    S1_TO_H2: {"tx_roce": 85, "injected_tx_roce": 5},
    H2: {"rx_roce": 85, "to_xsk": 85},
}
HOSTS = {"h1": host(sent=100), "h2": host(received=83, dropped=2)}


def test_what_the_rules_took_is_nobodys_fault():
    found = links(COUNTED, HOSTS)
    up, down = found["h1->s1"], found["s1->h2"]
    assert (up.sent, up.injected_drops, up.received, up.emulator_drops) == (100, 10, 100, 0)
    assert (down.sent, down.injected_drops, down.received, down.emulator_drops) == (85, 5, 85, 0)


@pytest.mark.parametrize(
    ("name", "changed", "lost"),
    [("h1->s1", {S1_TO_H1: {"rx_roce": 93}}, 7), ("s1->h2", {H2: {"rx_roce": 84}}, 1)],
)
def test_what_vanished_between_two_programs_the_emulator_lost(name, changed, lost):
    found = links(COUNTED | changed, HOSTS)
    assert found[name].emulator_drops == lost
    assert sum(link.emulator_drops for link in found.values()) == lost


@pytest.mark.parametrize("name", ["h1->s1", "s1->h2"])
@pytest.mark.parametrize("cause", ["tx_failed", "lost_port_down"])
def test_what_the_wire_stage_could_not_hand_on_the_emulator_lost(cause, name):
    """Of RoCE: a fourth frame was none."""
    (number,) = (link.directed_link for link in accounts({}, {}).links() if link.name == name)
    lost = NO_FRAMES._replace(**{cause: 4, f"{cause}_roce": 3})
    wire = dataclasses.replace(NO_WIRE, links={number: lost})
    found = accounts(COUNTED, HOSTS, wire=wire).links()
    assert {link.name: link.emulator_drops for link in found if link.emulator_drops} == {name: 3}


def test_what_the_socket_could_not_take_is_the_hosts():
    port = {port.node: port for port in accounts(COUNTED, HOSTS).ports()}
    assert (port["h2"].handed, port["h2"].taken, port["h2"].emulator_drops) == (85, 83, 2)
    assert port["h1"].emulator_drops == 0
    full = HOSTS | {"h2": host(received=82, dropped=2, ring_full=1)}
    assert accounts(COUNTED, full).ports()[1].emulator_drops == 3


def test_only_what_was_counted_since_counts():
    before = {
        S1_TO_H1: {"rx_roce": 40, "injected_rx_roce": 4},
        H2: {"to_xsk": 5},
    }
    books = accounts(COUNTED, HOSTS | {"h1": host(sent=60)}, before)
    up = books.links()[0]
    assert (up.sent, up.injected_drops, up.received, up.emulator_drops) == (60, 6, 60, 0)
    assert books.ports()[1].handed == 80


def test_what_captures_missed_is_of_its_direction():
    """A switch's port decides for both directions of a host's link."""
    for directed, near, far in PLAN.halves:
        missed = [3 * (each == directed) for each in range(2 * len(PLAN.links))]
        found = accounts(COUNTED, HOSTS, missed=missed).links()
        lost = {link.name: link.records_lost for link in found if link.records_lost}
        assert lost == {f"{near.node}->{far.node}": 3}


@pytest.mark.parametrize("port", [S1_TO_H1, S1_TO_H2])
def test_a_lost_record_of_a_drop_counts_once(port):
    found = links(COUNTED | {port: COUNTED[port] | {"drop_log_lost": 2}}, HOSTS)
    assert sum(link.records_lost for link in found.values()) == 2


def test_of_a_host_without_a_process_nothing_is_missed():
    """Its kernel may send to the RoCE port, too."""
    link = links({S1_TO_H1: {"rx_roce": 7}}, {"h2": host()})["h1->s1"]
    assert (link.sent, link.received, link.emulator_drops) == (7, 7, 0)


def test_parallel_links_have_names_of_their_own(tmp_path):
    file = tmp_path / "trunk.yaml"
    file.write_text(TRUNK)
    plan = topology.load(str(file))
    blank = {port.ifindex: NOTHING for node in plan.nodes for port in node.ports}
    names = [
        link.name
        for link in Accounts(plan, Counts(blank, NO_WIRE, [0] * 2 * len(plan.links)), {}).links()
    ]
    assert names[::2] == ["h1->s1", "h2->s2", "s1:p2->s2:p2", "s1:p3->s2:p3"]
    assert links_of(plan, ["s2:p3->s1:p3"]) == {7: "s2:p3->s1:p3"}
    assert list(links_of(plan, ["s1->s2"]).values()) == names[4::2]


def test_frames_without_a_route_are_those_of_roce():
    """A program's host asks for names over UDP, too; nobody injected that nobody answers."""
    counted = {S1_TO_H1: {"rx_roce": 1, "no_route": 3, "no_route_roce": 1}}
    assert accounts(counted, {}).stage().no_route == 1
