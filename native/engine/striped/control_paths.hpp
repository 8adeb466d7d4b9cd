// SPDX-License-Identifier: GPL-2.0-or-later
// What becomes of control packets on each path: control messages and receiver reports. Nothing
// acknowledges them. So whoever receives them counts them, and its path probes tell the counts.
// A path is dead if several control packets left, and none of them has arrived when one that left
// later on another path has.
#pragma once

#include <array>
#include <cstdint>

#include "../../../xdp/lab_wire.h"
#include "../units.hpp"
#include "paths.hpp"

namespace softroce {

inline bool is_control(std::uint8_t kind) {
  return kind == LAB_KIND_CONTROL || kind == LAB_KIND_REPORT;
}

using ControlCounts = std::array<std::uint8_t, kMaxPaths>;  // arrivals by path, modulo 256

class ControlPaths {
 public:
  // ---- of what arrives
  void arrived(std::uint8_t path) { ++arrived_[path]; }
  // The same of a packet that its sender numbers; the numbers skipped are missing.
  void arrived(std::uint8_t path, std::uint32_t number) {
    arrived(path);
    const auto ahead = static_cast<std::int32_t>(number - next_);
    if (ahead < 0) {
      missing_ -= missing_ != 0;  // it was only late
      return;
    }
    missing_ += static_cast<std::uint32_t>(ahead);
    next_ = number + 1;
  }
  const ControlCounts& counts() const { return arrived_; }
  // Whether the sender of control packets should soon learn what arrives.
  bool misses_many() const { return missing_ >= kMissing; }
  void told() { missing_ = 0; }

  // ---- of what leaves
  // `on_trial`: the path tries a port that was dead before.
  void sent(std::uint8_t path, bool on_trial, Time now) {
    Unshown& unshown = unshown_[path];
    if (unshown.packets < kAmbiguous) ++unshown.packets;
    if (unshown.packets == (on_trial ? 1U : kDeadAfter)) unshown.enough_at = now;
  }
  // The path has another port.
  void begin(std::uint8_t path) {
    unshown_[path].packets = 0;
    unshown_[path].enough_at = kNever;
  }
  // Packets that left on the path since a probe last showed an arrival there.
  std::uint32_t unshown(std::uint8_t path) const { return unshown_[path].packets; }
  // A probe tells these counts. Returns dead paths, by bits. `newest_at`: when the newest control
  // packet left that had arrived by then. `slack`: by how much paths may differ.
  std::uint32_t shown(const ControlCounts& counts, Time newest_at, Time slack) {
    std::uint32_t dead = 0;
    bool any_arrived = false;
    for (std::uint8_t path = 0; path < kMaxPaths; ++path) {
      Unshown& unshown = unshown_[path];
      const bool has_arrived = counts[path] != unshown.count;
      any_arrived |= has_arrived;
      // So many that 256 of them may have arrived count from here on.
      if (has_arrived || unshown.packets == kAmbiguous) begin(path);
      unshown.count = counts[path];
      dead |= std::uint32_t{newest_at - unshown.enough_at >= slack} << path;
    }
    return any_arrived ? dead : 0;
  }

 private:
  static constexpr std::uint32_t kDeadAfter = 3;    // packets in a row: all lose some
  static constexpr std::uint32_t kMissing = 3;      // packets, of all paths
  static constexpr std::uint32_t kAmbiguous = 128;  // packets; others were on their way before

  struct Unshown {           // since a probe last showed an arrival
    std::uint8_t count = 0;  // by that probe
    std::uint8_t packets = 0;
    Time enough_at = kNever;  // when enough packets to tell a dead path had left
  };

  ControlCounts arrived_{};
  std::uint32_t next_ = 0;
  std::uint32_t missing_ = 0;  // since the last probe told what arrived
  std::array<Unshown, kMaxPaths> unshown_{};
};

}  // namespace softroce
