// SPDX-License-Identifier: GPL-2.0-or-later
// Which path the next packet takes: weighted round robin, smooth (no bursts on one path).
#pragma once

#include <array>
#include <cstdint>

#include "../../../xdp/lab_wire.h"

namespace softroce {

inline constexpr std::uint32_t kMaxPaths = 16;
inline constexpr std::uint8_t kAnyPath = UINT8_MAX;

// A number on a path. On the wire: path u8, number u24.
struct PathNumber {
  std::uint8_t path = 0;
  std::uint32_t number = 0;
  bool operator==(const PathNumber&) const = default;

  static PathNumber of_word(std::uint32_t word) {
    return {static_cast<std::uint8_t>(word >> LAB_NUMBER_BITS), word & LAB_NUMBER_MASK};
  }
  std::uint32_t word() const { return std::uint32_t{path} << LAB_NUMBER_BITS | number; }
};

// Whether a number on a path is before another one of it (RFC 1982).
inline bool is_before_number(std::uint32_t number, std::uint32_t other) {
  return ((other - number - 1) & LAB_NUMBER_MASK) >> (LAB_NUMBER_BITS - 1) == 0;
}

// The source port of each path. One on which everything is lost gets another one, so that flow
// hashing takes it elsewhere: of path p they are p, p + 16, p + 32 and so on.
class PathPorts {
 public:
  PathPorts() {
    for (std::uint32_t p = 0; p < kMaxPaths; ++p) ports_[p] = static_cast<std::uint8_t>(p);
  }

  std::uint8_t of(std::uint8_t path) const { return ports_[path]; }
  bool is_first(std::uint8_t path) const { return ports_[path] == path; }
  void move(std::uint8_t path) {
    const std::uint8_t next = tries_first(path) ? spare_[path] : of(path) + kMaxPaths;
    tried_ &= ~(1U << path);
    ports_[path] = next;
  }
  // It may carry again: until the path moves, which takes it back to its present port.
  void try_first(std::uint8_t path) {
    spare_[path] = of(path);
    ports_[path] = path;
    tried_ |= 1U << path;
  }
  bool tries_first(std::uint8_t path) const { return (tried_ >> path & 1) != 0; }
  static std::uint8_t path_of(std::uint8_t port) { return port % kMaxPaths; }

 private:
  std::array<std::uint8_t, kMaxPaths> ports_;    // less LAB_UDP_SPORT_BASE
  std::array<std::uint8_t, kMaxPaths> spare_{};  // of those that try their first port
  std::uint32_t tried_ = 0;                      // paths that do, by bits
};

class PathSchedule {
 public:
  explicit PathSchedule(std::uint32_t paths) : paths_(paths) {}

  std::uint32_t paths() const { return paths_; }

  // Shares of the paths; a path of weight 0 is not used while another one has any.
  void set_weights(const std::array<std::uint16_t, kMaxPaths>& weights) {
    for (std::uint32_t p = 0; p < kMaxPaths; ++p) shares_[p].weight = weights[p];
  }

  // Every path gains its weight, the leader is taken and pays the sum: over any stretch each path
  // is used in proportion, spread as evenly as can be.
  std::uint8_t next() {
    std::int32_t sum = 0;
    std::uint32_t best = 0;
    for (std::uint32_t p = 0; p < paths_; ++p) {
      shares_[p].current += shares_[p].weight;
      sum += shares_[p].weight;
      if (shares_[p].current > shares_[best].current) best = p;
    }
    shares_[best].current -= sum;
    return static_cast<std::uint8_t>(best);
  }

  // The path of a retransmit: another one than that which lost the packet, if there is another.
  std::uint8_t next_other(std::uint8_t lost_on) {
    const std::uint8_t path = next();
    return path != lost_on ? path : next();
  }

 private:
  struct Share {
    std::int32_t current = 0, weight = 1;
  };
  std::uint32_t paths_;
  std::array<Share, kMaxPaths> shares_;
};

}  // namespace softroce
