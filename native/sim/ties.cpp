// SPDX-License-Identifier: GPL-2.0-or-later
// Packets that come to a queue at the same moment. Events of one moment happen in the order in
// which they were scheduled, which may favour one sender for a whole run. So packets of one moment
// take the places of the queue, and the marks and drops behind them, in the order of their draws:
// hashes of the run's key, the moment and the packet's source. Neither the order of events nor
// hosts and packets elsewhere change a draw. Packets of one source keep their order.
//
// Packets exchange places by exchanging their contents: what is scheduled for a place remains.
#include <utility>

#include "fabric.hpp"

namespace softroce::sim {
namespace {

constexpr std::uint8_t kCongestionExperienced = 3;

}  // namespace

// `newcomer` was given the last place of this moment, or none: it goes forward, as far as packets
// have greater draws and fit the place behind theirs.
void Fabric::break_tie(FlightIndex newcomer, LinkIndex onto) {
  const Link& link = links_[onto];
  const bool trims = link.stepwise != nullptr;
  const std::uint64_t moment = lab_absorb(tie_key_, static_cast<std::uint64_t>(now_));
  const std::uint64_t its_draw = lab_absorb(moment, flights_[newcomer].source);
  FlightIndex reached = newcomer;
  bool reached_marked = false;  // the newcomer's own place is marked later
  link.places(now_, [&](FlightIndex place, bool marked) {
    if (place == newcomer) return true;
    if (place == kNowhere) return false;
    Flight &ahead = flights_[place], &behind = flights_[reached];
    if (lab_absorb(moment, ahead.source) <= its_draw || !fits(ahead, behind, trims)) return false;
    std::swap(ahead, behind);
    ahead.link = onto;
    if (reached_marked && behind.ecn != 0) behind.ecn = kCongestionExperienced;
    reached = place;
    reached_marked = marked;
    return true;
  });
  if (reached_marked && flights_[reached].ecn != 0) flights_[reached].ecn = kCongestionExperienced;
}

// A place has a length, and a mark for those that may be marked.
bool Fabric::fits(const Flight& one, const Flight& other, bool trims) {
  return one.length == other.length && (one.ecn != 0) == (other.ecn != 0) &&
         (!trims || flights_.load_of(one).trimmed_length == flights_.load_of(other).trimmed_length);
}

}  // namespace softroce::sim
