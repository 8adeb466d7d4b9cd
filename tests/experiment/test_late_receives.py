# SPDX-License-Identifier: GPL-2.0-or-later
"""Receives that are posted seconds after their sends, under loss: both ends come to an end."""

import pytest

from softroce_lab.errors import ibv_wc_status
from softroce_lab.experiment import spec
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.inputs import yaml_source
from softroce_lab.transports import registry
from tests.sim.rig import Rig, load

SECOND_NS = 10**9
LATE_NS = 2 * SECOND_NS
MESSAGES = 4
LENGTH_BYTES = 20_000
BASE_RTT_NS = 10_000
FLUSHED = int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)
PAIR = {
    "nodes": {"h1": {"kind": "host"}, "h2": {"kind": "host"}, "s1": {"kind": "switch"}},
    "links": [
        {"endpoints": ["h1:a", "s1:a"], "rate": "100Gbit", "delay": "1us"},
        {"endpoints": ["h2:a", "s1:b"], "rate": "100Gbit", "delay": "1us"},
    ],
}


def ran(transport, key, seed):
    """A rig whose sends were posted at once and whose receives were posted late."""
    fault = {"name": "lossy", "links": "*<->*", "loss": "random 5%", "key": key}
    rig = Rig(load(PAIR, faults=[fault], seed=seed), transport, BASE_RTT_NS)
    rig.connect((0, 1))
    keys = [(0, 1, number) for number in range(MESSAGES)]
    for each in keys:
        rig.send(0, 1, each, LENGTH_BYTES)
    rig.run(LATE_NS)
    for each in keys:
        rig.receive(0, 1, each, LENGTH_BYTES)
    return rig, keys


@pytest.mark.parametrize(("seed", "key"), [(1, "identity"), (2, "index")])
def test_a_queue_pair_ends_all_posts_of_both_ends(key, seed):
    """Eight timeouts without an acknowledgement end it, for an RNR NAK is none, as in Linux.

    The queue pair does not tell the responder (IBA 9.7): its program does, which ends the other.
    """
    rig, keys = ran("rc", key, seed)
    assert rig.run(), f"open at the end: {rig.open_posts} posts"
    statuses = [rig.sent[each].status for each in keys]
    assert statuses[0] == int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)
    assert set(statuses[1:]) == {FLUSHED}
    assert {rig.received[each].status for each in keys} == {FLUSHED}


DEAD = """\
name: dead
topology: {generator: {kind: star, hosts: 3, access: {rate: 10Gbit, delay: 1us}}}
transports: [TRANSPORT]
workload: {kind: WORKLOAD, bytes: 256KiB, message: 16KiB}
faults: [{name: dead, links: "h2<->s1", loss: blackout, at: 5us}]
deadline: 20s
"""


@pytest.mark.parametrize("workload", ["permutation", "all-to-all"])
@pytest.mark.parametrize("transport", registry.transports())
def test_nothing_of_a_run_stays_open_where_a_peer_is_dead(transport, workload):
    """Each send and each receive of every host has ended when the run has, well or not."""
    text = DEAD.replace("TRANSPORT", transport).replace("WORKLOAD", workload)
    experiment = spec.of(yaml_source.parse(text))
    made = VirtualRun(experiment, experiment.transports[0], 1, lambda _: None)
    run = made.go()
    assert run.verdict == "failed"
    assert not any("deadline" in reason for reason in run.reasons)
    left = {host.index: host.left for host in made.hosts.values()}
    assert left == {0: 0, 1: 0, 2: 0}
