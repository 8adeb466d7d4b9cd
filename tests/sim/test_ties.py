# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets that come to a queue at the same moment: over many seeds no sender loses more.

Senders a0, a1, ... have links of one rate and delay to one switch, so their packets come to the
link behind it at the same picosecond. Each sends to a receiver of its own, whose link tells what
arrived.
"""

import math
import statistics

import pytest

from softroce_lab.transports import registry
from tests.sim.rig import Rig, load

SEEDS = 100
SIGMAS = 3
BASE_RTT_NS = 12_000
DRAINED_NS = 100_000
SHARED = "10Gbit limit 16"


def plan(
    seed, senders=2, shared=SHARED, *, delays=None, host_rate="10Gbit", backwards=False, more=()
):
    """`delays` of the senders' links; `more`: pairs of hosts that send past the shared link."""
    pairs = [*range(senders)][:: -1 if backwards else 1]
    hosts = [*(f"{end}{pair}" for pair in pairs for end in "ab"), *more]
    nodes = {host: {"kind": "host"} for host in hosts}
    nodes |= {switch: {"kind": "switch"} for switch in ("s1", "s2")}
    delays = delays or ["1us"] * senders

    def link(host, switch, delay="1us"):
        ends = [f"{host}:e", f"{switch}:{host}"]
        return {"endpoints": ends, "delay": delay} | ({"rate": host_rate} if host_rate else {})

    links = [link(f"a{pair}", "s1", delays[pair]) for pair in pairs]
    links += [{"endpoints": ["s1:s2", "s2:s1"], "rate": shared, "delay": "1us"}]
    links += [link(f"b{pair}", "s2") for pair in pairs] + [link(host, "s1") for host in more]
    return load({"nodes": nodes, "links": links}, seed=seed)


def ran(transport, seed, *, size=400_000, messages=1, window=64, **graph):
    """A rig behind a run in which every sender sends the same, and its links by name."""
    made = plan(seed, **graph)
    at = {host.name: number for number, host in enumerate(made.plain_hosts)}
    more = graph.get("more", ())
    pairs = [(at[f"a{pair}"], at[f"b{pair}"]) for pair in range(graph.get("senders", 2))]
    pairs += [(at[one], at[other]) for one, other in zip(more[::2], more[1::2], strict=True)]
    rig = Rig(made, transport, BASE_RTT_NS, window=window)
    rig.connect(*pairs)
    for _ in range(messages):
        for source, destination in pairs:
            rig.post(source, destination, size)
    assert rig.run()
    while rig.fabric.run(rig.fabric.native.now_ns + DRAINED_NS):
        pass
    return rig, {link["name"]: link for link in rig.fabric.links()}


def lost(transport, seed, **more):
    """Packets that each sender lost at the shared link."""
    links = ran(transport, seed, **more)[1]
    found = [
        links[f"a{pair}->s1"]["entered"] - links[f"s2->b{pair}"]["entered"]
        for pair in range(more.get("senders", 2))
    ]
    assert sum(found) == links["s1->s2"]["dropped_limit"]
    return found


def sigmas(differences):
    """How many standard errors their mean is away from 0."""
    mean = statistics.mean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    if error == 0:
        return 0.0 if mean == 0 else math.inf
    return abs(mean) / error


def difference(transport, seed, **more):
    first, second = lost(transport, seed, **more)
    return first - second


@pytest.mark.parametrize("transport", registry.transports())
def test_two_symmetric_senders_into_one_full_queue_lose_the_same(transport):
    found = [difference(transport, seed) for seed in range(SEEDS)]
    assert len(set(found)) > 1
    assert sigmas(found) < SIGMAS


@pytest.mark.parametrize("transport", ["ud_rto", "rc"])
def test_senders_of_an_incast_lose_the_same(transport):
    """Those listed first against those listed last, and each against all."""
    runs = [
        lost(transport, seed, senders=8, shared="10Gbit limit 32", size=100_000)
        for seed in range(SEEDS)
    ]
    assert sigmas([sum(each[:4]) - sum(each[4:]) for each in runs]) < SIGMAS
    for sender in range(8):
        assert sigmas([each[sender] - statistics.mean(each) for each in runs]) < SIGMAS + 1


MOST_SPREAD = 10


def spread(runs):
    """The mean square of the difference of two senders' losses, over their sum.

    1, if a fair coin decides who loses a packet; the sum, if one coin decides all of a run.
    """
    return statistics.mean((one - other) ** 2 / (one + other) for one, other in runs)


@pytest.mark.parametrize("transport", ["ud_rto", "rc"])
def test_within_a_run_the_order_changes_all_the_time(transport):
    assert spread([lost(transport, seed) for seed in range(12)]) < MOST_SPREAD


@pytest.mark.parametrize("transport", ["ud_rto", "rc"])
def test_a_seed_decides(transport):
    assert len({tuple(lost(transport, seed)) for seed in range(20)}) > 10
    for seed in range(3):
        assert ran(transport, seed)[1] == ran(transport, seed)[1]


def test_hosts_elsewhere_change_no_draw():
    for seed in range(10):
        assert lost("ud_rto", seed) == lost("ud_rto", seed, more=("c0", "c1"))


def test_packets_of_one_source_keep_their_order():
    """All of a window comes at one moment, from links that take no time: rc notices each change."""
    for seed in range(10):
        rig, links = ran("rc", seed, host_rate=None, shared="10Gbit limit 1000")
        assert links["s1->s2"]["dropped_limit"] == 0
        assert links["s1->s2"]["most_waiting_packets"] > 64
        assert [rig.counter(host, "out_of_sequence") for host in range(4)] == [0] * 4
