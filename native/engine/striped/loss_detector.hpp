// SPDX-License-Identifier: GPL-2.0-or-later
// The receiver's part of recovery by path numbers (docs/explanation/csa-ud.md). Each arriving
// packet may reveal losses. One NACK, which leaves at the end of the engine's turn, names all of
// them.
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

  bool is_enabled() const { return state_.config.path_probes; }

  // Notes the path number of any packet that has one, also of duplicates and of trimmed packets.
  void arrived(Peer& peer, const Packet& packet, Time now);
  // Returns a bit for each path on which control packets to the peer are lost.
  std::uint32_t handle_probe(Peer& peer, const Packet& packet, Time now);
  // Queues a NACK with these flags. The NACK is sent `copies` times.
  void note_loss(Peer& peer, std::uint8_t flags, std::uint8_t copies);
  void gap_fired(Peer& peer, Time armed_for, Time now);  // the timer of the oldest gap

  // The first packet of message `id` has arrived.
  void note_begun(Peer& peer, std::uint32_t id);
  // Message `id` is complete or has failed: NACKs do not list it any more.
  void note_over(Peer& peer, std::uint32_t id);

  bool has_packet() const { return !nacks_.empty(); }
  bool poll_nack(Packet& packet, Time now);

 private:
  Arrivals& arrivals_of(Peer& peer);
  bool repeat_acknowledgements(Peer& peer, std::uint32_t oldest, Time now);
  bool note_number(Peer& peer, const Packet& packet, Time now);
  bool shows_loss(Peer& peer, Arrivals& arrivals, PathSequence& sequence,
                  PathSequence::Arrival arrival, Time now);
  void note_probed(Peer& peer, const PathNumber& other, std::uint8_t path, Time now);
  Time wait_for(const Peer& peer, std::uint8_t other, std::uint8_t path) const;
  std::uint32_t most_ahead() const;
  std::size_t most_trimmed() const;
  static bool has_open_losses(const Arrivals& arrivals);
  static bool has_all_probed(const Arrivals& arrivals);
  void arm_gap_timer(Peer& peer, Arrivals& arrivals, Time now);
  void fill_nack(Peer& peer, Arrivals& arrivals, Time now);
  void note_nack(const Peer& peer, const ReceiveMessage& message, std::size_t begin, Time now);
  const ReceiveMessage* open_message(Peer& peer, std::uint32_t id);
  void put_message(std::uint32_t id, const ReceiveMessage* message, std::size_t room);

  EngineState& state_;
  Reporter& reporter_;
  Pool<ReceiveMessage, kReceiveTag>& messages_;
  ReorderingWindow newest_window_;   // with which the paths of a new peer begin
  ReorderingWindow newest_between_;  // with which the wait behind probes of a new peer begins
  std::uint32_t lost_packets_ = 0;   // of all peers; those that arrived after all do not count
  std::deque<PeerIndex> nacks_;      // peers to whom a NACK is queued
  Nack nack_;                        // the NACK that is being sent,
  std::vector<std::uint8_t> body_;   // and its body
  Probe probe_;                      // the probe that is being handled
};

}  // namespace softroce
