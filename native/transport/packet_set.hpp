// SPDX-License-Identifier: GPL-2.0-or-later
// Missing packets (or chunks) of a message, as SACK and CHUNKS carry them: a base, a number of
// packets from there, and their bits (1 = missing), either plain or as run lengths (LEB128,
// alternating, beginning with a run of missing ones), whichever covers more. A set that does not
// fit is cut at the end: what it does not cover is asked for later.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace softroce {

class PacketSet {
 public:
  static constexpr std::uint32_t kMostBits = 1 << 20;  // bounds what a few bytes of runs make

  PacketSet() = default;
  PacketSet(std::uint32_t base, std::uint32_t count) : base_(base), bits_(count) {}

  std::uint32_t base() const { return base_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(bits_.size()); }
  std::uint64_t end() const { return std::uint64_t{base_} + bits_.size(); }
  bool is_missing(std::uint32_t packet) const {
    return packet >= base_ && packet < end() && bits_[packet - base_];
  }
  void set_missing(std::uint32_t packet) { bits_[packet - base_] = true; }
  std::uint32_t missing() const;                                   // how many
  const std::vector<std::uint8_t>& bits() const { return bits_; }  // a byte each

 private:
  friend void write(const PacketSet& set, std::size_t most_bytes, std::vector<std::uint8_t>& out);
  friend std::optional<PacketSet> read_packet_set(std::span<const std::uint8_t> data);

  std::uint32_t base_ = 0;
  std::vector<std::uint8_t> bits_;  // one byte a bit
};

// Appends the set in at most so many bytes.
void write(const PacketSet& set, std::size_t most_bytes, std::vector<std::uint8_t>& out);

// Nothing: no set has such a form.
std::optional<PacketSet> read_packet_set(std::span<const std::uint8_t> data);

}  // namespace softroce
