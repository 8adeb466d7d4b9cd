// SPDX-License-Identifier: GPL-2.0-or-later
// The receiver's state of the packet numbers on one path. If switches hash flows, a path is FIFO:
// the next packet on the path shows that a skipped number is lost. If the path reorders packets, a
// skipped number may still arrive. So the receiver waits for a reordering window, which adapts like
// RACK's (RFC 8985, 6.2), but begins at 0.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "../../../xdp/lab_wire.h"
#include "../units.hpp"

namespace softroce {

// Its length is a number of steps. A step is a quarter of the least RTT.
struct ReorderingWindow {
  std::uint16_t steps = 0;
  std::uint16_t recoveries = 0;  // gaps that were given up since the window grew
  bool adapts = true;
  Time grew_at = -1;

  Time length(Time least_rtt, Time srtt) const { return std::min(steps * least_rtt / 4, srtt); }

  // A number arrived after it was given up. At most one step per round trip (RFC 8985, 6.2).
  void grow(Time now, Time srtt) {
    recoveries = 0;
    if (!adapts) return;
    if (grew_at >= 0 && now - grew_at < srtt) return;
    grew_at = now;
    if (steps < kMostSteps) ++steps;
  }
  void note_recovery() {
    if (steps > 1 && ++recoveries >= kPersist) steps = 1;
  }

 private:
  static constexpr std::uint16_t kMostSteps = 64;
  static constexpr std::uint16_t kPersist = 16;  // RFC 8985, 6.2, step 4
};

// Losses so far, modulo 2^32. A burst is a gap that was given up: one or more consecutive numbers.
struct LossCount {
  std::uint32_t packets = 0, bursts = 0;
};

class PathSequence {
 public:
  explicit PathSequence(const ReorderingWindow& inherited) : window_(inherited) {}

  enum class Arrival : std::uint8_t {
    next,        // in order, or known already
    loss,        // smaller numbers are lost
    gap,         // smaller numbers are missing, and may still arrive
    reordered,   // it was missing
    spurious,    // it had been given up: the window grows
    late_named,  // it had been given up because of a probe on another path
    refused,     // further ahead or behind than a packet in flight can be
  };

  Arrival arrived(std::uint32_t number, std::uint32_t most_ahead, Time now, Time least_rtt,
                  Time srtt) {
    const std::uint32_t ahead = (number - next_) & LAB_NUMBER_MASK;
    if (ahead >= kHalf) {
      if (kNumbers - ahead <= most_ahead) return came_late(number, now, least_rtt, srtt);
      return agrees_with_refused(number, most_ahead) ? go_back(number) : Arrival::refused;
    }
    if (ahead > most_ahead && !agrees_with_refused(number, most_ahead)) return Arrival::refused;
    has_refused_ = false;
    const std::uint32_t begin = next_;
    next_ = (number + 1) & LAB_NUMBER_MASK;
    if (window_.length(least_rtt, srtt) == 0) {
      if (ahead == 0 && open_.empty()) return Arrival::next;
      give_up_all();  // a path is FIFO until it proves otherwise
      if (ahead != 0) give_up({begin, number, now});
      return Arrival::loss;
    }
    return ahead == 0 ? Arrival::next : open_gap({begin, number, now});
  }

  // A trimmed packet arrived: its header without its payload. The header overtook the packets in
  // the queue that trimmed it. So missing packets with smaller numbers may still arrive within
  // `wait`.
  Arrival trimmed(std::uint32_t number, std::uint32_t most_ahead, Time now, Time least_rtt,
                  Time wait) {
    const std::uint32_t ahead = (number - next_) & LAB_NUMBER_MASK;
    if (ahead >= kHalf) {
      take(number, now, least_rtt);
      return Arrival::next;
    }
    if (ahead > most_ahead && !agrees_with_refused(number, most_ahead)) return Arrival::refused;
    has_refused_ = false;
    const std::uint32_t begin = next_;
    next_ = (number + 1) & LAB_NUMBER_MASK;
    return ahead == 0 ? Arrival::next : open_gap({begin, number, now, wait});
  }

  // A probe on another path says that `number` is the next number to be sent on this path. Missing
  // packets with smaller numbers may still arrive within `wait`.
  Arrival named(std::uint32_t number, std::uint32_t most_ahead, Time now, Time wait) {
    const std::uint32_t ahead = (number - next_) & LAB_NUMBER_MASK;
    if (ahead == 0 || ahead >= kHalf) return Arrival::next;
    if (ahead > most_ahead && !agrees_with_refused(number, most_ahead)) return Arrival::refused;
    const std::uint32_t begin = next_;
    next_ = number;
    return open_gap({begin, number, now, wait, true});
  }

  // The smallest number that has neither arrived nor been given up.
  std::uint32_t settled() const { return open_.empty() ? next_ : open_.front().begin; }

  // When the oldest gap is to be given up; kNever: there is no gap.
  Time due(Time least_rtt, Time srtt) const {
    if (open_.empty()) return kNever;
    const Gap& oldest = open_.front();
    return oldest.since + std::max(window_.length(least_rtt, srtt), oldest.wait);
  }

  struct GivenUp {
    bool by_probe = false;   // a gap that a probe on another path revealed
    bool by_packet = false;  // a gap that a packet on this path revealed
  };

  // Gives up the gaps that are due.
  void give_up_due(Time now, Time least_rtt, Time srtt, GivenUp& given_up) {
    while (due(least_rtt, srtt) <= now) {
      (open_.front().named ? given_up.by_probe : given_up.by_packet) = true;
      give_up(open_.front());
      open_.erase(open_.begin());
    }
  }

  const ReorderingWindow& window() const { return window_; }
  const LossCount& lost() const { return lost_count_; }

 private:
  static constexpr std::uint32_t kNumbers = 1U << LAB_NUMBER_BITS, kHalf = kNumbers / 2;
  static constexpr std::size_t kMostOpen = 64;

  struct Gap {  // the missing numbers [begin, end)
    std::uint32_t begin = 0, end = 0;
    Time since = 0;
    Time wait = 0;       // from `since`; the reordering window applies if it is longer
    bool named = false;  // revealed by a probe on another path

    std::uint32_t size() const { return (end - begin) & LAB_NUMBER_MASK; }
    bool holds(std::uint32_t number) const { return ((number - begin) & LAB_NUMBER_MASK) < size(); }
  };

  // After an outage, every number may be more than `most_ahead` ahead. So a number is accepted if
  // it is at most `most_ahead` above the last refused number, and `arrived` did not advance `next_`
  // in between.
  bool agrees_with_refused(std::uint32_t number, std::uint32_t most_ahead) {
    const std::uint32_t since = (number - refused_) & LAB_NUMBER_MASK;
    const bool agrees = has_refused_ && since != 0 && since <= most_ahead;
    has_refused_ = !agrees;
    refused_ = number;
    return agrees;
  }

  // Two numbers that agree are further behind than a packet in flight can be. So the sender did not
  // send the packet that moved `next_` so far ahead, and `next_` goes back. The bitmaps of the
  // messages show what was lost meanwhile.
  Arrival go_back(std::uint32_t number) {
    open_.clear();
    lost_ = {};
    next_ = (number + 1) & LAB_NUMBER_MASK;
    return Arrival::loss;
  }

  Arrival open_gap(const Gap& gap) {
    const bool full = open_.size() >= kMostOpen;  // more than a window of them
    while (open_.size() >= kMostOpen) {           // a late number may part one into two
      give_up(open_.front());
      open_.erase(open_.begin());
    }
    open_.push_back(gap);
    return full ? Arrival::loss : Arrival::gap;
  }

  void give_up_all() {
    for (const Gap& each : open_) give_up(each);
    open_.clear();
  }

  void give_up(const Gap& gap) {
    lost_[newest_lost_++ % lost_.size()] = gap;
    lost_count_.packets += gap.size();
    ++lost_count_.bursts;
    window_.note_recovery();
  }

  // Removes the number from the gap that holds it. False: no gap holds it.
  bool take(std::uint32_t number, Time now, Time least_rtt) {
    for (auto gap = open_.begin(); gap != open_.end(); ++gap) {
      if (!gap->holds(number)) continue;
      Gap rest = *gap;
      rest.begin = (number + 1) & LAB_NUMBER_MASK;
      // The path still delivers packets that the probe overtook: wait for the rest a little longer.
      if (rest.named) rest.since = std::max(rest.since, now + least_rtt / 4 - rest.wait);
      gap->end = number;
      const auto after = gap->size() == 0 ? open_.erase(gap) : gap + 1;
      if (rest.size() != 0) open_.insert(after, rest);
      return true;
    }
    return false;
  }

  // Gives up the gaps before this number, except those that a probe on another path revealed.
  // False: there was none.
  bool give_up_before(std::uint32_t number) {
    const auto is_before = [number](const Gap& gap) {
      return !gap.named && ((number - gap.end) & LAB_NUMBER_MASK) < kHalf;
    };
    for (const Gap& each : open_)
      if (is_before(each)) give_up(each);
    return std::erase_if(open_, is_before) != 0;
  }

  Arrival came_late(std::uint32_t number, Time now, Time least_rtt, Time srtt) {
    if (take(number, now, least_rtt)) {
      // Trimmed packets overtake whole packets. On a FIFO path, whole packets do not overtake each
      // other, so those with smaller numbers are lost.
      const bool is_fifo = window_.length(least_rtt, srtt) == 0;
      return is_fifo && give_up_before(number) ? Arrival::loss : Arrival::reordered;
    }
    for (Gap& gap : lost_) {
      if (!gap.holds(number)) continue;
      --lost_count_.packets;
      lost_count_.bursts -= gap.size() == 1;
      gap.begin = (number + 1) & LAB_NUMBER_MASK;  // a duplicate of it proves nothing
      if (gap.named) return Arrival::late_named;
      window_.grow(now, srtt);
      return Arrival::spurious;
    }
    return Arrival::next;
  }

  std::uint32_t next_ = 0;
  std::uint32_t refused_ = 0;
  bool has_refused_ = false;
  ReorderingWindow window_;
  std::vector<Gap> open_;      // in the order of their numbers
  std::array<Gap, 4> lost_{};  // the newest gaps that were given up
  std::uint32_t newest_lost_ = 0;
  LossCount lost_count_;
};

}  // namespace softroce
