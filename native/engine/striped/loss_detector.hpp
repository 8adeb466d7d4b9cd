// SPDX-License-Identifier: GPL-2.0-or-later
// The receiver's part of recovery by path numbers: it finds losses packet by packet and sends
// NACKs, at once, one for all that a turn of the engine brings.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine_state.hpp"
#include "nack.hpp"

namespace softroce {

class LossDetector {
 public:
  LossDetector(EngineState& state, Pool<ReceiveMessage, kReceiveTag>& messages)
      : state_(state), messages_(messages) {}

  bool works() const { return state_.config.path_probes; }

  // A numbered packet, whatever becomes of it. `payload_lost`: it was trimmed, or refused.
  void arrived(Peer& peer, std::uint8_t path, std::uint32_t number, bool payload_lost, Time now);
  void handle_probe(Peer& peer, const Packet& packet, Time now);
  void note_loss(Peer& peer, std::uint8_t flags, std::uint8_t copies);  // to be NACKed
  void gap_fired(Peer& peer, Time armed_for, Time now);

  void begun(Peer& peer, std::uint32_t id);
  void over(Peer& peer, std::uint32_t id);

  bool has_packet() const { return !nacks_.empty(); }
  bool poll_nack(Packet& packet, Time now);

 private:
  Arrivals& arrivals_of(Peer& peer);
  static void forget(Arrivals& arrivals, std::uint32_t id);
  void arm(Peer& peer, Arrivals& arrivals, Time now);
  void fill_nack(Peer& peer, Arrivals& arrivals);
  const ReceiveMessage* open_message(Peer& peer, std::uint32_t id);
  void put_message(std::uint32_t id, const ReceiveMessage* message, std::size_t room);
  Time srtt_of(const Peer& peer) const;

  EngineState& state_;
  Pool<ReceiveMessage, kReceiveTag>& messages_;
  ReorderingWindow newest_window_;  // which new paths and peers begin with
  std::deque<PeerIndex> nacks_;
  Nack nack_;  // the one that leaves
  std::vector<std::uint8_t> body_;
};

}  // namespace softroce
