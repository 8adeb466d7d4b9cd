# SPDX-License-Identifier: GPL-2.0-or-later
"""The loops of perftest on an imagined cable, with a clock moved by hand."""

import numpy as np
import pytest

from softroce_lab import _native
from tests.native.connected import RC, RTS, UC, Duo

SEND, WRITE = _native.PerfVerb.SEND, _native.PerfVerb.WRITE
READ, ATOMIC = _native.PerfVerb.READ, _native.PerfVerb.ATOMIC
DONE, STOPPED = _native.PerfEnd.DONE, _native.PerfEnd.STOPPED
FAILED, REFUSED, STALLED = _native.PerfEnd.FAILED, _native.PerfEnd.REFUSED, _native.PerfEnd.STALLED
RETRY_EXC_ERR = 12
TURN_NS = 500
DELAY_NS = 5_000


def config(side, peer, verb, **values):
    qp = _native.PerfQp()
    qp.number = side.number
    qp.remote_address, qp.rkey = peer.address + (1 << 19), peer.key
    made = _native.PerfConfig()
    made.verb = verb
    made.send_address, made.receive_address = side.address, side.address + (1 << 19)
    made.lkey = side.key
    made.qps = [qp]
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Runs:
    """Two perf runs, one at either end of a cable."""

    def __init__(self, make, duo, verb, near, far):
        self.duo = duo  # and with it the memory
        self.pair = duo.pair
        a, b = duo.sides
        self.near = make(config(a, b, verb, **near), a.cq)
        self.far = make(config(b, a, verb, **far), b.cq)
        self.ends = ((self.near, a.endpoint), (self.far, b.endpoint))
        for run, endpoint in self.ends:
            run.prepare(endpoint)

    def go(self, for_ns, *waited):
        until = self.pair.now_ns + for_ns
        while self.pair.now_ns < until and not (waited and all(run.wait(0) for run in waited)):
            for run, endpoint in self.ends:
                run.turn(endpoint)
            next_ns = self.pair.now_ns + TURN_NS
            while self.pair.run(next_ns):
                pass
        return [run.result() for run in (self.near, self.far)]


def duo(kind=RC, **retries):
    made = Duo(kind, memory_bytes=1 << 20, **retries)
    made.both(delay_ns=DELAY_NS)
    for side in made.sides:
        side.memory[:] = 0
    return made


@pytest.mark.parametrize("verb", [WRITE, READ, ATOMIC], ids=str)
def test_a_stream_ends_after_its_iterations(verb):
    runs = Runs(_native.Perf.stream, duo(), verb,
                {"bytes": 3000, "iterations": 250, "depth": 16, "signal_every": 7}, {"posts": False}
                )  # fmt: skip
    near, _ = runs.go(10**9, runs.near)
    assert (near.end, near.posted, near.completed) == (DONE, 250, 250)
    assert len(near.posted_ns) == len(near.completed_ns) == 250
    assert (np.diff(near.completed_ns) >= 0).all()
    assert (near.completed_ns >= near.posted_ns + 2 * DELAY_NS).all()
    assert near.ended_ns == near.completed_ns[-1]


def test_a_stream_keeps_no_more_under_way_than_its_depth():
    runs = Runs(_native.Perf.stream, duo(), WRITE,
                {"bytes": 64, "iterations": 64, "depth": 8, "signal_every": 1}, {"posts": False}
                )  # fmt: skip
    near, _ = runs.go(10**9, runs.near)
    assert (near.posted_ns[8:] >= near.completed_ns[:-8]).all()
    assert (near.posted_ns[:8] == near.posted_ns[0]).all()


def test_a_stream_is_signalled_as_seldom_as_asked():
    made = duo()
    runs = Runs(_native.Perf.stream, made, WRITE,
                {"bytes": 64, "iterations": 100, "depth": 64, "signal_every": 16}, {"posts": False}
                )  # fmt: skip
    near, _ = runs.go(10**9, runs.near)
    _, counts = np.unique(near.completed_ns, return_counts=True)
    assert near.completed == 100
    assert counts.sum() == 100
    assert (np.cumsum(counts) % 16 == 0)[:-1].all()


def test_sends_are_received_and_receives_are_posted_anew():
    runs = Runs(_native.Perf.stream, duo(), SEND,
                {"bytes": 2000, "iterations": 300, "depth": 32},
                {"posts": False, "receives": 40, "receive_bytes": 2000, "expected": 300}
                )  # fmt: skip
    near, far = runs.go(10**9, runs.near, runs.far)
    assert (near.end, near.completed) == (DONE, 300)
    assert (far.end, far.received) == (DONE, 300)
    assert far.received_last_ns > far.received_first_ns


def test_both_ends_send_at_once():
    values = {"bytes": 500, "iterations": 200, "depth": 16, "receives": 32, "receive_bytes": 500,
              "expected": 200}  # fmt: skip
    runs = Runs(_native.Perf.stream, duo(), SEND, values, values)
    for result in runs.go(10**9, runs.near, runs.far):
        assert (result.end, result.completed, result.received) == (DONE, 200, 200)


@pytest.mark.parametrize("signal_every", [1, 10])
def test_a_stream_ends_in_time_and_no_request_is_left_behind(signal_every):
    runs = Runs(_native.Perf.stream, duo(), WRITE,
                {"bytes": 64, "iterations": 0, "duration_ns": 1_000_000, "depth": 16,
                 "signal_every": signal_every}, {"posts": False})  # fmt: skip
    near, _ = runs.go(10**9, runs.near)
    assert near.end == DONE
    assert near.completed == near.posted > 100
    assert 1_000_000 <= near.ended_ns - near.began_ns < 1_100_000


@pytest.mark.parametrize("verb", [SEND, WRITE], ids=str)
def test_ping_pong_takes_a_round_trip(verb):
    receives = {"receives": 8, "receive_bytes": 64} if verb == SEND else {}
    values = {"bytes": 64, "iterations": 600, "depth": 32, "signal_every": 10, **receives}
    runs = Runs(_native.Perf.ping_pong, duo(), verb, values, values | {"begins": False})
    near, far = runs.go(10**9, runs.near, runs.far)
    assert (near.end, far.end) == (DONE, DONE)
    assert near.posted == far.posted == near.completed == far.completed == 600
    trips = np.diff(near.posted_ns)
    assert (trips >= 2 * DELAY_NS).all()
    assert (trips <= 2 * DELAY_NS + 4 * TURN_NS).all()


@pytest.mark.parametrize("verb", [READ, ATOMIC], ids=str)
def test_reads_and_atomics_are_answered_one_by_one(verb):
    runs = Runs(_native.Perf.ping_pong, duo(), verb,
                {"bytes": 8, "iterations": 50, "signal_every": 1}, {"posts": False})  # fmt: skip
    near, _ = runs.go(10**9, runs.near)
    assert (near.end, near.completed) == (DONE, 50)
    assert (np.diff(near.posted_ns) >= 2 * DELAY_NS).all()


def test_atomics_add_one_each():
    made = duo()
    counter = made.sides[1].memory[1 << 19 :][:8].view(np.uint64)
    runs = Runs(_native.Perf.stream, made, ATOMIC, {"iterations": 77, "depth": 4}, {"posts": False})
    runs.go(10**9, runs.near)
    assert counter[0] == 77


def test_a_dead_peer_ends_a_stream_with_the_error_of_its_completion():
    made = duo(timeout=8, retry_cnt=2)
    made.both(down=True)
    runs = Runs(_native.Perf.stream, made, WRITE, {"iterations": 10, "bytes": 64}, {"posts": False})
    near, _ = runs.go(10**10, runs.near)
    assert (near.end, near.status) == (FAILED, RETRY_EXC_ERR)


def test_silence_ends_a_run_that_nothing_else_would_end():
    made = duo(UC)
    made.both(down=True)
    values = {"bytes": 64, "iterations": 10, "receives": 4, "receive_bytes": 64, "depth": 16,
              "patience_ns": 200_000}  # fmt: skip
    runs = Runs(_native.Perf.ping_pong, made, SEND, values, values | {"begins": False})
    near, far = runs.go(10**7, runs.near, runs.far)
    assert (near.end, far.end) == (STALLED, STALLED)
    assert near.received == far.received == 0


def test_a_receiver_runs_until_it_is_stopped():
    runs = Runs(_native.Perf.stream, duo(UC), SEND, {"bytes": 64, "iterations": 20},
                {"posts": False, "receives": 64, "receive_bytes": 64,
                 "expected": _native.PerfConfig.UNTIL_STOPPED})  # fmt: skip
    runs.go(10**7, runs.near)
    runs.go(10**6)
    assert not runs.far.wait(0)
    runs.far.stop()
    _, far = runs.go(10**6, runs.far)
    assert (far.end, far.received) == (STOPPED, 20)


def test_what_may_not_be_posted_ends_the_run():
    made = duo()
    side = made.sides[0]
    assert side.modify(1, qp_state=RTS + 3) == 0  # ERR takes requests, and flushes them
    runs = Runs(_native.Perf.stream, made, WRITE, {"iterations": 5, "bytes": 64}, {"posts": False})
    near, _ = runs.go(10**7, runs.near)
    assert near.end == FAILED
    deep = Runs(_native.Perf.stream, duo(), WRITE,
                {"iterations": 10**4, "bytes": 64, "depth": 9999, "signal_every": 9999},
                {"posts": False})  # fmt: skip
    near, _ = deep.go(10**7, deep.near)
    assert (near.end, near.error) == (REFUSED, 12)  # ENOMEM


def test_messages_use_the_places_of_the_buffer_in_turn():
    made = duo()
    a, b = made.sides
    a.memory[: 4 * 64] = np.repeat(np.arange(1, 5, dtype=np.uint8), 64)
    runs = Runs(_native.Perf.stream, made, WRITE, {"bytes": 64, "iterations": 4, "slots": 4},
                {"posts": False})  # fmt: skip
    runs.go(10**9, runs.near)
    assert (b.memory[1 << 19 :][: 4 * 64] == a.memory[: 4 * 64]).all()


def test_who_answers_goes_on_until_it_is_stopped():
    values = {"bytes": 64, "iterations": 0, "duration_ns": 500_000, "receives": 8, "depth": 8,
              "receive_bytes": 64}  # fmt: skip
    runs = Runs(_native.Perf.ping_pong, duo(), SEND, values, values | {"begins": False})
    near, _ = runs.go(10**8, runs.near)
    assert near.end == DONE
    assert near.posted == near.received > 30
    assert not runs.far.wait(0)
    runs.far.stop()
    _, far = runs.go(10**6, runs.far)
    assert (far.end, far.posted) == (STOPPED, near.posted)


def test_a_sender_is_told_apart_from_what_it_still_receives():
    values = {"bytes": 64, "iterations": 20, "receives": 32, "receive_bytes": 64, "depth": 8}
    runs = Runs(_native.Perf.stream, duo(), SEND,
                values | {"expected": _native.PerfConfig.UNTIL_STOPPED}, values)  # fmt: skip
    runs.go(10**7, runs.near)
    assert runs.near.wait_posts(0)
    assert not runs.near.wait(0)
    runs.near.stop()
    near, _ = runs.go(10**6, runs.near)
    assert (near.end, near.completed, near.received) == (STOPPED, 20, 20)


def test_who_waits_for_nothing_does_not_stall():
    runs = Runs(_native.Perf.stream, duo(), WRITE, {"bytes": 64, "iterations": 0,
                "duration_ns": 3_000_000, "depth": 4, "signal_every": 4},
                {"posts": False, "patience_ns": 100_000,
                 "expected": _native.PerfConfig.UNTIL_STOPPED})  # fmt: skip
    runs.go(10**8, runs.near)
    assert not runs.far.wait(0)
