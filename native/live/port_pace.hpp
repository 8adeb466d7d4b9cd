// SPDX-License-Identifier: GPL-2.0-or-later
// Decides when a host's port takes another frame from the engine. The wire stage serves a host's
// link at the far end of the link, so only this class keeps a host from sending faster than its
// link. Packets that the port does not take yet wait in the engine, in the order of the engine's
// schedule.
//
// The *backlog* is the time for which the link is busy with the frames that the port has taken.
// The port takes a frame if the backlog is at most a limit. The limit is greater than 0 because an
// engine sleeps, and may be without a CPU for milliseconds. The limit adapts as the kernel's
// dynamic queue limits do (lib/dynamic_queue_limits.c). If the link was idle while a frame waited,
// the limit grows by the idle time. If the backlog was never used up lately, the limit shrinks by
// the part that was not used.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "../engine/units.hpp"
#include "../wire/queue_map.hpp"

namespace softroce {

class PortPace {
 public:
  // `queues`: the map of the wire stage; if null, the port always takes a frame. `uplink`: the
  // host's directed link in this map. `epoch_ns`: CLOCK_MONOTONIC at time 0.
  PortPace(std::unique_ptr<const wire::QueueMap> queues, std::uint32_t uplink,
           std::int64_t epoch_ns)
      : queues_(std::move(queues)), uplink_(uplink), epoch_ns_(epoch_ns) {}

  // Whether the port takes a frame. If it does not, and a frame waits, call `hold_back`.
  bool has_room(Time now) const { return queues_ == nullptr || now >= drained_to(limit_); }
  void hold_back() { held_back_ = true; }
  // There is room and nothing to send: the frame that was held back need not go any more, or may
  // not yet.
  void nothing_waits() { held_back_ = false; }
  // Whether a frame has been held back since the port took the last one.
  bool holds_back() const { return held_back_; }
  // When an engine that sleeps should wake to send the frame that is held back; kNever if none is.
  // This is later than the port has room, so that several frames are sent at one waking.
  Time wakes_at() const { return held_back_ ? drained_to(limit_ - kSleepLonger) : kNever; }
  // The port has taken a frame.
  void sent(std::uint32_t bytes, Time now) {
    const bool waited = std::exchange(held_back_, false);
    const std::uint64_t rate_bps = queues_ == nullptr ? 0 : queues_->rate_bps(uplink_);
    if (rate_bps == 0) return;
    if (waited) learn(idle_at_ - now, now);
    idle_at_ = std::max(idle_at_, now) + time_of(bytes, rate_bps);
  }

 private:
  // Bounds of the limit. While the engine has a CPU, the least limit bounds how long a short
  // message waits behind frames of a long message.
  static constexpr Time kLeastLimit = 250 * kMicrosecond, kMostLimit = 2 * kMillisecond;
  static constexpr Time kSleepLonger = 100 * kMicrosecond;
  static constexpr std::uint64_t kLeastLimitBytes = 4 * 2048;  // a few frames, on slow links
  static constexpr Time kShrinkInterval = 100 * kMillisecond;

  static Time time_of(std::uint64_t bytes, std::uint64_t rate_bps) {
    return static_cast<Time>(bytes * 8'000'000'000'000 / rate_bps);
  }

  // When the backlog has fallen to `backlog`. The wire stage's time is also taken into account: it
  // includes the kernel's frames, and the delay with which our frames reached the stage.
  Time drained_to(Time backlog) const {
    const std::uint64_t rate_bps = queues_->rate_bps(uplink_);
    if (rate_bps == 0) return 0;
    const auto clear_ns = static_cast<std::int64_t>(queues_->clear_ns(uplink_));
    return std::max(idle_at_, (clear_ns - epoch_ns_) * kNanosecond) -
           std::max(backlog, time_of(kLeastLimitBytes, rate_bps));
  }

  // Adapts the limit when a frame that was held back is sent. `unused`: the backlog at this time,
  // without the frame. Negative: the link has been idle for so long.
  void learn(Time unused, Time now) {
    least_unused_ = std::min(least_unused_, unused);
    if (unused < 0) {
      limit_ = std::min(limit_ - unused, kMostLimit);
    } else if (now - shrunk_at_ >= kShrinkInterval) {
      limit_ = std::max(limit_ - std::max<Time>(least_unused_, 0), kLeastLimit);
      least_unused_ = kNever;
      shrunk_at_ = now;
    }
  }

  std::unique_ptr<const wire::QueueMap> queues_;
  std::uint32_t uplink_;
  std::int64_t epoch_ns_;
  Time idle_at_ = 0;  // when the link has sent all frames of this port, if it sends no others
  Time limit_ = kLeastLimit;
  bool held_back_ = false;
  Time least_unused_ = kNever, shrunk_at_ = 0;  // since the limit was last examined, and when
};

}  // namespace softroce
