// SPDX-License-Identifier: GPL-2.0-or-later
// Units of the engine. Time comes in as an argument everywhere; nothing in here reads a clock.
#pragma once

#include <cstdint>

namespace softroce {

// Picoseconds since the run began: a 2 KiB frame at 800 Gb/s lasts 21.12 ns.
using Time = std::int64_t;

inline constexpr Time kNanosecond = 1'000;
inline constexpr Time kMicrosecond = 1'000 * kNanosecond;
inline constexpr Time kMillisecond = 1'000 * kMicrosecond;
inline constexpr Time kNever = INT64_MAX;

// The 32-bit stamp that data packets carry and reports echo: nanoseconds modulo 2^32.
inline std::uint32_t stamp_of(Time at) { return static_cast<std::uint32_t>(at / kNanosecond); }

// Signed distance between two stamps; right while they are less than 2.1 s apart.
inline std::int32_t stamp_distance(std::uint32_t later, std::uint32_t earlier) {
  return static_cast<std::int32_t>(later - earlier);
}

// How long every echo, and with it every RTT sample, may be old before it is ambiguous.
inline constexpr Time kStampHorizon = 1'000 * kMillisecond;

}  // namespace softroce
