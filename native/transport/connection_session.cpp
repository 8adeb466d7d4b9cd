// SPDX-License-Identifier: GPL-2.0-or-later
#include "connection_session.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

#include "../engine/mutant.hpp"

namespace softroce {

ConnectionSession::Coalescing ConnectionSession::coalescing_by_bytes(const MessageEngine& engine) {
  constexpr std::uint32_t kLeastCounted = 1024;  // bytes of an unanswered packet
  const MessageConfig& config = engine.config();
  const auto bytes = number_of<std::uint32_t>(config, "acknowledged_bytes");
  const auto chosen_ns = option_of<std::int64_t>(config, "coalescing_time");
  return {.packets = std::max(packets_of(bytes, std::max(engine.chunk_bytes(), kLeastCounted)), 1U),
          .time_ns = chosen_ns != 0 ? chosen_ns : config.initial_rtt / kNanosecond / 4};
}

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
    if (!flow.is_in_use(packet)) continue;
    connection.at(flow.psns[packet]).is_done = true;
    flow.psns[packet] = kNoPsn;
    wake_at(connection, now_ns());
  }
}

void ConnectionSession::packet_sent(SendMessage& message, std::uint32_t packet, Time now) {
  set_now(now);
  Flow& flow = flow_of(message.handle);
  if (message.paused || flow.psns[packet] == kDelivered) return;
  Connection& connection = connection_of(message.peer);
  if (flow.psns[packet] == kNoPsn) take_psn(connection, flow, message.handle, packet);
  const Psn psn = flow.psns[packet];
  Record& record = connection.at(psn);
  record.sent_ns = now_ns();
  record.transmissions = message.sent[packet].attempts();
  record.is_queued = false;
  packet_left(connection, psn);
}

ConnectionSession::Record& ConnectionSession::take_psn(Connection& connection, Flow& flow,
                                                       Handle message, std::uint32_t packet) {
  flow.psns[packet] = connection.end();
  Record& record = connection.records.push();
  record = {.message = message, .sent_ns = now_ns(), .packet = packet};
  if (connection.records.size() >= window_ && !connection.is_held)
    engine().hold(connection.peer, connection.is_held = true);
  return record;
}

void ConnectionSession::advance(Connection& connection) {
  auto& records = connection.records;
  for (; !records.empty() && records.front().is_done; ++connection.base) records.pop();
  if (connection.is_held && records.size() < window_)
    engine().hold(connection.peer, connection.is_held = false);
}

// ---------------------------------------------------------------- feedback

void ConnectionSession::feedback_known(SendMessage& message, const Feedback& feedback) {
  Connection& connection = connection_of(message.peer);
  Flow& flow = flow_of(message.handle);
  std::uint32_t cancelled = 0;
  for (; flow.cumulative < feedback.cumulative; ++flow.cumulative)
    cancelled += deliver(message, connection, flow, flow.cumulative);
  if (feedback.type == BodyType::packet_sack) {
    std::uint64_t bits = feedback.bits & ~flow.delivered.word(feedback.packet / 64);
    for (; bits != 0; bits &= bits - 1)
      cancelled += deliver(message, connection, flow,
                           feedback.packet + static_cast<std::uint32_t>(__builtin_ctzll(bits)));
  }
  const bool has_dropped =
      feedback.type == BodyType::packet_nack && !flow.delivered.test(feedback.cumulative);
  if (has_dropped) message.sent[feedback.packet].set_reached();
  if (flow.cumulative == message.count)
    finish_send(message);
  else if (message.paused)
    resume(message, RetransmitReason::nak);
  advance(connection);
  const std::int32_t age_ns = stamp_distance(stamp_of(now()), feedback.echo_stamp_ns);
  acknowledged(connection, {.sent_ns = now_ns() - age_ns, .cancelled = cancelled});
  if (has_dropped && flow.is_in_use(feedback.cumulative))
    dropped_out_of_order(connection, flow.psns[feedback.cumulative], now_ns() - age_ns);
}

void ConnectionSession::payload_lost(SendMessage& message, const Feedback& feedback) {
  const Flow& flow = flow_of(message.handle);
  if (!flow.is_in_use(feedback.packet)) return;
  const Psn psn = flow.psns[feedback.packet];
  Connection& connection = connection_of(message.peer);
  if (connection.at(psn).is_out()) payload_cut(connection, psn, feedback.at_last_hop);
}

bool ConnectionSession::deliver(SendMessage& message, Connection& connection, Flow& flow,
                                std::uint32_t packet) {
  if (!flow.delivered.set(packet)) return false;
  if (message.retransmit_pending != 0) engine().forget_retransmit(message, packet);
  const Psn psn = std::exchange(flow.psns[packet], kDelivered);
  if (psn == kNoPsn) return false;
  connection.timeouts_without_progress = 0;
  Record& record = connection.at(psn);
  record.is_done = true;
  if (mutated(Mutant::psn_of_next_acknowledged) && psn + 1 < connection.end())
    connection.at(psn + 1).is_done = true;
  connection.acknowledged_end = std::max(connection.acknowledged_end, psn + 1);
  return record.is_queued;
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

// The connection's timeouts in a row do not count: progress may end them.
void ConnectionSession::expect_timeout(Connection& connection, Psn psn) {
  const Record& record = connection.at(psn);
  if (!record.is_out() || mutated(Mutant::packet_timer_not_armed)) return;
  Nanoseconds& due_ns = connection.timeout_due_ns;
  due_ns = std::min(due_ns, record.sent_ns + wait_ns(record, rto_ns(connection.peer), 0));
  wake_at(connection, due_ns);
}

// Retransmits the packets whose timers have ended, and finds out when the next timer ends.
void ConnectionSession::time_passed(Connection& connection) {
  Nanoseconds& due_ns = connection.timeout_due_ns;
  if (due_ns > now_ns()) return wake_at(connection, due_ns);
  const Nanoseconds base_ns = rto_ns(connection.peer);
  const std::uint32_t timeouts = connection.timeouts_without_progress;
  due_ns = kNeverNs;
  bool has_ended = false;
  for (Psn psn = connection.base; psn < connection.end(); ++psn) {
    Record& record = connection.at(psn);
    if (!record.is_out()) continue;
    if (record.sent_ns + wait_ns(record, base_ns, timeouts) <= now_ns()) {
      if (!has_ended) engine().write_off(connection.peer, now() - base_ns * kNanosecond);
      has_ended = true;
      if (mutated(Mutant::packet_timeout_ignored))
        record.sent_ns = now_ns();
      else
        timed_out(connection, psn);
    }
    if (record.is_out())
      due_ns = std::min(due_ns, record.sent_ns + wait_ns(record, base_ns, timeouts));
  }
  connection.timeouts_without_progress += has_ended;
  wake_at(connection, due_ns);
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
    if (flow.psns[packet] == kDelivered) continue;
    const bool is_queued = Session::retransmit(message, packet, why);
    if (engine().find_send(handle) == nullptr) return;
    take_psn(connection, flow, handle, packet).is_queued = is_queued;
    wake_at(connection, now_ns());
  }
}

// ---------------------------------------------------------------- options

Option acknowledged_bytes_option() {
  return {.name = "acknowledged_bytes",
          .usual = std::int64_t{16'384},
          .help =
              "bytes of unanswered packets that the receiver acknowledges at once; 0: each "
              "packet",
          .unit = "bytes",
          .least = 0,
          .most = 32'768};
}

Option coalescing_time_option() {
  return {.name = "coalescing_time",
          .usual = std::int64_t{0},
          .help = "until the receiver acknowledges fewer bytes; 0: a quarter of the base RTT",
          .unit = "time",
          .least = 0,
          .most = 1e9};
}

}  // namespace softroce
