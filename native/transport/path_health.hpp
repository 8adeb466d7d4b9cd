// SPDX-License-Identifier: GPL-2.0-or-later
// Which paths to a peer lose more than the others, so that a grey link is left. This project's
// definition (docs/explanation/csa-ud.md, Paths).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "../engine/striped/paths.hpp"

namespace softroce {

class PathHealth {
 public:
  explicit PathHealth(std::uint32_t paths) : paths_(paths) {}

  // So many packets have been sent on each path since the beginning, modulo 2^32.
  void note_sent(const std::array<std::uint32_t, kMaxPaths>& counts) {
    double total = 0;
    for (std::uint32_t p = 0; p < paths_; ++p) {
      sent_[p] += static_cast<double>(counts[p] - counts_[p]);
      counts_[p] = counts[p];
      total += sent_[p];
    }
    if (total <= kMemoryPackets) return;
    for (std::uint32_t p = 0; p < paths_; ++p) {  // older evidence fades
      sent_[p] *= kMemoryPackets / total;
      lost_[p] *= kMemoryPackets / total;
    }
  }

  void note_lost(std::uint8_t path) {
    if (path < paths_) lost_[path] += 1;
  }

  // The paths that are to get another source port: those that lost three times what their share of
  // the packets would lose at the rate of the best quarter of the paths, and more than two packets
  // beyond that. Half of the paths may be bad. What is known of them is forgotten.
  std::vector<std::uint8_t> leave() {
    std::array<double, kMaxPaths> rates{};
    for (std::uint32_t p = 0; p < paths_; ++p) rates[p] = lost_[p] / std::max(sent_[p], 1.0);
    std::sort(rates.begin(), rates.begin() + paths_);
    const std::uint32_t quarter = std::max(paths_ / 4, 1U);
    double best = 0;
    for (std::uint32_t p = 0; p < quarter; ++p) best += rates[p];
    best /= quarter;
    std::vector<std::uint8_t> suspected;
    for (std::uint32_t p = 0; p < paths_; ++p)
      if (lost_[p] > 3 * best * sent_[p] + kLeastExcess)
        suspected.push_back(static_cast<std::uint8_t>(p));
    if (suspected.size() == paths_) return {};
    for (const std::uint8_t p : suspected) {
      ++left_[p];
      sent_[p] = lost_[p] = 0;
    }
    return suspected;
  }

  std::vector<std::int64_t> left() const {  // how often each path was
    return {left_.begin(), left_.begin() + paths_};
  }

 private:
  static constexpr double kMemoryPackets = 4096;
  static constexpr double kLeastExcess = 2;

  std::uint32_t paths_;
  std::array<std::uint32_t, kMaxPaths> counts_{};
  std::array<double, kMaxPaths> sent_{}, lost_{};
  std::array<std::int64_t, kMaxPaths> left_{};
};

}  // namespace softroce
