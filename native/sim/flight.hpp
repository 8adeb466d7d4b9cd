// SPDX-License-Identifier: GPL-2.0-or-later
// A packet on its way through the simulated fabric: one cache line of what every link and switch
// looks at, and apart from it what only hosts and rules need.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../xdp/lab_fault.h"
#include "../../xdp/lab_route.h"
#include "../engine/codec/packet.hpp"
#include "../engine/prefetch.hpp"
#include "slab.hpp"

namespace softroce::sim {

// An IPv6 address of the lab ends in the IPv4 address.
inline std::uint32_t number_of(const Gid& gid) { return static_cast<std::uint32_t>(gid.low); }

using FlightIndex = std::uint32_t;
using LinkIndex = std::uint32_t;  // directed, as the plan numbers them

inline constexpr std::uint32_t kNowhere = UINT32_MAX;
inline constexpr std::uint8_t kUdp = 17;  // of IP

// The links that a flow's packets take from the first switch on, as long as routes are what they
// are; kNowhere behind them, and where a switch has to route.
inline constexpr std::size_t kPlannedLinks = 9;
using Plan = std::array<LinkIndex, kPlannedLinks>;

struct alignas(64) Flight {
  std::uint32_t link = kNowhere;         // directed link that it is on
  std::uint32_t length = 0;              // of the frame, from the Ethernet header on
  std::uint32_t destination = kNowhere;  // the host port that has its address; kNowhere: none
  std::uint32_t planned_for = 0;         // these routes; else `plan` is out of date
  std::uint8_t ecn = 0;                  // as links marked it (RFC 3168)
  std::uint8_t hop_limit = 0;            // less the switches passed
  std::uint8_t planned_at = 0;           // in `plan`: where it goes from the next switch
  bool corrupted = false;                // the ICRC detects it
  std::uint32_t tie_salt = 0;            // of its source: Fabric::arrive_at
  Plan plan{};
  std::uint32_t ghost_on = kNowhere;  // of a ghost: the link that it is on; kNowhere: at the host

  // Where it goes from the next switch, if that is decided; else kNowhere.
  LinkIndex next() const { return planned_at < kPlannedLinks ? plan[planned_at] : kNowhere; }
};
static_assert(sizeof(Flight) == 64);

struct Load {
  lab_flow flow{};                   // of its IP and UDP headers
  std::uint32_t trimmed_length = 0;  // what trimming would leave; 0: it cannot be trimmed
  bool new_tail = false;             // the last packet of an RC message, and its first transmission
  bool spare = false;                // its loss counts not: a copy of it has arrived, or may yet
  std::uint64_t fate = 0;            // its name in Fates, if these are kept
  std::uint32_t copies = 0;          // of a packet that a link duplicated: its number; 0: none
  Packet packet;
  std::vector<std::uint8_t> bytes;  // its payload, if it carries any
};

// By the fields of the lab's header, which its sender fills in though it may not carry them.
inline lab_identity identity_of(const Load& load) {
  const LabHeader& lab = load.packet.lab;
  return {load.flow.src, load.flow.dst, lab.message,     lab.index,  lab.operation,
          lab.step,      lab.kind,      std::uint8_t{0}, lab.attempt};
}

// Packets in flight, in a pool that grows to their greatest number. They stay where they are.
class Flights {
 public:
  FlightIndex acquire() {
    if (free_.empty()) {
      flights_.emplace_back();
      loads_.emplace_back();
      return static_cast<FlightIndex>(flights_.size() - 1);
    }
    const FlightIndex index = free_.back();
    free_.pop_back();
    return index;
  }
  void release(FlightIndex index) {
    flights_[index].link = kNowhere;
    free_.push_back(index);
  }
  Flight& operator[](FlightIndex index) { return flights_[index]; }
  const Flight& operator[](FlightIndex index) const { return flights_[index]; }
  Load& load(FlightIndex index) { return loads_[index]; }

  void prefetch(FlightIndex index) const { __builtin_prefetch(&flights_[index], 1); }
  void prefetch_load(FlightIndex index) const {
    prefetch_lines(&loads_[index], &loads_[index] + 1);
  }

  template <typename F>
  void for_each(F take) const {
    for (std::size_t each = 0; each < flights_.size(); ++each)
      if (flights_[each].link != kNowhere) take(flights_[each]);
  }

  std::size_t in_flight() const { return flights_.size() - free_.size(); }

 private:
  Slab<Flight> flights_;
  Slab<Load> loads_;
  std::vector<FlightIndex> free_;
};

}  // namespace softroce::sim
