// SPDX-License-Identifier: GPL-2.0-or-later
// Which packets of a message were overtaken, and when: gaps in the order of indices, in which first
// transmissions leave. A gap that is not filled within the reordering window is a loss. Detection
// costs nothing for a message whose transport has not asked for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../units.hpp"

namespace softroce {

class Gaps {
 public:
  void reset() {
    window_ = kNever;
    edge_ = 0;
    first_ = 0;
    open_.clear();
  }

  bool watched() const { return window_ != kNever; }

  // From now on, or with another window. `seen`: packets [0, seen) have been overtaken or are here.
  void watch(Time window, std::uint32_t seen, Time now) {
    const bool begins = !watched();
    window_ = std::clamp(window, Time{0}, kLongestWindow);
    if (begins) arrived_up_to(seen, now);
  }

  // Those before it that are not here yet have been overtaken.
  void arrived(std::uint32_t index, Time now) {
    if (index > edge_) open_.push_back({edge_, index, now});
    edge_ = std::max(edge_, index + 1);
  }

  // When the window of the oldest gap ends; kNever: there is no gap.
  Time due() const { return first_ == open_.size() ? kNever : open_[first_].since + window_; }

  // Takes the gaps whose window has ended, and calls `each` with the packets in them.
  template <typename F>
  void take_due(Time now, F each) {
    for (; due() <= now; ++first_)
      for (std::uint32_t i = open_[first_].begin; i < open_[first_].end; ++i) each(i);
    if (2 * first_ < open_.size()) return;
    open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }

 private:
  static constexpr Time kLongestWindow = kNever / 4;  // a time and this are no overflow

  struct Gap {
    std::uint32_t begin, end;
    Time since;
  };

  void arrived_up_to(std::uint32_t seen, Time now) {
    if (seen > 0) open_.push_back({0, seen, now});
    edge_ = seen;
  }

  Time window_ = kNever;    // kNever: not watched
  std::uint32_t edge_ = 0;  // the highest index that was seen, and one
  std::size_t first_ = 0;   // of `open_` that is still open
  std::vector<Gap> open_;   // in the order of `since`
};

}  // namespace softroce
