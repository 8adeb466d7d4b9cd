// SPDX-License-Identifier: GPL-2.0-or-later
// Memory of one side of a trial: areas between guards, in one allocation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace softroce {

// Areas are asked for first, and have addresses when all are known.
class GuardedArena {
 public:
  static constexpr std::size_t kGuardBytes = 64;

  explicit GuardedArena(std::uint8_t poison) : poison_(poison) {}

  // Returns the number of the area.
  std::size_t add(std::size_t bytes) {
    areas_.push_back({bytes_ + kGuardBytes, bytes});
    bytes_ = areas_.back().offset + (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return areas_.size() - 1;
  }
  void allocate() { memory_.assign(bytes_ + kGuardBytes, poison_); }
  std::span<std::uint8_t> area(std::size_t number) {
    return {memory_.data() + areas_[number].offset, areas_[number].bytes};
  }
  std::span<std::uint8_t> all() { return memory_; }
  // Whether nobody wrote between the areas.
  bool guards_stand() const {
    std::size_t from = 0;
    for (const Area& area : areas_) {
      if (!is_poison(from, area.offset)) return false;
      from = area.offset + area.bytes;
    }
    return is_poison(from, memory_.size());
  }

 private:
  static constexpr std::size_t kAlignment = 8;
  struct Area {
    std::size_t offset, bytes;
  };
  bool is_poison(std::size_t from, std::size_t to) const {
    return std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(from),
                       memory_.begin() + static_cast<std::ptrdiff_t>(to),
                       [this](std::uint8_t byte) { return byte == poison_; });
  }

  std::uint8_t poison_;
  std::size_t bytes_ = 0;
  std::vector<Area> areas_;
  std::vector<std::uint8_t> memory_;
};

}  // namespace softroce
