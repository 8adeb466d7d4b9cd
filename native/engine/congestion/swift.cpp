// SPDX-License-Identifier: GPL-2.0-or-later
// Swift: Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the
// Datacenter", SIGCOMM 2020: algorithm 1, and the target of section 3.5. What the paper leaves open
// is marked [D] and listed in docs/explanation/transports.md.
//
// Doubles, with nothing but the four operations that IEEE 754 rounds alike everywhere.
#include <algorithm>

#include "../mutant.hpp"
#include "congestion.hpp"

namespace softroce {
namespace {

constexpr double kAdditive = 1.0;         // ai, packets an RTT
constexpr double kDecrease = 0.8;         // beta
constexpr double kMostDecrease = 0.5;     // max_mdf
constexpr double kLeastWindow = 0.01;     // packets [D]
constexpr std::uint32_t kResetAfter = 5;  // RETX_RESET_THRESHOLD [D]

// Flow scaling: fs_min_cwnd 0.1, fs_max_cwnd 100, and their inverse square roots.
constexpr double kInverseRootOfLeast = 3.1622776601683795, kInverseRootOfMost = 0.1;

std::uint64_t integer_root(std::uint64_t value) {
  std::uint64_t root = 0;
  for (std::uint64_t bit = std::uint64_t{1} << 31; bit != 0; bit >>= 1)
    if ((root + bit) * (root + bit) <= value) root += bit;
  return root;
}

double inverse_root(double value) {
  constexpr double kScale = 1 << 20;
  return static_cast<double>(integer_root(static_cast<std::uint64_t>(kScale * kScale / value))) /
         kScale;
}

class Swift final : public CongestionControl {
 public:
  explicit Swift(const CongestionConfig& config)
      : CongestionControl(config.window_packets, true, true),
        most_(config.window_packets),
        base_(config.target_delay != 0 ? config.target_delay
                                       : config.base_rtt + config.base_rtt / 4),
        hop_(config.hop_delay != 0 ? config.hop_delay : config.base_rtt / 8),
        window_(most_),
        rtt_(config.base_rtt) {}

  void on_report(const RateSample& sample, Time now) override {
    if (sample.rtt <= 0) return answered(sample.delivered_packets);
    rtt_ = measured_ ? rtt_ + (sample.rtt - rtt_) / 8 : sample.rtt;
    measured_ = true;
    timeouts_ = 0;
    hops_ = sample.hops;
    const Time target = target_delay();
    if (sample.rtt < target) return increase(sample.delivered_packets);
    const double excess =
        static_cast<double>(sample.rtt - target) / static_cast<double>(sample.rtt);
    decrease(std::max(1 - kDecrease * excess, 1 - kMostDecrease), now);
  }

  void on_loss(Time now) override {
    timeouts_ = 0;
    decrease(1 - kMostDecrease, now);
  }

  void on_timeout(Time now) override {
    if (++timeouts_ >= kResetAfter) return set_window(kLeastWindow);
    decrease(1 - kMostDecrease, now);
  }

  void on_sent(std::uint32_t, Time now) override {
    last_sent_ = now;
    next_send_ = now + pacing_delay();
  }

  Figures figures(Time) override { return {.window = window_, .target_delay = target_delay()}; }

 private:
  // Base, topology and flow scaling (section 3.5).
  Time target_delay() const {
    const double range = 5.0 * static_cast<double>(base_);
    const double alpha = range / (kInverseRootOfLeast - kInverseRootOfMost);
    const double flows = alpha * (inverse_root(window_) - kInverseRootOfMost);
    return base_ + hops_ * hop_ + static_cast<Time>(std::clamp(flows, 0.0, range));
  }

  Time pacing_delay() const {
    if (mutated(Mutant::swift_stops) && window_ < 1) return rtt_ * 100'000;
    return window_ < 1 ? static_cast<Time>(static_cast<double>(rtt_) / window_) : 0;
  }

  // Retransmitted packets give no delay, but the path is active again. A sender with so small a
  // window sends each packet again, and would never measure one. [D]
  void answered(std::uint32_t packets) {
    if (packets == 0) return;
    if (timeouts_ >= kResetAfter) set_window(1);
    timeouts_ = 0;
  }

  void increase(std::uint32_t acked) {
    const double more = kAdditive * acked;
    set_window(window_ >= 1 ? window_ + more / window_ : window_ + more);
  }

  void decrease(double factor, Time now) {
    if (now < may_decrease_at_) return;  // once an RTT
    const double before = window_;
    set_window(factor * window_);
    if (window_ < before) may_decrease_at_ = now + rtt_;
  }

  void set_window(double window) {
    window_ = std::clamp(window, kLeastWindow, most_);
    window_packets_ = window_ < 1 ? 1 : static_cast<std::uint32_t>(window_);
    next_send_ = last_sent_ + pacing_delay();
  }

  const double most_;
  const Time base_, hop_;
  double window_;  // cwnd, packets
  Time rtt_;
  bool measured_ = false;
  std::uint32_t timeouts_ = 0;  // retransmit_cnt
  Time hops_ = 0;
  Time may_decrease_at_ = 0;
  Time last_sent_ = 0;
};

}  // namespace

std::unique_ptr<CongestionControl> make_swift(const CongestionConfig& config) {
  return std::make_unique<Swift>(config);
}

}  // namespace softroce
