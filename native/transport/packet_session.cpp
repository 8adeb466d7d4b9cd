// SPDX-License-Identifier: GPL-2.0-or-later
#include "packet_session.hpp"

#include <algorithm>

#include "../engine/mutant.hpp"

namespace softroce {

PacketSession::PacketSession(MessageEngine& engine)
    : Session(engine), rto_low_(config().rto_low), rto_high_(config().rto_high) {
  // Defaults if the configuration has none. Mittal et al., SIGCOMM 2018, section 4.1, use 100 us
  // and 320 us at a base RTT of 24 us.
  const Time base = std::max<Time>(config().initial_rtt, kNanosecond);
  if (config().timeout != 0) rto_low_ = rto_high_ = config().timeout;
  if (rto_low_ == 0) rto_low_ = base / 24 * 100;
  if (rto_high_ == 0) rto_high_ = base / 24 * 320;
  rto_high_ = std::max(rto_high_, rto_low_);
}

Nanoseconds PacketSession::timeout_or(PeerIndex index, Nanoseconds rto_ns) const {
  if (config().timeout != 0) return config().timeout / kNanosecond;
  const RttEstimate& measured = peer(index).rtt;
  if (!config().timeout_measured || measured.srtt == 0) return rto_ns;
  return measured.rto(timing().clock_granularity_ns * kNanosecond) / kNanosecond;
}

// ---------------------------------------------------------------- receiving

PacketSession::ReceiveFlow& PacketSession::flow_of(const ReceiveMessage& message) {
  const std::uint32_t index = index_of(message.handle);
  if (index >= receives_.size()) receives_.resize(index + 1);
  ReceiveFlow& flow = receives_[index];
  if (flow.handle != message.handle) flow = {.handle = message.handle};
  return flow;
}

void PacketSession::packet_arrived(ReceiveMessage& message, const Packet& packet, Time now) {
  set_now(now);
  answer(message, packet.lab.index, echo_of(packet));
}

std::uint32_t PacketSession::answer(const ReceiveMessage& message, std::uint32_t packet,
                                    const Echo& echo) {
  ReceiveFlow& flow = flow_of(message);
  if (flow.cumulative < message.count && message.bitmap.test(flow.cumulative))
    flow.cumulative = std::min(message.bitmap.next_clear(flow.cumulative), message.count);
  Feedback feedback;
  if (packet > flow.cumulative) feedback = out_of_order(message, packet);
  feedback.id = message.id;
  feedback.cumulative = flow.cumulative + mutated(Mutant::ack_one_too_many);
  send_feedback(message.peer, feedback, echo);
  return flow.cumulative;
}

void PacketSession::packet_came_late(PeerIndex peer, const Packet& packet, Time now) {
  set_now(now);
  const LabHeader& lab = packet.lab;
  send_feedback(peer, {.id = lab.message_id, .cumulative = lab.count}, echo_of(packet));
}

void PacketSession::packet_trimmed(const TrimmedPacket& trimmed, Time now) {
  const LabHeader& lab = trimmed.packet.lab;
  if (!answers_trimming()) return;
  set_now(now);
  if (trimmed.message == nullptr) {
    if (trimmed.has_arrived) packet_came_late(trimmed.peer, trimmed.packet, now);
    return;
  }
  if (trimmed.has_arrived) return packet_arrived(*trimmed.message, trimmed.packet, now);
  send_feedback(trimmed.peer,
                {.type = BodyType::packet_trimmed,
                 .id = lab.message_id,
                 .cumulative = flow_of(*trimmed.message).cumulative,
                 .packet = lab.index,
                 .path = lab.path,
                 .at_last_hop = trimmed.packet.trimmed_at_last_hop()},
                echo_of(trimmed.packet));
}

PacketSession::Echo PacketSession::echo_of(const Packet& packet) {
  const bool marked = packet.congestion_experienced() && engine().heeds_marks();
  return {packet.lab.stamp_ns, packet.lab.path, marked};
}

void PacketSession::send_feedback(PeerIndex peer, Feedback feedback, const Echo& echo) {
  feedback.echo_stamp_ns = echo.stamp_ns;
  engine().send_feedback(peer, echo.path, echo.marked, write(feedback).bytes());
  answered(peer, echo.path);
}

void PacketSession::first_packet(ReceiveMessage& message) {
  set_timer(message, now_ns() + timing().t_max_ns);
}

// Nothing of the message has arrived for T_max: asks the sender, by a SACK, whether it still sends
// it. A sender that does not know the message refuses it.
void PacketSession::check_receive(ReceiveMessage& message) {
  const Nanoseconds next_ns = message.last_at / kNanosecond + timing().t_max_ns;
  if (now_ns() < next_ns) return set_timer(message, next_ns);
  send_missing(message.peer, {.name = {message.id, message.key}, .set = PacketSet()});
  const std::uint32_t asked = ++of(message).timeouts_without_progress;
  set_timer(message, now_ns() + backed_off_ns(timing().t_max_ns, asked));
}

Feedback PacketSession::sack_of(const ReceiveMessage& message, std::uint32_t packet) {
  return {.type = BodyType::packet_sack,
          .packet = packet & ~63U,
          .bits = message.bitmap.word(packet / 64) << mutated(Mutant::sack_shifted)};
}

// Tells the sender that the receive is posted. Feedback on packets tells which of them have
// arrived, so this SACK has no set.
void PacketSession::status_requested(ReceiveMessage& message, std::uint32_t id) {
  send_missing(message.peer, {.name = {id, message.key}, .set = {}});
}

// ---------------------------------------------------------------- sending

bool PacketSession::feedback_arrived(PeerIndex peer, const Packet& packet, Time now) {
  set_now(now);
  const std::span<const std::uint8_t> body(packet.payload, packet.payload_bytes);
  if (static_cast<BodyType>(body[0]) == BodyType::packet_pull) {
    const auto pulls = read_pull(body);
    return pulls && pulled(peer, *pulls);
  }
  const auto feedback = read_feedback(body);
  if (!feedback) return false;
  const bool trimmed = feedback->type == BodyType::packet_trimmed;
  if (trimmed && (!answers_trimming() || feedback->path >= config().paths)) return false;
  const bool was_sent = trimmed ? engine().trimmed(peer, feedback->echo_stamp_ns, now)
                                : engine().echoed(peer, feedback->echo_stamp_ns, now);
  if (!was_sent) return false;
  PathPicker& picker = engine().path_picker(peer);
  if (trimmed)
    picker.trimmed(feedback->path, feedback->at_last_hop, now);
  else if (packet.lab.path < config().paths)
    picker.acked(packet.lab.path, packet.congestion_echoed(), now);
  SendMessage* message = find_send(peer, feedback->id);
  if (message == nullptr) return true;  // the message is over
  if (feedback->cumulative > message->next) return false;
  if (feedback->type != BodyType::packet_ack && feedback->highest() >= message->next) return false;
  about(message->key);
  of(*message).has_receive = true;
  if (!trimmed) return feedback_known(*message, *feedback), true;
  Sent& last = message->sent[feedback->packet];
  last.set_reached();
  if (stamp_of(last.at_ns() * kNanosecond) == feedback->echo_stamp_ns)
    payload_lost(*message, *feedback);
  return true;
}

void PacketSession::control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) {
  if (static_cast<BodyType>(body[0]) != BodyType::sack) return bad_control();
  std::optional<Missing> missing;
  SendMessage* message = find_reported(peer, body, missing);
  if (message != nullptr && message->paused) receiver_ready(*message);
}

void PacketSession::timer_ended(SendMessage& message, Time now) {
  set_now(now);
  about(message.key);
  check_send(message);
}

}  // namespace softroce
