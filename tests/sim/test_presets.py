# SPDX-License-Identifier: GPL-2.0-or-later
"""The RNIC's limits as a model: its cache of contexts, its rate, its latency."""

import itertools
from collections import OrderedDict

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.experiment import spec, virtual
from softroce_lab.experiment.capturing import NOTHING
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.inputs import yaml_source
from softroce_lab.sim.presets import IDEAL, RNICS, RnicModel, rnic
from tests.sim import theory
from tests.sim.rig import Rig, line, load

MISS_PS = 500_000


def pipeline(**limits):
    return _native.RnicPipeline(RnicModel(**limits).native())


def misses(pipe, qps):
    """Which of these uses in a row are misses."""
    before = [pipe.misses]
    for qp in qps:
        pipe.transmit_ps(qp, 0)
        before.append(pipe.misses)
    return [bool(b - a) for a, b in itertools.pairwise(before)]


def test_a_peers_state_takes_its_bytes_and_is_fetched_after_the_context():
    """A context of 256 bytes and two peers' states of 384 fit into 1024; a third does not."""
    pipe = pipeline(cached_contexts=4, peer_bytes=384, miss_ns=500)
    assert pipe.transmit_ps(1, 0, peer=7) == 2 * MISS_PS
    missed = [pipe.misses]
    for peer in (7, 8, 7, 9, 7, 8):
        pipe.transmit_ps(1, 0, peer=peer)
        missed.append(pipe.misses)
    assert np.diff(missed).tolist() == [0, 1, 0, 1, 0, 1]
    pipe.transmit_ps(2, 0)  # another context: two peers' states of 384 do not fit beside it
    pipe.transmit_ps(1, 0, peer=8)
    assert pipe.misses == missed[-1] + 1
    pipe.transmit_ps(1, 0, peer=7)
    assert pipe.misses == missed[-1] + 2


@pytest.mark.parametrize("contexts", [1, 2, 7, 64])
def test_the_cache_is_what_a_dictionary_in_order_of_use_would_be(contexts):
    qps = np.random.default_rng(contexts).integers(0, 2 * contexts + 1, 5000).tolist()
    cached, expected = OrderedDict(), []
    for qp in qps:
        expected.append(qp not in cached)
        cached[qp] = None
        cached.move_to_end(qp)
        if len(cached) > contexts:
            cached.popitem(last=False)
    assert misses(pipeline(cached_contexts=contexts), qps) == expected
    assert 0.2 < sum(expected) / len(expected) < 0.9


def test_both_directions_use_one_context_and_wait_for_themselves():
    pipe = pipeline(cached_contexts=1, miss_ns=500)
    assert pipe.transmit_ps(1, 0) == MISS_PS
    assert pipe.receive_ps(1, 100) == 100  # the context is there by now, says the model
    assert pipe.receive_ps(2, 100) == 100 + MISS_PS
    assert pipe.transmit_ps(1, MISS_PS) == 2 * MISS_PS
    assert (pipe.uses, pipe.misses) == (4, 3)


def test_nothing_overtakes():
    pipe = pipeline(cached_contexts=8, miss_ns=500, packets_per_second=10_000_000)
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.integers(0, 200_000, 2000)).tolist()
    left = [pipe.transmit_ps(int(rng.integers(20)), now) for now in times]
    assert left == sorted(left)
    assert all(at >= now + 100_000 for at, now in zip(left, times, strict=True))


def test_a_runs_base_round_trip_has_the_latencies_of_both_hosts():
    text = "name: x\ntopology: {generator: {kind: star, hosts: 2, access: {delay: 5us}}}\n"
    text += "transports: [csa_ud]\nworkload: {kind: point-to-point, bytes: 1KiB}\n"
    rtts_ns = {}
    for name in RNICS:
        experiment = spec.of(yaml_source.parse(f"{text}rnic: {name}\n", "x.yaml"))
        made = VirtualRun(experiment, experiment.transports[0], 1, lambda _: None)
        rtts_ns[name] = made.tuning.base_rtt_ns
    assert rtts_ns[IDEAL] == 20_000
    assert rtts_ns["all-contexts"] == 20_000 + 4 * (500 + 450)
    assert all(rtts_ns[name] == 20_000 + rnic(name).round_trip_ns for name in RNICS)


def test_presets_are_known_by_name():
    assert rnic("ideal") == RnicModel()
    assert [rnic(name).cached_contexts for name in RNICS if "lru" in name] == [
        512,
        1024,
        4096,
        10_000,
        1024,
    ]
    assert [name for name in RNICS if rnic(name).peer_bytes] == ["lru-1024-peers"]
    with pytest.raises(UserError, match=r"lru-512, lru-1024"):
        rnic("lru")


# ---------------------------------------------------------------- in the simulated fabric

LINK = (100 * 10**9, 1_000_000)


@pytest.mark.parametrize("transport", ["rc", "csa_ud"])
def test_a_message_pays_its_hosts_latency_once_at_each_end(transport):
    model = rnic("all-contexts")
    rig = Rig(line(1), transport, 12_000, rnic=model)
    rig.connect((0, 1))
    key = rig.post(0, 1, 100_000)
    assert rig.run()
    frames = theory.rc_frames if transport == "rc" else theory.striped_frames
    processing_ps = 2 * (10**12 // model.packets_per_second)  # of the first out and the last in
    expected_ps = theory.unloaded_ps(frames(100_000, 4096), [LINK] * 2) + processing_ps
    each_ns = model.host_latency_ns + model.pcie_latency_ns
    assert rig.received[key].completed_ns == expected_ps // 1000 + 2 * each_ns


def star(hosts):
    names = [f"h{n}" for n in range(1, hosts + 1)]
    kinds = {"s1": {"kind": "switch"}} | {name: {"kind": "host"} for name in names}
    links = [
        {"endpoints": [f"{name}:up", f"s1:{name}"], "rate": "100Gbit", "delay": "1us"}
        for name in names
    ]
    return load({"nodes": kinds, "links": links})


def to_all_at_once(transport, contexts, peer_bytes=0, messages=1):
    """Time until host 0 has sent 100 packets to each of four others, and the states it missed."""
    model = RnicModel(cached_contexts=contexts, peer_bytes=peer_bytes, miss_ns=500)
    rig = Rig(star(5), transport, 12_000, rnic=model)
    rig.connect(*((0, peer) for peer in range(1, 5)))
    length = 100 // messages * 4000
    keys = [rig.post(0, peer, length) for _ in range(messages) for peer in range(1, 5)]
    assert rig.run()
    missed = rig.fabric.native.port_totals(0)["contexts_missed"]
    return max(rig.received[key].completed_ns for key in keys), missed


def test_queue_pairs_that_do_not_fit_cost_rate_and_datagrams_fit():
    packet_ns = 4096 * 8 / 100
    fits_ns, first_uses = to_all_at_once("rc", 4)
    misses_ns, missed = to_all_at_once("rc", 3)
    assert first_uses == 4
    assert fits_ns == pytest.approx(400 * packet_ns, rel=0.1)
    assert missed >= 390  # they take turns, so that each finds the others in its place
    assert misses_ns == pytest.approx(400 * 500, rel=0.1)
    assert to_all_at_once("csa_ud", 2)[1] == 2  # for data and for recovery


def test_peers_whose_state_does_not_fit_cost_rate_with_datagrams_too():
    in_turn = {"peer_bytes": 256, "messages": 100}  # packets of a message go together
    fits_ns, first_uses = to_all_at_once("ud_rto", 2 + 4, **in_turn)
    misses_ns, missed = to_all_at_once("ud_rto", 2 + 3, **in_turn)
    assert first_uses == 2 + 4
    assert missed > 350  # they take turns, but for a few
    assert misses_ns > 1.15 * fits_ns
    assert to_all_at_once("rc", 4, peer_bytes=256)[1] == 4  # a queue pair has it in its context


LATENT = """\
name: latent
topology: {generator: {kind: star, hosts: 2, access: {delay: 5us, rate: 10Gbit}}}
transports: [rc]
rnic: all-contexts
workload: {kind: point-to-point, bytes: 64KiB, from: h1, to: h2}
"""


@pytest.mark.parametrize(
    "change",
    [
        # A rule that never hits, and one that shapes as the link is shaped anyway.
        "faults=[{name: idle, links: '*<->*', loss: random 0.0000000000001%}]",
        "faults=[{name: named, links: '*<->*', drop: {qpn: 9, psn: 9}}]",
        "faults=[{name: later, links: '*<->*', loss: blackout, at: 10s, for: 1s}]",
    ],
)
def test_latency_of_the_rnic_is_kept_on_links_with_rules(change):
    assert completion_ns(change) == completion_ns()


def completion_ns(*changes, wanted=NOTHING):
    """When the only message has arrived."""
    source = yaml_source.parse(LATENT, "latent.yaml")
    experiment = spec.of(
        spec.with_overrides(source, [spec.parse_override(each) for each in changes])
    )
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _: None, wanted)
    assert run.verdict == "passed"
    return run.makespan_ns
