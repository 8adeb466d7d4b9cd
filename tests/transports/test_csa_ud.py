# SPDX-License-Identifier: GPL-2.0-or-later
"""`csa_ud`: losses found by numbers on paths, by probes and by silence; NACKs, copies, paths."""

import collections

import numpy as np
import pytest

from softroce_lab.transports import control
from tests import control_bodies
from tests.transports.pair_rig import CONTROL, DATA, MILLISECOND_NS, PairRig
from tests.transports.sabotage import ControlLoss, control_sent, lose, packets_sent, rule

KEY = (1, 2, 3)
CHUNK = 2048 - 40
PATH_PROBE = 3
ONE_WAY_NS = 100_000
RTT_NS = 2 * ONE_WAY_NS
FIRST_NACK = 1 << 31


def make_rig(*, paths=4, measured=False, settings=None, **options):
    """Paths of 100 us each way, a packet each 2 us; `measured`: the RTT is known."""
    settings = {"initial_rtt_ns": RTT_NS, "arena_bytes": 1 << 23} | (settings or {})
    rig = PairRig("csa_ud", paths=paths, options=options, **settings)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = ONE_WAY_NS, 2_000
    for number in range(3 if measured else 0):
        rig.transfer((9, 9, number), 8 * CHUNK)
        rig.finish()
    return rig


@pytest.fixture
def rig():
    return make_rig()


def transfer_ns(rig, packets=40, *, side=1):
    """Until the work request of this side has completed."""
    begin_ns = rig.now_ns
    rig.transfer(KEY, packets * CHUNK)
    rig.finish(within_ns=400 * MILLISECOND_NS)
    rig.check()
    return rig.sides[side].completions[-1].completed_ns - begin_ns


def figures(rig, side=0):
    return rig.sides[side].figures()


# ---------------------------------------------------------------- losses


@pytest.mark.parametrize("index", [0, 39])
def test_a_lost_packet_costs_one_round_trip_and_no_timer(rig, index):
    """The next packet on its path shows the loss; behind the last packet a probe shows it."""
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=index, index_last=index)
    assert transfer_ns(rig) < 3 * ONE_WAY_NS + 150_000
    assert rig.counters(0)["tx_retransmitted"] == 1
    assert figures(rig)["lost_by_timer"] == 0
    assert figures(rig)["lost_by_gap"] + figures(rig)["lost_by_probe"] == 1


def test_a_lost_nack_is_repeated_behind_the_probes(rig):
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=5, index_last=5)
    lose(rig, 1, kind=CONTROL, message=FIRST_NACK)
    assert transfer_ns(rig) < 3 * ONE_WAY_NS + 250_000
    assert figures(rig)["lost_by_timer"] == 0


def test_the_nack_of_a_lost_tail_leaves_twice(rig):
    """One probe shows it, and nothing comes behind that: the loss of one NACK costs nothing."""
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=4)
    lose(rig, 1, kind=CONTROL, message=FIRST_NACK)
    assert transfer_ns(rig, 6) < 3 * ONE_WAY_NS + 100_000
    assert figures(rig)["lost_by_timer"] == 0


def test_without_probes_silence_is_left(rig):
    """The sender asks, and the receiver's loss check names what is missing."""
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=30)
    lose(rig, 0, kind=PATH_PROBE)
    transfer_ns(rig)
    assert figures(rig)["lost_by_timer"] > 0
    assert rig.counters(0)["tx_retransmitted"] >= 10


def test_reordering_within_a_path_is_learnt(rig):
    """What comes after it was given up makes the window grow, of later messages, too."""
    for cable in rig.cables:
        cable.jitter_ns = 60_000
    retransmitted = []
    for turn in range(2):
        before = rig.counters(0)["tx_retransmitted"]
        for number in range(8):
            rig.transfer((2, turn, number), 100 * CHUNK)
            rig.finish()
        retransmitted.append(rig.counters(0)["tx_retransmitted"] - before)
    assert rig.counters(1)["rx_late_number"] > 0
    assert 4 * retransmitted[1] < retransmitted[0]
    rig.check()


@pytest.mark.parametrize(("jitter_ns", "least_ns", "most_ns"), [(0, 0, 0), (10**6, 300_000, 2e6)])
def test_lateness_is_what_paths_differ_by(jitter_ns, least_ns, most_ns):
    rig = make_rig(paths=8, settings={"initial_rtt_ns": 2 * MILLISECOND_NS})
    rig.cables[0].jitter_ns = jitter_ns
    rig.transfer(KEY, 400 * CHUNK)
    rig.finish()
    receiver = rig.sides[1]
    assert least_ns <= receiver.endpoint.peer_state(receiver.peer).reordering_extent_ns <= most_ns


@pytest.mark.parametrize(("path_mtu", "waiting"), [(256, 12), (1024, 60)])
def test_a_loss_is_repaired_while_older_messages_wait_for_receives(path_mtu, waiting):
    """More of them than a NACK has room for: it names first what has begun."""
    rig = make_rig(settings={"path_mtu": path_mtu, "initial_rtt_ns": 2 * MILLISECOND_NS})
    chunk = path_mtu - 40
    for index in range(waiting):
        rig.sides[0].send((9, 9, index), np.zeros(chunk, np.uint8))
    rig.step_until(rig.now_ns + 20 * MILLISECOND_NS)
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=3, index_last=3)
    rig.transfer(KEY, 40 * chunk)
    receiver = rig.sides[1]
    begun_ns = rig.now_ns
    assert rig.step_until(begun_ns + 5 * MILLISECOND_NS, lambda: bool(receiver.completions))
    assert [each.key for each in receiver.completions] == [KEY]
    assert rig.now_ns - begun_ns < 4 * ONE_WAY_NS + 150_000


# ---------------------------------------------------------------- probes and reports


@pytest.mark.parametrize("first", [32, 36, 39])
def test_a_probe_shows_what_other_paths_lost(first):
    """A quarter of the least RTT later than its own path: what overtakes is no loss."""
    rig = make_rig(measured=True)
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=first)
    sending_ns = 40 * 2_000
    assert transfer_ns(rig) < sending_ns + 3 * ONE_WAY_NS + RTT_NS // 4 + 15_000
    assert figures(rig)["lost_by_timer"] == 0
    assert rig.counters(0)["tx_retransmitted"] == 40 - first


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_probe_is_repeated(lost):
    rig = make_rig(measured=True)
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=36)
    lose(rig, 0, kind=PATH_PROBE, attempt_last=lost - 1)
    assert transfer_ns(rig) < (2 + 2**lost * 1.5) * RTT_NS
    assert figures(rig)["lost_by_timer"] == 0


def test_a_probe_asks_for_nothing_again_once_all_losses_are_repaired():
    """A window that is full is probed amid the next message, of which nothing is lost."""
    rig = make_rig(paths=2, settings={"window_packets": 16})
    lose(rig, 0, kind=DATA, attempt_last=0, message=KEY[2], index_first=5, index_last=5)
    transfer_ns(rig)
    before = rig.counters(1)
    assert before["tx_nack"] > 0
    rig.transfer((5, 5, 5), 200 * CHUNK)
    rig.finish()
    rig.check()
    after = rig.counters(1)
    assert after["rx_probe"] - before["rx_probe"] > 2 * 2  # paths at the end
    assert after["tx_nack"] == before["tx_nack"]


def test_paths_of_other_lengths_are_no_loss():
    """The wait of what a probe names grows until nothing comes later."""
    rig = make_rig(measured=True)
    for cable in rig.cables:
        cable.jitter_ns = 3 * RTT_NS // 4
    again = []
    for number in range(80):
        rig.transfer((3, 3, number), 4 * CHUNK)
        rig.finish()
        again.append(rig.counters(0)["tx_retransmitted"])
    rig.check()
    assert 0 < again[-1] == again[59]


def test_a_lost_acknowledgement_follows_a_repeated_probe():
    rig = make_rig(measured=True)
    loss = ControlLoss(rig, 1, 1, control.ACK)
    keepalives = figures(rig)["keepalives"]
    assert transfer_ns(rig, side=0) < 5 * RTT_NS
    assert loss.lost == 1
    assert figures(rig)["keepalives"] == keepalives


def test_reports_go_with_other_messages():
    reports = []
    for options in ({}, {"joined_reports": False}):
        rig = make_rig(measured=True, **options)
        for number in range(20):
            rig.transfer((4, 4, number), 16 * CHUNK)
            rig.finish()
        rig.check()
        reports.append(rig.counters(1)["tx_report"])
        assert rig.counters(0)["rx_report"] >= 20
    assert reports[0] < reports[1]


# ---------------------------------------------------------------- acknowledgements and silence


def test_messages_that_complete_together_are_acknowledged_together(rig):
    """In packets that have room for them."""
    rig.cables[0].packet_time_ns = 0
    count = 300
    for index in range(count):
        rig.transfer((*KEY[:2], index), 64)
    rig.finish(within_ns=20 * MILLISECOND_NS)
    assert figures(rig)["keepalives"] == 0
    assert rig.counters(0)["rx_bad_control"] == 0
    assert rig.counters(1)["tx_control"] - rig.counters(1)["tx_nack"] < count / 8


def test_without_immediate_acks_they_wait_for_others():
    for rig, least_ns, most_ns in (
        (make_rig(), 0, ONE_WAY_NS + 10_000),
        (make_rig(immediate_acks=False), ONE_WAY_NS + 40_000, MILLISECOND_NS),
    ):
        for number in range(3):
            rig.transfer((1, 2, number), CHUNK)
        rig.transfer((1, 2, 3), 200 * CHUNK)  # a receive that still waits
        rig.finish()
        sent, came = (
            next(each for each in side.completions if each.key[2] == 1) for side in rig.sides
        )
        assert least_ns < sent.completed_ns - came.completed_ns < most_ns


def test_a_loss_check_waits_for_half_an_interval_of_silence():
    """The interval is T_min = 4 ms. Packets leave 3 ms apart, and only the first two arrive."""
    rig = make_rig()
    rig.cables[0].packet_time_ns = 3 * MILLISECOND_NS
    lose(rig, 0, kind=DATA, index_first=2, attempt_last=0)
    lose(rig, 0, kind=PATH_PROBE)
    rig.transfer(KEY, 4 * CHUNK)
    rig.step_until(5 * MILLISECOND_NS)
    assert figures(rig, 1)["loss_checks"] == 0
    rig.step_until(9 * MILLISECOND_NS)
    assert figures(rig, 1)["loss_checks"] == 1
    rig.finish()
    rig.check()


def test_loss_checks_of_a_receive_back_off():
    """They end at T_max apart."""
    rig = make_rig()
    lose(rig, 0, kind=PATH_PROBE)
    lose(rig, 0, kind=CONTROL)
    lose(rig, 0, kind=DATA, index_first=1, attempt_last=4)
    rig.cables[1].down = True  # no NACK is heard
    rig.transfer(KEY, 4 * CHUNK)
    at_ns, checks = [], 0
    while len(at_ns) < 12:
        rig.step(rig.now_ns + MILLISECOND_NS // 10)
        if figures(rig, 1)["loss_checks"] > checks:
            checks += 1
            at_ns.append(rig.now_ns)
    waits_ns = np.diff(at_ns)
    assert waits_ns[-1] > 3 * waits_ns[0]
    rig.cables[0].rules = []
    rig.cables[1].down = False
    rig.finish()
    rig.check()


def unheard(ms):
    """A message of 4 packets, of which nothing has arrived after so many ms."""
    rig = make_rig()
    lose(rig, 0)
    rig.transfer(KEY, 4 * CHUNK)
    rig.step_until(rig.now_ns + int(ms * MILLISECOND_NS))
    return rig


def answers(rig, message):
    """Retransmissions and refusals with which the sender answers a control message."""
    before = rig.counters(0)["tx_retransmitted"]
    receiver = rig.sides[1]
    receiver.endpoint.control(receiver.peer, control_bodies.encode(message, 2008))
    rig.pair.keep_sent()
    rig.step_until(rig.now_ns + MILLISECOND_NS // 2)
    return rig.counters(0)["tx_retransmitted"] - before, control_sent(rig, control.REFUSE, 0)


@pytest.mark.parametrize(("ms", "again"), [(0.1, 0), (2, 4)])
def test_a_receiver_without_any_packet_gets_those_again_that_left_two_round_trips_ago(ms, again):
    assert answers(unheard(ms), control.Sack(0, KEY, None)) == (again, 0)


def test_a_sack_of_another_key_is_refused_and_causes_no_retransmission():
    begun = control.PacketSet(0, np.ones(4, np.bool_))
    assert answers(unheard(2), control.Sack(0, (9, 9, 9), None)) == (0, 0)
    assert answers(unheard(2), control.Sack(0, (9, 9, 9), begun)) == (0, 1)


# ---------------------------------------------------------------- copies and paths


@pytest.mark.parametrize(("lost", "times", "twice"), [(4, 7, 0), (1, 8, 1), (4, 8, 4), (5, 8, 0)])
def test_a_few_packets_that_were_lost_eight_times_are_sent_twice(lost, times, twice):
    """More would be a storm: they fill a round of recovery by themselves."""
    rig = make_rig(paths=1)
    lose(rig, 0, kind=DATA, attempt_last=times - 1, index_first=10, index_last=9 + lost)
    transfer_ns(rig)
    assert figures(rig)["sent_twice"] == twice


@pytest.mark.parametrize("on", [True, False])
def test_path_health_moves_a_path_that_loses_more_than_others(on):
    rig = make_rig(path_health=on, path_choice=False)
    for index in range(1, 800, 8):  # every second packet of path 1
        lose(rig, 0, kind=DATA, path=1, attempt_last=0, index_first=index, index_last=index)
    transfer_ns(rig, 800)
    left = figures(rig)["paths_left"]
    assert (sum(left[rig.sides[0].peer]) if on else len(left)) == on
    assert rig.counters(0)["tx_path_moved"] == on


def test_a_path_whose_weight_was_0_takes_its_share_again_with_the_old_weight():
    rig = PairRig("ud_rto", paths=4, arena_bytes=1 << 23)
    endpoint, peer = rig.sides[0].endpoint, rig.sides[0].peer
    for weights, expected in (([0, 1, 1, 2], [0, 100, 100, 200]), ([1] * 4, [100] * 4)):
        endpoint.set_path_weights(peer, weights)
        rig.pair.keep_sent()
        rig.transfer((7, rig.steps, 0), 400 * CHUNK)
        rig.finish()
        sent = [each["path"] for each in packets_sent(rig, 0) if each["kind"] == DATA]
        counts = collections.Counter(sent)
        assert max(abs(counts[path] - expected[path]) for path in range(4)) <= 1


def rig_with_dead(*ports):
    """Everything is lost on these source ports."""
    rig = make_rig(paths=8, settings={"window_packets": 64, "initial_rtt_ns": 2 * MILLISECOND_NS,
                                      "arena_bytes": 1 << 25})  # fmt: skip
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 50_000, 1_000
    rig.cables[0].rules = [rule(path=port) for port in ports]
    return rig


def send(rig, messages=6):
    for number in range(messages):
        rig.transfer((5, rig.steps, number), 400 * CHUNK)
    rig.finish()
    rig.check()
    return rig.counters(0)


@pytest.mark.parametrize("dead", [(3,), tuple(range(7)), (3, 19, 35)], ids=str)
def test_a_silent_path_is_left_within_a_few_round_trips(dead):
    """19 and 35 are the ports that path 3 tries next."""
    counts = send(rig_with_dead(*dead))
    assert counts["tx_path_moved"] == len(dead)
    assert counts["tx_retransmitted"] < 64 * len(dead) * 2
    assert counts["tx_retransmitted"] < 0.05 * counts["tx_data"] * len(dead)


@pytest.mark.parametrize(("dead", "moves"), [((3,), 1), (tuple(range(1, 8)), 7), ((3, 19), 1)])
def test_a_receiver_leaves_ports_on_which_its_reports_are_lost(dead, moves):
    """Few reports take the path again while those on its next port, 19, are in doubt."""
    rig = rig_with_dead()
    rig.cables[1].rules = [rule(path=port) for port in dead]
    send(rig)
    assert rig.counters(1)["tx_path_moved"] == moves
    assert rig.counters(0)["tx_path_moved"] == 0


def test_a_receiver_that_loses_control_packets_everywhere_keeps_its_ports():
    rig = rig_with_dead()
    rig.cables[1].loss = 1 << 58  # 1.6 %
    send(rig, messages=18)
    assert rig.counters(1)["tx_control"] + rig.counters(1)["tx_report"] > 200
    assert rig.counters(1)["tx_path_moved"] == 0


def test_losses_of_all_paths_move_few():
    """A path by chance loses thrice what others do; it is found again on its next port."""
    rig = rig_with_dead()
    rig.cables[0].loss = 1 << 58  # 1.6 %
    counts = send(rig, messages=9)
    assert counts["tx_retransmitted"] > 40
    assert counts["tx_path_moved"] < counts["tx_retransmitted"] / 4
    assert rig.counters(1)["rx_duplicate"] == 0


@pytest.mark.parametrize("trials", [True, False])
def test_a_port_that_carries_again_is_used_again(trials):
    rig = make_rig(paths=8, settings={"window_packets": 64, "initial_rtt_ns": 2 * MILLISECOND_NS,
                                      "arena_bytes": 1 << 25}, port_trials=trials)  # fmt: skip
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 20_000, 1_000
    rig.cables[0].rules = [rule(path=3)]
    assert send(rig, 4)["tx_path_moved"] == 1
    rig.cables[0].rules = []
    send(rig, 15)
    # If it is back on its first port, that port's next death moves it once more.
    rig.cables[0].rules = [rule(path=3)]
    assert send(rig, 4)["tx_path_moved"] == (2 if trials else 1)
