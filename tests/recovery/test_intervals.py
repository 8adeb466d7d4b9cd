# SPDX-License-Identifier: GPL-2.0-or-later
"""How long csa_ud waits from look to look, by each rule; and what steps have to do with it."""

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.recovery import intervals
from softroce_lab.recovery.api import EVENTS
from softroce_lab.recovery.csa_ud import CsaUd
from softroce_lab.recovery.defaults import DEFAULT_TIMING, EngineTiming, Timing
from softroce_lab.recovery.groups import Groups
from softroce_lab.recovery.work import Receiving
from tests.recovery.pair_rig import DATA, MILLISECOND_NS, PairRig
from tests.recovery.sabotage import lose

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


def test_a_message_that_flows_is_not_asked_for():
    """Not even by a rule that looks at it again and again."""
    rig = fast_rig("fixed")
    rig.transfer((1, 2, 3), 2000 * CHUNK)
    rig.finish()
    assert rig.sides[1].policy.loss_checks == 0
    assert rig.counters(1)["tx_control"] == 1  # the acknowledgement


# ---------------------------------------------------------------- reordering


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
