// SPDX-License-Identifier: GPL-2.0-or-later
// Control messages on their way out: of sessions, and clearances.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "../ring.hpp"
#include "engine_state.hpp"
#include "reporter.hpp"

namespace softroce {

class ControlQueue {
 public:
  ControlQueue(EngineState& state, Reporter& reporter) : state_(state), reporter_(reporter) {}

  // False: it finds no room.
  bool push(PeerIndex peer, std::vector<std::uint8_t> body,
            std::uint32_t listener = LAB_CONTROL_POLICY);
  // Feedback on a packet, on that path: nothing is allocated for it. One that finds no room is
  // dropped and counted, as if the network had lost it.
  void push_small(PeerIndex peer, std::uint8_t path, bool marked,
                  std::span<const std::uint8_t> body);

  static constexpr std::size_t kMostSmallBody = 31;

  bool has_packet() const { return !small_.empty() || !queue_.empty(); }
  bool poll_small(Packet& packet, Time now);
  bool poll(Packet& packet, Time now);

 private:
  static constexpr std::size_t kMost = 1 << 12;  // each may hold a whole packet's body
  static constexpr std::size_t kMostSmall = 1 << 16;
  struct Control {
    PeerIndex peer;
    std::vector<std::uint8_t> body;
    std::uint32_t listener;
  };
  struct SmallControl {
    PeerIndex peer;
    std::uint8_t path;
    bool marked;
    std::uint8_t size;
    std::array<std::uint8_t, kMostSmallBody> body;
  };

  void send(Peer& peer, Packet& packet, Time now);  // with `body_`

  EngineState& state_;
  Reporter& reporter_;
  std::deque<Control> queue_;
  Ring<SmallControl> small_;
  std::vector<std::uint8_t> body_;  // of the packet just polled
};

}  // namespace softroce
