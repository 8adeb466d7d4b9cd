// SPDX-License-Identifier: GPL-2.0-or-later
// Intervals that are synchronised with nothing. A periodic outage, such as a flapping link, would
// hit every repetition that comes at one fixed interval. So an interval varies once it has backed
// off: as good as at random, and the same in every run, because the number of the repetition is all
// that it follows from. (Multiples of the golden ratio would spread intervals more evenly; but any
// few of them in a row have nearly the same sum, which is an interval to be synchronised with.)
#pragma once

#include <algorithm>
#include <cstdint>

#include "../../xdp/lab_hash.h"

namespace softroce {

using Nanoseconds = std::int64_t;

// A share of the whole, [0, whole), another one for each number.
inline Nanoseconds varied_share(Nanoseconds whole_ns, std::uint64_t number) {
  const auto mixed = static_cast<unsigned __int128>(lab_mix64(number));
  return static_cast<Nanoseconds>(mixed * static_cast<std::uint64_t>(whole_ns) >> 64);
}

// The interval, doubled so often, to `most_ns`; then between half of that and all of it. It is
// never shorter than the interval. Where `most_ns` leaves no room above that, it varies between the
// interval and half as much again. Without a doubling it is the interval itself.
inline Nanoseconds backed_off(Nanoseconds interval_ns, std::int64_t doublings,
                              Nanoseconds most_ns) {
  if (doublings <= 0) return interval_ns;
  constexpr std::int64_t kMostDoublings = 40;
  const auto doubled_ns = static_cast<Nanoseconds>(std::min<__int128>(
      static_cast<__int128>(interval_ns) << std::min(doublings, kMostDoublings), most_ns));
  const Nanoseconds whole_ns = std::max(doubled_ns, interval_ns + interval_ns / 2);
  const Nanoseconds least_ns = std::max(whole_ns / 2, interval_ns);
  return least_ns + varied_share(whole_ns - least_ns, static_cast<std::uint64_t>(doublings));
}

}  // namespace softroce
