// SPDX-License-Identifier: GPL-2.0-or-later
// What a receiver reports to senders: packets that arrived (receiver reports), and congestion marks
// (CNPs).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "active_peers.hpp"
#include "engine_state.hpp"

namespace softroce {

class Reporter {
 public:
  explicit Reporter(EngineState& state)
      : state_(state),
        notifies_(sends_cnps(state.config.congestion_control)),
        joins_(state.joins_reports()),
        is_nscc_(state.config.congestion_control == "nscc"),
        packets_of_a_report_(most_unreported(state.config.receive_ring_packets)),
        // A window of these may be a packet or two, which the receiver does not know.
        delays_(joins_ && !is_nscc_ && state.config.congestion_control != "swift"),
        credit_(state.config.receive_ring_packets) {}

  void set_credit(std::uint32_t free_frames) { credit_ = free_frames; }
  void note_arrival(Peer& peer, const Packet& packet, Time now);
  void report_fired(Peer& peer, Time armed_for);

  bool has_packet() const { return !reports_.empty() || !cnps_.empty(); }
  bool poll_cnp(Packet& packet);
  bool poll_report(Packet& packet, Time now);
  // What is to be reported goes with a control message, behind its body, if that leaves room: of
  // endpoints that number paths.
  void append_report(Peer& peer, std::vector<std::uint8_t>& body, std::size_t most, Time now);

 private:
  static bool has_news_of_credit(const Peer& peer);
  void note_stamps(Peer& peer, const LabHeader& lab, Time now);
  void queue_report(Peer& peer);
  void put_report(Peer& peer, Packet& packet, Time now);
  void fill_report(Peer& peer, Time now);
  std::uint32_t most_unreported(std::uint32_t credit) const;
  Time report_delay(const Peer& peer) const;
  Time report_due_at(const Peer& peer, Time since) const;
  void measure_rate(Peer& peer);
  LossCount lost_from(Peer& peer, Time now) const;
  std::uint32_t credit_for(Peer& peer, Time now);
  void notify_congestion(Peer& peer, Time now);

  EngineState& state_;
  const bool notifies_;                      // senders, of congestion marks
  const bool joins_;                         // reports with other messages
  const bool is_nscc_;                       // reports are small and soon, and name marked paths
  const std::uint32_t packets_of_a_report_;  // before the first one
  const bool delays_;  // what is to be reported, for other messages to take it
  std::uint32_t credit_;
  ActivePeers active_;
  std::deque<PeerIndex> reports_;
  std::deque<PeerIndex> cnps_;
  std::vector<std::uint8_t> body_;  // of the report just polled
};

}  // namespace softroce
