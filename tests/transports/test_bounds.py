# SPDX-License-Identifier: GPL-2.0-or-later
"""The bounds of retrying, computed from the defaults, and measured."""

import dataclasses

import pytest

from softroce_lab import _native
from softroce_lab.errors import ibv_wc_status
from softroce_lab.sim.presets import engine_config
from softroce_lab.transports import registry
from softroce_lab.transports.defaults import DEFAULT_TIMING, EngineTiming, Timing
from tests.transports.pair_rig import MILLISECOND_NS, SECOND_NS, PairRig

T = DEFAULT_TIMING
RETRY = ibv_wc_status.IBV_WC_RETRY_EXC_ERR

# What the derivation assumes (docs/records/tuning.md).
LOSS = 0.3
ROUND_TRIP_NS = 10 * MILLISECOND_NS
PACKETS = -(-(1 << 20) // (2048 - 40))
FIRST_PASS_NS = 400 * MILLISECOND_NS
ROUNDS_TO_PLACE, ROUNDS_TO_KNOW = 30, 36


def intervals_ns(timing):
    """From one keepalive to the next, as `Session::check_keepalive` has them."""
    first_ns, most_ns = timing.keepalive_interval_ns, timing.keepalive_interval_most_ns
    return [_native.backed_off(first_ns, k, most_ns) for k in range(timing.keepalive_probes)]


INTERVALS_NS = intervals_ns(T)
LAST_KEEPALIVE_NS = sum(INTERVALS_NS[:-1])
LEAST_SILENCE_NS = T.keepalive_interval_ns + sum(INTERVALS_NS)
MOST_SILENCE_NS = T.keepalive_interval_most_ns + sum(INTERVALS_NS)

# What follows.
Q = 1 - (1 - LOSS) ** 2
RUN = Q**T.keepalive_probes
NOT_PLACED = PACKETS * (1 - (1 - LOSS**2) * (1 - LOSS)) ** ROUNDS_TO_PLACE
NOT_KNOWN = Q**ROUNDS_TO_KNOW
TOO_MANY_ATTEMPTS = PACKETS * Q ** (T.most_attempts - 1)
ROUND_NS = 3 * T.t_max_ns // 2 + ROUND_TRIP_NS  # backed off from close to T_max
RECEIVER_LIFE_NS = FIRST_PASS_NS + ROUNDS_TO_PLACE * ROUND_NS
SENDER_LIFE_NS = RECEIVER_LIFE_NS + ROUNDS_TO_KNOW * 2 * T.t_max_ns


def keepalives(life_ns):
    return life_ns // T.keepalive_interval_ns


def gives_up(life_ns):
    """Upper bound of the probability that a run of unanswered keepalives ends in that life."""
    return RUN * (1 + (1 - Q) * (keepalives(life_ns) - T.keepalive_probes))


A_MESSAGE = (
    NOT_PLACED
    + NOT_KNOWN
    + TOO_MANY_ATTEMPTS
    + gives_up(RECEIVER_LIFE_NS)
    + gives_up(SENDER_LIFE_NS)
)


def test_the_defaults_keep_their_bounds():
    """A false failure is rarer than one in 10^9 messages; a short blackout is not death."""
    assert A_MESSAGE < 1e-9
    assert SECOND_NS < LEAST_SILENCE_NS <= MOST_SILENCE_NS < 2 * SECOND_NS
    assert min(INTERVALS_NS) >= ROUND_TRIP_NS
    assert T.most_attempts <= 65535  # which the engine counts in 16 bits


@pytest.mark.parametrize("transport", registry.transports(registry.Kind.SESSION))
@pytest.mark.parametrize("cut_at_ns", [7_300_000])
def test_the_time_to_the_error_is_that_of_the_keepalives(transport, cut_at_ns):
    """Measured at both sides: from the last sign of life of the other to the failed completion."""
    rig = PairRig(transport)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 100_000, 200_000
    rig.transfer((1, 2, 3), 200 * 2008)
    rig.step_until(cut_at_ns)
    for cable in rig.cables:
        cable.down = True
    rig.finish()
    for side in rig.sides:
        [completion] = side.completions
        assert ibv_wc_status(completion.status) == RETRY
        silence_ns = completion.completed_ns - side.endpoint.peer_state(side.peer).last_received_ns
        assert LEAST_SILENCE_NS <= silence_ns <= MOST_SILENCE_NS


# ---------------------------------------------------------------- on a fabric of hardware


@pytest.mark.parametrize("base_rtt_ns", [1, 8_000, 12_500, MILLISECOND_NS, 500 * MILLISECOND_NS])
@pytest.mark.parametrize("blackout_ns", [1, 100 * MILLISECOND_NS, SECOND_NS])
def test_the_timers_of_any_fabric_are_in_order(base_rtt_ns, blackout_ns):
    timing = Timing.for_rtt(base_rtt_ns, blackout_ns=blackout_ns)
    times = [getattr(timing, name) for name in Timing.__slots__ if name.endswith("_ns")]
    assert timing.fixed_rto_ns is None  # a knob's
    times.remove(None)
    assert all(isinstance(time, int) and time > 0 for time in times)
    assert timing.t_min_ns <= timing.t_max_ns
    assert timing.reordering_window_least_ns <= timing.t_min_ns
    assert timing.keepalive_interval_ns >= 2 * base_rtt_ns
    intervals = intervals_ns(timing)
    assert sum(intervals[:-1]) >= blackout_ns + base_rtt_ns
    longest = max(1.06 * (blackout_ns + base_rtt_ns) + 1_000, 244 * base_rtt_ns)
    assert timing.keepalive_interval_most_ns + sum(intervals) <= longest


@pytest.mark.parametrize("timers", [Timing, EngineTiming])
def test_on_a_machine_the_slower_of_both_counts(timers):
    quick, slow = timers.on_machine(8_000), timers.on_machine(50 * MILLISECOND_NS)
    fabric = timers.for_rtt(50 * MILLISECOND_NS)
    sums = {"initial_rtt_ns", "rto_low_ns", "rto_high_ns", "packet_lifetime_ns"}
    sums &= set(timers.__slots__)
    for name in set(timers.__slots__) - sums - {"clock_granularity_ns"}:
        assert getattr(quick, name) == getattr(timers(), name)
        assert getattr(slow, name) == getattr(fabric, name)
    for name in sums:
        assert getattr(slow, name) == getattr(timers(), name) + getattr(fabric, name)
    assert slow.initial_rtt_ns == 52 * MILLISECOND_NS


@pytest.mark.parametrize(
    ("base_rtt_ns", "buffer_ns", "low_ns", "high_ns"),
    [
        (14_000, 84_000, 58_333, 98_000),
        (8_000, 0, 32_000, 32_000),  # no queue has a bound: four round trips
        (24_000, 296_000, 100_000, 320_000),  # its fabric: propagation and a full buffer
        (8_000, 5_368_710, 33_333, 5_376_710),  # 64 MiB at 100 Gb/s
        (MILLISECOND_NS, 84_000, 1_084_000, 1_084_000),
        (MILLISECOND_NS, 9 * MILLISECOND_NS, 4_166_666, 10 * MILLISECOND_NS),
    ],
)
def test_irns_timers_outlast_a_full_buffer(base_rtt_ns, buffer_ns, low_ns, high_ns):
    timers = EngineTiming.for_rtt(base_rtt_ns, buffer_ns)
    assert (timers.rto_low_ns, timers.rto_high_ns) == (low_ns, high_ns)


@pytest.mark.parametrize("make", [Timing.for_rtt, EngineTiming.for_rtt, Timing.on_machine])
@pytest.mark.parametrize("base_rtt_ns", [0, -1])
def test_a_fabric_without_a_round_trip_has_no_timers(make, base_rtt_ns):
    with pytest.raises(ValueError, match="base RTT"):
        make(base_rtt_ns)


def test_the_engines_timers_are_told_to_it():
    config = _native.MessageConfig()
    defaults = EngineTiming()
    for name in EngineTiming.__slots__:
        assert getattr(config, name) in (0, getattr(defaults, name))  # 0: native code derives it
    config = engine_config(**dataclasses.asdict(EngineTiming.for_rtt(12_500)))
    assert (config.initial_rtt_ns, config.report_least_interval_ns) == (12_500, 3_125)
    assert (config.persist_least_ns, config.packet_lifetime_ns) == (50_000, 12_500)


@pytest.mark.parametrize("transport", registry.transports(registry.Kind.SESSION))
def test_a_fast_fabrics_peer_is_given_up_in_its_own_time(transport):
    base_rtt_ns, blackout_ns = 10_000, MILLISECOND_NS
    timing = Timing.for_rtt(base_rtt_ns, blackout_ns=blackout_ns)
    rig = PairRig(transport, timing=timing, **dataclasses.asdict(EngineTiming.for_rtt(base_rtt_ns)))
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 4_800, 170
    rig.transfer((1, 2, 3), 200 * 2008)
    rig.step_until(15_000)
    for cable in rig.cables:
        cable.down = True
    rig.step_until(rig.now_ns + blackout_ns)
    assert rig.sides[0].outstanding
    assert rig.sides[1].outstanding
    rig.finish(within_ns=2 * base_rtt_ns * 240)
    assert {each.statuses()[0] for each in rig.sides} == {RETRY}
