// SPDX-License-Identifier: GPL-2.0-or-later
// When a host's port takes another frame. The wire stage serves a host's link at the link's far
// end, so nothing but this keeps a host from sending faster than its link. What waits in the
// engine instead goes in the order of the engine's schedule.
//
// The port takes frames ahead of its link, for an engine sleeps, and may be without a CPU for
// milliseconds. How far ahead adapts as the kernel's dynamic queue limits do
// (lib/dynamic_queue_limits.c): farther when the link idled although frames waited, less far by
// what was never needed lately.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "../engine/units.hpp"
#include "../wire/queue_map.hpp"

namespace softroce {

class PortPace {
 public:
  // `queues`: path of the pinned map; empty: the port takes everything. `epoch_ns`: CLOCK_MONOTONIC
  // of the moment 0. Throws std::system_error.
  PortPace(const std::string& queues, std::uint32_t uplink, std::int64_t epoch_ns)
      : queues_(queues.empty() ? nullptr : std::make_unique<wire::QueueMap>(queues)),
        uplink_(uplink),
        epoch_ns_(epoch_ns) {}

  // Whether the port takes a frame; if not, and one waits, it is to be told.
  bool has_room(Time now) const { return queues_ == nullptr || now >= opens_at(backlog_); }
  void hold_back() { held_back_ = true; }
  // There is room, and nothing to send: what waited need not go any more, or may not yet.
  void nothing_waits() { held_back_ = false; }
  // Whether a frame waits since the last one was sent.
  bool holds_back() const { return held_back_; }
  // When to send it, for one who sleeps until then: some frames go together. kNever: none waits.
  Time wakes_at() const { return held_back_ ? opens_at(backlog_ - kTogether) : kNever; }
  // The port has taken a frame.
  void sent(std::uint32_t bytes, Time now) {
    const bool waited = std::exchange(held_back_, false);
    const std::uint64_t rate_bps = queues_ == nullptr ? 0 : queues_->rate_bps(uplink_);
    if (rate_bps == 0) return;
    if (waited) learn(free_at_ - now, now);
    free_at_ = std::max(free_at_, now) + time_of(bytes, rate_bps);
  }

 private:
  // The least bounds how long a short message waits behind a long one while the engine has a CPU.
  static constexpr Time kLeastBacklog = 250 * kMicrosecond, kMostBacklog = 2 * kMillisecond;
  static constexpr Time kTogether = 100 * kMicrosecond;
  static constexpr std::uint64_t kLeastBacklogBytes = 4 * 2048;  // on slow links: some frames
  static constexpr Time kLearning = 100 * kMillisecond;

  static Time time_of(std::uint64_t bytes, std::uint64_t rate_bps) {
    return static_cast<Time>(bytes * 8'000'000'000'000 / rate_bps);
  }

  // When no more than `backlog` is left. The stage knows frames of the kernel's, too, and how late
  // ours came.
  Time opens_at(Time backlog) const {
    const std::uint64_t rate_bps = queues_->rate_bps(uplink_);
    if (rate_bps == 0) return 0;
    const auto clear_ns = static_cast<std::int64_t>(queues_->clear_ns(uplink_));
    return std::max(free_at_, (clear_ns - epoch_ns_) * kNanosecond) -
           std::max(backlog, time_of(kLeastBacklogBytes, rate_bps));
  }

  // A frame that was held back goes. `slack`: how long the link would have been busy without it;
  // negative: it has been idle for so long.
  void learn(Time slack, Time now) {
    least_slack_ = std::min(least_slack_, slack);
    if (slack < 0) {
      backlog_ = std::min(backlog_ - slack, kMostBacklog);
    } else if (now - learns_since_ >= kLearning) {
      backlog_ = std::max(backlog_ - std::max<Time>(least_slack_, 0), kLeastBacklog);
      least_slack_ = kNever;
      learns_since_ = now;
    }
  }

  std::unique_ptr<wire::QueueMap> queues_;
  std::uint32_t uplink_;
  std::int64_t epoch_ns_;
  Time free_at_ = 0;  // when what was sent will have left, if the link did nothing else
  Time backlog_ = kLeastBacklog;
  bool held_back_ = false;
  Time least_slack_ = kNever, learns_since_ = 0;
};

}  // namespace softroce
