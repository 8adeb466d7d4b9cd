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
#include "probe.hpp"
#include "reporter.hpp"

namespace softroce {

class LossDetector {
 public:
  LossDetector(EngineState& state, Reporter& reporter, Pool<ReceiveMessage, kReceiveTag>& messages)
      : state_(state), reporter_(reporter), messages_(messages) {
    newest_window_.adapts = newest_between_.adapts = state.has(kReorderingWindow);
  }

  bool works() const { return state_.config.path_probes; }

  // A numbered packet, whatever becomes of it. `payload_lost`: it was trimmed, or refused.
  void arrived(Peer& peer, const Packet& packet, bool payload_lost, Time now);
  // Returns the paths, by bits, on which control packets to the peer are lost.
  std::uint32_t handle_probe(Peer& peer, const Packet& packet, Time now);
  void note_loss(Peer& peer, std::uint8_t flags, std::uint8_t copies);  // to be NACKed
  void gap_fired(Peer& peer, Time armed_for, Time now);

  void begun(Peer& peer, std::uint32_t id);
  void over(Peer& peer, std::uint32_t id);

  bool has_packet() const { return !nacks_.empty(); }
  bool poll_nack(Packet& packet, Time now);

 private:
  Arrivals& arrivals_of(Peer& peer);
  bool repeat_outcomes(Peer& peer, std::uint32_t oldest, Time now);
  bool take(Peer& peer, Arrivals& arrivals, PathSequence& sequence, PathSequence::Arrival arrival,
            Time now);
  void named(Peer& peer, const ProbedPath& other, std::uint8_t path, Time now);
  Time wait_for(const Peer& peer, std::uint8_t other, std::uint8_t path) const;
  std::uint32_t most_ahead() const;
  static bool has_open_losses(const Arrivals& arrivals);
  static void forget(Arrivals& arrivals, std::uint32_t id);
  void arm(Peer& peer, Arrivals& arrivals, Time now);
  void fill_nack(Peer& peer, Arrivals& arrivals, Time now);
  void note_nack(const Peer& peer, const ReceiveMessage& message, std::size_t begin, Time now);
  const ReceiveMessage* open_message(Peer& peer, std::uint32_t id);
  void put_message(std::uint32_t id, const ReceiveMessage* message, std::size_t room);
  Time srtt_of(const Peer& peer) const;

  EngineState& state_;
  Reporter& reporter_;
  Pool<ReceiveMessage, kReceiveTag>& messages_;
  ReorderingWindow newest_window_;   // which new paths and peers begin with
  ReorderingWindow newest_between_;  // likewise, between paths
  std::uint32_t lost_packets_ = 0;   // of all peers; those that arrived after all do not count
  std::deque<PeerIndex> nacks_;
  Nack nack_;  // the one that leaves
  std::vector<std::uint8_t> body_;
  Probe probe_;  // the one being handled
};

}  // namespace softroce
