// SPDX-License-Identifier: GPL-2.0-or-later
// A capture on the virtual clock: packets as they enter links, as frames in pcapng. What is in such
// a file, comments included, is described in docs/howto/capture.md; both clocks write the same.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "../../xdp/lab_fault.h"
#include "../capture/pcapng_writer.hpp"
#include "../engine/units.hpp"
#include "flight.hpp"
#include "link.hpp"

namespace softroce::sim {

struct TappedLink {
  std::uint32_t link;
  std::string name;
};

struct RuleText {
  std::uint32_t rule_id;
  std::string text;
  std::string bad;  // what a gemodel does in its bad state
};

class Tap {
 public:
  // Takes whole blocks of the file, one after the other.
  using Sink = std::function<void(const pcapng::Buffer&)>;

  // Of each packet `snap_bytes`; 0: all.
  Tap(std::vector<TappedLink> links, std::uint32_t snap_bytes, std::vector<RuleText> rules,
      Sink sink);

  // A packet on its way onto a link, and what the link's rules decided.
  void see(const Flight& flight, const Load& load, std::uint32_t number, const Link& link,
           const lab_verdict& verdict, Time now);

  // Ends the file. How many packets there were, by link, in the order given.
  std::vector<std::uint64_t> finish(Time now);

 private:
  static constexpr std::uint32_t kNot = UINT32_MAX;

  void hand_on();
  std::uint32_t interface_of(std::uint32_t link) const {
    return link < interface_of_.size() ? interface_of_[link] : kNot;
  }

  std::vector<std::uint32_t> interface_of_;  // by link; kNot: not captured
  std::vector<std::uint64_t> seen_;          // by interface
  std::unordered_map<std::uint32_t, RuleText> rules_;
  std::uint32_t snap_bytes_;
  Sink sink_;
  pcapng::Buffer pending_;
};

}  // namespace softroce::sim
