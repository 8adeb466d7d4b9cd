// SPDX-License-Identifier: GPL-2.0-or-later
// DCQCN's reaction point: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments",
// SIGCOMM 2015, section 3.1 and figure 7; parameters of figure 14, for 40 Gb/s links. What the
// paper leaves open is marked [D] and listed in docs/explanation/transports.md.
//
// All in integers. Nothing here waits for a timer: what timers would have done is done when the
// flow sends its next packet or receives a CNP again, in the same order.
#include <algorithm>

#include "../mutant.hpp"
#include "congestion.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kOne = 1 << 20;       // alpha is a fraction of it
constexpr int kGainShift = 8;                 // g = 1/256
constexpr std::uint32_t kFastRecoveries = 5;  // F
constexpr Time kSecond = 1'000 * kMillisecond;

class Dcqcn final : public CongestionControl {
 public:
  explicit Dcqcn(const CongestionConfig& config)
      : CongestionControl(config.window_packets, true, false),
        line_(config.line_rate_bps),
        least_(std::max<std::uint64_t>(line_ / 1000, 1)),         // [D]
        additive_(std::max<std::uint64_t>(line_ / 1000, 1)),      // R_AI, 40 Mb/s of 40 Gb/s
        hyper_(std::max<std::uint64_t>(line_ / 100, 1)),          // R_HAI [D]
        byte_period_(std::max<std::uint64_t>(line_ / 4000, 1)),   // B, 10 MB at 40 Gb/s: 2 ms
        period_(config.cnp_interval + config.cnp_interval / 10),  // K and T, 55 us for 50 us
        slack_(config.pacing_slack),
        rate_(line_),
        target_(line_) {}

  // Equation 1; the counters of figure 7 restart.
  void on_cnp(Time now) override {
    advance(now);
    target_ = rate_;
    rate_ = std::max(rate_ - rate_ * alpha_ / (2 * std::uint64_t{kOne}), least_);
    if (mutated(Mutant::dcqcn_stops)) rate_ = target_ = 1;
    alpha_ += (kOne - alpha_) >> kGainShift;
    timer_count_ = byte_count_ = 0;
    bytes_ = 0;
    timer_at_ = alpha_at_ = now + period_;
    limited_ = true;
  }

  void on_sent(std::uint32_t frame_bytes, Time now) override {
    if (!limited_) return;  // the port has no more than the line rate by itself
    advance(now);
    for (bytes_ += frame_bytes; limited_ && bytes_ >= byte_period_; bytes_ -= byte_period_) {
      ++byte_count_;
      increase();
    }
    const std::uint64_t work = frame_bytes * 8ULL * kSecond + remainder_;
    remainder_ = work % rate_;
    next_send_ = std::max(next_send_, now - slack_) + static_cast<Time>(work / rate_);
  }

  Figures figures(Time now) override {
    advance(now);
    return {.rate_bps = rate_,
            .target_bps = target_,
            .alpha = static_cast<double>(alpha_) / kOne,
            .window = static_cast<double>(window_packets_)};
  }

 private:
  // What the two timers have done until now.
  void advance(Time now) {
    for (; alpha_at_ <= now; alpha_at_ += period_) {  // equation 2
      const std::uint32_t less = alpha_ >> kGainShift;
      if (less == 0) alpha_at_ += (now - alpha_at_) / period_ * period_;
      alpha_ -= less;
    }
    for (; limited_ && timer_at_ <= now; timer_at_ += period_) {
      ++timer_count_;
      increase();
    }
  }

  // Figure 7: five times half of the way back (equation 3), then beyond (equation 4), and faster
  // when both counters have come so far.
  void increase() {
    if (std::min(timer_count_, byte_count_) > kFastRecoveries)
      target_ += hyper_;
    else if (std::max(timer_count_, byte_count_) > kFastRecoveries)
      target_ += additive_;
    target_ = std::min(target_, line_);
    rate_ = (rate_ + target_ + 1) / 2;
    if (target_ < line_ || line_ - rate_ > line_ / 1024) return;
    rate_ = line_;  // there, or nearly [D]: the limiter is let go
    limited_ = false;
  }

  const std::uint64_t line_, least_, additive_, hyper_, byte_period_;
  const Time period_, slack_;
  std::uint64_t rate_, target_;  // R_C and R_T, bits a second
  std::uint32_t alpha_ = kOne;   // the first CNP halves the rate
  bool limited_ = false;
  std::uint32_t timer_count_ = 0, byte_count_ = 0;  // T and BC
  std::uint64_t bytes_ = 0;
  std::uint64_t remainder_ = 0;  // of the last gap, in rate_-ths of a picosecond
  Time timer_at_ = kNever, alpha_at_ = kNever;
};

}  // namespace

std::unique_ptr<CongestionControl> make_dcqcn(const CongestionConfig& config) {
  return std::make_unique<Dcqcn>(config);
}

}  // namespace softroce
