// SPDX-License-Identifier: GPL-2.0-or-later
// When a packet may be sent to a peer: the congestion window, the peer's credit, pacing; and what
// reports, echoes and CNPs from there change in that.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine_state.hpp"
#include "report.hpp"

namespace softroce {

class FlowControl {
 public:
  explicit FlowControl(EngineState& state)
      : state_(state), notifies_(sends_cnps(state.config.congestion_control)) {}

  static std::uint64_t window(const Peer& peer) {  // of packets in flight
    return std::min(
        {peer.congestion->window_packets(), peer.credit_packets, peer.flight.capacity()});
  }
  bool window_closed(const Peer& peer) const { return peer.flight.in_flight() >= window(peer); }
  bool may_send(const Peer& peer, Time now) const {
    return !window_closed(peer) && peer.congestion->next_send() <= now;
  }
  void wait_to_send(Peer& peer, Time now);  // arms the timer that ends the wait
  // Why a window is closed that has packets of the peer in flight.
  Stop why_full(const Peer& peer) const {
    const Time empty = std::min(peer.rtt.least, state_.base_rtt);
    return waits_in_queues(peer.rtt.srtt, empty) ? Stop::queue : Stop::window;
  }
  StoppedFlow flow_to(const Peer& peer) const {
    const bool of_messages = state_.reacting != nullptr && state_.keeps_to_one_path();
    return {.destination = static_cast<std::uint32_t>(peer.address.gid.low),
            .source_port = static_cast<std::uint16_t>(LAB_UDP_SPORT_BASE + peer.last_path),
            .has_one_path = of_messages || peer.schedule.paths() == 1};
  }

  // Each returns whether more may be sent than before.
  bool handle_report(Peer& peer, const Packet& packet, Time now);
  bool persist_fired(Peer& peer, Time armed_for, Time now);
  bool pace_fired(Peer& peer, Time armed_for);

  bool handle_cnp(const Packet& packet, Time now);  // false: no flow matches
  // A transport's acknowledgement of the packet with that stamp, or its notice that the packet was
  // trimmed. False: no packet had the stamp.
  bool echoed(Peer& peer, std::uint32_t stamp_ns, Time now);
  bool trimmed(Peer& peer, std::uint32_t stamp_ns, Time now);
  // The packet that was sent at that time was trimmed.
  static void note_trimmed(Peer& peer, std::int64_t sent_ns, Time now) {
    peer.flight.gone(sent_ns);
    peer.congestion->on_trimmed(now);
  }

  const RttEstimate& rtt_of_all() const { return rtt_of_all_; }
  // Of packets to the peer if enough are known, else to all peers.
  const LossEstimate& loss_to(const Peer& peer) const {
    return peer.loss.seen() >= kKnownPackets ? peer.loss : loss_of_all_;
  }

 private:
  struct Echo {  // send times of arrived packets, from a report
    std::int64_t newest_ns = -1;
    Time rtt = 0;
    bool overtaken = false;  // by a newer report
  };
  // False: the report contradicts what was sent.
  bool read_echo(const Peer& peer, const Report& report, Time now, Echo& echo) const;
  bool read_channel_echo(const Peer& peer, const Report& report, Time now, Echo& echo) const;
  bool refuse_report();
  void note_losses(Peer& peer, const Report& report);
  void arm_persist(Peer& peer, Time now);
  Stop why_stopped(const Peer& peer) const;

  EngineState& state_;
  static constexpr std::uint64_t kKnownPackets = 10'000;

  RttEstimate rtt_of_all_;  // by the reports of all peers
  LossEstimate loss_of_all_;
  bool notifies_;  // receivers, of congestion marks
};

}  // namespace softroce
