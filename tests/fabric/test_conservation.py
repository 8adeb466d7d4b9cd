# SPDX-License-Identifier: GPL-2.0-or-later
"""A frame that is lost on a link is unexplained, unless the kernel counted its drop there."""

import dataclasses

import pytest
from pyroute2 import IPRoute

from softroce_lab.fabric import lab
from tests.fabric.conservation import at_rest, balance
from tests.fabric.steady_stream import Stream

COUNT = 500


@pytest.fixture
def running(two_hosts):
    up = lab.up(two_hosts)
    yield up
    up.down()


def streamed(running):
    """What was counted, and what h1 sent."""
    before = at_rest(running)
    with Stream(running, "h1", "h2", count=COUNT, pace=20_000) as stream:
        pass
    return at_rest(running) - before, {"h1": stream.sent}


def test_what_the_kernel_drops_at_a_veth_is_the_machines(running):
    port = running.plan.node("h2").ports[0]
    with running.enter("h2"), IPRoute() as ip:
        ip.link("set", index=port.ifindex, state="down")
    counted, sent = streamed(running)
    found = balance(running.plan, counted, sent)
    assert found.unexplained == {}
    assert found.machine == {"on s1->h2": COUNT}
    unseen = dataclasses.replace(counted, dropped=dict.fromkeys(counted.dropped, 0))
    assert balance(running.plan, unseen, sent).unexplained == {"on s1->h2": COUNT}
