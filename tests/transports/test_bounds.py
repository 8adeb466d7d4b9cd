# SPDX-License-Identifier: GPL-2.0-or-later
"""The bounds of retrying: docs/retry-bounds.md, computed again from the defaults, and measured."""

import pathlib
import re

import pytest

from softroce_lab import _native
from softroce_lab.errors import ibv_wc_status
from softroce_lab.transports import control, registry
from softroce_lab.transports.defaults import DEFAULT_TIMING, EngineTiming, Timing
from tests import control_bodies
from tests.transports.pair_rig import MILLISECOND_NS, SECOND_NS, PairRig

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "retry-bounds.md"
T = DEFAULT_TIMING
RETRY = ibv_wc_status.IBV_WC_RETRY_EXC_ERR

# What the derivation assumes.
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
A_SECOND = (1 - Q) * RUN * SECOND_NS / T.keepalive_interval_ns


def most_in_a_nack():
    """Of a message that misses a packet of each 64."""
    nack = control.Nack(0, 1, (0,) * 16, tuple((0, 64 * n, 1) for n in range(1000)))
    decoded = control.decode(control_bodies.encode(nack, 2048 - 40))
    return 64 * len(decoded.words)


def in_ms(ns):
    return f"{ns // MILLISECOND_NS} ms"


def figures():
    """Every row of the document's tables, as computed."""
    spare_ns = (2 * SECOND_NS - MOST_SILENCE_NS) // (T.keepalive_probes + 1)
    return {
        f"sum of the {T.keepalive_probes} intervals": in_ms(sum(INTERVALS_NS)),
        "from the first keepalive to the last": in_ms(LAST_KEEPALIVE_NS),
        "from the peer's last packet to the error, at least": in_ms(LEAST_SILENCE_NS),
        "from the peer's last packet to the error, at most": in_ms(MOST_SILENCE_NS),
        f"margin to 2 s, for each of the {T.keepalive_probes + 1} timers": in_ms(spare_ns),
        "q": f"{Q:.2f}",
        f"q^{T.keepalive_probes}": f"{RUN:.1e}",
        f"some packet is missing after {ROUNDS_TO_PLACE} rounds": f"{NOT_PLACED:.1e}",
        f"no acknowledgement after {ROUNDS_TO_KNOW} rounds": f"{NOT_KNOWN:.1e}",
        f"keepalives in the receiver's life of {RECEIVER_LIFE_NS / 1e9:.2f} s": str(
            keepalives(RECEIVER_LIFE_NS)
        ),
        "the receiver gives up": f"{gives_up(RECEIVER_LIFE_NS):.1e}",
        f"keepalives in the sender's life of {SENDER_LIFE_NS / 1e9:.2f} s": str(
            keepalives(SENDER_LIFE_NS)
        ),
        "the sender gives up": f"{gives_up(SENDER_LIFE_NS):.1e}",
        f"some packet is sent {T.most_attempts} times": f"{TOO_MANY_ATTEMPTS:.1e}",
        "sum, a message": f"{A_MESSAGE:.1e}",
        "false failures, a second": f"{A_SECOND:.1e}",
        "false failures, an hour": f"{3600 * A_SECOND:.1e}",
        "packets that any NACK can name, at a path MTU of 2048": str(most_in_a_nack()),
        "from the first loss to the error, at most": f"{T.most_attempts * ROUND_NS / 1e9:.0f} s",
    }


def printed():
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", DOCUMENT.read_text(), re.MULTILINE)
    return {what: value for what, value in rows if value != "value"}


def test_the_document_prints_what_the_defaults_give():
    assert printed() == figures()


@pytest.mark.parametrize("transport", registry.transports(registry.Kind.SESSION))
@pytest.mark.parametrize("cut_at_ns", [7_300_000])
def test_the_time_to_the_error_is_that_of_the_document(transport, cut_at_ns):
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

FABRICS = {  # by the names of the table's columns
    "R = 12.5 us": (12_500, SECOND_NS),
    "R = 8 us, B = 1 ms": (8_000, MILLISECOND_NS),
    "R = 25 ms": (25 * MILLISECOND_NS, SECOND_NS),
}


def scaled_figures():
    """The rows of the table, one figure for each fabric."""
    columns = []
    for base_rtt_ns, blackout_ns in FABRICS.values():
        timing = Timing.for_rtt(base_rtt_ns, blackout_ns=blackout_ns)
        intervals = intervals_ns(timing)
        least, most = (
            each + sum(intervals)
            for each in (timing.keepalive_interval_ns, timing.keepalive_interval_most_ns)
        )
        dead_data = timing.most_attempts * (3 * timing.t_max_ns // 2 + timing.keepalive_interval_ns)
        columns.append(
            {
                "T_min": f"{timing.t_min_ns / 1e3:g} us",
                "T_max": f"{timing.t_max_ns / 1e6:g} ms",
                "from the first keepalive to the last": f"{sum(intervals[:-1]) / 1e6:.4g} ms",
                "from the peer's last packet to the error, at least": f"{least / 1e6:.4g} ms",
                "from the peer's last packet to the error, at most": f"{most / 1e6:.4g} ms",
                "from the first loss on a dead data path to the error, at most": (
                    f"{dead_data / 1e9:.2g} s"
                ),
            }
        )
    return {what: [column[what] for column in columns] for what in columns[0]}


def test_the_document_prints_what_follows_from_a_base_rtt():
    text = DOCUMENT.read_text()
    table = text[text.index(f"| what follows | {' | '.join(FABRICS)} |") :]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", table, re.MULTILINE)
    assert {what: values for what, *values in rows[1:]} == scaled_figures()


@pytest.mark.parametrize("base_rtt_ns", [1, 8_000, 12_500, MILLISECOND_NS, 500 * MILLISECOND_NS])
@pytest.mark.parametrize("blackout_ns", [1, 100 * MILLISECOND_NS, SECOND_NS])
def test_the_timers_of_any_fabric_are_in_order(base_rtt_ns, blackout_ns):
    timing = Timing.for_rtt(base_rtt_ns, blackout_ns=blackout_ns)
    times = [getattr(timing, name) for name in Timing.__slots__ if name.endswith("_ns")]
    assert timing.fixed_rto_ns is None  # a knob's
    times.remove(None)
    assert all(isinstance(time, int) and time > 0 for time in times)
    assert timing.t_min_ns <= timing.fixed_check_ns <= timing.t_max_ns
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
