// SPDX-License-Identifier: GPL-2.0-or-later
// How often each duration occurred, to within a sixteenth: 16 buckets an octave, as HdrHistogram
// has them. softroce_lab/fabric/daemons/wire_layout.py reads it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace softroce::wire {

struct Histogram {
  static constexpr int kOctaveBits = 4;
  static constexpr std::uint64_t kMost = (1ULL << 40) - 1;  // ns: 18 minutes

  // Below 32 a bucket holds one number.
  static constexpr std::uint32_t bucket_of(std::uint64_t value) {
    value = std::min(value, kMost);
    const int shift = std::max(0, 63 - std::countl_zero(value | 1) - kOctaveBits);
    return static_cast<std::uint32_t>((shift << kOctaveBits) + (value >> shift));
  }
  static constexpr std::uint32_t kBuckets = 592;

  void add(std::uint64_t value) { ++counts[bucket_of(value)]; }

  std::array<std::uint64_t, kBuckets> counts{};
};
static_assert(Histogram::bucket_of(Histogram::kMost) == Histogram::kBuckets - 1);

}  // namespace softroce::wire
