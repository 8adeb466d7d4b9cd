// SPDX-License-Identifier: GPL-2.0-or-later
// Which part of the engine takes what: packets, timers, a session's acts.
#include "message_engine.hpp"

#include <stdexcept>
#include <utility>

#include "../mutant.hpp"

namespace softroce {

MessageEngine::MessageEngine(const MessageConfig& config, MemoryTable& memory,
                             CompletionQueue& completions, Counters& counters,
                             std::uint32_t data_qp, std::uint32_t recovery_qp)
    : state_(config, memory, completions, counters, data_qp, recovery_qp),
      completions_(completions) {
  state_.session = make_session(config.transport, *this);
  if (state_.session == nullptr || !state_.session->reacts()) return;
  state_.reacting = state_.session.get();
  if (state_.framing != Framing::ud)
    throw std::invalid_argument("transport " + config.transport + " needs the framing ud");
}

void MessageEngine::flush(std::optional<PeerIndex> peer, Time now, WcStatus status) {
  sender_.flush(peer, now, status);
  receiver_.flush(peer, now, status);
}

void MessageEngine::disconnect(PeerIndex peer, Time now) {
  flush(peer, now, WcStatus::retry_exc_err);
  state_.peers.forget(peer);
}

// The session knows a message when it has handled the event of its post.
void MessageEngine::withdraw(std::uint32_t qp, std::optional<MessageKey> key, WcStatus status,
                             Time now) {
  end_turn(now);
  const auto end = [&](auto& message) {
    if (message.qp == qp && (!key || message.key == *key))
      state_.session->withdraw(message, status, now);
  };
  sender_.messages().for_each(end);
  if (!key) receiver_.messages().for_each(end);
}

// ---------------------------------------------------------------- packets

void MessageEngine::handle_packet(Packet& packet, Time now) {
  Peer* peer = state_.peers.find(packet);
  if (peer == nullptr) return state_.counters.add(Counter::rx_unknown_peer);
  if (!ud_framing::open(packet) || (packet.lab.path >= kMaxPaths && !state_.numbers_paths()))
    return state_.counters.add(Counter::rx_bad_header);
  packet.lab.path = PathPorts::path_of(packet.lab.path);
  const LabHeader& lab = packet.lab;
  if (lab.epoch != state_.config.connection_epoch)
    return state_.counters.add(Counter::rx_wrong_epoch);
  // As EngineState::address does it: from QP to QP of one kind, the first sending of data on the
  // data QPs, all the rest on the recovery QPs.
  const bool recovery = packet.destination_qp == state_.recovery_qp;
  if ((packet.source_qp == peer->address.recovery_qp) != recovery)
    return state_.counters.add(Counter::rx_bad_header);
  const bool of_message = lab.kind == LAB_KIND_DATA || lab.kind == LAB_KIND_PARITY;
  if (of_message && state_.framing == Framing::ud) return receiver_.handle_data(*peer, packet, now);
  if (of_message || !recovery || lab.trimmed) return state_.counters.add(Counter::rx_bad_header);
  const bool probe = lab.kind == LAB_KIND_PROBE;
  if (probe && !state_.numbers_paths()) return state_.counters.add(Counter::rx_bad_header);
  const bool joined =
      lab.kind == LAB_KIND_CONTROL && lab.length < packet.payload_bytes && state_.numbers_paths();
  if ((lab.length != packet.payload_bytes && !joined) || lab.count != 1 || lab.index != 0)
    return state_.counters.add(Counter::rx_bad_header);
  if (is_control(lab.kind) && state_.numbers_paths()) {
    const bool is_nack = lab.kind == LAB_KIND_CONTROL && lab.message_id == LAB_CONTROL_NACK;
    is_nack ? peer->controls.arrived(lab.path) : peer->controls.arrived(lab.path, lab.message);
    peer->newest_control.note(lab.stamp_ns, now);
    sender_.probe_missing_controls(*peer);
  }
  if (joined) {  // a report behind the body
    Packet report = packet;
    report.payload += lab.length;
    report.payload_bytes -= lab.length;
    packet.payload_bytes = lab.length;
    handle_report(*peer, report, now);
  }
  if (peer->channels) {  // whose data packets do not carry them
    relaxed_store(peer->remote_srtt_ns, lab_time_ns(lab.srtt));
    relaxed_store(peer->remote_rttvar_ns, lab_time_ns(lab.rttvar));
    if (lab.kind == LAB_KIND_CONTROL && lab.message_id == LAB_CONTROL_CLEAR)
      return sender_.handle_clearance(*peer, packet, now);
  }
  if (lab.kind == LAB_KIND_CONTROL) return handle_control(*peer, packet, now);
  if (probe)
    return sender_.leave_dead_ports(*peer, receiver_.losses().handle_probe(*peer, packet, now),
                                    now);
  handle_report(*peer, packet, now);
}

void MessageEngine::handle_report(Peer& peer, const Packet& packet, Time now) {
  if (!flow_.handle_report(peer, packet, now)) return;
  if (state_.numbers_paths()) {
    sender_.move_silent_paths(peer, now);
    sender_.move_slow_path(peer, now);
    sender_.try_first_port(peer, now);
  }
  sender_.make_ready(peer);
}

void MessageEngine::handle_control(Peer& peer, const Packet& packet, Time now) {
  relaxed_store(peer.last_received_at, now);
  peer.newest.note(packet.lab.stamp_ns, now);
  if (packet.lab.message_id == LAB_CONTROL_NACK) return sender_.handle_nack(peer, packet, now);
  const std::span body(packet.payload, packet.payload_bytes);
  if (state_.reacting != nullptr && !body.empty() && body[0] >= MessageSession::kFeedback) {
    const bool valid = state_.reacting->feedback_arrived(peer.index, packet, now);
    state_.counters.add(valid ? Counter::rx_control : Counter::rx_bad_control);
    return sender_.make_ready(peer);
  }
  if (state_.events.full()) return state_.counters.add(Counter::rx_event_overflow);
  state_.counters.add(Counter::rx_control);
  Event event{.kind = EventKind::control, .peer = peer.index, .at = now};
  event.body.assign(body.begin(), body.end());
  state_.events.emit(std::move(event));
}

bool MessageEngine::poll_packet(Packet& packet, Time now) {
  return poll_feedback(packet, now) || sender_.poll_probe(packet, now) ||
         sender_.poll_retransmit(packet, now) || sender_.poll_parity(packet, now) ||
         sender_.poll_data(packet, now);
}

// A receiver that answers each packet always has small messages waiting, so others go first.
bool MessageEngine::poll_feedback(Packet& packet, Time now) {
  return reporter_.poll_cnp(packet) || receiver_.losses().poll_nack(packet, now) ||
         control_.poll(packet, now) || control_.poll_small(packet, now) ||
         reporter_.poll_report(packet, now);
}

void MessageEngine::handle_loss(const Packet& packet, Time now) {
  Peer* peer = state_.peers.find(packet);
  if (peer == nullptr) return state_.counters.add(Counter::rx_unknown_peer);
  relaxed_store(peer->last_received_at, now);
  state_.session->packet_lost(peer->index, packet.lab);
}

// ---------------------------------------------------------------- time

void MessageEngine::handle_timeout(Time now) {
  while (state_.timers.is_due(now)) fire(state_.timers.take(), now);
}

void MessageEngine::fire(const Timer& timer, Time now) {
  if (timer.kind == TimerKind::message) return fire_timer(timer.subject, timer.at, now);
  if (timer.kind == TimerKind::gap) return receiver_.gap_fired(timer.subject, timer.at, now);
  Peer& peer = state_.peers[static_cast<PeerIndex>(timer.subject)];
  switch (timer.kind) {
    case TimerKind::peer_timer:
      if (peer.timer_at != timer.at) break;
      peer.timer_at = kNever;
      state_.events.emit({.kind = EventKind::peer_timer, .peer = peer.index, .at = now});
      break;
    case TimerKind::connection:
      if (peer.connection_at != timer.at) break;
      peer.connection_at = kNever;
      state_.reacting->connection_timer_ended(peer.index, now);
      break;
    case TimerKind::report:
      reporter_.report_fired(peer, timer.at);
      break;
    case TimerKind::clear:
      receiver_.clear_fired(peer, timer.at, now);
      break;
    case TimerKind::names:
      sender_.names_fired(peer, timer.at, now);
      receiver_.names_fired(peer, timer.at, now);
      break;
    case TimerKind::persist:
      if (flow_.persist_fired(peer, timer.at, now)) sender_.make_ready(peer);
      break;
    case TimerKind::pace:
      if (flow_.pace_fired(peer, timer.at)) sender_.make_ready(peer);
      break;
    case TimerKind::path_gap:
      receiver_.losses().gap_fired(peer, timer.at, now);
      break;
    case TimerKind::probe:
      sender_.probe_fired(peer, timer.at, now);
      break;
    case TimerKind::probe_repeat:
      sender_.repeat_fired(peer, timer.at, now);
      break;
    case TimerKind::message:
    case TimerKind::gap:
      break;  // of no peer: above
  }
}

void MessageEngine::fire_timer(Handle handle, Time armed_for, Time now) {
  const auto ends = [&](auto* message) {
    if (message == nullptr || message->timer_at != armed_for) return false;
    message->timer_at = kNever;
    return true;
  };
  if (handle & kReceiveTag) {
    ReceiveMessage* message = receiver_.find(handle);
    if (ends(message)) state_.events.emit_about(EventKind::timer, *message, now);
    return;
  }
  SendMessage* message = sender_.find(handle);
  if (!ends(message)) return;
  if (state_.reacting != nullptr) return state_.reacting->timer_ended(*message, now);
  state_.events.emit_about(EventKind::timer, *message, now);
}

// ---------------------------------------------------------------- a session's acts

void MessageEngine::retransmit(Handle send, std::span<const std::uint32_t> indices, bool urgent,
                               std::uint32_t copies, Time now, std::uint8_t cause) {
  sender_.retransmit(send, indices, urgent, copies, now, cause);
}

void MessageEngine::pause(Handle send, bool paused) { sender_.pause(send, paused); }

void MessageEngine::control(PeerIndex peer, std::vector<std::uint8_t> body) {
  if (peer >= state_.peers.size() || body.size() > control_bytes() ||
      !control_.push(peer, std::move(body)))
    state_.counters.add(Counter::stale_action);
}

void MessageEngine::set_timer(Handle handle, Time at) {
  const auto set = [&](auto* message) {
    if (message == nullptr) return state_.counters.add(Counter::stale_action);
    message->timer_at = at;
    if (at != kNever && !mutated(Mutant::timer_not_armed))
      state_.timers.arm(at, TimerKind::message, handle);
  };
  handle& kReceiveTag ? set(receiver_.find(handle)) : set(sender_.find(handle));
}

void MessageEngine::set_peer_timer(PeerIndex peer, Time at) {
  if (peer >= state_.peers.size()) return state_.counters.add(Counter::stale_action);
  state_.peers[peer].timer_at = at;
  if (at != kNever && !mutated(Mutant::peer_timer_not_armed))
    state_.timers.arm(at, TimerKind::peer_timer, peer);
}

void MessageEngine::set_connection_timer(PeerIndex peer, Time at) {
  state_.peers[peer].connection_at = at;
  if (!mutated(Mutant::connection_timer_not_armed))
    state_.timers.arm(at, TimerKind::connection, peer);
}

void MessageEngine::complete_send(Handle send, WcStatus status, Time now) {
  sender_.complete(send, status, now);
}

void MessageEngine::fail_receive(Handle receive, WcStatus status, Time now) {
  receiver_.fail(receive, status, now);
}

void MessageEngine::detect_gaps(Handle receive, Time window, Time now) {
  receiver_.detect_gaps(receive, window, now);
}

void MessageEngine::nack(PeerIndex peer) {
  if (peer >= state_.peers.size() || !receiver_.losses().is_enabled())
    return state_.counters.add(Counter::stale_action);
  receiver_.losses().note_loss(state_.peers[peer], kNackTimer, 2);
}

void MessageEngine::move_path(PeerIndex peer, std::uint32_t path, Time now) {
  if (peer >= state_.peers.size() || path >= state_.config.paths || !state_.numbers_paths())
    return state_.counters.add(Counter::stale_action);
  sender_.move_path(state_.peers[peer], static_cast<std::uint8_t>(path), now);
}

void MessageEngine::set_path_weights(PeerIndex peer,
                                     const std::array<std::uint16_t, kMaxPaths>& weights) {
  if (peer >= state_.peers.size()) return state_.counters.add(Counter::stale_action);
  state_.peers[peer].schedule.set_weights(weights);
}

void MessageEngine::write_off(PeerIndex index, Time sent_up_to) {
  Peer& peer = state_.peers[index];
  peer.flight.forgive(sent_up_to / kNanosecond);
  sender_.make_ready(peer);
}

}  // namespace softroce
