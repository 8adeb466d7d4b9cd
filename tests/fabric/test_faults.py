# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults that change while traffic runs: XDP, the wire stage and the routes as one."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time

import pytest
from pyroute2 import IPRoute

from softroce_lab import topology
from softroce_lab.errors import RunError, UserError
from softroce_lab.fabric import lab, runtime
from softroce_lab.fabric.daemons.wire import WireStage
from softroce_lab.fabric.ledger import planfile
from softroce_lab.fabric.net import routes
from softroce_lab.fabric.observe import describe, traffic, view
from softroce_lab.fabric.observe.ping import Pinger
from softroce_lab.faults import live, profile
from softroce_lab.faults.layout import Hits
from softroce_lab.faults.resolve import arm, links_of
from tests.fabric.conservation import at_rest, balance
from tests.fabric.steady_stream import Stream
from tests.labs import eventually

PATIENCE_S = 60.0


@pytest.fixture
def make(lab_name, traces):
    """Brings up a ready topology, with its load balancing changed if that is asked for."""
    made = []

    def bring_up(name, **changes):
        plan = dataclasses.replace(topology.load(name, name=lab_name), **changes)
        made.append(lab.up(plan))
        return made[-1]

    yield bring_up
    for each in made:
        each.down()
    assert traces.gone(), traces.found()


def set_on(running, link, words):
    """`lab fault set LINK WORDS`."""
    wanted = live.parse_impairments(words.split())
    return running.faults.change(
        lambda plan: live.set_on(plan, links_of(plan, link), wanted), time.monotonic_ns
    )


def clear(running, link="*"):
    return running.faults.change(
        lambda plan: live.clear_on(plan, links_of(plan, link)), time.monotonic_ns
    )


def counted(running, name, node):
    """A counter, summed over a node's ports."""
    ports = {port.ifindex for port in running.plan.node(node).ports}
    counts = running.xdp.counters()
    return sum(getattr(counts[ifindex], name) for ifindex in ports)


def queued_bytes(running, link):
    """What a directed link's queue holds, as its switch sees it."""
    (number,) = links_of(running.plan, link)
    with traffic.metering(view.of_lab(running.plan.name)) as meter:
        return meter.sample().queued_bytes[number]


# --- Nothing is lost by a change -------------------------------------------------------------

CHANGES = (
    ("s1->h2", "delay 2ms"),
    ("s1->h2", "duplicate 5%"),
    ("h1->s1", "delay 500us 200us"),
    ("s1->h2", "delay 300us reorder 10%"),
    ("h1->s1", "corrupt 1%"),
    ("s1->h2", "rate 1Gbit"),
    ("s1->h2", "loss 2%"),
    ("*", None),
)


def test_shapes_that_come_and_go_under_traffic_lose_nothing(make):
    running = make("two-hosts")
    for link, words in CHANGES:  # the first ones make what the others use
        if words is not None:
            set_on(running, link, words)
    clear(running)
    before = at_rest(running)
    changes = 0
    with Stream(running, "h1", "h2", count=60_000, pace=20_000, batch=200) as stream:
        while stream.flows:
            link, words = CHANGES[changes % len(CHANGES)]
            if words is None:
                clear(running)
            else:
                set_on(running, link, words)
            changes += 1
    during = at_rest(running) - before
    found = balance(running.plan, during, {"h1": stream.sent})
    assert changes > len(CHANGES)
    assert stream.sent == 60_000
    assert found.unexplained == {}
    assert found.injected > 0
    assert found.duplicated > 0
    # However busy the machine is, no batch is too large for the stage's rings.
    assert not any(port.wire_gone for port in during.counts.ports.values())
    assert not any(port.lost_before for port in during.counts.wire.ports.values())
    assert not any(link.lost_port_down for link in during.counts.wire.links.values())
    print(f"{changes} changes, machine lost {found.machine}")


def test_a_shape_that_finds_no_room_changes_nothing(make):
    """The first of two shapes fits, and a loss would be armed with them."""
    running = make("two-hosts")
    set_on(running, "s1->h2", "loss 1% delay 1ms")
    plan, hits = planfile.read(running.directory), running.xdp.hits()
    with WireStage(running.directory) as stage:
        reserved = stage.figures().reserved_frames
        with pytest.raises(UserError, match="frames"):
            running.faults.change(two_shapes, time.monotonic_ns)
        assert stage.figures().reserved_frames == reserved
    assert planfile.read(running.directory) == plan
    assert running.xdp.hits() == hits
    before = at_rest(running)
    with Stream(running, "h1", "h2", count=500, pace=20_000) as stream:
        pass
    found = at_rest(running) - before
    assert balance(running.plan, found, {"h1": stream.sent}).unexplained == {}
    residence = found.counts.wire.links[links_of(plan, "s1->h2")[0]].residence.percentile(50)
    assert 900_000 < residence < 20_000_000  # its delay is 1 ms still


def two_shapes(plan):
    fits = live.parse_impairments(["delay", "2ms", "loss", "50%"])
    too_much = live.parse_impairments(["delay", "1000s"])
    plan = live.set_on(plan, links_of(plan, "s1->h2"), fits)
    return live.set_on(plan, links_of(plan, "s1->h1"), too_much)


def test_what_stays_goes_on_counting(make):
    running = make("two-hosts")
    set_on(running, "s1->h2", "loss gemodel 5% 25%")
    with Stream(running, "h1", "h2", count=1000, pace=20_000):
        pass
    at_rest(running)
    set_on(running, "s1->h1", "loss 10%")
    (hits,) = running.xdp.hits()[links_of(running.plan, "s1->h2")[0]]
    assert hits.seen == 1000
    running.faults.restart(time.monotonic_ns())
    (hits,) = running.xdp.hits()[links_of(running.plan, "s1->h2")[0]]
    assert hits == Hits(hits.rule_id, 0, 0, 0)


# --- Routes ----------------------------------------------------------------------------------

SPINES = ("spine1", "spine2")


def shares(running, spines, *, count=400, pace=20_000, size=128, **flow):
    """How many of so many frames from h1 to h3 each spine carried."""
    before = {spine: counted(running, "rx_roce", spine) for spine in spines}
    with Stream(running, "h1", "h3", count=count, pace=pace, size=size, **flow) as stream:
        pass
    assert stream.sent == count
    at_rest(running)
    return [counted(running, "rx_roce", spine) - before[spine] for spine in spines]


def test_routes_avoid_a_link_that_is_down_and_come_back(make):
    running = make("leaf-spine")
    usual = shares(running, SPINES)
    assert sorted(usual) == [0, 400]
    link = f"leaf1<->{SPINES[usual.index(400)]}"
    set_on(running, link, "down")
    assert shares(running, SPINES) == usual[::-1]
    set_on(running, link, "up")
    assert shares(running, SPINES) == usual
    assert sum(counted(running, "link_down", node.name) for node in running.plan.nodes) == 0


def echoes(running, source, target, *, rail=0, count=5, interval_s=0.005):
    """(sent, replies) of pings between two hosts' ports."""
    ports = [running.plan.node(host).ports[rail] for host in (source, target)]
    with running.enter(source):
        pinger = Pinger(*ports)
    replies = []
    with pinger:
        for sequence in range(count):
            pinger.send(sequence, 32)
            replies += pinger.receive(time.monotonic_ns() + int(interval_s * 1e9))
        replies += pinger.receive(time.monotonic_ns() + 100_000_000)
    return count, replies


# --- Time ------------------------------------------------------------------------------------

FLAPPING = """
faults:
  - {name: flap, links: "leaf1<->spine1", down: true, at: 100ms, for: 100ms, every: 300ms}
"""


@pytest.fixture
def make_armed(make, tmp_path):
    """Brings up a ready topology with the faults of a profile."""

    def bring_up(name, rules):
        path = tmp_path / "profile.yaml"
        path.write_text(rules)
        return make(name, faults=arm(topology.load(name), profile.load(str(path))).faults)

    return bring_up


def test_the_control_plane_follows_links_that_flap(make_armed):
    """Only what was under way, or came before the routes moved, meets the dead link.

    A busy machine may move routes late: one of these flows has to see them move in time.
    """
    running = make_armed("leaf-spine", FLAPPING)
    roles = [entry.facts["role"] for entry in running.ledger.history.of_kind("process")]
    assert "routes" in roles
    running.faults.restart(time.monotonic_ns())
    carried = {}
    for sport in range(0xC000, 0xC010):
        before = at_rest(running)
        with Stream(running, "h1", "h3", count=9_000, pace=10_000, sport=sport) as stream:
            pass
        counted = at_rest(running) - before
        counts = counted.counts
        found = balance(running.plan, counted, {"h1": stream.sent})
        assert found.unexplained == {}
        down = sum(port.link_down for port in counts.ports.values())
        assert found.injected == down
        carried[sport] = [
            sum(counts.ports[port.ifindex].rx_roce for port in running.plan.node(spine).ports)
            for spine in SPINES
        ]
        most = stream.sent - down
        assert most - sum(found.machine.values()) <= sum(carried[sport]) <= most
        usual, other = carried[sport]
        # Of an even stream over the link that flaps a third goes the other way, or is lost.
        if usual and 0.05 < other / stream.sent < 0.8 and down < stream.sent * 0.25:
            return
    pytest.fail(f"no flow went another way in time: {carried}")


def test_the_control_plane_follows_a_timeline_that_came_later(make_armed, tmp_path):
    """Nothing but that process writes routes at that moment."""
    running = make_armed("leaf-spine", FLAPPING.replace("at: 100ms", "at: 3000s"))
    later_ns = time.monotonic_ns() - running.xdp.timeline.epoch_ns + 400_000_000
    rule = f'{{name: later, links: "leaf1<->spine2", down: true, at: {later_ns}ns}}'
    (tmp_path / "later.yaml").write_text(f"faults: [{rule}]")
    rules = profile.load(str(tmp_path / "later.yaml"))
    running.faults.change(lambda plan: arm(plan, rules), time.monotonic_ns)
    leaf, address = running.plan.node("leaf1"), running.plan.node("h3").address
    with routes.current(running.plan, running.bpffs) as look_up:
        assert len(look_up(leaf, address)) == 2
        deadline = time.monotonic() + PATIENCE_S
        while len(look_up(leaf, address)) == 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [port.name for port in look_up(leaf, address)] == ["spine1"]


def test_windows_of_delays_open_and_close_in_the_wire_stage(make_armed):
    rules = 'faults: [{name: slow, links: "s1->h2", delay: 8ms, at: 200ms, for: 200ms}]'
    running = make_armed("two-hosts", rules)
    epoch_ns = time.monotonic_ns()
    running.faults.restart(epoch_ns)
    during, before, after = [], [], []
    with running.enter("h1"):
        pinger = Pinger(*(running.plan.node(host).ports[0] for host in ("h1", "h2")))
    sent_ns = []
    with pinger:
        for sequence in range(60):
            sent_ns.append(time.monotonic_ns() - epoch_ns)
            pinger.send(sequence, 32)
            for reply in pinger.receive(time.monotonic_ns() + 10_000_000):
                moment = sent_ns[reply.sequence]
                if 205e6 < moment < 390e6:
                    during.append(reply.rtt_ns)
                elif moment < 190e6:
                    before.append(reply.rtt_ns)
                elif moment > 405e6:
                    after.append(reply.rtt_ns)
    assert len(during) > 5
    assert len(before) + len(after) > 5
    assert min(during) >= 8_000_000
    # A busy machine holds single packets longer; a window that is open holds all.
    assert min(before) < 4_000_000
    assert min(after) < 4_000_000


# --- Load balancing --------------------------------------------------------------------------

FOUR = ("spine1", "spine2", "spine3", "spine4")


def carried_by(running, switches):
    return sum(counted(running, "rx_roce", name) for name in switches)


def test_adaptive_routing_leaves_the_longest_queue(make):
    """It holds more than all that is sent then, however late the wire stage tells of the others."""
    running = make("leaf-spine-adaptive")
    others = [spine for spine in FOUR if spine != "spine2"]
    set_on(running, "leaf1->spine2", "rate 20kbit limit 128KiB")
    for spine in others:
        set_on(running, spine, "down")
    with Stream(running, "h1", "h3", count=100, pace=20_000, size=900):
        pass
    assert eventually(lambda: queued_bytes(running, "leaf1->spine2") > 80_000, PATIENCE_S)
    for spine in others:
        set_on(running, spine, "up")
    before = carried_by(running, others)
    with Stream(running, "h1", "h3", count=400, pace=20_000):
        pass
    assert eventually(lambda: carried_by(running, others) - before == 400, PATIENCE_S)


# --- The wire stage dies ---------------------------------------------------------------------


def kill_wire(running):
    """SIGKILL to the process that the ledger has."""
    (entry,) = (e for e in running.ledger.history.of_kind("process") if e.facts["role"] == "wire")
    os.kill(entry.facts["pid"], signal.SIGKILL)
    assert_gone(entry.facts["pid"])


def assert_gone(pid):
    deadline = time.monotonic() + PATIENCE_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_dead_wire_stage_loses_no_frame_in_silence(make):
    running = make("two-hosts")
    set_on(running, "s1->h2", "delay 1ms")
    assert describe.lab_document(runtime.examine(running.plan.name))["damage"] == []
    kill_wire(running)
    before = running.xdp.counters()
    with Stream(running, "h1", "h2", count=200, pace=20_000):
        pass
    time.sleep(0.1)
    after = running.xdp.counters()
    assert sum(after[i].wire_gone - before[i].wire_gone for i in after) == 200
    (damage,) = describe.lab_document(runtime.examine(running.plan.name))["damage"]
    assert "wire stage" in damage["what"]
    with pytest.raises(RunError, match="wire stage"):
        set_on(running, "s1->h2", "delay 2ms")
    clear(running)  # what needs no wire stage is no reason to start the lab again
    assert len(echoes(running, "h1", "h2")[1]) == 5


def test_a_deleted_port_is_no_reason_to_shape_nothing(make):
    running = make("leaf-spine")
    gone = running.plan.node("h2").ports[0]
    with running.enter("h2"), IPRoute() as ip:
        ip.link("del", index=gone.ifindex)
    output = []
    control = dataclasses.replace(running.faults, say=output.append)
    wanted = live.parse_impairments(["delay", "20ms"])
    control.change(
        lambda plan: live.set_on(plan, links_of(plan, "h1->leaf1"), wanted), time.monotonic_ns
    )
    (note,) = output
    assert note == "leaf1:h2 is gone; its frames are not shaped"
    sent, replies = echoes(running, "h1", "h3", count=3, interval_s=0.05)
    assert len(replies) == sent
    assert min(reply.rtt_ns for reply in replies) >= 20_000_000


# --- A change is broken off ------------------------------------------------------------------


def killed_change(running, link, words):
    """A process makes a change and dies of SIGKILL right before the plan is replaced."""
    child = os.fork()
    if child == 0:
        planfile.commit = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        set_on(running, link, words)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_what_a_killed_change_left_is_undone_by_the_next(make):
    running = make("two-hosts")
    set_on(running, "s1->h1", "loss 1%")
    before, hits = planfile.read(running.directory), running.xdp.hits()
    (directed,) = links_of(before, "s1->h2")
    killed_change(running, "s1->h2", "delay 30ms loss 2%")
    assert directed in running.xdp.hits()
    lost = planfile.begun(running.directory)
    assert lost is not None
    after = set_on(running, "h1->s1", "delay 1ms corrupt 1%")
    assert planfile.begun(running.directory) is None
    assert running.xdp.hits().keys() == {*hits, *links_of(after, "h1->s1")}
    fresh = {f.rule_id for f in after.faults} - {f.rule_id for f in before.faults}
    assert min(fresh) > max(f.rule_id for f in lost.faults)
    _, replies = echoes(running, "h1", "h2", count=10, interval_s=0.02)
    assert replies
    assert min(reply.rtt_ns for reply in replies) < 20_000_000


def test_ctrl_c_waits_until_a_change_is_made(make, monkeypatch):
    running = make("two-hosts")
    set_faults = type(running.xdp).set_faults

    def interrupted(xdp, faults):
        signal.raise_signal(signal.SIGINT)
        set_faults(xdp, faults)

    monkeypatch.setattr(type(running.xdp), "set_faults", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            set_on(running, "s1->h2", "loss 1%")
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.undo()
    plan = planfile.read(running.directory)
    assert [fault.word for fault in plan.faults] == ["loss"]
    assert running.xdp.hits().keys() == set(links_of(plan, "s1->h2"))
    assert planfile.begun(running.directory) is None


def test_a_lab_that_went_down_is_told_and_not_begun_again(lab_name, traces):
    running = lab.up(topology.load("two-hosts", name=lab_name))
    control, held, reported = running.faults, threading.Event(), []

    def change():
        held.wait(PATIENCE_S)
        try:
            control.change(lambda plan: plan, time.monotonic_ns)
        except RunError as error:
            reported.append(str(error))

    thread = threading.Thread(target=change)
    thread.start()
    running.down()
    held.set()
    thread.join()
    (error,) = reported
    assert "went down meanwhile" in error
    assert not control.directory.exists()
    assert traces.gone(), traces.found()
