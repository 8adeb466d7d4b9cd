// SPDX-License-Identifier: GPL-2.0-or-later
// A path picker decides which path the next data packet to a peer takes. The option `path_picker`
// of a transport selects the picker (path_picker_option in native/transport/transports.hpp). Rules,
// sources and constants: docs/explanation/transports.md, Path pickers.
//
// Who calls a picker, and when:
//
// - The sender calls `pick` for a packet that leaves for the first time and `pick_again` for a
//   retransmission. If a transport keeps retransmissions on their path, `pick_again` is not called.
// - Sender::retransmit tells the picker why a session retransmits a packet: `lost` for
//   RetransmitReason::nak, `timed_out` for RetransmitReason::timeout.
// - The session calls `acked` or `trimmed` once for each packet that its peer reports
//   (MessageEngine::path_picker).
//
// Paths are numbered from 0. `now` is the engine's time; no picker reads a clock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../units.hpp"
#include "path_loads.hpp"
#include "paths.hpp"
#include "rtt_estimate.hpp"

namespace softroce {

class PathPicker {
 public:
  virtual ~PathPicker() = default;

  virtual std::uint8_t pick(Time now) = 0;
  virtual std::uint8_t pick_again(std::uint8_t /*lost_on*/, Time now) { return pick(now); }

  // A packet on the path has arrived. `marked`: with a congestion mark (ECN CE).
  virtual void acked(std::uint8_t /*path*/, bool /*marked*/, Time /*now*/) {}
  // A switch cut the payload off. `last_hop`: it was the switch before the receiver. Then the path
  // is not to blame, and the packet counts as acknowledged (htsim, uec.cpp, processNack).
  void trimmed(std::uint8_t path, bool last_hop, Time now) {
    last_hop ? acked(path, false, now) : nacked(path, now);
  }
  // What arrived after the packet shows that the packet is lost.
  virtual void lost(std::uint8_t /*path*/, Time /*now*/) {}
  // Nothing was heard of the packet until its timer ended.
  virtual void timed_out(std::uint8_t /*path*/, Time /*now*/) {}

 protected:
  virtual void nacked(std::uint8_t /*path*/, Time /*now*/) {}
};

// What a picker reads of the peer, which outlives it.
struct PathsOfPeer {
  PathSchedule& schedule;  // round robin, which control packets advance, too
  PathLoads& loads;
  const RttEstimate& rtt;
};

// With this picker all packets of a message take one path: the next in turn.
inline constexpr std::string_view kPickPerMessage = "per-message";
inline constexpr std::string_view kPickTurns = "turns", kPickLeastInFlight = "least-in-flight";

const std::vector<std::string>& path_picker_names();
// Whether the picker heeds the marks of acknowledged packets.
bool heeds_marks(std::string_view picker);
// Throws std::invalid_argument if the name is unknown; the message lists the known ones. `seed`:
// the same one draws the same random paths.
std::unique_ptr<PathPicker> make_path_picker(std::string_view name, const PathsOfPeer& of,
                                             std::uint64_t seed);

}  // namespace softroce
