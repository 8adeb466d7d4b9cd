// SPDX-License-Identifier: GPL-2.0-or-later
// How many frames a shape may have to hold: its queue full, and its delay full at its rate.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../../xdp/lab_shape.h"
#include "jitter.hpp"
#include "link.hpp"

namespace softroce::wire {

// Bytes are taken to come in frames of this size, a packet of a few bytes with all its headers.
inline constexpr std::uint64_t kSmallFrameBytes = 256;
// What one link carries at most, whatever its rate.
inline constexpr std::uint64_t kFramesPerSecond = 400'000;
inline constexpr std::uint64_t kRoomForAll = UINT64_MAX / 4;

inline std::uint64_t frames_waiting(const lab_queue& queue) {
  const std::uint64_t frames =
      std::min<std::uint64_t>(queue.limit_packets, queue.limit_bytes / kSmallFrameBytes + 1);
  if (queue.rate_bps == 0) return 0;
  return std::min<std::uint64_t>(frames, kRoomForAll) + (queue.trim ? kTrimmedPackets : 0);
}

inline std::uint64_t frames_a_second(const lab_queue& queue) {
  if (queue.rate_bps == 0) return kFramesPerSecond;
  return std::min<std::uint64_t>(kFramesPerSecond, queue.rate_bps / (8 * kSmallFrameBytes) + 1);
}

inline std::uint64_t frames_needed(const lab_shape& shape) {
  std::uint64_t waiting = 0, rate = shape.queues == 0 ? kFramesPerSecond : 0;
  for (std::uint32_t i = 0; i < shape.queues; ++i) {
    const lab_queue& queue = shape.queue[i];
    const bool always = queue.window.begin_ns == 0 && queue.window.length_ns == 0;
    waiting = std::max<std::uint64_t>(waiting, frames_waiting(queue));
    rate = std::max<std::uint64_t>(rate, always ? frames_a_second(queue) : kFramesPerSecond);
  }
  std::int64_t delay_ns = 0;
  for (std::uint32_t i = 0; i < shape.delays; ++i)
    delay_ns = std::max(delay_ns, longest_delay(shape.delay[i]));
  const auto ns = static_cast<unsigned __int128>(delay_ns) + shape.reorder_extra_ns;
  const unsigned __int128 flying = (ns * rate + 999'999'999) / 1'000'000'000;
  if (flying > kRoomForAll) return kRoomForAll;
  return waiting + static_cast<std::uint64_t>(flying);
}

}  // namespace softroce::wire
