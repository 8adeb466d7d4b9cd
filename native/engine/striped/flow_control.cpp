// SPDX-License-Identifier: GPL-2.0-or-later
#include "flow_control.hpp"

#include "../mutant.hpp"

namespace softroce {

Stop FlowControl::why_stopped(const Peer& peer) const {
  if (peer.is_held) return why_full(peer);
  if (!window_closed(peer)) return Stop::congestion_control;  // its pace
  const bool credit_is_less = peer.credit_packets < peer.congestion->window_packets();
  if (credit_is_less && peer.flight.in_flight() >= peer.credit_packets)
    return state_.grants.works() ? Stop::queue : Stop::credit;  // others fill the last link
  if (peer.congestion->window_packets() < state_.config.window_packets)
    return Stop::congestion_control;
  return why_full(peer);
}

void FlowControl::wait_to_send(Peer& peer, Time now) {
  state_.stops.stop(peer.stopped, why_stopped(peer), flow_to(peer));
  if (window_closed(peer)) return arm_persist(peer, now);
  const Time next = peer.congestion->next_send();
  if (peer.pace_at <= next || next <= now) return;  // not now: the session holds the peer
  peer.pace_at = next;
  if (!mutated(Mutant::pace_not_armed)) state_.timers.arm(next, TimerKind::pace, peer.index);
}

// A closed window that no report opens again would be for ever: after this long without an echo,
// what is in flight counts as lost (the session decides about its retransmission). Before the first
// sample of the RTT the path's queues may be full, for all that is known.
void FlowControl::arm_persist(Peer& peer, Time now) {
  if (peer.persist_at != kNever) return;
  const Time usual = peer.rtt.srtt != 0 ? 4 * peer.rtt.srtt : state_.config.rto_high;
  peer.persist_at = now + std::max(usual, state_.config.persist_least);
  if (!mutated(Mutant::persist_not_armed))
    state_.timers.arm(peer.persist_at, TimerKind::persist, peer.index);
}

bool FlowControl::persist_fired(Peer& peer, Time armed_for, Time now) {
  if (peer.persist_at != armed_for) return false;
  peer.persist_at = kNever;
  peer.flight.forgive();
  peer.credit_packets = std::max(peer.credit_packets, 1U);
  state_.counters.add(Counter::window_forgiven);
  peer.congestion->on_timeout(now);
  return true;
}

bool FlowControl::pace_fired(Peer& peer, Time armed_for) {
  if (peer.pace_at != armed_for) return false;
  peer.pace_at = kNever;
  return true;
}

bool FlowControl::handle_report(Peer& peer, const Packet& packet, Time now) {
  Report report;
  if (!read_report(packet.payload, packet.payload_bytes, peer.channels != nullptr, report))
    return refuse_report();
  Echo echo;
  if (!(peer.channels ? read_channel_echo(peer, report, now, echo)
                      : read_echo(peer, report, now, echo)))
    return refuse_report();
  state_.counters.add(Counter::rx_report);
  relaxed_store(peer.last_received_at, now);
  peer.newest.note(packet.lab.stamp_ns, now);
  if (echo.overtaken) return false;
  peer.echoed_ns = echo.newest_ns;
  if (peer.flight.echo(echo.newest_ns)) {
    peer.persist_at = kNever;  // a window that shrank is still closed, but packets arrive
    peer.rtt.sample(echo.rtt);
    rtt_of_all_.sample(echo.rtt);
  }
  peer.credit_packets = report.credit_packets;
  const auto since = [](std::uint32_t newer, std::uint32_t older) {
    return static_cast<std::int32_t>(newer - older) < 0 ? 0 : newer - older;
  };
  peer.congestion->on_report({.rtt = echo.rtt,
                              .delivered_packets = since(report.packets, peer.reported_packets),
                              .ce_packets = since(report.ce_packets, peer.reported_ce),
                              .hops = packet.hops()},
                             now);
  note_losses(peer, report);
  peer.marked = report.ce_packets != peer.reported_ce;
  relaxed_store(peer.reported_packets, report.packets);
  peer.reported_ce = report.ce_packets;
  for (std::uint8_t path = 0; path < report.paths; ++path) {
    const auto arrived = since(report.arrived[path].packets, peer.progress[path].arrived);
    peer.loads.left(path, arrived);
    if (arrived != 0) peer.loads.arrived(path);
    peer.progress[path].note(report.arrived[path].packets, now);
    if ((report.marked_paths >> path & 1) != 0) peer.loads.marked(path, now + peer.rtt.srtt);
  }
  if (peer.flight.in_flight() == 0) peer.loads.clear();
  return true;
}

void FlowControl::note_losses(Peer& peer, const Report& report) {
  const auto lost = static_cast<std::int32_t>(report.lost.packets - peer.reported_lost.packets);
  const auto bursts = static_cast<std::int32_t>(report.lost.bursts - peer.reported_lost.bursts);
  const auto arrived = static_cast<std::int32_t>(report.packets - peer.reported_packets);
  peer.reported_lost = report.lost;
  const std::uint32_t packets = std::uint32_t{0} + std::max(arrived, 0) + std::max(lost, 0);
  peer.loss.note(packets, lost, bursts);
  loss_of_all_.note(packets, lost, bursts);
}

bool FlowControl::refuse_report() {
  state_.counters.add(Counter::rx_bad_report);
  return false;
}

bool FlowControl::read_echo(const Peer& peer, const Report& report, Time now, Echo& echo) const {
  const std::int64_t age_ns = stamp_distance(stamp_of(now), report.echo_stamp_ns);
  echo.newest_ns = now / kNanosecond - age_ns;
  echo.rtt = (age_ns - report.echo_delay_ns) * kNanosecond;
  echo.overtaken = echo.newest_ns < peer.echoed_ns;
  return echo.rtt >= 0 && echo.rtt <= kStampHorizon && echo.newest_ns <= peer.flight.newest_ns();
}

// A report names the newest packets that arrived: of those in flight, the one that was sent last
// identifies those accounted for, the one that arrived last gives the RTT.
bool FlowControl::read_channel_echo(const Peer& peer, const Report& report, Time now,
                                    Echo& echo) const {
  if (report.echo_stamp_ns >= kMaxPaths) return false;
  const auto is_newest = [&report](std::uint32_t code) {
    return report.newest[Channels::channel_of(code) % kMaxPaths] == code;
  };
  const auto is_last = [last = report.newest[report.echo_stamp_ns]](std::uint32_t code) {
    return code == last;
  };
  const std::int64_t newest_ns = peer.flight.newest_named(is_newest);
  const std::int64_t last_ns = peer.flight.newest_named(is_last);
  echo.newest_ns = std::max(newest_ns, peer.echoed_ns);
  echo.overtaken = static_cast<std::int32_t>(report.packets - peer.reported_packets) < 0;
  echo.rtt = peer.rtt.srtt;
  if (newest_ns < 0) return true;  // it names none that is in flight
  const std::int64_t sent_ns = last_ns < 0 ? newest_ns : last_ns;
  echo.rtt = now - (sent_ns + report.echo_delay_ns) * kNanosecond;
  return echo.rtt >= 0 && echo.rtt <= kStampHorizon;
}

bool FlowControl::echoed(Peer& peer, std::uint32_t stamp_ns, Time now) {
  const std::int64_t age_ns = stamp_distance(stamp_of(now), stamp_ns);
  const std::int64_t echo_ns = now / kNanosecond - age_ns;
  if (age_ns < 0 || echo_ns > peer.flight.newest_ns()) return false;
  if (peer.flight.echo(echo_ns) && age_ns * kNanosecond <= kStampHorizon)
    peer.rtt.sample(age_ns * kNanosecond);
  return true;
}

bool FlowControl::trimmed(Peer& peer, std::uint32_t stamp_ns, Time now) {
  const std::int64_t age_ns = stamp_distance(stamp_of(now), stamp_ns);
  const std::int64_t sent_ns = now / kNanosecond - age_ns;
  if (age_ns < 0 || sent_ns > peer.flight.newest_ns()) return false;
  note_trimmed(peer, sent_ns, now);
  return true;
}

// Only the address identifies the flow: a CNP has no DETH.
bool FlowControl::handle_cnp(const Packet& packet, Time now) {
  Peer* peer = state_.peers.find(packet.source);
  if (!notifies_ || peer == nullptr) return false;
  peer->congestion->on_cnp(now);
  return true;
}

}  // namespace softroce
