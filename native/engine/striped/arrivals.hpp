// SPDX-License-Identifier: GPL-2.0-or-later
// What a receiver that detects losses by path numbers keeps of a peer.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "path_sequence.hpp"
#include "paths.hpp"

namespace softroce {

// How long the newest packet on a path took, by its stamp: to compare paths with.
struct PathDelay {
  std::uint32_t stamp_ns = 0;
  std::uint32_t delay_ns = 0;
  bool known = false;
  bool marked = false;  // it met a queue (ECN)
};

struct Arrivals {
  std::vector<PathSequence> paths;
  std::array<PathDelay, kMaxPaths> delays{};
  Time least_rtt = 0;    // of those that the peer measured; 0 unknown
  Time gap_at = kNever;  // the timer that is armed for the oldest gap

  LossCount lost() const {  // on all paths
    LossCount all;
    for (const PathSequence& path : paths) {
      all.packets += path.lost().packets;
      all.bursts += path.lost().bursts;
    }
    return all;
  }

  // What has been lost for a round trip at least: a packet that was taken for lost may come by
  // then.
  LossCount confirmed_lost(Time now, Time srtt) {
    const LossCount all = lost();
    if (now - counted_at >= srtt) {
      confirmed = std::exchange(counted, all);
      counted_at = now;
    }
    return static_cast<std::int32_t>(all.packets - confirmed.packets) < 0 ? all : confirmed;
  }

  LossCount counted, confirmed;  // `lost` at `counted_at`, and when that was counted before
  Time counted_at = 0;

  std::vector<std::uint32_t> unfinished;  // ids below `end` that are not over, ascending
  std::uint32_t end = 0;                  // the newest id that began, and one
  std::uint32_t losses_end = 0;           // `end` when something was lost last
  std::uint32_t probed_end = 0;           // the next id of the sender, by its newest probe

  ReorderingWindow between_paths;  // how much later than a probe what it names may come elsewhere

  std::vector<PathNumber> trimmed;  // packets that arrived trimmed since the last NACK
  std::uint32_t nack_from = 0;      // the unfinished message that NACKs begin with
  std::uint16_t newest_probe = 0;   // its sequence number, the lower 16 bits
  std::uint8_t nack_flags = 0;
  std::uint8_t nack_copies = 0;
  bool nack_queued = false;
};

}  // namespace softroce
