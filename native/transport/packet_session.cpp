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

// ---------------------------------------------------------------- receiving

PacketSession::ReceiveFlow& PacketSession::flow_of(const ReceiveMessage& message) {
  const std::uint32_t index = index_of(message.handle);
  if (index >= receives_.size()) receives_.resize(index + 1);
  ReceiveFlow& flow = receives_[index];
  if (flow.handle != message.handle) flow = {.handle = message.handle};
  return flow;
}

void PacketSession::packet_arrived(ReceiveMessage& message, const LabHeader& lab, Time) {
  answer(message, lab.index, lab.stamp_ns, lab.path);
}

std::uint32_t PacketSession::answer(const ReceiveMessage& message, std::uint32_t packet,
                                    std::uint32_t stamp_ns, std::uint8_t path) {
  ReceiveFlow& flow = flow_of(message);
  if (flow.cumulative < message.count && message.bitmap.test(flow.cumulative))
    flow.cumulative = std::min(message.bitmap.next_clear(flow.cumulative), message.count);
  Feedback feedback;
  if (packet > flow.cumulative) feedback = out_of_order(message, packet);
  feedback.id = message.id;
  feedback.cumulative = flow.cumulative + mutated(Mutant::ack_one_too_many);
  feedback.echo_stamp_ns = stamp_ns;
  send_feedback(message.peer, feedback, path);
  return flow.cumulative;
}

void PacketSession::packet_came_late(PeerIndex peer, const LabHeader& lab) {
  send_feedback(peer,
                {.id = lab.message_id, .cumulative = lab.count, .echo_stamp_ns = lab.stamp_ns},
                lab.path);
}

void PacketSession::send_feedback(PeerIndex peer, const Feedback& feedback, std::uint8_t path) {
  engine().send_feedback(peer, path, write(feedback).bytes());
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

bool PacketSession::feedback_arrived(PeerIndex peer, std::span<const std::uint8_t> body, Time now) {
  set_now(now);
  const auto feedback = read_feedback(body);
  if (!feedback || !engine().echoed(peer, feedback->echo_stamp_ns, now)) return false;
  SendMessage* message = find_send(peer, feedback->id);
  if (message == nullptr) return true;  // the message is over
  if (feedback->cumulative > message->next) return false;
  if (feedback->type != BodyType::packet_ack && feedback->highest() >= message->next) return false;
  about(message->key);
  of(*message).has_receive = true;
  feedback_known(*message, *feedback);
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
