# SPDX-License-Identifier: GPL-2.0-or-later
"""How long csa_ud waits from look to look, by each rule; and what steps have to do with it."""

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.recovery import control, intervals
from softroce_lab.recovery.api import EVENTS, NEVER_NS, Control, Retransmit
from softroce_lab.recovery.csa_ud import CsaUd
from softroce_lab.recovery.defaults import DEFAULT_TIMING, EngineTiming, Timing
from softroce_lab.recovery.groups import Groups
from softroce_lab.recovery.runner import PolicyRunner
from softroce_lab.recovery.work import PeerWork, Receiving
from tests.recovery.pair_rig import DATA, MILLISECOND_NS, PairRig
from tests.recovery.sabotage import ControlLoss, lose

CHUNK = 2048 - 40
BASE_RTT_NS = 20_000
T = Timing.for_rtt(BASE_RTT_NS)


def csa_ud(interval):
    """The policy with this rule, as the rig makes it."""

    class Chosen(CsaUd):
        def __init__(self, view, timing, options):
            super().__init__(view, timing, {"interval": interval})

    return Chosen


def fast_rig(interval, **settings):
    """A fabric of 20 us and hosts that answer at once."""
    engine = EngineTiming.for_rtt(BASE_RTT_NS)
    times = {name: getattr(engine, name) for name in EngineTiming.__slots__}
    rig = PairRig(csa_ud(interval), timing=T, **{**times, **settings})
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 9_830, 170
    return rig


# ---------------------------------------------------------------- rules


def test_the_rules_are_known_by_name():
    assert intervals.names() == ["exponential", "fixed", "linear", "sync-aware"]
    with pytest.raises(UserError, match="'lineal'") as caught:
        CsaUd(PairRig("csa_ud").sides[0].endpoint, DEFAULT_TIMING, {"interval": "lineal"})
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.hint == "did you mean 'linear'?"


@pytest.mark.parametrize(
    ("name", "straggles", "expected"),
    [
        ("fixed", False, T.fixed_check_ns),
        ("fixed", True, T.fixed_check_ns),
        ("linear", False, 30_000 + 160_000),
        ("linear", True, 30_000 + 160_000),
        ("exponential", False, 30_000 + 80_000),
        ("exponential", True, 30_000 + 80_000),
        ("sync-aware", False, 30_000 + 160_000),
        ("sync-aware", True, 30_000 + 80_000),
    ],
)
def test_each_rule_by_the_document(name, straggles, expected):
    assert intervals.find(name)(T, 30_000, 160_000, straggles) == expected


@pytest.mark.parametrize("name", intervals.names())
@pytest.mark.parametrize("index", [0, 100, 199])
def test_a_lost_packet_is_delivered_by_any_rule(name, index):
    rig = fast_rig(name)
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=index, index_last=index)
    rig.transfer((1, 2, 3), 200 * CHUNK)
    rig.finish(within_ns=20 * BASE_RTT_NS)
    rig.quiesce()
    rig.check()
    assert rig.counters(0)["tx_retransmitted"] == 1


# ---------------------------------------------------------------- looks


def test_a_lone_lost_tail_is_named_by_the_first_nack():
    """When nothing has come for a while, what is missing is lost: no word is needed."""
    rig = fast_rig("sync-aware")
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=199)
    ControlLoss(rig, 0, lambda message: isinstance(message, control.Keepalive))
    rig.transfer((1, 2, 3), 200 * CHUNK)
    rig.finish()
    rig.check()
    assert rig.sides[1].policy.nacks == 1
    assert rig.sides[1].completions[0].completed_ns < 200 * 170 + 5 * BASE_RTT_NS


def test_a_message_that_flows_is_not_asked_for():
    """Not even by a rule that looks at it again and again."""
    rig = fast_rig("fixed")
    rig.transfer((1, 2, 3), 2000 * CHUNK)
    rig.finish()
    assert rig.sides[1].policy.nacks == 0
    assert rig.counters(1)["tx_control"] == 1  # the acknowledgement


def test_a_probe_right_behind_a_look_is_no_reason_to_look_again():
    """Found on a slow link: the answer of the look was still to come."""
    rig = PairRig("csa_ud", arena_bytes=1 << 23)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 100_000, 40_000
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=60, index_last=60)
    sender, receiver = rig.sides
    asked = []

    def record(now_ns, event, action):
        if isinstance(action, Control) and isinstance(control.decode(action.body), control.Nack):
            asked.append(EVENTS[event.number])

    receiver.runner = PolicyRunner(receiver.endpoint, receiver.policy, record)
    rig.transfer((1, 2, 3), 200 * CHUNK)
    while not asked:
        rig.step_until(rig.now_ns + 10_000)
    probe = control.Keepalive(((0, (1, 2, 3)),))
    sender.endpoint.control(sender.peer, probe.encode(2000))
    rig.finish()
    rig.check()
    assert asked == ["timer", "timer"]  # one, sent redundantly


def test_what_waits_to_be_retransmitted_is_neither_lost_again_nor_blamed_on_its_path_again():
    """A second look finds its packets still in the sender's queue: the answer speaks of both."""
    rig = PairRig("csa_ud", window_packets=4, paths=2)
    sender, receiver = rig.sides
    receiver.alive = False
    data = np.arange(40 * CHUNK, dtype=np.uint8)
    sender.send((1, 2, 3), data)
    target = receiver.allocate(data.size)
    receiver.endpoint.post_receive(
        receiver.peer, (1, 2, 3), receiver.memory_key, target, data.size, 1
    )
    rig.step_until(65 * MILLISECOND_NS)
    rig.cables[1].rules = []
    asked = []
    sender.runner = PolicyRunner(
        sender.endpoint,
        sender.policy,
        lambda now_ns, event, action: asked.append(action)
        if isinstance(action, Retransmit)
        else None,
    )
    for round_ in (1, 2):
        bits = np.isin(np.arange(40), [3, 7, 11, 15, 19, 23])
        look = control.Nack(0, (1, 2, 3), round_, None, control.packet_set(bits))
        receiver.endpoint.control(receiver.peer, look.encode(2000))
    rig.step_until(rig.now_ns + MILLISECOND_NS)
    assert [each.indices.tolist() for each in asked] == [[3, 7, 11, 15, 19, 23]]


# ---------------------------------------------------------------- reordering


class NeverLearns(CsaUd):
    """Neither late packets nor what it asked for in vain teach it anything."""

    def reordering_window_ns(self, work):
        _, var = self.rtt_ns(work.index, at_receiver=True)
        return max(var // 2, self.timing.reordering_window_least_ns)


def retransmitted_in_vain(policy):
    """Over paths that differ by a millisecond and lose nothing."""
    rig = PairRig(policy, paths=8)
    for cable in rig.cables:
        cable.delay_ns, cable.jitter_ns, cable.packet_time_ns = 100_000, MILLISECOND_NS, 2_000
    for number in range(12):
        rig.transfer((1, 2, number), 100 * CHUNK)
        rig.finish()
    rig.check()
    return rig.counters(0)["tx_retransmitted"]


def test_retransmissions_in_vain_make_the_receiver_wait_longer_for_reordered_packets():
    assert 0 < retransmitted_in_vain(CsaUd) < retransmitted_in_vain(NeverLearns) / 2


@pytest.mark.parametrize(
    ("jitter_ns", "least_ns", "most_ns"), [(0, 0, 0), (MILLISECOND_NS, 300_000, 2_000_000)]
)
def test_lateness_is_what_paths_differ_by(jitter_ns, least_ns, most_ns):
    rig = PairRig("csa_ud", paths=8)
    rig.cables[0].delay_ns, rig.cables[0].packet_time_ns = 100_000, 2_000
    rig.cables[0].jitter_ns = jitter_ns
    rig.transfer((1, 2, 3), 400 * CHUNK)
    rig.finish()
    receiver = rig.sides[1]
    assert least_ns <= receiver.endpoint.peer_state(receiver.peer).reordering_extent_ns <= most_ns


def test_reordering_that_has_ended_is_forgotten():
    rig = fast_rig("linear")
    work = rig.sides[1].policy.work_with(rig.sides[1].peer)
    work.reo_wnd_mult = 8
    for number in range(16):
        lose(rig, 0, kind=DATA, attempt_last=0, message=number, index_first=3, index_last=3)
        rig.transfer((1, 2, number), 10 * CHUNK)
        rig.finish()
    assert work.reo_wnd_mult == 1


# ---------------------------------------------------------------- steps


def receiving(handle, step=2):
    return Receiving(handle, peer=handle % 4, key=(1, step, handle), count=10)


def test_those_that_wait_when_three_quarters_are_complete_straggle():
    groups = Groups()
    members = [receiving(handle) for handle in range(8)]
    others = [receiving(handle, step=3) for handle in range(8, 10)]
    for each in members + others:
        groups.join(each)
    for each in members[:5]:
        assert groups.leave(each) == []
    assert not groups.straggles(members[7])
    assert groups.leave(members[5]) == members[6:]
    assert groups.straggles(members[7])
    assert not groups.straggles(others[0])
    assert groups.leave(members[6]) == []  # told once
    assert groups.leave(members[7]) == []
    assert not groups.straggles(members[7])


def test_a_step_of_one_message_has_no_straggler():
    groups = Groups()
    groups.join(receiving(1))
    assert not groups.straggles(receiving(1))


def test_the_straggler_of_a_step_is_asked_for_urgently():
    """Four messages of a step; one loses packets in the middle of what still flows."""
    rig = fast_rig("sync-aware", arena_bytes=1 << 23)
    lose(rig, 0, kind=DATA, attempt_last=1, message=3, index_first=2, index_last=4)
    looks = []
    ControlLoss(rig, 1, lambda m: looks.append(getattr(m, "urgent", None)) is not None, most=0)
    for number in range(4):
        rig.transfer((1, 2, number), 100 * CHUNK)
    rig.transfer((1, 3, 0), 300 * CHUNK)
    rig.finish()
    rig.check()
    assert True in looks
    assert rig.sides[1].policy.summary()["urgent_nacks"] >= 1


def test_without_the_knowledge_of_steps_nothing_is_urgent():
    rig = fast_rig("linear", arena_bytes=1 << 23)
    lose(rig, 0, kind=DATA, attempt_last=1, message=3, index_first=2, index_last=4)
    for number in range(4):
        rig.transfer((1, 2, number), 100 * CHUNK)
    rig.finish()
    assert rig.sides[1].policy.nacks > 0
    assert rig.sides[1].policy.urgent_nacks == 0


def test_urgent_retransmissions_leave_before_those_asked_for_earlier():
    """On the engine itself, its window closed until both have been asked for."""
    rig = PairRig("csa_ud", window_packets=2, paths=1)
    for side in rig.sides:
        side.alive = False
    sender, receiver = rig.sides
    handles = []
    for number in range(2):
        sender.send((1, 2, number), np.zeros(4 * CHUNK, np.uint8))
        receiver.receive((1, 2, number), 4 * CHUNK)
    while rig.pair.run(MILLISECOND_NS):
        for event in sender.endpoint.take_events():
            if event.kind.name == "SENT":
                handles.append(event.handle)
        receiver.endpoint.take_events()
    rig.pair.keep_sent()
    sender.endpoint.retransmit(handles[0], np.array([0, 1], np.uint32))
    sender.endpoint.retransmit(handles[1], np.array([2, 3], np.uint32), True)
    while rig.pair.run(rig.now_ns + MILLISECOND_NS):
        for side in rig.sides:
            side.endpoint.take_events()
    frames = [frame for _, side, frame in rig.pair.take_sent() if side == 0]
    reported = [_native.decode_frame(frame, True) for frame in frames]
    order = [(each["message"], each["index"]) for each in reported if each["kind"] == DATA]
    assert order == [(1, 2), (1, 3), (0, 0), (0, 1)]
    assert sender.endpoint.send_state(handles[0]).retransmit_pending == 0


# ---------------------------------------------------------------- the runner's table


def test_events_are_numbered_as_the_engine_numbers_them():
    assert [kind.name.lower() for kind in _native.EventKind] == list(EVENTS)
    assert [kind.value for kind in _native.EventKind] == list(range(len(EVENTS)))


def test_nothing_that_is_kept_in_order_is_kept_twice():
    """Receives that begin out of order: each of those before is told of once."""
    work = PeerWork(0, 64)
    receives = [receiving(handle) for handle in range(6)]
    for each in receives:
        work.add_receive(each)
    assert work.overtaken_by(receives[2]) == receives[:2]
    work.open(receives[2], 12, 10)
    assert work.overtaken_by(receives[0]) == []
    work.open(receives[0], 10, 10)
    assert work.through_before(12) == [receives[0]]
    assert work.through_before(15) == [receives[2]]
    assert work.through_before(16) == []
    assert work.overtaken_by(receives[4]) == [receives[3]]
    work.open(receives[4], 14, 10)
    assert list(work.in_order) == [5]
    assert receives[5].timer_at_ns == NEVER_NS
    for each in receives:
        work.forget_receive(each.handle)
    assert not work.busy()
    assert not any((work.in_order, work.flowing, work.begun, work.opened, work.unopened))
