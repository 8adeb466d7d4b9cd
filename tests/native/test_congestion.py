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


def test_there_are_five():
    assert _native.congestion_control_names() == ["bdp", "dcqcn", "grants", "nscc", "swift"]


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


def test_bdp_reacts_to_nothing():
    flow = control("bdp", window_packets=77)
    flow.on_report(10**9, 50, 10**9)
    flow.on_cnp(10**9)
    flow.on_loss(10**9)
    flow.on_timeout(2 * 10**9)
    flow.on_sent(4096, 2 * 10**9)
    assert flow.window_packets == 77
    assert flow.next_send_ps == 0
    assert rate_of(flow, 3 * 10**9) == 0


# ---------------------------------------------------------------- DCQCN, SIGCOMM 2015 section 3.1


def dcqcn(**settings):
    return control("dcqcn", **{"line_rate_bps": LINE, **settings})


def test_dcqcn_begins_at_the_line_rate_and_is_not_paced():
    flow = dcqcn()
    for _ in range(10):
        flow.on_sent(2_500, 0)
    assert flow.next_send_ps == 0
    assert flow.figures(0) == {
        "rate_bps": LINE, "target_bps": LINE, "alpha": 1.0, "window_packets": 1024.0,
        "target_delay_ns": 0,
    }  # fmt: skip


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


def test_dcqcn_alpha():
    flow = dcqcn()
    flow.on_cnp(0)  # (1-g) 1 + g = 1
    alpha = lambda n: flow.figures(n * PERIOD)["alpha"]  # noqa: E731
    assert alpha(0) == 1.0
    assert [alpha(1), alpha(2)] == pytest.approx([255 / 256, (255 / 256) ** 2], abs=2e-6)
    flow.on_cnp(2 * PERIOD)
    once = (255 / 256) ** 2
    assert alpha(2) == pytest.approx(255 / 256 * once + 1 / 256, abs=4e-6)


def test_dcqcn_cuts_by_half_of_alpha():
    flow = dcqcn()
    flow.on_cnp(0)
    # 256 periods later alpha is (255/256)^256 = 0.367 and the rate is the line's.
    now = 256 * PERIOD
    alpha = flow.figures(now)["alpha"]
    assert alpha == pytest.approx((255 / 256) ** 256, rel=1e-3)
    flow.on_cnp(now)
    assert rate_of(flow, now) == pytest.approx(LINE * (1 - alpha / 2), abs=2)


def test_dcqcn_additive_increase():
    flow = dcqcn()
    for at in (0, 50 * US, 100 * US):  # too soon for the timer: 20, 10, 5 Gb/s, alpha 1
        flow.on_cnp(at)
    assert rate_of(flow, 100 * US) == 5 * GBPS
    at = lambda n: flow.figures(100 * US + n * PERIOD)  # noqa: E731
    rates = [at(n)["rate_bps"] for n in range(1, 6)]
    assert rates == [7.5e9, 8.75e9, 9.375e9, 9.6875e9, 9.84375e9]
    # R_AI is 40 Mb/s (equation 4).
    assert (at(6)["target_bps"], at(6)["rate_bps"]) == (10_040_000_000, 9_941_875_000)
    assert (at(7)["target_bps"], at(7)["rate_bps"]) == (10_080_000_000, 10_010_937_500)


def send_mb(flow, megabytes, now_ns):
    for _ in range(megabytes * 10):
        flow.on_sent(100_000, now_ns)


def test_dcqcn_byte_counter():
    flow = dcqcn()
    flow.on_cnp(0)
    send_mb(flow, 10, 1)  # B is 10 MB
    assert rate_of(flow, 1) == 30 * GBPS
    send_mb(flow, 9, 1)
    assert rate_of(flow, 1) == 30 * GBPS
    send_mb(flow, 1, 1)
    assert rate_of(flow, 1) == 35 * GBPS


def test_dcqcn_hyper_increase_takes_both_counters():
    flow = dcqcn()
    for at in (0, 50 * US, 100 * US, 150 * US):
        flow.on_cnp(at)
    assert rate_of(flow, 150 * US) == 2.5 * GBPS
    target = lambda n: flow.figures(150 * US + n * PERIOD)["target_bps"]  # noqa: E731
    assert target(5) == 5 * GBPS  # T = 5
    send_mb(flow, 50, 150 * US + 5 * PERIOD)  # BC = 5: both are at F, none beyond
    assert target(5) == 5 * GBPS
    assert target(6) == 5 * GBPS + 40_000_000  # T = 6: additive
    send_mb(flow, 10, 150 * US + 6 * PERIOD)  # BC = 6: hyper
    assert target(6) == 5 * GBPS + 440_000_000
    assert target(7) == 5 * GBPS + 840_000_000
    flow.on_cnp(150 * US + 7 * PERIOD)  # both begin anew
    before = target(7)
    send_mb(flow, 40, 150 * US + 7 * PERIOD)
    assert target(7) == before


def test_dcqcn_never_falls_below_a_thousandth():
    flow = dcqcn()
    for at in range(100):
        flow.on_cnp(at * US)
    assert rate_of(flow, 99 * US) == 40_000_000


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


def test_dcqcn_after_a_long_silence():
    flow = dcqcn()
    flow.on_cnp(0)
    assert rate_of(flow, 10**15) == LINE
    assert flow.figures(10**15)["alpha"] < 1 / 4000
    flow.on_cnp(10**15)
    assert rate_of(flow, 10**15) > 0.999 * LINE


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


@pytest.mark.parametrize("seed", range(20))
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


def test_swift_at_the_target_decreases_by_nothing():
    flow = swift()
    flow.on_report(12_500, 10, 0)
    assert window(flow) == 1000
    flow.on_report(25_000, 10, 1)  # a decrease by nothing was none
    assert window(flow) == pytest.approx(600)


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


def test_swift_without_a_measurement_waits_for_one():
    flow = swift()
    flow.on_report(0, 100, 0)
    assert window(flow) == 1000


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


def test_nscc_begins_with_its_largest_window():
    assert window_of(nscc(77)) == 77


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


def test_a_loss_alone_is_no_congestion_for_nscc():
    flow = nscc()
    flow.on_loss(1)
    assert window_of(flow) == 100


def test_a_timeout_halves_the_window_of_nscc():
    flow = nscc()
    flow.on_timeout(1)
    assert window_of(flow) == 50


def test_without_any_delay_the_window_of_nscc_grows_fast():
    flow = nscc()
    now_ns = shrunk(flow)
    before = window_of(flow)
    flow.on_report(NSCC_BASE, 60, now_ns + 1)  # more than a window of packets
    assert window_of(flow) == before + 15


@pytest.mark.parametrize("line_rate_bps", [50 * GBPS, 100 * GBPS])
def test_the_window_of_nscc_grows_a_little_each_round_trip_in_proportion_to_the_network(
    line_rate_bps,
):
    flow = nscc(line_rate_bps=line_rate_bps)
    now_ns = shrunk(flow)
    before = window_of(flow)
    flow.on_report(NSCC_BASE + 2 * US, 16, now_ns + NSCC_BASE, ce_packets=16)
    assert window_of(flow) == pytest.approx(before + 0.15 * line_rate_bps / (100 * GBPS))


def test_long_delay_and_few_arrivals_make_the_window_of_nscc_what_arrived():
    """Quick adapt. What was in flight before does not shrink the window once more."""
    flow = nscc()
    now_ns = shrunk(flow) + 2 * NSCC_BASE
    flow.on_report(6 * NSCC_BASE, 3, now_ns, ce_packets=3)
    assert window_of(flow) == 3
    flow.on_report(6 * NSCC_BASE, 8, now_ns + NSCC_BASE + 1, ce_packets=8)
    assert window_of(flow) == 3
