# SPDX-License-Identifier: GPL-2.0-or-later
"""How long csa_ud waits from one loss check to the next, by each rule; reordering; urgency."""

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.transports.defaults import EngineTiming, Timing
from tests.transports.pair_rig import DATA, MILLISECOND_NS, PairRig
from tests.transports.sabotage import lose

CHUNK = 2048 - 40
BASE_RTT_NS = 20_000
RULES = ("exponential", "fixed", "linear")


def fast_rig(interval):
    """A fabric of 20 us and hosts that answer at once."""
    engine = EngineTiming.for_rtt(BASE_RTT_NS)
    times = {name: getattr(engine, name) for name in EngineTiming.__slots__}
    timing = Timing.for_rtt(BASE_RTT_NS)
    rig = PairRig("csa_ud", timing=timing, options={"interval": interval}, **times)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 9_830, 170
    return rig


@pytest.mark.parametrize("name", RULES)
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
    assert rig.sides[1].figures()["loss_checks"] == 0
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


def test_urgent_retransmissions_leave_before_those_asked_for_earlier():
    """On the engine itself, its window closed until both have been asked for."""
    rig = PairRig(None, window_packets=2, paths=1)
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
