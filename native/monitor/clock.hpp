// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <time.h>

#include <cstdint>
#include <limits>

namespace softroce::monitor {

inline std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// The clock of bpf_ktime_get_ns().
inline std::uint64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }

// What CLOCK_REALTIME is ahead of CLOCK_MONOTONIC: of some readings, the one least interrupted.
inline std::uint64_t wall_offset_ns() {
  std::uint64_t offset = 0, least = std::numeric_limits<std::uint64_t>::max();
  for (int reading = 0; reading < 8; ++reading) {
    const std::uint64_t before = now_ns(), wall = clock_ns(CLOCK_REALTIME), after = now_ns();
    if (after - before >= least) continue;
    least = after - before;
    offset = wall - (before + least / 2);
  }
  return offset;
}

}  // namespace softroce::monitor
