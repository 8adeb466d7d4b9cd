# SPDX-License-Identifier: GPL-2.0-or-later
"""The simulated fabric and its transports meet what theory expects of them.

Means over fixed seeds lie within three standard errors of what is expected, and the errors are
small enough to tell it from what else one might expect. Where theory gives the deviation too, it is
within four of them.
"""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from softroce_lab.experiment.hosts.messenger import RcSettings
from softroce_lab.transports import registry
from tests.sim import theory
from tests.sim.rig import Rig, line, load
from tests.transports.coded import CODED

NS = 1000
RATE_BPS, DELAY_NS = 100 * 10**9, 1000
MTU = 4096
RTT_NS = 10_000
OF_CHUNKS = ["sdr_sr", "sdr_sr_nack"]
# Of coded ones parity follows the data, which need not be sent again.
GO_BACK = ("rc", "uet_rod")
OF_PACKETS = [name for name in registry.transports() if name not in (*GO_BACK, *OF_CHUNKS, *CODED)]
CLEARED = [*OF_CHUNKS, "sdr_ec"]  # their senders wait for a clearance
# A clearance of one receive: what a control message begins with as data packets do, then a body of
# 20 bytes and 16 for each receive (native/engine/striped/clearance.hpp).
CLEARANCE = theory.ETHERNET_IPV4_UDP_BTH_ICRC + theory.DETH_AND_LAB_HEADER + 20 + 16


def frames_of(transport, length, path_mtu=MTU):
    if transport == "rc":
        return theory.rc_frames(length, path_mtu)
    if transport in CLEARED:
        return theory.uc_immediate_frames(length, path_mtu)
    return theory.striped_frames(length, path_mtu)


def unloaded_ns(transport, length, links):
    """When the last packet of a message is there that was posted at both ends at time 0.

    Over UC a sender begins when it is clear to send: the receiver says so when
    the receive is posted, in a frame of its own that goes all the way back. Then data follows, as
    with other transports from the beginning. With one switch between links of 100 Gb/s and 1 us, a
    message of 4096 bytes: the clearance of 142 bytes takes 2 (1 us + 11.36 ns) = 2022.72 ns, its
    one frame of 4174 bytes 2 (1 us + 333.92 ns) = 2667.84 ns; 4690.56 ns. The last packet is the
    same for both policies: nothing is missed, so no timer and no NACK has a say.
    """
    cleared_ps = theory.unloaded_ps([CLEARANCE], links[::-1]) if transport in CLEARED else 0
    return (cleared_ps + theory.unloaded_ps(frames_of(transport, length), links)) // NS


def within_deviations(found, expected, deviation, most_error):
    """Four deviations of theory's, of which one is at most this share of what is expected."""
    assert deviation <= most_error * expected, f"{deviation / expected:.4f} tells too little"
    assert abs(found - expected) <= 4 * deviation, (found, expected, deviation)


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


@pytest.mark.parametrize("switches", [5])
@pytest.mark.parametrize("length", [0, 4097, 2_000_000])
@pytest.mark.parametrize("transport", registry.transports())
def test_an_unloaded_message_takes_its_time_to_the_nanosecond(transport, length, switches):
    rig = Rig(line(switches), transport, RTT_NS)
    rig.connect((0, 1))
    key = rig.post(0, 1, length)
    assert rig.run()
    links = [(RATE_BPS, DELAY_NS * NS)] * (switches + 1)
    assert rig.received[key].completed_ns == unloaded_ns(transport, length, links)


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


@pytest.mark.parametrize("loss", [0.003, 0.01, 0.03])
def test_go_back_n_under_random_loss(loss):
    timeout = (4096 * NS << TIMEOUT) / SLOT_PS
    expected = theory.go_back_n_slots(PACKETS, loss, wasted_slots(), timeout)
    within([go_back_n_slots(lossy(loss, seed)) for seed in range(1, 101)], expected, 0.03)
    assert expected > 1.03 * PACKETS


# ---------------------------------------------------------------- selective repeat


# What may be sent in vain, of all packets, as no theory says: a sender's timer may take for lost
# what it has not heard of yet, that of `srnic` takes all that is out, and receivers of `falcon`
# answer several packets at once. `dcp` starts a message again, because nothing was trimmed here.
IN_VAIN = {"csa_ud": 0, "ud_rto": 0.005, "irn": 0.01, "srnic": 0.05, "rack_tlp": 0.01,
           "falcon": 0.2, "uet_rud": 0.2, "mrc": 0.01, "dcp": 5, "ndp": 0,
           "uccl": 0.1}  # fmt: skip


def retransmissions_needed(fabric):
    """Of packets, how often they were lost before they first arrived.

    Attempts of a packet count from 0, and each has a fate of its own. What was lost of a packet
    that was there already is none of these: it was sent in vain.
    """
    lost = {(int(drop["index"]), int(drop["attempt"])) for drop in fabric.injections()}
    firsts = (index for index, attempt in lost if attempt == 0)
    return sum(next(n for n in itertools.count() if (index, n) not in lost) for index in firsts)


@pytest.mark.parametrize("loss", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("transport", OF_PACKETS)
def test_selective_repeat_sends_again_what_was_lost(transport, loss):
    """What is sent in vain is counted apart. Of completion theory knows the least time alone, that
    of sending what is needed: what waits for a timer comes later.
    """
    packets, seeds, needed = 500, 30, 0
    options = {"parity": "0"} if transport == "csa_ud" else {}
    for seed in range(1, seeds + 1):
        rig = Rig(lossy(loss, seed, only="data"), transport, RTT_NS, options=options)
        rig.connect((0, 1))
        key = rig.post(0, 1, packets * (MTU - 40))
        assert rig.run()
        once = retransmissions_needed(rig.fabric)
        in_vain = rig.counter(0, "tx_data") - packets - once
        assert 0 <= in_vain <= IN_VAIN[transport] * packets
        frames = theory.striped_frames((packets + once) * (MTU - 40), MTU)
        least_ps = theory.unloaded_ps(frames, [(RATE_BPS, DELAY_NS * NS)] * 2)
        assert rig.received[key].completed_ns >= least_ps // NS
        needed += once
    expected, deviation = theory.selective_repeat_retransmitted(seeds * packets, loss)
    within_deviations(needed, expected, deviation, 0.09)


@pytest.mark.parametrize("transport", ["irn", "srnic"])
def test_one_loss_costs_a_sender_that_hears_of_each_packet_one_packets_time(transport):
    drop = {"name": "one", "links": "s1->h2", "drop": {"message": 0, "packet": 250, "iter": 1}}
    rig = Rig(line(1, faults=[drop]), transport, RTT_NS)
    rig.connect((0, 1))
    key = rig.post(0, 1, 500 * (MTU - 40))
    assert rig.run()
    assert retransmissions_needed(rig.fabric) == 1
    frames = theory.striped_frames(501 * (MTU - 40), MTU)
    expected_ps = theory.unloaded_ps(frames, [(RATE_BPS, DELAY_NS * NS)] * 2)
    assert rig.received[key].completed_ns == expected_ps // NS


# ---------------------------------------------------------------- SDR's model


LONG_HAUL_NS = 2_000_000  # one way


def over_a_long_haul(transport, packets, loss, seed, **options):
    """A message over 4 ms of RTT, so that retransmissions hardly take from the rate, as in the
    model.
    """
    rtt_ns = 2 * LONG_HAUL_NS
    plan = lossy(loss, seed, delay="1ms")
    rig = Rig(plan, transport, rtt_ns, window=1 << 14, options=options)
    rig.connect((0, 1))
    key = rig.post(0, 1, packets * MTU)
    assert rig.run()
    began_ns = rig.sent[key].first_ns  # when it was clear to send
    return rig, rig.received[key].completed_ns - began_ns + LONG_HAUL_NS


def sdr_expected_ns(chunks, loss, packets):
    (frame,) = theory.uc_immediate_frames(MTU, MTU)
    injection_ns = packets * frame * 8 * 10**9 / RATE_BPS
    rtt_ns = 2 * LONG_HAUL_NS
    return theory.sdr_selective_repeat(chunks, loss, injection_ns, 3 * rtt_ns, rtt_ns, packets)


CHUNKS, IN_CHUNK = 64, (64 << 10) // MTU  # as it is shipped: 16 packets


@pytest.mark.parametrize("loss", [0.003, 0.03, 0.1])
def test_sdr_takes_as_long_as_chunks_whose_packets_are_kept(loss):
    runs = [over_a_long_haul("sdr_sr", CHUNKS * IN_CHUNK, loss, seed) for seed in range(1, 101)]
    within([took for _, took in runs], sdr_expected_ns(CHUNKS, loss, IN_CHUNK), 0.06)


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


@pytest.mark.parametrize("transport", registry.transports())
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
