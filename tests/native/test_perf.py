# SPDX-License-Identifier: GPL-2.0-or-later
"""The loops of benchmarks on an imagined cable, with a clock moved by hand."""

import numpy as np
import pytest

from softroce_lab import _native
from tests.native.connected import RC, RTS, Duo

SEND, WRITE = _native.PerfVerb.SEND, _native.PerfVerb.WRITE
DONE, STOPPED = _native.PerfEnd.DONE, _native.PerfEnd.STOPPED
FAILED, REFUSED, STALLED = _native.PerfEnd.FAILED, _native.PerfEnd.REFUSED, _native.PerfEnd.STALLED
RETRY_EXC_ERR = 12
TURN_NS = 500
DELAY_NS = 5_000
TARGET = 1 << 19
RECEIVES = {"receives": 64, "receive_bytes": 2000}
ONLY_RECEIVES = {"posts": False, **RECEIVES}


class Runs:
    """Two perf runs, one at either end of a cable."""

    def __init__(self, make, verb=WRITE, near=None, far=None, kind=RC, down=False, **retries):
        duo = Duo(kind, memory_bytes=1 << 20, **retries)
        duo.both(delay_ns=DELAY_NS, down=down)
        self.sides, self.pair = duo.sides, duo.pair
        for side in self.sides:
            side.memory[:] = 0
        a, b = self.sides
        self.near = make(self._config(a, b, verb, **(near or {})), a.cq)
        self.far = make(self._config(b, a, verb, **(far or {"posts": False})), b.cq)
        self.ends = ((self.near, a.endpoint), (self.far, b.endpoint))
        for run, endpoint in self.ends:
            run.prepare(endpoint)

    @staticmethod
    def _config(side, peer, verb, **values):
        made = _native.PerfConfig()
        values = {"bytes": 64, "depth": 8} | values
        made.verb = verb
        made.send_address, made.receive_address = side.address, side.address + TARGET
        made.lkey, made.qp = side.key, side.number
        made.remote_address, made.rkey = peer.address + TARGET, peer.key
        for name, value in values.items():
            setattr(made, name, value)
        return made

    def go(self, for_ns, *waited):
        until = self.pair.now_ns + for_ns
        while self.pair.now_ns < until and not (waited and all(run.wait(0) for run in waited)):
            for run, endpoint in self.ends:
                run.turn(endpoint)
            next_ns = self.pair.now_ns + TURN_NS
            while self.pair.run(next_ns):
                pass
        return [run.result() for run in (self.near, self.far)]


@pytest.mark.parametrize("signal_every", [1, 10])
def test_a_stream_ends_in_time_and_no_request_is_left_behind(signal_every):
    near = {"duration_ns": 1_000_000, "depth": 16, "signal_every": signal_every}
    runs = Runs(_native.Perf.stream, near=near)
    found, _ = runs.go(10**9, runs.near)
    assert found.end == DONE
    assert found.completed == found.posted > 100
    assert 1_000_000 <= found.ended_ns - found.began_ns < 1_100_000
    trips = (found.ended_ns - found.began_ns) / (2 * DELAY_NS)
    assert found.posted <= 16 * (trips + 1)  # no more under way than the depth


def test_sends_are_received_until_the_receiver_is_stopped():
    near = {"bytes": 2000, "duration_ns": 1_000_000, "depth": 32}
    runs = Runs(_native.Perf.stream, SEND, near, ONLY_RECEIVES)
    found, _ = runs.go(10**9, runs.near)
    runs.go(10**6)
    assert not runs.far.wait(0)
    runs.far.stop()
    _, received = runs.go(10**6, runs.far)
    assert found.completed == received.received > 64  # receives are posted anew
    assert received.end == STOPPED


def test_ping_pong_takes_a_round_trip():
    values = {"iterations": 600, "depth": 32, "signal_every": 10, **RECEIVES}
    runs = Runs(_native.Perf.ping_pong, SEND, values, values | {"begins": False})
    near, far = runs.go(10**9, runs.near, runs.far)
    assert (near.end, far.end) == (DONE, DONE)
    assert near.posted == far.posted == near.completed == far.completed == 600
    trips = np.diff(near.posted_ns)
    assert (trips >= 2 * DELAY_NS).all()
    assert (trips <= 2 * DELAY_NS + 4 * TURN_NS).all()


def test_a_dead_peer_ends_a_stream_with_the_error_of_its_completion():
    near = {"duration_ns": 10**6}
    runs = Runs(_native.Perf.stream, near=near, down=True, timeout=8, retry_cnt=2)
    found, _ = runs.go(10**10, runs.near)
    assert (found.end, found.status) == (FAILED, RETRY_EXC_ERR)


def test_what_may_not_be_posted_ends_the_run():
    runs = Runs(_native.Perf.stream, near={"duration_ns": 10**6})
    assert runs.sides[0].modify(1, qp_state=RTS + 3) == 0  # ERR takes requests, and flushes them
    found, _ = runs.go(10**7, runs.near)
    assert found.end == FAILED
    near = {"duration_ns": 10**6, "depth": 9999, "signal_every": 9999}
    deep = Runs(_native.Perf.stream, near=near)
    found, _ = deep.go(10**7, deep.near)
    assert (found.end, found.error) == (REFUSED, 12)  # ENOMEM
