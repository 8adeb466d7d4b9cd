// SPDX-License-Identifier: GPL-2.0-or-later
#include "connection_session.hpp"

#include <algorithm>
#include <ranges>

#include "../engine/mutant.hpp"

namespace softroce {

// ---------------------------------------------------------------- receiving

void ConnectionSession::packet_arrived(ReceiveMessage& message, const Packet& packet, Time now) {
  if (coalescing_.packets <= 1) return PacketSession::packet_arrived(message, packet, now);
  const std::uint32_t index = packet.lab.index;
  set_now(now);
  Connection& connection = connection_of(message.peer);
  Unanswered& unanswered = connection.unanswered;
  const auto word = std::ranges::find_if(unanswered.words, [&](const auto& each) {
    return each.message == message.handle && each.packet / 64 == index / 64;
  });
  if (word != unanswered.words.end())
    word->packet = index;
  else
    unanswered.words.push_back({message.handle, index});
  unanswered.echo = echo_of(packet);
  if (++unanswered.packets >= coalescing_.packets || message.lacking == 0 ||
      answers_at_once(packet))
    return answer_all(unanswered);
  if (unanswered.packets > 1) return;
  unanswered.due_ns = now_ns() + coalescing_.time_ns;
  wake_at(connection, unanswered.due_ns);
}

void ConnectionSession::answer_all(Unanswered& unanswered) {
  Handle answered = kNoHandle;
  std::uint32_t cumulative = 0;  // of that message
  for (const auto& [handle, packet] : std::views::reverse(unanswered.words)) {
    const ReceiveMessage* message = engine().find_receive(handle);
    if (message == nullptr || (handle == answered && packet < cumulative)) continue;
    cumulative = answer(*message, packet, unanswered.echo);
    answered = handle;
  }
  unanswered.words.clear();
  unanswered.packets = 0;
  unanswered.due_ns = kNeverNs;
}

// ---------------------------------------------------------------- what is in use

void ConnectionSession::posted(SendMessage& message) {
  const std::uint32_t index = index_of(message.handle);
  if (index >= flows_.size()) flows_.resize(index + 1);
  Flow& flow = flows_[index];
  give_up_psns(flow);  // of a message that was flushed before its event was handled
  flow.peer = message.peer;
  flow.cumulative = 0;
  flow.delivered.reset(message.count);
  flow.psns.assign(message.count, kNoPsn);
}

void ConnectionSession::over(Handle message) {
  if ((message & kReceiveTag) == 0 && index_of(message) < flows_.size())
    give_up_psns(flow_of(message));
}

// The connection advances when its timer ends, which is at once: a hook of the subclass may be
// looking at its records.
void ConnectionSession::give_up_psns(Flow& flow) {
  Connection& connection = connection_of(flow.peer);
  for (std::uint32_t packet = flow.cumulative; packet < flow.psns.size(); ++packet) {
    Psn& psn = flow.psns[packet];
    if (psn == kNoPsn || flow.delivered.test(packet)) continue;
    connection.at(psn).is_done = true;
    psn = kNoPsn;
    wake_at(connection, now_ns());
  }
}

void ConnectionSession::packet_sent(SendMessage& message, std::uint32_t packet, Time now) {
  set_now(now);
  Flow& flow = flow_of(message.handle);
  if (message.paused || flow.delivered.test(packet)) return;
  Connection& connection = connection_of(message.peer);
  if (flow.psns[packet] == kNoPsn) take_psn(connection, flow, message.handle, packet);
  const Psn psn = flow.psns[packet];
  Record& record = connection.at(psn);
  record.sent_ns = now_ns();
  record.transmissions = message.sent[packet].attempts();
  record.path = message.sent[packet].path();
  record.is_queued = false;
  packet_left(connection, psn);
}

ConnectionSession::Record& ConnectionSession::take_psn(Connection& connection, Flow& flow,
                                                       Handle message, std::uint32_t packet) {
  flow.psns[packet] = connection.end();
  Record& record = connection.records.emplace_back();
  record.message = message;
  record.packet = packet;
  record.sent_ns = now_ns();
  if (connection.records.size() >= window_ && !connection.is_held)
    engine().hold(connection.peer, connection.is_held = true);
  return record;
}

void ConnectionSession::advance(Connection& connection) {
  auto& records = connection.records;
  for (; !records.empty() && records.front().is_done; ++connection.base) records.pop_front();
  if (connection.is_held && records.size() < window_)
    engine().hold(connection.peer, connection.is_held = false);
}

// ---------------------------------------------------------------- feedback

void ConnectionSession::feedback_known(SendMessage& message, const Feedback& feedback) {
  Connection& connection = connection_of(message.peer);
  Flow& flow = flow_of(message.handle);
  delivered_.clear();
  for (; flow.cumulative < feedback.cumulative; ++flow.cumulative)
    deliver(message, flow, flow.cumulative);
  if (feedback.type == BodyType::packet_sack) {
    std::uint64_t bits = feedback.bits & ~flow.delivered.word(feedback.packet / 64);
    for (; bits != 0; bits &= bits - 1)
      deliver(message, flow, feedback.packet + static_cast<std::uint32_t>(__builtin_ctzll(bits)));
  }
  if (!delivered_.empty()) connection.timeouts_without_progress = 0;
  const bool has_dropped =
      feedback.type == BodyType::packet_nack && !flow.delivered.test(feedback.cumulative);
  if (has_dropped) message.sent[feedback.packet].set_reached();
  if (flow.cumulative == message.count)
    finish_send(message);
  else if (message.paused)
    resume(message, RetransmitReason::nak);
  advance(connection);
  const std::int32_t age_ns = stamp_distance(stamp_of(now()), feedback.echo_stamp_ns);
  acknowledged(connection, {.sent_ns = now_ns() - age_ns, .packets = delivered_});
  if (!has_dropped) return;
  const Psn expected = flow.psns[feedback.cumulative];
  if (expected != kNoPsn) dropped_out_of_order(connection, expected, now_ns() - age_ns);
}

void ConnectionSession::payload_lost(SendMessage& message, const Feedback& feedback) {
  const Flow& flow = flow_of(message.handle);
  const Psn psn = flow.psns[feedback.packet];
  if (psn == kNoPsn || flow.delivered.test(feedback.packet)) return;
  Connection& connection = connection_of(message.peer);
  if (connection.at(psn).is_out()) payload_cut(connection, psn, feedback.at_last_hop);
}

void ConnectionSession::deliver(SendMessage& message, Flow& flow, std::uint32_t packet) {
  if (!flow.delivered.set(packet)) return;
  if (message.retransmit_pending != 0) engine().forget_retransmit(message, packet);
  const Psn psn = flow.psns[packet];
  if (psn == kNoPsn) return;
  Connection& connection = connection_of(message.peer);
  Record& record = connection.at(psn);
  record.is_done = true;
  if (mutated(Mutant::psn_of_next_acknowledged) && psn + 1 < connection.end())
    connection.at(psn + 1).is_done = true;
  connection.acknowledged_end = std::max(connection.acknowledged_end, psn + 1);
  delivered_.push_back({psn, record});
}

// ---------------------------------------------------------------- retransmissions and time

void ConnectionSession::retransmit(Connection& connection, Psn psn, RetransmitReason why) {
  Record& record = connection.at(psn);
  SendMessage* message = engine().find_send(record.message);
  if (message == nullptr) {  // flushed
    record.is_done = true;
    return wake_at(connection, now_ns());
  }
  about(message->key);
  record.is_queued = Session::retransmit(*message, record.packet, why);
  if (!record.is_queued) record.sent_ns = now_ns();
}

void ConnectionSession::wake_at(Connection& connection, Nanoseconds at_ns) {
  if (connection.timer_ns <= at_ns) return;
  connection.timer_ns = at_ns;
  engine().set_connection_timer(connection.peer, at_ns * kNanosecond);
}

void ConnectionSession::connection_timer_ended(PeerIndex peer, Time now) {
  set_now(now);
  Connection& connection = connection_of(peer);
  connection.timer_ns = kNeverNs;
  if (connection.unanswered.due_ns <= now_ns()) answer_all(connection.unanswered);
  wake_at(connection, connection.unanswered.due_ns);
  advance(connection);
  timer_ended(connection);
  if (!connection.records.empty()) time_passed(connection);
}

// ---------------------------------------------------------------- receiver not ready

void ConnectionSession::check_send(SendMessage& message) {
  if (!message.paused) return;
  probe_receiver(message);
  set_timer(message, now_ns() + timing().t_max_ns);
}

// Retransmits all packets that were sent and not delivered: the receiver has refused them.
void ConnectionSession::resume(SendMessage& message, RetransmitReason why) {
  pause(message, false);
  Connection& connection = connection_of(message.peer);
  Flow& flow = flow_of(message.handle);
  const Handle handle = message.handle;
  for (std::uint32_t packet = flow.cumulative; packet < message.next; ++packet) {
    if (flow.delivered.test(packet)) continue;
    const bool is_queued = Session::retransmit(message, packet, why);
    if (engine().find_send(handle) == nullptr) return;
    take_psn(connection, flow, handle, packet).is_queued = is_queued;
    wake_at(connection, now_ns());
  }
}

}  // namespace softroce
