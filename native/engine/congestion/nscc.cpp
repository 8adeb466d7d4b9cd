// SPDX-License-Identifier: GPL-2.0-or-later
// NSCC: network signal-based congestion control of the Ultra Ethernet specification 1.0, section
// 3.6.13. The specification is not at hand, so the rules are those of the consortium's simulator,
// uec.cpp of uet-htsim. What differs is marked [D] and listed in docs/explanation/transports.md.
// The rules for trimmed packets are NSCC.OnNACK of section 3.6.13.5, and
// UecSrc::updateCwndOnNack_NSCC of the simulator.
//
// Marks and queueing delay together choose one of four responses:
//
//                      delay below the target      at the target or above
//   no mark            proportional increase       fair increase
//   marked             none: the path changes      decrease, once a round trip
//
// Each trimmed packet makes the window a packet smaller, unless quick adapt does more, or the
// packet was sent before the last quick adapt. After a trimmed packet quick adapt needs no long
// delay.
//
// A window of the simulator is in bytes, and is updated for each acknowledgement. Here it is in
// packets, and is updated for each report; a loss does not shrink it, and after quick adapt what a
// former window had in flight is ignored [D]. The target delay is a base RTT, with trimming, too
// [D]; the specification has three quarters of it then. Doubles, with nothing but the four
// operations that IEEE 754 rounds alike everywhere.
#include <algorithm>

#include "congestion.hpp"

namespace softroce {
namespace {

constexpr double kReferenceBdpBits = 100e9 * 12e-6;  // constants below are for such a network
constexpr Time kReferenceRtt = 12 * kMicrosecond;
constexpr double kProportional = 4;  // alpha
constexpr double kFair = 5;          // fi, packets
constexpr double kFast = 0.25;       // fi_scale
constexpr double kSteady = 0.15;     // eta, packets a round trip
constexpr double kDecrease = 0.8;    // gamma
constexpr double kMostDecrease = 0.5;
constexpr double kDelayGain = 0.0125;  // of the mean delay, for each packet
constexpr Time kUnmarkedPart = 4;      // of base RTT counts an unmarked delay beyond the target
constexpr double kPacketsOfAnUpdate = 8;
constexpr double kAdaptDelays = 4;     // target delays: beyond, the window becomes what arrived,
constexpr double kAdaptBelow = 0.125;  // if less than this part of the largest window did

class Nscc final : public CongestionControl {
 public:
  explicit Nscc(const CongestionConfig& config)
      : CongestionControl(config.window_packets, false, true),
        most_(config.window_packets),
        base_rtt_(config.base_rtt),
        target_(config.target_delay != 0 ? config.target_delay : config.base_rtt),
        scale_(static_cast<double>(config.line_rate_bps) * seconds(base_rtt_) / kReferenceBdpBits),
        alpha_(kProportional * scale_ * static_cast<double>(target_) / kReferenceRtt),
        window_(most_) {}

  void on_report(const RateSample& sample, Time now) override {
    if (sample.rtt <= 0 || sample.delivered_packets == 0) return;
    const Time delay = std::max<Time>(sample.rtt - base_rtt_, 0);
    const auto arrived = static_cast<double>(sample.delivered_packets);
    const double marked = std::min<double>(sample.ce_packets, arrived);
    note_delay(marked == 0 && delay > target_ ? base_rtt_ / kUnmarkedPart : delay, arrived);
    achieved_ += arrived;
    if (adapts(delay, now)) return;
    if (ignored_ < to_ignore_) {  // sent before the window shrank
      ignored_ += arrived;
      if (marked != 0) return;
    }
    if (marked != 0 && delay >= target_) decrease(now);
    increase(arrived - marked, delay);
    updated_ += arrived;
    if (updated_ > kPacketsOfAnUpdate || now - updated_at_ > base_rtt_) update(now);
  }

  // The packet's delay is not known: a base RTT stands for it. A trimmed packet counts as marked.
  void on_trimmed(Time now) override {
    note_delay(base_rtt_, 1);
    was_trimmed_ = true;
    const bool ignores = ++ignored_ < to_ignore_;
    if (!ignores && !adapts(0, now)) set_window(window_ - 1);
  }

  // A loss without marks and without delay is no congestion [D]; with them, reports show it.
  void on_timeout(Time) override { set_window(window_ * kMostDecrease); }

  Figures figures(Time) override { return {.window = window_, .target_delay = target_}; }

 private:
  static double seconds(Time time) { return static_cast<double>(time) / 1e12; }

  void note_delay(Time delay, double packets) {
    mean_delay_ += (static_cast<double>(delay) - mean_delay_) * std::min(kDelayGain * packets, 1.0);
  }

  // Quick adapt: after a round trip in which little arrived, although much may be in flight.
  bool adapts(Time delay, Time now) {
    if (now < adapt_at_) return false;
    const bool late = static_cast<double>(delay) > kAdaptDelays * static_cast<double>(target_);
    const bool is_full = late || was_trimmed_;
    const bool adapt = adapt_at_ != 0 && is_full && achieved_ < most_ * kAdaptBelow;
    if (adapt) {
      to_ignore_ = window_;
      ignored_ = 0;
      was_trimmed_ = false;
      set_window(achieved_);
    }
    achieved_ = 0;
    adapt_at_ = now + base_rtt_ + target_;
    return adapt;
  }

  void increase(double packets, Time delay) {
    if (packets <= 0) return;
    if (delay >= target_) {
      grows_ = false;
      increase_ += kFair * scale_ * packets;
      return;
    }
    fast_count_ = delay < kMicrosecond ? fast_count_ + packets : 0;
    grows_ = delay < kMicrosecond && (grows_ || fast_count_ > window_);
    if (grows_) return set_window(window_ + packets * kFast * scale_);
    increase_ +=
        alpha_ * packets * static_cast<double>(target_ - delay) / static_cast<double>(target_);
  }

  void decrease(Time now) {
    grows_ = false;
    fast_count_ = 0;
    const auto target = static_cast<double>(target_);
    if (mean_delay_ <= target || now - decreased_at_ <= base_rtt_) return;
    const double excess = (mean_delay_ - target) / mean_delay_;
    set_window(window_ * std::max(1 - kDecrease * excess, 1 - kMostDecrease));
    decreased_at_ = now;
  }

  void update(Time now) {
    double window = window_ + increase_ / window_;
    if (now - steady_at_ >= base_rtt_) {
      window += kSteady * scale_;
      steady_at_ = now;
    }
    set_window(window);
    increase_ = updated_ = 0;
    updated_at_ = now;
  }

  void set_window(double window) {
    window_ = std::clamp(window, 1.0, most_);
    window_packets_ = static_cast<std::uint32_t>(window_);
  }

  const double most_;
  const Time base_rtt_, target_;
  const double scale_, alpha_;
  double window_;          // packets
  double mean_delay_ = 0;  // ps
  double increase_ = 0;    // packets times the window, until the next update
  double updated_ = 0;     // packets since the last one
  double achieved_ = 0;    // packets since the last check of quick adapt
  double to_ignore_ = 0, ignored_ = 0;
  double fast_count_ = 0;     // packets in a row without delay
  bool grows_ = false;        // fast increase
  bool was_trimmed_ = false;  // a packet, since the last quick adapt
  Time updated_at_ = 0, steady_at_ = 0, decreased_at_ = 0, adapt_at_ = 0;
};

}  // namespace

std::unique_ptr<CongestionControl> make_nscc(const CongestionConfig& config) {
  return std::make_unique<Nscc>(config);
}

}  // namespace softroce
