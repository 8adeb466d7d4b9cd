// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>

#include "../units.hpp"
#include "bitmap.hpp"

namespace softroce {

// Smoothed round-trip time, RFC 6298 section 2 (alpha 1/8, beta 1/4). Zero: no sample yet.
struct RttEstimate {
  Time srtt = 0;
  Time rttvar = 0;
  Time least = kNever;  // of all samples

  void sample(Time rtt) {
    least = std::min(least, rtt);
    if (srtt == 0) {
      relaxed_store(rttvar, rtt / 2);
      relaxed_store(srtt, std::max(rtt, Time{1}));
      return;
    }
    const Time error = srtt > rtt ? srtt - rtt : rtt - srtt;
    relaxed_store(rttvar, rttvar + (error - rttvar) / 4);
    relaxed_store(srtt, srtt + (rtt - srtt) / 8);
  }

  // `granularity`: of the clock.
  Time rto(Time granularity = 0) const { return srtt + std::max(4 * rttvar, granularity); }
};

}  // namespace softroce
