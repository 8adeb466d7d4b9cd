// SPDX-License-Identifier: GPL-2.0-or-later
// What a link's queue decides about a frame, and how long its transmitter takes: what the wire
// stage's links and the simulated fabric's have in common. No state but the transmitter's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../../xdp/lab_shape.h"
#include "../engine/units.hpp"
#include "jitter.hpp"

namespace softroce::wire {

// Trimmed frames wait in a queue of their own, as long as the other one may get in bytes, and no
// longer than this in packets.
inline constexpr std::uint64_t kTrimmedPackets = 1024;

// The last of the parts whose windows act; null: none does.
template <typename Part>
const Part* acting(const Part* parts, std::uint32_t count, std::uint64_t now_ns) {
  while (count-- > 0)
    if (lab_window_acts(&parts[count].window, now_ns)) return &parts[count];
  return nullptr;
}

struct Waiting {  // in a queue, the frame in transmission not counted
  std::uint64_t bytes = 0;
  std::uint64_t packets = 0;
};

enum class Admission : std::uint8_t { taken, marked, full };

// A frame that finds the transmitter busy.
inline Admission admit(const lab_queue& queue, const Waiting& waiting, std::uint32_t length,
                       bool ecn_capable) {
  const std::uint64_t bytes = waiting.bytes + length, packets = waiting.packets + 1;
  if (bytes > queue.limit_bytes || packets > queue.limit_packets) return Admission::full;
  const bool marks = bytes > queue.ecn_bytes || packets > queue.ecn_packets;
  return ecn_capable && marks ? Admission::marked : Admission::taken;
}

// Whether such a frame is to be cut: with it the queue would be longer than trimming allows, or
// than its limit.
inline bool trims(const lab_queue& queue, const Waiting& waiting, std::uint32_t length) {
  const std::uint64_t bytes = waiting.bytes + length, packets = waiting.packets + 1;
  return bytes > std::min(queue.trim_bytes, queue.limit_bytes) ||
         packets > std::min(queue.trim_packets, queue.limit_packets);
}

// Whether a frame that is to be cut may wait without its payload, behind other such frames.
inline bool admit_trimmed(const lab_queue& queue, const Waiting& trimmed, std::uint32_t length,
                          std::uint32_t trimmed_length) {
  if (!queue.trim || trimmed_length == 0 || trimmed_length >= length) return false;
  if (trimmed.bytes + trimmed_length > queue.limit_bytes) return false;
  return trimmed.packets < kTrimmedPackets;
}

// Which of two queues sends next while both wait: deficit round robin (Shreedhar and Varghese,
// SIGCOMM 1995) with weights. Trimmed frames go first while their share allows it. A share of S is
// S bytes of trimmed frames to 1 - S bytes of others. Without others, trimmed frames have the whole
// rate.
class TrimmedShare {
 public:
  bool allows() const { return debt_ <= 0; }
  // A frame of the queue is sent while the other queue waits, too.
  void sent_trimmed(std::uint32_t share, std::uint32_t length) {
    debt_ += std::int64_t{length} * (kWhole - share);
  }
  void sent_other(std::uint32_t share, std::uint32_t length) {
    debt_ -= std::int64_t{length} * share;
  }

 private:
  static constexpr std::int64_t kWhole = 1'000'000;
  std::int64_t debt_ = 0;  // bytes of trimmed frames beyond their share, in parts per million
};

// Sends one frame after the other, to the picosecond.
class Transmitter {
 public:
  // When it has sent all that it began.
  Time busy_until() const { return busy_until_; }

  // In bits a second; 0: no frame takes any time. What a division left over is kept for the time
  // when the same rate holds again.
  void set_rate(std::uint64_t rate_bps) {
    limited_ = rate_bps != 0;
    if (!limited_ || rate_bps == rate_bps_) return;
    rate_bps_ = rate_bps;
    byte_time_ = kBytePicoseconds % rate_bps == 0 ? kBytePicoseconds / rate_bps : 0;
    carry_ = 0;
  }

  // Begins at `at`, when it is free; returns when the frame has left. What a division leaves over
  // is added to the next frame's time, while one follows the other.
  Time transmit(std::uint32_t bytes, Time at) {
    if (!limited_) return busy_until_ = at;
    if (byte_time_ != 0) return busy_until_ = at + static_cast<Time>(bytes * byte_time_);
    const std::uint64_t work = bytes * kBytePicoseconds + (at == busy_until_ ? carry_ : 0);
    carry_ = work % rate_bps_;  // frames are below 2 MB
    return busy_until_ = at + static_cast<Time>(work / rate_bps_);
  }

 private:
  static constexpr std::uint64_t kBytePicoseconds = 8'000'000'000'000;  // at one bit a second

  Time busy_until_ = 0;
  std::uint64_t rate_bps_ = 0;    // that held last
  std::uint64_t byte_time_ = 0;   // if it is whole; else 0
  std::uint64_t carry_ : 63 = 0;  // of a picosecond, in parts of 1/rate_bps_
  std::uint64_t limited_ : 1 = 0;
};

// How long a frame is under way, and whether it may overtake others.
struct Passage {
  Time delay = 0;
  bool preserve = true;
};

inline Passage passage_of(const lab_shape& shape, const lab_leg& leg, std::uint64_t now_ns) {
  Passage passage;
  if (const lab_delay* delay = acting(shape.delay, shape.delays, now_ns); delay != nullptr) {
    passage.delay = delay_of(*delay, leg.jitter) * kNanosecond;
    passage.preserve = delay->preserve != 0;
  }
  if ((leg.effects & LAB_EFFECT_REORDER) == 0) return passage;
  const Time extra = static_cast<Time>(shape.reorder_extra_ns) * kNanosecond;
  return {extra == 0 ? 0 : passage.delay + extra, false};
}

// --- How many frames a shape may have to hold: its queue full, and its delay full at its rate

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
