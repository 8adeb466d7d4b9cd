// SPDX-License-Identifier: GPL-2.0-or-later
// What a receiver that detects losses by path numbers keeps of a peer.
#pragma once

#include <cstdint>
#include <vector>

#include "path_sequence.hpp"

namespace softroce {

struct Arrivals {
  std::vector<PathSequence> paths;
  Time least_rtt = 0;    // of those that the peer measured; 0 unknown
  Time gap_at = kNever;  // the timer that is armed for the oldest gap

  std::vector<std::uint32_t> unfinished;  // ids below `end` that are not over, ascending
  std::uint32_t end = 0;                  // the newest id that began, and one
  bool losses_open = false;               // something was lost, and not all is over since

  ReorderingWindow between_paths;  // how much later than a probe what it names may come elsewhere

  std::uint32_t nack_from = 0;  // the unfinished message that NACKs begin with
  std::uint8_t nack_flags = 0;
  std::uint8_t nack_copies = 0;
  bool nack_queued = false;
};

}  // namespace softroce
