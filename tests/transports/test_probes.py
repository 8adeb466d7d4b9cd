# SPDX-License-Identifier: GPL-2.0-or-later
"""Path probes of csa_ud: one for all paths, repeated until something answers; reports that go with
other messages; source ports that are tried again.
"""

import pytest

from softroce_lab.transports import control
from tests.transports.pair_rig import DATA, MILLISECOND_NS, PairRig
from tests.transports.sabotage import ControlLoss, lose, rule

KEY = (1, 2, 3)
CHUNK = 2048 - 40
PATH_PROBE = 3
ONE_WAY_NS = 100_000
RTT_NS = 2 * ONE_WAY_NS


def rig_of(paths=4, **options):
    """Paths of 100 us each way, a packet each 2 us, and an RTT that is known."""
    rig = PairRig("csa_ud", paths=paths, options=options, initial_rtt_ns=RTT_NS)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = ONE_WAY_NS, 2_000
    for number in range(3):
        rig.transfer((9, 9, number), 8 * CHUNK)
        rig.finish()
    return rig


def transfer_ns(rig, side, packets=40):
    """Until the work request of this side has completed."""
    begin_ns = rig.now_ns
    rig.transfer(KEY, packets * CHUNK)
    rig.finish(within_ns=400 * MILLISECOND_NS)
    rig.check()
    return rig.sides[side].completions[-1].completed_ns - begin_ns


@pytest.mark.parametrize("packets", [1, 8, 9, 40])
def test_one_probe_names_all_paths(packets):
    rig = rig_of()
    before = rig.counters(0)["tx_probe"]
    transfer_ns(rig, 1, packets)
    assert rig.counters(0)["tx_probe"] == before + 1


@pytest.mark.parametrize("first", [32, 36, 39])
def test_a_probe_shows_what_other_paths_lost(first):
    """A quarter of the least RTT later than its own path: what overtakes is no loss."""
    rig = rig_of()
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=first)
    sending_ns = 40 * 2_000
    assert transfer_ns(rig, 1) < sending_ns + 3 * ONE_WAY_NS + RTT_NS // 4 + 15_000
    assert rig.sides[0].figures()["lost_by_timer"] == 0
    assert rig.counters(0)["tx_retransmitted"] == 40 - first


def test_paths_of_other_lengths_are_no_loss():
    """The wait of what a probe names grows until nothing comes later."""
    rig = rig_of()
    for cable in rig.cables:
        cable.jitter_ns = 3 * RTT_NS // 4
    again = []
    for number in range(40):
        rig.transfer((3, 3, number), 4 * CHUNK)
        rig.finish()
        again.append(rig.counters(0).get("tx_retransmitted", 0))
    rig.check()
    assert again[-1] - again[19] <= again[19] // 2


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_probe_is_repeated(lost):
    rig = rig_of()
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=36)
    lose(rig, 0, kind=PATH_PROBE, attempt_last=lost - 1)
    assert transfer_ns(rig, 1) < (2 + 2**lost * 1.5) * RTT_NS
    assert rig.sides[0].figures()["lost_by_timer"] == 0


def test_without_repeats_a_lost_probe_is_silence():
    rig = rig_of(probe_repeats=False)
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=36)
    lose(rig, 0, kind=PATH_PROBE, attempt_last=0)
    transfer_ns(rig, 1)
    assert rig.sides[0].figures()["lost_by_timer"] > 0


def test_a_lost_acknowledgement_follows_a_repeated_probe():
    rig = rig_of()
    loss = ControlLoss(rig, 1, 1, control.ACK)
    keepalives = rig.sides[0].figures()["keepalives"]
    assert transfer_ns(rig, 0) < 5 * RTT_NS
    assert loss.lost == 1
    assert rig.sides[0].figures()["keepalives"] == keepalives


def test_repeats_end():
    """What no probe shows is left to the policy's timers."""
    rig = rig_of()
    lose(rig, 0, kind=DATA, attempt_last=0)
    lose(rig, 0, kind=PATH_PROBE)
    before = rig.counters(0)["tx_probe"]
    transfer_ns(rig, 1)
    assert rig.counters(0)["tx_probe"] - before <= 2 * (1 + 4)


def test_reports_go_with_other_messages():
    joined, alone = rig_of(), rig_of(joined_reports=False)
    reports = []
    for rig in (joined, alone):
        for number in range(20):
            rig.transfer((4, 4, number), 16 * CHUNK)
            rig.finish()
        rig.check()
        reports.append(rig.counters(1)["tx_report"])
        assert rig.counters(0)["rx_report"] >= 20
    assert reports[0] < reports[1]


def test_control_bytes_are_counted():
    rig = rig_of()
    before = rig.counters(0)["tx_control_bytes"]
    transfer_ns(rig, 1, packets=2)
    # Ethernet, IPv4, UDP, BTH, DETH, our header, ICRC: a probe of one path has no body.
    assert rig.counters(0)["tx_control_bytes"] == before + 14 + 20 + 8 + 12 + 8 + 40 + 4


def ports_in_use(rig, messages):
    """Which of two ports of path 3 carries data, for so many messages."""
    for number in range(messages):
        rig.transfer((5, rig.steps, number), 400 * CHUNK)
    rig.finish()
    return rig.counters(0)["tx_path_moved"]


@pytest.mark.parametrize("trials", [True, False])
def test_a_port_that_carries_again_is_used_again(trials):
    rig = PairRig("csa_ud", paths=8, window_packets=64, arena_bytes=1 << 25,
                  options={"port_trials": trials})  # fmt: skip
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 20_000, 1_000
    dead = rule(path=3)
    rig.cables[0].rules = [dead]
    assert ports_in_use(rig, 4) == 1
    rig.cables[0].rules = []
    ports_in_use(rig, 15)
    # If it is back on its first port, that port's next death moves it once more.
    rig.cables[0].rules = [dead]
    assert ports_in_use(rig, 4) == (2 if trials else 1)
    rig.check()
