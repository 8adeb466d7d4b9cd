# SPDX-License-Identifier: GPL-2.0-or-later
"""A window that closes before the first sample of the RTT, on a path slower than was assumed."""

import pytest

from tests.transports.pair_rig import MILLISECOND_NS, PairRig

ASSUMED_NS, WINDOW = 20_000, 16


@pytest.mark.parametrize("transport", ["ud_rto", "sdr_sr", "csa_ud"])
def test_the_rtt_is_measured_although_the_window_was_forgiven(transport):
    """A report of packets that no longer count as in flight is a sample all the same."""
    rig = rig_of(transport)
    rig.transfer((1, 2, 3), 400 * 2008)
    rig.step_until(20 * MILLISECOND_NS)
    state = rig.sides[0].endpoint.peer_state(0)
    assert rig.counters(0)["window_forgiven"] > 0
    assert state.srtt_ns >= 2 * MILLISECOND_NS


def rig_of(transport, **settings):
    rig = PairRig(
        transport,
        initial_rtt_ns=ASSUMED_NS,
        persist_least_ns=4 * ASSUMED_NS,
        report_least_interval_ns=ASSUMED_NS // 4,
        window_packets=WINDOW,
        **settings,
    )
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = MILLISECOND_NS, 170
    return rig
