// SPDX-License-Identifier: GPL-2.0-or-later
// Repair times [D]: from the drop of a packet's first transmission until its payload is at the
// receiver, by whichever transmission. Only packets that were dropped cost anything.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "../../xdp/lab_hash.h"
#include "../engine/units.hpp"

namespace softroce::sim {

enum class DropCause : std::uint8_t { rule, link_down, full_queue, trimmed, corrupted, no_route };

// A data packet, whatever transmission of it: of a striped message by message id and index, of a
// connected queue pair by the destination's number and PSN.
struct PacketName {
  std::uint32_t source = 0, destination = 0;  // addresses
  std::uint32_t first = 0, second = 0;
  bool striped = false;

  bool operator==(const PacketName&) const = default;
};

// What does not apply is 0.
struct Repair {
  std::int64_t dropped_ns = 0;                // since the run began
  std::int64_t arrived_ns = -1;               // -1: never
  std::uint32_t source = 0, destination = 0;  // IPv4 addresses
  std::uint32_t message = 0, index = 0;       // of striped messages, as `operation` and `step`
  std::uint32_t qpn = 0, psn = 0;             // of queue pairs of RC
  std::uint16_t operation = 0, step = 0;
  DropCause cause{};
  std::uint8_t unused[3]{};
};

class Repairs {
 public:
  // False: its payload is awaited already.
  bool dropped(const PacketName& name, const Repair& repair) {
    const auto [awaited, fresh] = awaited_.try_emplace(name, kNotRecorded);
    if (!fresh) return false;
    if (records_.size() >= kMostRecords) {
      ++not_recorded_;
      return true;
    }
    awaited->second = static_cast<std::uint32_t>(records_.size());
    records_.push_back(repair);
    return true;
  }
  bool awaits(const PacketName& name) const { return awaited_.contains(name); }
  void arrived(const PacketName& name, Time now) {
    const auto found = awaited_.find(name);
    if (found->second != kNotRecorded) records_[found->second].arrived_ns = now / kNanosecond;
    awaited_.erase(found);
  }

  const std::vector<Repair>& records() const { return records_; }  // in the order of the drops
  std::uint64_t not_recorded() const { return not_recorded_; }

 private:
  static constexpr std::size_t kMostRecords = 1 << 20;  // 48 MiB
  static constexpr std::uint32_t kNotRecorded = UINT32_MAX;

  struct Hash {
    std::size_t operator()(const PacketName& name) const {
      const std::uint64_t ends = std::uint64_t{name.source} << 32 | name.destination;
      return lab_absorb(lab_mix64(ends), std::uint64_t{name.first} << 32 | name.second);
    }
  };

  std::unordered_map<PacketName, std::uint32_t, Hash> awaited_;  // their records
  std::vector<Repair> records_;
  std::uint64_t not_recorded_ = 0;
};

// Packets that a link duplicated: one is lost when its last copy is, and none has arrived.
class Copies {
 public:
  // `number` of a packet that becomes two: 0, if it was one.
  void duplicate(std::uint32_t& number) {
    if (number == 0) number = acquire();
    ++entries_[number - 1].left;
  }
  // One of them has arrived, or is lost. True: the last one, so that the number is free.
  bool resolve(std::uint32_t number, bool has_arrived, bool& all_lost) {
    Entry& entry = entries_[number - 1];
    entry.arrived |= has_arrived;
    --entry.left;
    all_lost = entry.left == 0 && !entry.arrived;
    if (entry.left != 0) return false;
    free_.push_back(number);
    return true;
  }

 private:
  struct Entry {
    std::uint32_t left = 0;
    bool arrived = false;
  };
  std::uint32_t acquire() {
    if (free_.empty()) {
      entries_.push_back({.left = 1});
      return static_cast<std::uint32_t>(entries_.size());
    }
    const std::uint32_t number = free_.back();
    free_.pop_back();
    entries_[number - 1] = {.left = 1};
    return number;
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
};

}  // namespace softroce::sim
