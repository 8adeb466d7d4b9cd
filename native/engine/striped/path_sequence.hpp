// SPDX-License-Identifier: GPL-2.0-or-later
// What a receiver knows of the numbers on a path. A path is FIFO where switches hash flows, so a
// number that is skipped is a loss, known with the next packet on the path. Where paths reorder, a
// skipped number may still come: the reordering window adapts as RACK's does (RFC 8985, 6.2), but
// begins at 0.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "../../../xdp/lab_wire.h"
#include "../units.hpp"

namespace softroce {

// In steps of a quarter of the least RTT.
struct ReorderingWindow {
  std::uint16_t steps = 0;
  std::uint16_t recoveries = 0;  // since it grew
  bool adapts = true;
  Time grew_at = -1;

  Time length(Time least_rtt, Time srtt) const { return std::min(steps * least_rtt / 4, srtt); }

  // Something came that was given up. Once a round trip, as a DSACK counts.
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

// What is lost, modulo 2^32: packets, and how often one or several in a row.
struct LossCount {
  std::uint32_t packets = 0, bursts = 0;
};

class PathSequence {
 public:
  explicit PathSequence(const ReorderingWindow& inherited) : window_(inherited) {}

  enum class Arrival : std::uint8_t {
    next,        // in order, or known already
    loss,        // numbers before it are lost
    gap,         // numbers before it are missing, and may still come
    reordered,   // it was missing
    spurious,    // it was given up: the window grows
    late_named,  // it was given up by a probe on another path
    refused,     // further ahead or behind than can be in flight
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

  // Only the header of a packet came: its payload is lost. It overtook what was in the queue that
  // trimmed it. So what is missing before it may still be on its way, for so long.
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

  // A probe on another path: `number` is the next one here. What is missing before it may still be
  // on its way, for so long.
  Arrival named(std::uint32_t number, std::uint32_t most_ahead, Time now, Time wait) {
    const std::uint32_t ahead = (number - next_) & LAB_NUMBER_MASK;
    if (ahead == 0 || ahead >= kHalf) return Arrival::next;
    if (ahead > most_ahead && !agrees_with_refused(number, most_ahead)) return Arrival::refused;
    const std::uint32_t begin = next_;
    next_ = number;
    return open_gap({begin, number, now, wait, true});
  }

  // Everything before it has arrived or is lost.
  std::uint32_t settled() const { return open_.empty() ? next_ : open_.front().begin; }

  // When the window of the oldest gap ends; kNever: there is no gap.
  Time due(Time least_rtt, Time srtt) const {
    if (open_.empty()) return kNever;
    const Gap& oldest = open_.front();
    return oldest.since + std::max(window_.length(least_rtt, srtt), oldest.wait);
  }

  struct GivenUp {
    bool by_probe = false;  // a gap that a probe on another path named
    bool by_packet = false;
  };

  // Gives up the gaps whose window has ended.
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

  struct Gap {  // numbers [begin, end), missing since then
    std::uint32_t begin = 0, end = 0;
    Time since = 0;
    Time wait = 0;       // at least
    bool named = false;  // by a probe on another path

    std::uint32_t size() const { return (end - begin) & LAB_NUMBER_MASK; }
    bool holds(std::uint32_t number) const { return ((number - begin) & LAB_NUMBER_MASK) < size(); }
  };

  // Of an outage all numbers may be so far ahead: two that agree are taken, if none that was
  // expected comes between them.
  bool agrees_with_refused(std::uint32_t number, std::uint32_t most_ahead) {
    const std::uint32_t since = (number - refused_) & LAB_NUMBER_MASK;
    const bool agrees = has_refused_ && since != 0 && since <= most_ahead;
    has_refused_ = !agrees;
    refused_ = number;
    return agrees;
  }

  // Two packets in a row that agree are further behind than can be in flight: what led so far ahead
  // was no packet of the sender's. What was lost meanwhile, the bitmaps of messages tell.
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

  // Takes the number out of the gap that holds it; false: none does.
  bool take(std::uint32_t number, Time now, Time least_rtt) {
    for (auto gap = open_.begin(); gap != open_.end(); ++gap) {
      if (!gap->holds(number)) continue;
      Gap rest = *gap;
      rest.begin = (number + 1) & LAB_NUMBER_MASK;
      // The path still brings what the probe overtook.
      if (rest.named) rest.since = std::max(rest.since, now + least_rtt / 4 - rest.wait);
      gap->end = number;
      const auto after = gap->size() == 0 ? open_.erase(gap) : gap + 1;
      if (rest.size() != 0) open_.insert(after, rest);
      return true;
    }
    return false;
  }

  // Gives up the gaps before this number that no probe named.
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
      // Trimmed packets overtake others. These do not overtake each other if the path is FIFO.
      const bool is_fifo = window_.length(least_rtt, srtt) == 0;
      return is_fifo && give_up_before(number) ? Arrival::loss : Arrival::reordered;
    }
    for (Gap& gap : lost_) {
      if (!gap.holds(number)) continue;
      --lost_count_.packets;
      lost_count_.bursts -= gap.size() == 1;
      gap.begin = (number + 1) & LAB_NUMBER_MASK;  // later copies of it prove nothing
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
  std::array<Gap, 4> lost_{};  // the newest that were given up
  std::uint32_t newest_lost_ = 0;
  LossCount lost_count_;
};

}  // namespace softroce
