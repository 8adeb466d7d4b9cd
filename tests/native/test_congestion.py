# SPDX-License-Identifier: GPL-2.0-or-later
"""Congestion control alone, on a clock moved by hand: trajectories worked out from the papers."""

import random
from decimal import Decimal

import pytest

from softroce_lab import _native

US = 1_000
PERIOD = 55 * US  # K and T of DCQCN where CNPs come every 50 us
LINE = 40_000_000_000
GBPS = 1_000_000_000


def config(name, **settings):
    made = _native.MessageConfig()
    made.congestion_control = name
    for key, value in settings.items():
        setattr(made, key, value)
    return made


def control(name, **settings):
    return _native.CongestionControl(config(name, **settings))


def rate_of(flow, now_ns):
    return flow.figures(now_ns)["rate_bps"]


# ---------------------------------------------------------------- the registry


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="'cubic'; known: bdp, dcqcn, grants, nscc, swift"):
        control("cubic")
    with pytest.raises(ValueError, match="'cubic'; known: bdp, dcqcn, grants, nscc, swift"):
        _native.Pair(config("cubic"), config("bdp"), 1)


@pytest.mark.parametrize(
    "wrong",
    [{"line_rate_bps": 0}, {"line_rate_bps": 10**13 + 1}, {"base_rtt_ns": -1},
     {"cnp_interval_ns": 0}],
)  # fmt: skip
def test_what_no_link_can_be_is_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        control("dcqcn", **wrong)


# ---------------------------------------------------------------- DCQCN, SIGCOMM 2015 section 3.1


def dcqcn(**settings):
    return control("dcqcn", **{"line_rate_bps": LINE, **settings})


def test_dcqcn_first_cnp_halves_the_rate_and_fast_recovery_comes_back():
    flow = dcqcn()
    flow.on_cnp(0)
    assert rate_of(flow, 0) == 20 * GBPS
    assert rate_of(flow, PERIOD - 1) == 20 * GBPS
    # Five times half of the way back (equation 3); then additive increase, whose target is the
    # line rate already; at 40 Gb/s less a 1024th the limiter is let go.
    expected = [30e9, 35e9, 37.5e9, 38.75e9, 39.375e9, 39.6875e9, 39.84375e9, 39.921875e9, 40e9]
    assert [rate_of(flow, n * PERIOD) for n in range(1, 10)] == expected
    flow.on_sent(2_500, 10 * PERIOD)
    assert flow.next_send_ps == 0


def test_dcqcn_paces_whole_frames_and_carries_the_remainder():
    flow = dcqcn()
    flow.on_cnp(0)  # 20 Gb/s: 2500 bytes take 1 us
    flow.on_sent(2_500, 0)
    assert flow.next_send_ps == 1_000_000
    flow.on_sent(2_500, 1_000)
    assert flow.next_send_ps == 2_000_000
    flow.on_sent(2_500, 10_000)  # it came late: no credit is saved
    assert flow.next_send_ps == 11_000_000

    flow = dcqcn(line_rate_bps=14_000_000_000)
    flow.on_cnp(0)  # 7 Gb/s: a byte takes 1142 ps and 6/7
    for _ in range(7):
        flow.on_sent(1, 0)
    assert flow.next_send_ps == 8_000


def test_dcqcn_slack_lets_a_late_sender_keep_its_time():
    flow = dcqcn(pacing_slack_ns=5 * US)
    flow.on_cnp(0)
    flow.on_sent(2_500, 30 * US)
    assert flow.next_send_ps == 26_000_000
    flow.on_sent(2_500, 31 * US)
    assert flow.next_send_ps == 27_000_000


class PaperRp:
    """The reaction point as the paper writes it, to 28 digits, with every timer fired."""

    gain = Decimal(1) / 256

    def __init__(self, line):
        self.line, self.rc, self.rt, self.alpha = line, Decimal(line), Decimal(line), Decimal(1)
        self.t = self.bc = self.bytes = 0
        self.timer = self.alpha_timer = None

    def advance(self, now):
        while self.alpha_timer is not None and self.alpha_timer <= now:
            self.alpha *= 1 - self.gain
            self.alpha_timer += PERIOD
        while self.timer is not None and self.timer <= now:
            self.t += 1
            self.timer += PERIOD
            self.increase()

    def increase(self):
        if max(self.t, self.bc) > 5:
            self.rt += self.line // 100 if min(self.t, self.bc) > 5 else self.line // 1000
        self.rt = min(self.rt, self.line)
        self.rc = (self.rc + self.rt) / 2
        if self.rt == self.line and self.line - self.rc <= self.line // 1024:
            self.rc, self.timer = Decimal(self.line), None

    def cnp(self, now):
        self.advance(now)
        self.rt = self.rc
        self.rc = max(self.rc * (1 - self.alpha / 2), Decimal(self.line) / 1000)
        self.alpha = (1 - self.gain) * self.alpha + self.gain
        self.t = self.bc = self.bytes = 0
        self.timer = self.alpha_timer = now + PERIOD

    def sent(self, frame_bytes, now):
        self.advance(now)
        if self.timer is None:
            return
        self.bytes += frame_bytes
        if self.bytes >= self.line // 4000:
            self.bytes -= self.line // 4000
            self.bc += 1
            self.increase()


@pytest.mark.parametrize("seed", range(6))
def test_dcqcn_follows_the_paper_whatever_happens(seed):
    draw = random.Random(seed)
    flow, paper, now = dcqcn(), PaperRp(LINE), 0
    for _ in range(400):
        now += draw.choice([1, 500, 10 * US, 50 * US, 70 * US, 400 * US])
        if draw.random() < 0.2:
            flow.on_cnp(now)
            paper.cnp(now)
        else:
            frame = draw.choice([2_000, 100_000, 400_000])
            flow.on_sent(frame, now)
            paper.sent(frame, now)
        paper.advance(now)
        seen = flow.figures(now)
        # Alpha has 20 bits, and loses less than 256 of 2^20 by rounding.
        assert seen["alpha"] == pytest.approx(float(paper.alpha), abs=2.5e-4)
        assert seen["rate_bps"] == pytest.approx(float(paper.rc), rel=2e-3)
        assert seen["target_bps"] == pytest.approx(float(paper.rt), rel=2e-3)


# ---------------------------------------------------------------- Swift, SIGCOMM 2020 algorithm 1


def swift(**settings):
    return control("swift", **{"base_rtt_ns": 10 * US, "window_packets": 1000, **settings})


def window(flow):
    return flow.figures(0)["window_packets"]


def test_swift_target_has_base_topology_and_flow_scaling():
    flow = swift()
    target = lambda: flow.figures(0)["target_delay_ns"]  # noqa: E731
    assert target() == 12_500  # 5/4 of the base RTT; with 100 packets and more no flow scaling
    flow.on_report(1 * US, 1, 0, hops=4)
    assert target() == 12_500 + 4 * 1_250
    flow = swift(target_delay_ns=20 * US, hop_delay_ns=2 * US, window_packets=1)
    flow.on_report(1 * US, 1, 0, hops=3)
    # alpha = 5 * 20 us / (1/sqrt(0.1) - 1/sqrt(100)) = 32.656 us; alpha (1 - 0.1) = 29.390 us
    assert target() == pytest.approx(20_000 + 3 * 2_000 + 29_390, abs=1)
    now = 0
    while window(flow) > 0.1:  # to where the range ends
        now += 1_000 * US
        flow.on_loss(now)
    assert target() == 20_000 + 3 * 2_000 + 100_000


def test_swift_increases_by_a_packet_an_rtt():
    flow = swift()
    flow.on_loss(0)
    assert (window(flow), flow.window_packets) == (500, 500)
    flow.on_report(12_499, 250, 1)  # below the target: ai / cwnd * acked
    assert window(flow) == 500.5
    flow.on_report(12_499, 1001, 2)
    assert window(flow) == 500.5 + 1001 / 500.5
    assert flow.window_packets == 502


def test_swift_decreases_by_how_far_the_delay_is_beyond():
    flow = swift()
    flow.on_report(25 * US, 10, 0)  # (25 - 12.5) / 25 = 1/2: 1 - 0.8/2
    assert window(flow) == pytest.approx(600)
    flow.on_report(25 * US, 10, 24_999)  # not twice in an RTT
    assert window(flow) == pytest.approx(600)
    flow.on_report(25 * US, 10, 25_000)
    assert window(flow) == pytest.approx(360)
    flow.on_report(10**9, 10, 60 * US)  # and never by more than half
    assert window(flow) == pytest.approx(180)


def test_swift_losses_and_timeouts():
    flow = swift()
    flow.on_loss(0)
    flow.on_loss(9_999)  # within the RTT
    assert window(flow) == 500
    flow.on_loss(10_000)
    assert window(flow) == 250
    for n in range(1, 5):
        flow.on_timeout(10_000 + n)  # too soon to decrease
        assert window(flow) == 250
    flow.on_timeout(10_005)  # the fifth in a row
    assert window(flow) == 0.01
    flow = swift()
    for n in range(1, 5):
        flow.on_timeout(n)
    flow.on_report(1_000, 1, 5)  # not in a row
    flow.on_timeout(6)
    assert window(flow) > 400


def test_swift_hears_answers_without_a_delay():
    """As to packets that were sent again: else it would have the least window for good."""
    flow = swift()
    for n in range(1, 6):
        flow.on_timeout(n)
    flow.on_report(0, 0, 6)  # of nothing
    assert window(flow) == 0.01
    flow.on_report(0, 1, 7)
    assert window(flow) == 1
    flow.on_timeout(8)  # the first in a row
    assert window(flow) > 0.01


def test_swift_paces_below_one_packet():
    flow = swift(window_packets=1)
    flow.on_sent(2_000, 0)
    assert flow.next_send_ps == 0
    flow.on_loss(0)  # 1/2: a packet every second RTT, which is 10 us until one was measured
    assert flow.window_packets == 1
    assert flow.next_send_ps == 20_000_000
    flow.on_sent(2_000, 30 * US)
    assert flow.next_send_ps == 50_000_000
    flow.on_report(8 * US, 1, 40 * US)  # below one packet: ai * acked, and the most is 1
    assert window(flow) == 1
    assert flow.next_send_ps == 30_000_000  # not paced any more


# ---------------------------------------------------------------- NSCC

NSCC_BASE = 12 * US  # of the network that its constants are for: all scales are 1


def nscc(window=100, line_rate_bps=100 * GBPS):
    return control(
        "nscc", window_packets=window, base_rtt_ns=NSCC_BASE, line_rate_bps=line_rate_bps
    )


def window_of(flow, now_ns=0):
    return flow.figures(now_ns)["window_packets"]


def shrunk(flow):
    """The time after marks and three times the target delay have shrunk a new flow's window."""
    for turn in range(1, 41):
        flow.on_report(4 * NSCC_BASE, 8, turn * 2 * NSCC_BASE, ce_packets=8)
    assert window_of(flow) < 50
    return 40 * 2 * NSCC_BASE


def test_marks_with_delay_shrink_the_window_of_nscc_by_half_at_most_once_a_round_trip():
    flow = nscc()
    now_ns = 0
    while window_of(flow) == 100:  # until the mean delay is above its target
        now_ns += NSCC_BASE + 1
        flow.on_report(5 * NSCC_BASE, 10, now_ns, ce_packets=10)
    first = window_of(flow)
    assert 50 <= first < 100
    flow.on_report(5 * NSCC_BASE, 10, now_ns + 1, ce_packets=10)
    assert window_of(flow) == pytest.approx(first)


def test_marks_without_delay_leave_the_window_of_nscc_to_the_paths():
    flow = nscc()
    now_ns = 0
    while window_of(flow) == 100:  # the mean delay is above its target from then on
        now_ns += 2 * NSCC_BASE
        flow.on_report(5 * NSCC_BASE, 10, now_ns, ce_packets=10)
    before = window_of(flow)
    assert 1 < before < 100
    flow.on_report(NSCC_BASE + 2 * US, 4, now_ns + 2 * NSCC_BASE, ce_packets=4)
    assert window_of(flow) >= before


def test_without_marks_the_window_of_nscc_grows_more_the_less_the_delay_is():
    grown = []
    for delay in (2 * US, 8 * US, 20 * US):
        flow = nscc()
        now_ns = shrunk(flow)
        before = window_of(flow)
        flow.on_report(NSCC_BASE + delay, 16, now_ns + 1)
        grown.append(window_of(flow) - before)
    # 4 (target - delay) / target of a packet for each packet of a window; 5 beyond the target
    assert grown[0] > grown[1] > 0
    assert grown[2] == pytest.approx(5 * 16 / before, rel=0.05)


def test_without_any_delay_the_window_of_nscc_grows_fast():
    flow = nscc()
    now_ns = shrunk(flow)
    before = window_of(flow)
    flow.on_report(NSCC_BASE, 60, now_ns + 1)  # more than a window of packets
    assert window_of(flow) == before + 15


def test_long_delay_and_few_arrivals_make_the_window_of_nscc_what_arrived():
    """Quick adapt. What was in flight before does not shrink the window once more."""
    flow = nscc()
    now_ns = shrunk(flow) + 2 * NSCC_BASE
    flow.on_report(6 * NSCC_BASE, 3, now_ns, ce_packets=3)
    assert window_of(flow) == 3
    flow.on_report(6 * NSCC_BASE, 8, now_ns + NSCC_BASE + 1, ce_packets=8)
    assert window_of(flow) == 3


def test_each_trimmed_packet_makes_the_window_of_nscc_a_packet_smaller():
    """As NSCC.OnNACK of the specification: down to one packet."""
    flow = nscc(window=5)
    sizes = []
    for _ in range(6):
        flow.on_trimmed(0)
        sizes.append(window_of(flow))
    assert sizes == [4, 3, 2, 1, 1, 1]


def test_a_trimmed_packet_counts_as_one_that_waited_for_a_base_rtt():
    """In the mean delay. With a mark the window shrinks by what is beyond the target of it."""
    flow = nscc()
    mean, delay, now_ns = 0.0, 3 * NSCC_BASE, 0
    for _ in range(4):
        now_ns += 3 * NSCC_BASE
        flow.on_report(NSCC_BASE + delay, 20, now_ns, ce_packets=20)
        mean += 20 * 0.0125 * (delay - mean)
    for _ in range(20):
        flow.on_trimmed(now_ns)
        mean += 0.0125 * (NSCC_BASE - mean)
    before = window_of(flow)
    flow.on_report(NSCC_BASE + delay, 20, now_ns + 3 * NSCC_BASE, ce_packets=20)
    mean += 20 * 0.0125 * (delay - mean)
    less = 1 - 0.8 * (mean - NSCC_BASE) / mean
    assert 0.5 < less < 0.7
    assert window_of(flow) == pytest.approx(before * less + 0.15, rel=0.001)


def test_after_a_trimmed_packet_few_arrivals_are_enough_for_quick_adapt():
    """The window becomes what arrived. What was in flight before does not shrink it once more."""
    flow = nscc()
    flow.on_trimmed(NSCC_BASE)
    assert window_of(flow) == 99
    flow.on_report(2 * NSCC_BASE, 3, NSCC_BASE, ce_packets=3)
    flow.on_trimmed(4 * NSCC_BASE)
    assert window_of(flow) == 3
    for _ in range(98):
        flow.on_trimmed(4 * NSCC_BASE + 1)
    assert window_of(flow) == 3
    flow.on_trimmed(4 * NSCC_BASE + 2)
    assert window_of(flow) == 2


def test_one_trimmed_packet_permits_one_quick_adapt():
    flow = nscc()
    flow.on_trimmed(NSCC_BASE)
    flow.on_report(2 * NSCC_BASE, 3, NSCC_BASE, ce_packets=3)
    for now_ns in (4 * NSCC_BASE, 8 * NSCC_BASE):
        flow.on_report(2 * NSCC_BASE, 2, now_ns, ce_packets=2)
        assert window_of(flow) == 5
