# SPDX-License-Identifier: GPL-2.0-or-later
"""Echoes on the loopback of a namespace; across a fabric they are tried by tests/cli."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.fabric.observe import ping
from softroce_lab.plan.plan import Port


def test_statistics():
    replies = [ping.Reply(n, rtt, 3, False) for n, rtt in enumerate([100, 200, 300, 400])]
    outcome = ping.Outcome(5, [*replies, ping.Reply(3, 900, 3, True)])
    assert outcome.loss == pytest.approx(0.2)
    times = outcome.rtt_ns()
    assert (times["min"], times["avg"], times["max"]) == (100, 250, 400)
    assert times["mdev"] == pytest.approx(12500**0.5)


def test_what_does_not_fit_is_refused():
    ping.check_size(2172, 2200, ipv6=False)
    with pytest.raises(UserError, match="2173 bytes") as raised:
        ping.check_size(2173, 2200, ipv6=False)
    assert raised.value.hint == "at most 2172"
    with pytest.raises(UserError):
        ping.check_size(2172, 2200, ipv6=True)


def test_echoes_of_this_machine():
    here = Port("x", "lo", 1, "00:00:00:00:00:00", "127.0.0.1")
    received = []
    with ping.Pinger(here, here) as pinger:
        outcome = ping.run(
            pinger,
            count=3,
            interval_ns=1_000_000,
            size_bytes=1001,
            timeout_ns=10**9,
            say=received.append,
        )
    assert [reply.sequence for reply in outcome.firsts] == [1, 2, 3]
    assert outcome.replies == received
    assert all(0 < reply.rtt_ns < 10**9 and reply.hops == 0 for reply in received)
