// SPDX-License-Identifier: GPL-2.0-or-later
// From 32 random bits to a delay, by integers alone: the same on every machine.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../../xdp/lab_shape.h"

namespace softroce::wire {

inline constexpr int kJitterBits = 12;
inline constexpr int kJitterSteps = 1 << kJitterBits;
inline constexpr std::int64_t kJitterScale = 8192;   // NETEM_DIST_SCALE
inline constexpr std::int64_t kJitterMost = 32'767;  // of the tables, in 1/8192

extern const std::int16_t kNormal[kJitterSteps];
extern const std::int16_t kPareto[kJitterSteps];

// What the bits add to a delay, in nanoseconds: within +-jitter_ns if uniform, else a deviate of
// scale jitter_ns. `jitter_ns` is below 2^47.
inline std::int64_t jitter_of(std::uint32_t bits, std::int64_t jitter_ns, std::uint32_t kind) {
  if (kind == LAB_UNIFORM) {
    const auto wide =
        static_cast<unsigned __int128>(bits) * 2 * static_cast<std::uint64_t>(jitter_ns);
    return static_cast<std::int64_t>(wide >> 32) - jitter_ns;
  }
  const std::int16_t* table = kind == LAB_NORMAL ? kNormal : kPareto;
  return jitter_ns * table[bits >> (32 - kJitterBits)] / kJitterScale;
}

// Never negative.
inline std::int64_t delay_of(const lab_delay& delay, std::uint32_t bits) {
  const auto base = static_cast<std::int64_t>(delay.delay_ns);
  const auto spread = static_cast<std::int64_t>(delay.jitter_ns);
  return spread == 0
             ? base
             : std::max<std::int64_t>(0, base + jitter_of(bits, spread, delay.distribution));
}

// The longest that `delay_of` returns.
inline std::int64_t longest_delay(const lab_delay& delay) {
  const auto spread = static_cast<std::int64_t>(delay.jitter_ns);
  const std::int64_t most =
      delay.distribution == LAB_UNIFORM ? spread : spread * kJitterMost / kJitterScale;
  return static_cast<std::int64_t>(delay.delay_ns) + most;
}

}  // namespace softroce::wire
