# SPDX-License-Identifier: GPL-2.0-or-later
"""The transport `oracle`: what it knows, when, and that it guesses nothing."""

import json

import numpy as np
import pytest

from softroce_lab.experiment import spec
from softroce_lab.experiment.figure_table import SPURIOUS
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.inputs import yaml_source
from softroce_lab.telemetry.repairs import CAUSES, times_ns
from softroce_lab.transports import registry
from softroce_lab.workloads.message import Message

DELAY_NS = 10_000
FRAME_NS = 2048 - 40 + 106  # of a full frame, at a byte a nanosecond
PACKETS = 10
WIRE = {"rate": "8Gbit limit 1000", "delay": "10us"}
STAR = {"kind": "star", "hosts": 3, "access": WIRE}


def experiment(faults, *, hosts=("h1",), shape=STAR, size=PACKETS * 2008, **more):
    """Messages of that size from these hosts to h2, posted at once."""
    work = {"kind": "incast", "to": "h2", "hosts": [*hosts, "h2"], "bytes": f"{size}B",
            "message": f"{size}B"}  # fmt: skip
    text = {
        "name": "known",
        "topology": {"generator": shape},
        "mtu": 2200,
        "lb": "flow",
        "transports": ["oracle"],
        "workload": work,
        "faults": faults,
        "deadline": "20s",
        **more,
    }
    return spec.of(yaml_source.parse(json.dumps(text)))


def run(experiment, transport="oracle", seed=1):
    made = VirtualRun(experiment, Transport.named(transport), seed, lambda _: None)
    return made, made.go()


def fault(links, **what):
    return {"name": "fault", "links": links, **what}


def lost(made):
    """The only packet that was lost."""
    (found,) = made.fabric.repairs()
    return found


def test_a_packet_is_repaired_when_propagation_allows():
    """The queue ahead of the ghost is empty: it takes one delay to the host, the news two. Then the
    link is idle: the packet is there after two frames' time and two delays.
    """
    made, found = run(experiment([fault("s1->h2", drop={"message": 0, "packet": 3, "iter": 1})]))
    assert found.verdict == "passed"
    packet = lost(made)
    assert packet["dropped_ns"] == 4 * FRAME_NS + DELAY_NS
    assert packet["arrived_ns"] - packet["dropped_ns"] == 5 * DELAY_NS + 2 * FRAME_NS
    assert CAUSES[packet["cause"]] == "rule"
    assert found.messages["received_ns"][0] == packet["arrived_ns"]
    # It costs the link nothing, and is acknowledged after two delays.
    assert found.messages["completed_ns"][0] == packet["arrived_ns"] + 2 * DELAY_NS


def test_a_ghost_waits_in_the_queues_ahead_of_it():
    """Two hosts send at once, so that ten frames are ahead at s1 when the sixth of h1 is lost on
    its first link: from its drop the ghost takes a delay to s1. There the first frame came after
    one frame's time and a delay: ten later, at 11 frames' time and a delay, the ghost leaves. It is
    there a delay later, h1 knows after two more, and nothing is in the retransmission's way. The
    tenth frame, of h3, comes at the ghost's own moment: a draw decides whether it is ahead.
    """
    rule = fault("h1->s1", drop={"message": 0, "packet": 5, "iter": 1})
    arrived = set()
    for seed in range(1, 11):
        made, found = run(experiment([rule], hosts=("h1", "h3")), seed=seed)
        assert found.verdict == "passed"
        packet = lost(made)
        assert packet["dropped_ns"] == 5 * FRAME_NS
        arrived.add(int(packet["arrived_ns"]) - 6 * DELAY_NS)
    assert arrived == {(10 + 2) * FRAME_NS, (11 + 2) * FRAME_NS}


def test_acknowledgements_take_the_delay_alone():
    """No queue, no rate, no loss on the way back: with another message there, and without."""
    alone, crowded = (
        run(experiment([fault("h2->s1", loss="random 90%")], hosts=hosts))[1].messages
        for hosts in (("h1",), ("h1", "h3"))
    )
    for messages in (alone, crowded):
        waited = messages["completed_ns"] - messages["received_ns"]
        assert waited.tolist() == [2 * DELAY_NS] * len(messages)


LEAVES = {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 2}
FAULTS = {
    "rule": ({}, [fault("*->*", loss="random 5%")]),
    "link down": ({}, [fault("leaf1<->spine1", down=True, at="20us", **{"for": "300us"})]),
    "full queue": ({"rate": "8Gbit limit 6"}, []),
    "trimmed": ({"rate": "8Gbit limit 6 trim"}, []),
    "corrupted": ({}, [fault("*->*", corrupt="5%")]),
    "no route": ({}, [fault("leaf2<->h3", down=True, at="20us", **{"for": "4ms"})]),
}


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("lb", ["flow", "adaptive"])
def test_every_loss_is_known_and_repaired_whatever_its_cause(cause, lb):
    """And nothing else is retransmitted: not even where links also reorder and duplicate."""
    wire, faults = FAULTS[cause]
    shape = LEAVES | {"access": WIRE | wire, "core": WIRE | wire}
    work = {"kind": "all-to-all", "bytes": "200KiB", "message": "50KiB"}
    if cause == "no route":
        work = {"kind": "incast", "to": "h3", "bytes": "6MiB", "message": "1MiB"}
    noise = [
        fault("leaf*->spine*", reorder="5% by 30us") | {"name": "late"},
        fault("spine*->leaf*", duplicate="5%") | {"name": "twice"},
    ]
    made, found = run(
        experiment([*faults, *noise], shape=shape, workload=work, lb=lb, payload="verify")
    )
    assert found.verdict == "passed"
    assert found.verified
    repairs = made.fabric.repairs()
    assert CAUSES.index(cause) in repairs["cause"]
    assert (repairs["arrived_ns"] > repairs["dropped_ns"]).all()
    twice = sum(link["wire"]["duplicated"] for link in found.links)
    assert found.count(SPURIOUS) <= twice
    assert twice > 0
    assert made.fabric.native.in_flight == sum(link["on_its_way"] for link in found.links)


def test_a_loss_is_retransmitted_once_for_each_time_that_it_is_lost():
    made, found = run(experiment([fault("*->*", loss="random 20%")], size=400 * 2008))
    drops = made.fabric.injections()
    data = drops[(drops["kind"] == 0) & (drops["effect"] == 1)]
    assert found.count(("tx_retransmitted",)) == len(data) > 50
    assert len(made.fabric.repairs()) == np.count_nonzero(data["attempt"] == 0) < len(data)


def test_a_packet_of_which_a_copy_arrives_is_not_lost():
    """One of two copies is dropped behind the link that duplicates: a third is not sent."""
    faults = [
        fault("h1->s1", duplicate="100%") | {"name": "twice"},
        fault("s1->h2", loss="random 50%", key="index") | {"name": "loss"},
    ]
    made, found = run(experiment(faults, size=200 * 2008))
    drops = made.fabric.injections()
    data = drops[(drops["kind"] == 0) & (drops["effect"] == 1)]
    assert found.verdict == "passed"
    _, copies_lost = np.unique(data[["index", "attempt"]], return_counts=True)
    assert set(copies_lost) == {1, 2}
    assert found.count(("tx_retransmitted",)) == np.count_nonzero(copies_lost == 2)


def completed(made, sender, receiver, until_ns):
    """The sender's completions, the first of which comes before that time."""
    while not (done := list(sender.completions())):
        assert made.fabric.run(until_ns), "nothing happens any more"
        receiver.step()
        sender.step()
    return done


def test_a_late_receive_costs_what_it_lacks():
    """What is refused is sent again when the receive is posted, and no packet twice."""
    made = VirtualRun(experiment([]), Transport.named("oracle"), 1, lambda _: None)
    (sender,), (receiver,) = made.hosts[0].rails, made.hosts[1].rails
    message = Message((0, 0, 0), 0, 1, PACKETS * 2008)
    sender.post_send(0, message, 0)
    made.fabric.run(2_000_000_000)
    receiver.post_receive(0, message, 0)
    done = completed(made, sender, receiver, 4_000_000_000)
    counters = made.fabric.endpoints[0].counters()
    assert done[0].status == 0
    # The news takes two delays, the packets as long and ten frames' time, and one more for s1.
    assert done[0].completed_ns == 2_000_000_000 + 6 * DELAY_NS + (PACKETS + 1) * FRAME_NS
    assert counters["tx_data"] == 2 * PACKETS
    assert made.fabric.endpoints[1].counters()["rx_duplicate"] == 0


def test_who_is_not_to_be_reached_is_given_up_at_both_ends():
    """After 40 times 40 ms, and some hundred transmissions of a packet."""
    made, found = run(experiment([fault("s1->h2", loss="random 100%")]))
    assert found.verdict == "failed"
    assert set(found.messages["status"].tolist()) == {12}  # IBV_WC_RETRY_EXC_ERR
    assert 1.6e9 < found.end_ns < 1.8e9
    assert found.count(("tx_data",)) < 250 * PACKETS
    assert made.fabric.repairs()["arrived_ns"].tolist() == [-1] * PACKETS


@pytest.mark.parametrize("transport", [*registry.transports(), "oracle"])
def test_every_transport_has_repair_times(transport):
    """Of the same losses, where they are keyed by identity; none is shorter than a delay."""
    rules = [fault("s1->h2", loss="random 2%")]
    size = 400 * 2008
    made, found = run(experiment(rules, size=size), transport)
    repairs = made.fabric.repairs()
    assert found.verdict == "passed"
    assert len(repairs) > 2
    assert (repairs["arrived_ns"] >= 0).all()
    assert times_ns(repairs).min() >= 5 * DELAY_NS
    drops = made.fabric.injections()
    assert set(repairs["dropped_ns"]) <= set(drops["time_ns"].astype(np.int64))
    if registry.find(transport).shows_messages():
        first = drops[(drops["attempt"] == 0) & (drops["kind"] == 0) & (drops["index"] < 400)]
        assert repairs["dropped_ns"].tolist() == first["time_ns"].tolist()
        assert repairs["index"].tolist() == first["index"].tolist()
