# SPDX-License-Identifier: GPL-2.0-or-later
"""How long a packet is on its way at most, from a plan."""

import pytest

from softroce_lab.plan import base_rtt
from tests.experiment.forecast.test_base_rtt import of

STAR = """\
name: star
topology: {generator: {kind: star, hosts: 2, access: {%s}}}
transports: [csa_ud]
workload: {kind: point-to-point, bytes: 64KiB}
faults: [{name: one, links: "*->*", %s}]
"""
FRAME_NS = 1024 + 106  # a frame at 8 Gbit/s
QUEUE_NS = 1001 * FRAME_NS  # of the default length
NOTHING = "loss: random 1%"


@pytest.mark.parametrize(
    ("access", "rule", "link_ns"),
    [
        ("rate: 8Gbit, delay: 3us", NOTHING, QUEUE_NS + 3_000),
        ("rate: 8Gbit limit 10, delay: 3us", NOTHING, 11 * FRAME_NS + 3_000),
        ("rate: 8Gbit limit 10KiB", NOTHING, 10_240 + FRAME_NS),
        ("delay: 50us jitter 20us", NOTHING, 70_000),
        ("delay: 50us jitter 20us distribution normal", NOTHING, 130_000),
        ("delay: 50us", "reorder: 1% by 127us", 177_000),
        ("rate: 8Gbit limit 10", "{delay: 50us, at: 1ms, for: 1ms}", 11 * FRAME_NS + 50_000),
    ],
)
def test_delays_queues_and_what_leaves_out_of_turn_count(access, rule, link_ns):
    plan = of(STAR % (access, rule.strip("{}"))).plan(1)
    assert base_rtt.lifetime_ns(plan, 1024) == 2 * link_ns


def test_where_links_go_down_a_route_is_as_long_as_there_are_nodes():
    text = (STAR % ("delay: 3us", "down: true, at: 1ms, for: 1ms")).replace("*->*", "h1<->s1")
    plan = of(text).plan(1)
    assert base_rtt.lifetime_ns(plan, 1024) == 3 * 3_000
