# SPDX-License-Identifier: GPL-2.0-or-later
"""The simulated fabric and its transports meet what theory expects of them.

Means over fixed seeds lie within three standard errors of what is expected, and the errors are
small enough to tell it from what else one might expect.
"""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from softroce_lab.experiment.messenger import RcSettings
from softroce_lab.recovery import registry, sdr_sr
from tests.sim import theory
from tests.sim.rig import Rig, line, load

NS = 1000
RATE_BPS, DELAY_NS = 100 * 10**9, 1000
MTU = 4096
RTT_NS = 10_000
# Those of chunks send whole ones again, which are of another framing.
STRIPED = [name for name in registry.transports() if name != "rc" and not name.startswith("sdr")]


def frames_of(transport, length, path_mtu=MTU):
    frames = theory.rc_frames if transport == "rc" else theory.striped_frames
    return frames(length, path_mtu)


def lossy(loss, seed, delay="1us", **more):
    """One switch, behind which packets are lost at random."""
    fault = {"name": "loss", "links": "s1->h2", "loss": f"{loss:%}"} | more
    return line(1, delay=delay, faults=[fault], seed=seed)


def within(samples, expected, most_error):
    """Three standard errors, of which one is at most this share of what is expected."""
    samples = np.asarray(samples, float)
    error = samples.std(ddof=1) / math.sqrt(len(samples))
    assert error <= most_error * expected, f"{error / expected:.4f} tells too little"
    assert abs(samples.mean() - expected) <= 3 * error, (samples.mean(), expected, error)


# ---------------------------------------------------------------- without loss


@pytest.mark.parametrize("switches", [1, 5])
@pytest.mark.parametrize("length", [0, 1, 4096, 4097, 100_000, 2_000_000])
@pytest.mark.parametrize("transport", ["rc", *STRIPED])
def test_an_unloaded_message_takes_its_time_to_the_nanosecond(transport, length, switches):
    rig = Rig(line(switches), transport, RTT_NS)
    rig.connect((0, 1))
    key = rig.post(0, 1, length)
    assert rig.run()
    links = [(RATE_BPS, DELAY_NS * NS)] * (switches + 1)
    expected_ps = theory.unloaded_ps(frames_of(transport, length), links)
    assert rig.received[key].completed_ns == expected_ps // NS


@pytest.mark.parametrize("transport", ["rc", *STRIPED])
def test_rates_that_differ_and_leave_remainders(transport):
    """The slow link in the middle sets the pace; 7 Gb/s give no frame a whole picosecond."""
    rates_bps = [96 * 10**9, 7 * 10**9, 40 * 10**9]
    nodes = ["h1", "s1", "s2", "h2"]
    links = [
        {
            "endpoints": [f"{near}:right", f"{far}:left"],
            "delay": f"{n + 1}us",
            "rate": f"{rates_bps[n] // 10**9}Gbit limit 2000",
        }
        for n, (near, far) in enumerate(itertools.pairwise(nodes))
    ]
    kinds = {node: {"kind": "host" if node[0] == "h" else "switch"} for node in nodes}
    rig = Rig(load({"nodes": kinds, "links": links}), transport, RTT_NS, window=1 << 14)
    rig.connect((0, 1))
    length = 90 * MTU + 1  # below the most that RC has unacknowledged
    key = rig.post(0, 1, length)
    assert rig.run()
    way = [(rate, (n + 1) * 10**6) for n, rate in enumerate(rates_bps)]
    expected_ps = theory.unloaded_ps(frames_of(transport, length), way)
    assert rig.received[key].completed_ns == expected_ps // NS


def test_a_sender_of_rc_hears_of_it_one_acknowledgement_later():
    rig = Rig(line(2), "rc", RTT_NS)
    rig.connect((0, 1))
    key = rig.post(0, 1, 10 * MTU)
    assert rig.run()
    back_ps = theory.unloaded_ps([ACKNOWLEDGE], [(RATE_BPS, DELAY_NS * NS)] * 3)
    went_ps = theory.unloaded_ps(frames_of("rc", 10 * MTU), [(RATE_BPS, DELAY_NS * NS)] * 3)
    assert rig.sent[key].completed_ns == (went_ps + back_ps) // NS


# ---------------------------------------------------------------- go-back-N

ACKNOWLEDGE = theory.ETHERNET_IPV4_UDP_BTH_ICRC + 4
SLOT_PS = (theory.ETHERNET_IPV4_UDP_BTH_ICRC + MTU) * 8 * theory.PS // RATE_BPS
TIMEOUT = 6  # 262 us
PACKETS = 2000


def wasted_slots():
    """From a lost packet to the moment when it is sent again: the next one tells of it."""
    link = (RATE_BPS, DELAY_NS * NS)
    there_ps = SLOT_PS + theory.unloaded_ps([MTU + theory.ETHERNET_IPV4_UDP_BTH_ICRC], [link] * 2)
    back_ps = theory.unloaded_ps([ACKNOWLEDGE], [link] * 2)
    return -(-(there_ps + back_ps) // SLOT_PS)


def go_back_n_slots(plan):
    """Slots until 2000 packets are there; more follow, so that their last is nobody's tail."""
    rig = Rig(plan, "rc", RTT_NS, rc=RcSettings(timeout=TIMEOUT))
    rig.connect((0, 1))
    key = rig.post(0, 1, PACKETS * MTU)
    rig.post(0, 1, 200 * MTU)
    assert rig.run()
    way_ps = SLOT_PS + 2 * DELAY_NS * NS  # of the last packet, once it has been sent
    return (rig.received[key].completed_ns * NS - way_ps) / SLOT_PS


def test_one_loss_costs_a_sender_that_goes_back_what_it_sent_meanwhile():
    drop = {"name": "one", "links": "s1->h2", "drop": {"qpn": 1, "psn": 500, "iter": 1}}
    without, with_loss = go_back_n_slots(line(1)), go_back_n_slots(line(1, faults=[drop]))
    assert with_loss - without == pytest.approx(wasted_slots(), abs=0.01)
    assert wasted_slots() == 16


def test_a_completion_tells_what_was_sent_again_and_when_it_began():
    drop = {"name": "one", "links": "s1->h2", "drop": {"qpn": 1, "psn": 100, "iter": 1}}
    rig = Rig(line(1, faults=[drop]), "rc", RTT_NS)
    rig.connect((0, 1))
    key = rig.post(0, 1, 200 * MTU)
    assert rig.run()
    sent, received = rig.sent[key], rig.received[key]
    assert sent.resent == wasted_slots() == rig.counter(0, "tx_connected_resent")
    first_ps = theory.unloaded_ps(frames_of("rc", 2 * MTU)[:1], [(RATE_BPS, DELAY_NS * NS)] * 2)
    assert (sent.first_ns, received.first_ns) == (0, first_ps // NS)


@pytest.mark.parametrize("loss", [0.003, 0.01, 0.03])
def test_go_back_n_under_random_loss(loss):
    timeout = (4096 * NS << TIMEOUT) / SLOT_PS
    expected = theory.go_back_n_slots(PACKETS, loss, wasted_slots(), timeout)
    within([go_back_n_slots(lossy(loss, seed)) for seed in range(1, 101)], expected, 0.03)
    assert expected > 1.03 * PACKETS


# ---------------------------------------------------------------- selective repeat


@pytest.mark.parametrize("loss", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("transport", ["csa_ud", "ud_rto"])
def test_selective_repeat_sends_what_was_lost_and_nothing_else(transport, loss):
    sent, packets = [], 0
    for seed in range(1, 31):
        rig = Rig(lossy(loss, seed, only="data"), transport, RTT_NS)
        rig.connect((0, 1))
        key = rig.post(0, 1, 2_000_000)
        assert rig.run()
        packets = rig.received[key].packets
        sent.append(rig.counter(0, "tx_data"))
        dropped = sum(link["dropped"] for link in rig.fabric.links())
        assert sent[-1] == packets + dropped
    within(sent, theory.selective_repeat_sent(packets, loss), 0.01)


@pytest.mark.parametrize("loss", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("transport", registry.NATIVE)
def test_selective_repeat_by_acknowledgements_sends_little_else(transport, loss):
    """What was lost again is found by a timer, which may take more for lost than is."""
    for seed in range(1, 11):
        rig = Rig(lossy(loss, seed, only="data"), transport, RTT_NS)
        rig.connect((0, 1))
        key = rig.post(0, 1, 2_000_000)
        assert rig.run()
        packets = rig.received[key].packets
        dropped = sum(link["dropped"] for link in rig.fabric.links())
        in_vain = rig.counter(0, "tx_data") - packets - dropped
        assert 0 <= in_vain <= 0.05 * packets


# ---------------------------------------------------------------- SDR's model


@pytest.mark.parametrize("chunk_loss", [0.01, 0.1])
def test_the_model_of_sdr_is_what_dice_would_say(chunk_loss):
    rng = np.random.default_rng(1)
    chunks, injection, rto, rtt = 50, 3.0, 40.0, 20.0
    tries = rng.geometric(1 - chunk_loss, (20_000, chunks))
    times = injection * np.arange(1, chunks + 1) + (tries - 1) * (rto + injection)
    expected = theory.sdr_selective_repeat(chunks, chunk_loss, injection, rto, rtt)
    within(times.max(axis=1) + rtt, expected, 0.01)


@pytest.mark.parametrize("loss", [0.003, 0.03, 0.1])
def test_sdr_selective_repeat_over_a_long_haul(monkeypatch, loss):
    """4 ms of RTT, so that resends hardly take from the rate, as in the model.

    Chunks of one packet: of larger ones the packets that arrived are kept here, and a chunk that is
    sent again is lost less often than the model has it.
    """
    monkeypatch.setattr(sdr_sr, "CHUNK_BYTES", MTU)
    packets, one_way_ns = 256, 2_000_000
    took = []
    for seed in range(1, 101):
        rig = Rig(lossy(loss, seed, delay="1ms"), "sdr_sr", 2 * one_way_ns, window=1 << 14)
        rig.connect((0, 1))
        key = rig.post(0, 1, packets * MTU)
        assert rig.run()
        began_ns = rig.sent[key].first_ns  # when it was clear to send
        took.append(rig.received[key].completed_ns - began_ns + one_way_ns)
    injection_ns = theory.uc_immediate_frame(MTU) * 8 * 10**9 / RATE_BPS
    rto_ns = 3 * 2 * one_way_ns
    expected = theory.sdr_selective_repeat(packets, loss, injection_ns, rto_ns, 2 * one_way_ns)
    within(took, expected, 0.06)


# ---------------------------------------------------------------- conservation


def totals_of(fabric):
    """What all nodes did so far, added up; and each node's own books, balanced."""
    links = {
        (near.node, far.node): totals
        for (_, near, far), totals in zip(fabric.plan.halves, fabric.links(), strict=True)
    }
    for name, done in fabric.switches().items():
        came = sum(t["delivered"] for (_, far), t in links.items() if far == name)
        left = sum(t["entered"] for (near, _), t in links.items() if near == name)
        assert done["received"] == came
        assert done["forwarded"] == left
        assert came == left + done["no_route"] + done["ttl_exceeded"]
    totals, waiting = Counter(), 0
    for number, port in enumerate(fabric.ports):
        done = fabric.native.port_totals(number)
        near = [t for (node, _), t in links.items() if node == port.node]
        far = [t for (_, node), t in links.items() if node == port.node]
        assert [done["sent"]] == [t["entered"] for t in near]
        assert [done["received"]] == [t["delivered"] for t in far]
        totals.update(sent=done["sent"], received=done["received"])
    for each in links.values():
        lost = each["dropped"] + each["dropped_down"] + each["dropped_limit"]
        came = each["entered"] + each["duplicated"]
        assert came == each["delivered"] + lost + each["on_its_way"]
        waiting += each["on_its_way"]
        totals.update(lost=lost, duplicated=each["duplicated"])
    assert waiting == fabric.native.in_flight
    return totals, waiting


TROUBLE = [
    {"name": "loss", "links": "edge*<->agg*", "loss": "1%"},
    {"name": "twice", "links": "agg*->core*", "duplicate": "2%"},
    {"name": "flipped", "links": "core*->agg*", "corrupt": "1%"},
    {"name": "late", "links": "agg*->edge*", "delay": "2us 1us reorder allow"},
    {"name": "cut", "links": "edge1-1<->agg1-1", "down": True, "at": "30us", "for": "200us"},
]


@pytest.mark.parametrize("transport", ["rc", *STRIPED])
def test_what_goes_in_comes_out_or_is_accounted_for(transport):
    access = {"rate": "10Gbit limit 64", "delay": "1us"}
    core = {"rate": "10Gbit limit 32 ecn 16"}
    graph = {"generator": {"kind": "fat-tree", "k": 4, "access": access, "core": core}}
    rig = Rig(load(graph, faults=TROUBLE), transport, 20_000, path_mtu=1024, window=64)
    hosts = range(len(rig.fabric.endpoints))
    pairs = [(host, (host + 5) % len(hosts)) for host in hosts] + [
        (host, 0) for host in range(4, 8)
    ]
    rig.connect(*((min(pair), max(pair)) for pair in pairs))
    for source, destination in pairs:
        rig.post(source, destination, 200_000)
    busiest, moments = 0, 0
    for until_ns in range(20_000, 400_000, 20_000):
        rig.run(until_ns)
        totals, waiting = totals_of(rig.fabric)
        gone = totals["received"] + totals["lost"] + waiting
        unrouted = sum(
            done["no_route"] + done["ttl_exceeded"] for done in rig.fabric.switches().values()
        )
        assert totals["sent"] + totals["duplicated"] == gone + unrouted
        busiest, moments = max(busiest, waiting), moments + (waiting > 0)
    assert rig.run()
    assert not any(done.status for done in rig.received.values())
    assert busiest > 50
    assert moments > 5
    assert min(totals["lost"], totals["duplicated"]) > 20
