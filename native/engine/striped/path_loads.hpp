// SPDX-License-Identifier: GPL-2.0-or-later
// Data packets on their way to a peer, by path: where flows collide, a path has a queue, and so
// more of them. And losses on the path in a row: a path on which all is lost looks empty.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "../units.hpp"
#include "paths.hpp"

namespace softroce {

class PathLoads {
 public:
  std::uint32_t of(std::uint8_t path) const { return on_way_[path]; }

  void sent(std::uint8_t path) { ++on_way_[path]; }
  // By the peer's reports, or its NACKs. A packet that was taken for lost may arrive: then the path
  // has fewer than none, which is none.
  void left(std::uint8_t path, std::uint32_t packets) {
    on_way_[path] -= std::min(on_way_[path], packets);
  }
  bool none() const {
    return std::ranges::all_of(on_way_, [](std::uint32_t packets) { return packets == 0; });
  }
  void clear() { on_way_.fill(0); }

  // Losses on the path since a packet was last known to have arrived there.
  std::uint32_t lost_in_row(std::uint8_t path) const { return lost_in_row_[path]; }
  void lost(std::uint8_t path) { ++lost_in_row_[path]; }
  void arrived(std::uint8_t path) { lost_in_row_[path] = 0; }

  // A packet was marked there: until then the path counts as if three times as many were on it.
  void marked(std::uint8_t path, Time until) { marked_until_[path] = until; }
  std::uint32_t with_marks(std::uint8_t path, Time now) const {
    return marked_until_[path] > now ? 3 * on_way_[path] + 1 : on_way_[path];
  }

 private:
  std::array<std::uint32_t, kMaxPaths> on_way_{}, lost_in_row_{};
  std::array<Time, kMaxPaths> marked_until_{};
};

}  // namespace softroce
