// SPDX-License-Identifier: GPL-2.0-or-later
#include "session.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "../engine/mutant.hpp"

namespace softroce {
namespace {

constexpr std::size_t kMostRemembered = 4096;

// Appends, and drops the oldest entry of a full list.
template <typename T>
void remember(std::vector<T>& list, const T& entry, std::size_t most = kMostRemembered) {
  if (list.size() == most) list.erase(list.begin());
  list.push_back(entry);
}

// Copies of one acknowledgement: more than a link is likely to lose in a row.
constexpr std::uint32_t kMostCopies = 16;
constexpr std::int64_t kRnrWithoutEnd = 7;  // of `rnr_retry`, IBA 9.7.5.2.8

// Whether an id was given later than another: serial numbers as in RFC 1982.
bool is_newer(std::uint32_t id, std::uint32_t than) {
  return static_cast<std::int32_t>(id - than) > 0;
}

constexpr std::uint8_t kLastStatus = 23;  // of enum ibv_wc_status

template <typename T>
std::span<const T> numbers_in(const Event& event) {
  return {reinterpret_cast<const T*>(event.body.data()), event.body.size() / sizeof(T)};
}

}  // namespace

Session::Session(MessageEngine& engine) : engine_(engine) {}

// ---------------------------------------------------------------- events

bool Session::turn(Time now) {
  if (engine_.events().empty()) return false;
  begin_turn(now);
  while (handle_next()) {
  }
  turn_ended();
  return true;
}

// Events that handlers cause wait for the next turn.
void Session::begin_turn(Time now) {
  set_now(now);
  left_ = engine_.events().size();
}

bool Session::handle_next() {
  if (left_ == 0) return false;
  --left_;
  event_ = std::move(engine_.events().front());
  engine_.events().pop_front();
  handle(event_);
  return true;
}

void Session::handle(const Event& event) {
  about_ = event.key;
  switch (event.kind) {
    case EventKind::send_posted:
      return on_send_posted(event);
    case EventKind::sent:
      if (Send* send = live_send(event)) {
        sent(*engine_.find_send(event.message));
        send->out = true;
      }
      return;
    case EventKind::receive_posted:
      return on_receive_posted(event);
    case EventKind::first_packet:
      return on_first_packet(event);
    case EventKind::tail_seen:
      if (ReceiveMessage* message = engine_.find_receive(event.message)) last_packet(*message);
      return;
    case EventKind::receive_complete:
      return on_receive_complete(event);
    case EventKind::timer:
      return on_timer(event);
    case EventKind::peer_timer:
      return on_peer_timer(event.peer);
    case EventKind::control:
      return handle_control(event);
    case EventKind::no_receive:
      return send_rnr(event.peer, {event.id, event.key});
    case EventKind::too_long:
      return on_too_long(event);
    case EventKind::late_packet:
      return on_late_packet(event);
    case EventKind::gap:
      if (ReceiveMessage* message = engine_.find_receive(event.message))
        gap(*message, numbers_in<std::uint32_t>(event));
      return;
    case EventKind::loss:
      if (live_send(event)) lost(*engine_.find_send(event.message), numbers_in<LostPacket>(event));
      return;
    case EventKind::parity:
      if (live_send(event))
        parity_released(*engine_.find_send(event.message), numbers_in<std::uint32_t>(event)[0]);
      return;
    case EventKind::chunk:
      if (ReceiveMessage* message = engine_.find_receive(event.message))
        chunk_arrived(*message, numbers_in<std::uint32_t>(event)[0]);
      return;
    case EventKind::refused:
      return on_operation_refused(event);
    case EventKind::trimmed: {
      const PayloadLoss& loss = numbers_in<PayloadLoss>(event)[0];
      ReceiveMessage* message = engine_.find_receive(event.message);
      if (message != nullptr && !message->bitmap.test(loss.index)) trimmed(*message, loss);
      return;
    }
  }
}

Session::Send* Session::live_send(const Event& event) {
  const std::uint32_t index = index_of(event.message);
  if (index >= sends_.size() || sends_[index].handle != event.message) return nullptr;
  return &sends_[index];
}

Session::Receive* Session::live_receive(const Event& event) {
  const std::uint32_t index = index_of(event.message);
  if (index >= receives_.size() || receives_[index].handle != event.message) return nullptr;
  return &receives_[index];
}

void Session::on_send_posted(const Event& event) {
  SendMessage* message = engine_.find_send(event.message);
  if (message == nullptr) return;  // flushed
  const std::uint32_t index = index_of(event.message);
  if (index >= sends_.size()) sends_.resize(index + 1);
  sends_[index] = {.handle = event.message, .number = ++posts_};
  Work& work = work_of(event.peer);
  ++work.sends;
  work.has_sent = true;
  work.newest_id = event.id;
  begin_work(event.peer);
  send_posted(*message);
}

void Session::on_receive_posted(const Event& event) {
  ReceiveMessage* message = engine_.find_receive(event.message);
  if (message == nullptr) return;  // flushed
  const std::uint32_t index = index_of(event.message);
  if (index >= receives_.size()) receives_.resize(index + 1);
  receives_[index] = {.handle = event.message, .number = ++posts_};
  Work& work = work_of(event.peer);
  ++work.receives;
  begin_work(event.peer);
  const auto rnr = std::ranges::find(work.rnr_sent, event.key, &MessageName::key);
  if (rnr != work.rnr_sent.end()) {
    const std::uint32_t id = rnr->id;
    work.rnr_sent.erase(rnr);
    status_requested(*message, id);
  }
  receive_posted(*message);
}

void Session::on_first_packet(const Event& event) {
  if (live_receive(event) == nullptr)  // it failed in the meantime
    return record_outcome(event.peer, event.id, WcStatus::retry_exc_err);
  if (ReceiveMessage* message = engine_.find_receive(event.message)) first_packet(*message);
}

void Session::on_receive_complete(const Event& event) {
  forget_receive(event.message, event.peer);
  record_outcome(event.peer, event.id, WcStatus::success);
  acknowledge(event.peer, event.id);
}

void Session::on_late_packet(const Event& event) {
  const Outcome* known = outcome(event.peer, event.id);
  if (known == nullptr) return;
  if (known->status == WcStatus::success) return acknowledge(event.peer, event.id);
  send_refused(event.peer, {event.id, event.key, known->status}, true);
}

// With the framing uc_immediate the sender gets this event: the CLEAR for its message names another
// length or key.
void Session::on_too_long(const Event& event) {
  constexpr WcStatus kStatus = WcStatus::rem_inv_req_err;
  if (live_send(event)) return give_up_send(*engine_.find_send(event.message), kStatus);
  send_refused(event.peer, {event.id, event.key, kStatus}, true);
}

void Session::on_operation_refused(const Event& event) {
  const auto status = static_cast<WcStatus>(event.body[0]);
  if (event.message != kNoHandle && live_receive(event))
    fail_receive(event.message, event.peer, status);
  else
    record_outcome(event.peer, event.id, status);
  send_refused(event.peer, {event.id, event.key, status}, true);
}

void Session::on_timer(const Event& event) {
  if (event.message & kReceiveTag) {
    ReceiveMessage* message = engine_.find_receive(event.message);
    if (message != nullptr && live_receive(event)) check_receive(*message);
  } else if (live_send(event)) {
    check_send(*engine_.find_send(event.message));
  }
}

void Session::flushed(const SendMessage& message) {
  const std::uint32_t index = index_of(message.handle);
  if (index < sends_.size() && sends_[index].handle == message.handle) forget(message);
}

void Session::flushed(const ReceiveMessage& message) {
  forget_receive(message.handle, message.peer);
}

// ---------------------------------------------------------------- acknowledgements, batched

// Acknowledges at once if no receive is outstanding, else soon, together with others. An
// acknowledgement without effect is repeated after a different delay each time. With one fixed
// delay, a periodic outage could hit every repetition.
void Session::acknowledge(PeerIndex peer, std::uint32_t id) {
  Work& work = work_of(peer);
  const std::uint32_t without_effect = acks_without_effect(peer, id);
  const bool full = queue_ack(peer, id);
  if (full || !(work.receives != 0 || without_effect != 0)) return flush_acks(peer);
  if (work.ack_ns != kNeverNs) return;
  const Nanoseconds delay_ns = std::min(reported_rtt(peer).srtt_ns / 4, timing().ack_delay_most_ns);
  work.ack_ns = now_ns_ + (without_effect != 0 ? varied_share(delay_ns, without_effect) : delay_ns);
  arm_peer(peer);
}

bool Session::queue_ack(PeerIndex peer, std::uint32_t id) {
  std::vector<std::uint32_t>& acks = work_of(peer).acks;
  if (std::ranges::find(acks, id) == acks.end()) acks.push_back(id);
  return acks.size() >= static_cast<std::size_t>(timing().acks_in_batch);
}

std::uint32_t Session::acks_without_effect(PeerIndex peer, std::uint32_t id) {
  const Outcome& known = work_of(peer).outcomes[id & (config().message_slots - 1)];
  return static_cast<std::uint32_t>(
      std::max<std::int64_t>(known.acknowledgements - timing().eager_rounds, 0));
}

void Session::flush_acks(PeerIndex peer) {
  Work& work = work_of(peer);
  std::vector<std::uint32_t> ids = work.acks;
  ids.insert(ids.end(), work.acked_before.begin(), work.acked_before.end());
  if (mutated(Mutant::ack_of_next)) ids.push_back(std::ranges::max(work.acks) + 1);
  const std::vector<std::uint8_t> body = write_ack(ids, engine_.control_bytes());
  for (std::uint32_t copies = copies_of_ack(peer); copies != 0; --copies) send_control(peer, body);
  work.acked_before.swap(work.acks);
  work.acks.clear();
  work.ack_ns = kNeverNs;
}

// An acknowledgement without effect gets one copy more each time: the loss may be synchronised with
// the packets that trigger it. At most one acknowledgement a round trip counts, because every
// packet of a spurious retransmission is acknowledged.
std::uint32_t Session::copies_of_ack(PeerIndex peer) {
  const Nanoseconds round_ns = reported_rtt(peer).srtt_ns;
  std::uint32_t most = 0;
  for (const std::uint32_t id : work_of(peer).acks) {
    Outcome& known = work_of(peer).outcomes[id & (config().message_slots - 1)];
    if (known.acknowledgements >= 0 && now_ns_ - known.counted_ns < round_ns) continue;
    ++known.acknowledgements;
    known.counted_ns = now_ns_;
    most = std::max(most, acks_without_effect(peer, id));
  }
  return std::min(most + 1, kMostCopies);
}

void Session::on_ack(PeerIndex peer, std::span<const std::uint8_t> body) {
  if (!read_ack(body, ids_)) return bad_control();
  Work& work = work_of(peer);
  if (mutated(Mutant::ack_of_any_generation)) {
    const auto slot = [this](std::uint32_t id) { return id & (config().message_slots - 1); };
    for (std::uint32_t& id : ids_)
      for (const Send& each : sends_)
        if (const SendMessage* send = engine_.find_send(each.handle))
          if (send->peer == peer && slot(send->id) == slot(id)) id = send->id;
  }
  for (const std::uint32_t id : ids_) {
    SendMessage* message = find_send(peer, id);
    if (message == nullptr) {
      std::erase_if(work.refusals, [id](const Refused& each) { return each.id == id; });
      if (!work.has_sent || is_newer(id, work.newest_id)) bad_control();  // it was never sent
    } else if (!is_out(*message)) {
      bad_control();
    } else {
      finish_send(*message);
    }
  }
}

// Whether each packet was sent at least once. The event `sent` does not come while retransmissions
// are pending, so `Send::out` may be behind.
bool Session::is_out(const SendMessage& message) {
  return of(message).out = of(message).out || message.next == message.count;
}

// ---------------------------------------------------------------- keepalives

// Starts keepalives with the first work that is outstanding with a peer.
void Session::begin_work(PeerIndex peer) {
  Work& work = work_of(peer);
  if (work.keepalive_ns != kNeverNs) return;
  work.began_ns = work.keepalive_sent_ns = now_ns_;
  work.keepalives_unanswered = 0;
  work.keepalive_ns = now_ns_ + timing().keepalive_interval_ns;
  arm_peer(peer);
}

void Session::arm_peer(PeerIndex peer) {
  const Work& work = work_of(peer);
  const Nanoseconds at_ns = std::min(work.ack_ns, work.keepalive_ns);
  engine_.set_peer_timer(peer, at_ns == kNeverNs ? kNever : at_ns * kNanosecond);
}

void Session::on_peer_timer(PeerIndex peer) {
  Work& work = work_of(peer);
  if (now_ns_ >= work.ack_ns) flush_acks(peer);
  if (now_ns_ >= work.keepalive_ns) check_keepalive(peer);
  arm_peer(peer);
}

void Session::check_keepalive(PeerIndex peer) {
  Work& work = work_of(peer);
  work.keepalive_ns = work.busy() ? work.keepalive_ns : kNeverNs;
  if (!work.busy()) return;
  const Nanoseconds received_ns = last_received_ns(peer);
  if (received_ns > work.keepalive_sent_ns || mutated(Mutant::keepalives_not_counted))
    work.keepalives_unanswered = 0;
  const std::int64_t most = mutated(Mutant::one_keepalive) ? 1 : timing().keepalive_probes;
  if (work.keepalives_unanswered >= most) return give_up_peer(peer);
  for (const Refused& each : work.refusals) send_refused(peer, each, false);
  if (now_ns_ - received_ns < timing().keepalive_interval_ns) {
    work.keepalive_ns = received_ns + timing().keepalive_interval_ns;
    return;
  }
  work.keepalive_ns =
      now_ns_ + backed_off(timing().keepalive_interval_ns, work.keepalives_unanswered,
                           timing().keepalive_interval_most_ns);
  ++work.keepalives_unanswered;
  work.keepalive_sent_ns = now_ns_;
  send_keepalive(peer, {});
}

// When the last packet of the peer arrived, or, if that is later, when the work with it began.
Nanoseconds Session::last_received_ns(PeerIndex index) {
  const Time received = peer(index).last_received_at;
  return std::max(received < 0 ? -1 : received / kNanosecond, work_of(index).began_ns);
}

// Fails all work with a peer that answers nothing. The refusals are for a peer that can still
// receive.
void Session::give_up_peer(PeerIndex peer) {
  Work& work = work_of(peer);
  work.keepalive_ns = kNeverNs;
  work.refusals.clear();
  constexpr WcStatus kStatus = WcStatus::retry_exc_err;
  std::vector<std::pair<std::uint64_t, Handle>> posts;  // to be failed in the order of posting
  for (const Send& each : sends_)
    if (each.handle != kNoHandle && engine_.find_send(each.handle)->peer == peer)
      posts.emplace_back(each.number, each.handle);
  std::ranges::sort(posts);
  for (const auto& [_, handle] : posts) {
    SendMessage& message = *engine_.find_send(handle);
    send_refused(peer, {message.id, message.key, kStatus}, false);
    fail_send(message, kStatus);
  }
  posts.clear();
  for (const Receive& each : receives_) {
    const ReceiveMessage* message =
        each.handle == kNoHandle ? nullptr : engine_.find_receive(each.handle);
    if (message != nullptr && message->peer == peer) posts.emplace_back(each.number, each.handle);
  }
  std::ranges::sort(posts);
  for (const auto& [_, handle] : posts) {
    const ReceiveMessage& message = *engine_.find_receive(handle);
    if (message.open) send_refused(peer, {message.id, message.key, kStatus}, true);
    fail_receive(handle, peer, kStatus);
  }
}

void Session::probe_receiver(const SendMessage& message) {
  const MessageName name{message.id, message.key};
  send_keepalive(message.peer, {&name, 1});
}

void Session::send_keepalive(PeerIndex peer, std::span<const MessageName> names) {
  ++keepalives_;
  send_control(peer, write_keepalive(names, engine_.control_bytes()));
}

void Session::on_keepalive(PeerIndex peer, std::span<const std::uint8_t> body) {
  if (!read_keepalive(body, names_)) return bad_control();
  if (mutated(Mutant::status_not_answered) && !names_.empty()) return;
  std::vector<std::uint32_t> done;
  for (const MessageName& name : names_) {
    const Outcome* known = outcome(peer, name.id);
    ReceiveMessage* message = receive_of(peer, name);
    if (known != nullptr && known->status == WcStatus::success)
      done.push_back(name.id);
    else if (known != nullptr)
      send_refused(peer, {name.id, name.key, known->status}, true);
    else if (message != nullptr)
      status_requested(*message, name.id);
    else if (!engine_.is_complete(peer, name.id))  // a complete one is about to be acknowledged
      send_rnr(peer, name);
  }
  if (!done.empty() || names_.empty()) send_control(peer, write_ack(done, engine_.control_bytes()));
}

// ---------------------------------------------------------------- not ready

void Session::send_rnr(PeerIndex peer, const MessageName& name) {
  // Who waits for a result has its receive posted.
  if (engine_.config().carries_operations && is_result(name.key))
    return send_refused(peer, {name.id, name.key, WcStatus::retry_exc_err}, true);
  Naming naming{.id = name.id, .key = name.key};
  if (const auto why = engine_.why_unready(name.key)) naming = {name.id, name.key, true, *why};
  if (naming.status < static_cast<std::uint8_t>(Unready::no_queue_pair)) {
    std::vector<MessageName>& sent = work_of(peer).rnr_sent;
    const auto known = std::ranges::find(sent, name.key, &MessageName::key);
    if (known != sent.end())
      known->id = name.id;
    else
      remember(sent, name);
  }
  const SmallBody body = write(BodyType::rnr, naming);
  send_control(peer, {body.bytes().begin(), body.bytes().end()});
}

// Packets that were sent before the pause may cause further RNR NAKs during it: these are ignored.
void Session::on_rnr(PeerIndex peer, const Naming& rnr) {
  SendMessage* message = find_send(peer, rnr.id);
  if (message == nullptr || message->key != rnr.key) return;
  if (rnr.flag != (message->qp != 0)) return bad_control();
  if (rnr.flag) return on_unready(*message, rnr.status);
  if (now_ns_ < of(*message).retry_ns) return;
  Send& send = of(*message);
  if (send.has_receive) return;  // the RNR NAK left before the receive was posted
  if (timing().rnr_retry < kRnrWithoutEnd && send.rnr_naks >= timing().rnr_retry)
    return fail_send(*message, WcStatus::rnr_retry_exc_err);
  ++send.rnr_naks;
  wait_for_receiver(*message, timing().t_max_ns);
}

void Session::wait_for_receiver(SendMessage& message, Nanoseconds wait_ns) {
  Send& send = of(message);
  send.timeouts_without_progress = 0;  // the peer answered
  send.retry_ns = now_ns_ + wait_ns;
  pause(message, true);
  set_timer(message, send.retry_ns);
  paused(message);
}

// The peer has no queue pair for an operation, or no receive; or it had none, and is ready now.
void Session::on_unready(SendMessage& message, std::uint8_t why) {
  Send& send = of(message);
  const Patience& patience = message.patience;
  if (why == static_cast<std::uint8_t>(Unready::come_again)) {
    if (!message.paused) return;
    const Handle handle = message.handle;
    const Missing nothing_arrived{.name = {message.id, message.key},
                                  .chunk_packets = static_cast<std::uint16_t>(chunk_packets()),
                                  .set = {}};
    control_arrived(message.peer, write_missing(nothing_arrived, engine_.control_bytes()));
    if (engine_.find_send(handle) != nullptr) send.has_receive = false;
    return;
  }
  if (now_ns_ < send.retry_ns) return;
  // The packets reached the receiver, which had no place for them: their attempts count anew.
  for (std::uint32_t packet = 0; packet < message.next; ++packet)
    message.sent[packet].set_reached();
  if (why == static_cast<std::uint8_t>(Unready::no_queue_pair)) {
    if (now_ - message.posted_at >= patience.without_qp)
      return give_up_send(message, WcStatus::retry_exc_err);
    return wait_for_receiver(message, timing().t_max_ns);
  }
  engine_.rnr_nak_came(message);
  if (patience.rnr_retry < kRnrWithoutEnd && send.rnr_naks >= patience.rnr_retry)
    return give_up_send(message, WcStatus::rnr_retry_exc_err);
  ++send.rnr_naks;
  wait_for_receiver(message, rnr_time(why) / kNanosecond);
}

// ---------------------------------------------------------------- messages that cannot succeed

void Session::send_refused(PeerIndex peer, const Refused& refused, bool by_receiver) {
  const SmallBody body =
      write(BodyType::refuse, Naming{.id = refused.id,
                                     .key = refused.key,
                                     .flag = by_receiver,
                                     .status = static_cast<std::uint8_t>(refused.status)});
  send_control(peer, {body.bytes().begin(), body.bytes().end()});
}

SendMessage* Session::find_reported(PeerIndex peer, std::span<const std::uint8_t> body,
                                    std::optional<Missing>& missing) {
  missing = read_missing(body);
  if (!missing) return bad_control(), nullptr;
  about(missing->name.key);
  SendMessage* message = find_send(peer, missing->name.id);
  if (message != nullptr && message->key == missing->name.key) {
    of(*message).has_receive = true;
    return message;
  }
  // Without a set the receive has not begun, and the key may be that of a later message.
  if (missing->set) refuse_unknown(peer, missing->name);
  return nullptr;
}

void Session::refuse_unknown(PeerIndex peer, const MessageName& name) {
  send_refused(peer, {name.id, name.key, WcStatus::retry_exc_err}, false);
}

void Session::on_refused(PeerIndex peer, const Naming& refused) {
  if (refused.status > kLastStatus || refused.status == 0) return bad_control();
  const auto status = static_cast<WcStatus>(refused.status);
  if (!refused.flag) return on_refused_by_sender(peer, refused, status);
  SendMessage* message = find_send(peer, refused.id);
  if (message != nullptr && message->key == refused.key) fail_send(*message, status);
}

// The sender gave up a message: fails the receive that the message has begun to fill, or would have
// filled. A repeated REFUSE fails only a receive that the message has begun to fill, because the
// key may be that of the next message by then.
void Session::on_refused_by_sender(PeerIndex peer, const Naming& refused, WcStatus status) {
  Work& work = work_of(peer);
  const bool listed = std::ranges::find(work.refused, refused.id) != work.refused.end();
  const bool is_repeated = listed || outcome(peer, refused.id) != nullptr;
  const ReceiveMessage* message = receive_of(peer, {refused.id, refused.key});
  if (message != nullptr && (message->open || !is_repeated)) {
    fail_receive(message->handle, peer, status);
    record_outcome(peer, refused.id, status);
  } else if (message == nullptr) {
    engine_.operation_given_up(refused.key, refused.id, status);
  }
  if (!listed) remember(work.refused, refused.id);
  send_control(peer, write_ack({&refused.id, 1}, engine_.control_bytes()));
}

void Session::withdraw(SendMessage& message, WcStatus status, Time now) {
  set_now(now);
  give_up_send(message, status);
}

void Session::withdraw(ReceiveMessage& message, WcStatus status, Time now) {
  set_now(now);
  if (message.open) send_refused(message.peer, {message.id, message.key, status}, true);
  fail_receive(message.handle, message.peer, status);
}

void Session::finish_send(const SendMessage& message) {
  flushed(message);
  engine_.complete_send(message.handle, WcStatus::success, now_);
}

void Session::fail_send(SendMessage& message, WcStatus status) {
  forget(message);
  engine_.complete_send(message.handle, status, now_);
}

void Session::give_up_send(SendMessage& message, WcStatus status) {
  const Refused refused{message.id, message.key, status};
  // All outstanding sends may fail at once, and each has a slot.
  remember(work_of(message.peer).refusals, refused, config().message_slots);
  send_refused(message.peer, refused, false);
  fail_send(message, status);
}

void Session::fail_receive(Handle handle, PeerIndex peer, WcStatus status) {
  const ReceiveMessage* message = engine_.find_receive(handle);
  if (message != nullptr && message->open) record_outcome(peer, message->id, status);
  forget_receive(handle, peer);
  decide(DecisionKind::fail_receive);
  engine_.fail_receive(handle, status, now_);
}

// The bound of attempts is for a live peer that data does not reach. Keepalives decide about a
// silent peer. Therefore after half of the attempts nothing is sent while the peer is silent. The
// last attempt, and giving up, wait for a packet that arrives after the attempt before. A packet
// that arrived trimmed, or out of order where that is refused, has reached the peer: its attempts
// are counted anew (Sent::tries).
bool Session::may_retransmit(SendMessage& message, std::uint32_t attempts, Nanoseconds sent_ns) {
  if (mutated(Mutant::third_attempt_fails) && attempts >= 2) {
    give_up_send(message, WcStatus::retry_exc_err);
    return false;
  }
  const Nanoseconds received_ns = last_received_ns(message.peer);
  if (attempts + 1 >= timing().most_attempts && received_ns <= sent_ns) return false;
  if (attempts >= timing().most_attempts) {
    give_up_send(message, WcStatus::retry_exc_err);
    return false;
  }
  return 2 * std::int64_t{attempts} < timing().most_attempts ||
         now_ns_ - received_ns <= 2 * timing().t_max_ns;
}

bool Session::retransmit(SendMessage& message, std::span<const std::uint32_t> packets,
                         std::uint32_t attempts, bool urgent, std::uint32_t copies) {
  Nanoseconds sent_ns = 0;
  for (const std::uint32_t packet : packets)
    if (message.sent[packet].tries() >= attempts)
      sent_ns = std::max(sent_ns, message.sent[packet].at_ns());
  if (!may_retransmit(message, attempts, sent_ns)) return false;
  decide_retransmit(static_cast<std::uint32_t>(packets.size()));
  engine_.retransmit(message.handle, packets, urgent, copies, now_, cause());
  return true;
}

bool Session::retransmit(SendMessage& message, std::uint32_t packet, RetransmitReason why) {
  const Sent& last = message.sent[packet];
  if (!may_retransmit(message, last.tries(), last.at_ns())) return false;
  engine_.retransmit(message, packet, why, now_);
  return true;
}

// ---------------------------------------------------------------- actions

void Session::set_timer(SendMessage& message, Nanoseconds at_ns) {
  engine_.set_timer(message.handle, at_ns * kNanosecond);
}

void Session::set_timer(ReceiveMessage& message, Nanoseconds at_ns) {
  engine_.set_timer(message.handle, at_ns * kNanosecond);
}

void Session::pause(SendMessage& message, bool paused) {
  decide(DecisionKind::pause);
  engine_.pause(message.handle, paused);
}

void Session::move_path(PeerIndex peer, std::uint8_t path) {
  decide(DecisionKind::move_path);
  engine_.move_path(peer, path, now_);
}

void Session::use_paths(PeerIndex peer, const std::array<std::uint16_t, kMaxPaths>& weights) {
  decide(DecisionKind::use_paths);
  engine_.set_path_weights(peer, weights);
}

void Session::send_missing(PeerIndex peer, const Missing& missing) {
  send_control(peer, write_missing(missing, engine_.control_bytes()));
}

void Session::bad_control() {
  decide(DecisionKind::refuse);
  engine_.count_bad_control();
}

// ---------------------------------------------------------------- control messages

void Session::handle_control(const Event& event) {
  const std::span<const std::uint8_t> body = event.body;
  about_ = {};
  if (body.empty()) return bad_control();
  const auto type = static_cast<BodyType>(body[0]);
  switch (type) {
    case BodyType::ack:
      return on_ack(event.peer, body);
    case BodyType::keepalive:
      return on_keepalive(event.peer, body);
    case BodyType::rnr:
    case BodyType::refuse: {
      const auto naming = read_naming(body);
      if (!naming) return bad_control();
      about_ = naming->key;
      return type == BodyType::rnr ? on_rnr(event.peer, *naming) : on_refused(event.peer, *naming);
    }
    default:
      return control_arrived(event.peer, body);
  }
}

void Session::send_control(PeerIndex peer, std::vector<std::uint8_t> body) {
  if (records_) {
    const MessageKey about = std::exchange(about_, {});
    const auto type = static_cast<BodyType>(body[0]);
    DecisionKind kind = DecisionKind::control;
    if (type == BodyType::ack) kind = DecisionKind::ack;
    if (type == BodyType::keepalive) kind = DecisionKind::keepalive;
    if (type == BodyType::rnr) kind = DecisionKind::rnr;
    if (type == BodyType::refuse) kind = DecisionKind::refused;
    if (type == BodyType::sack) kind = DecisionKind::sack;
    if (type == BodyType::chunks) kind = DecisionKind::chunks;
    if (type != BodyType::ack && type != BodyType::keepalive)
      about_ = {load16(&body[5]), load16(&body[7]), load32(&body[9])};
    decide(kind);
    about_ = about;
  }
  engine_.control(peer, std::move(body));
}

// ---------------------------------------------------------------- what was decided, and why

void Session::decide(DecisionKind kind, std::uint32_t packets) {
  if (records_)
    decisions_.push_back({now_ns_, static_cast<std::uint32_t>(kind), about_.operation, about_.step,
                          about_.message, packets});
}

// Records one decision for each way in which the losses were detected.
void Session::decide_retransmit(std::uint32_t packets) {
  if (!records_) return;
  if (event_.kind != EventKind::loss) return decide(DecisionKind::retransmit, packets);
  std::array<std::uint32_t, kLossReasons> counts{};
  for (const LostPacket& each : numbers_in<LostPacket>(event_))
    ++counts[static_cast<std::size_t>(each.reason)];
  for (std::size_t reason = 0; reason < counts.size(); ++reason)
    if (counts[reason] != 0)
      decide(static_cast<DecisionKind>(static_cast<std::size_t>(DecisionKind::retransmit_gap) +
                                       reason),
             counts[reason]);
}

std::uint8_t Session::cause() const {
  if (event_.kind == EventKind::control)
    return static_cast<std::uint8_t>(kCauseOfControl + event_.body[0]);
  if (event_.kind != EventKind::loss)
    return static_cast<std::uint8_t>(kCauseOfEvent + static_cast<std::uint8_t>(event_.kind));
  std::uint8_t reasons = 0;
  for (const LostPacket& each : numbers_in<LostPacket>(event_))
    reasons |= static_cast<std::uint8_t>(1U << static_cast<std::uint8_t>(each.reason));
  return kCauseOfLoss | reasons;
}

// ---------------------------------------------------------------- state

Session::Work& Session::work_of(PeerIndex peer) {
  while (peer >= work_.size()) work_.emplace_back(config().message_slots);
  return work_[peer];
}

SendMessage* Session::find_send(PeerIndex peer, std::uint32_t id) {
  SendMessage* message = engine_.find_send(peer, id);
  if (message == nullptr) return nullptr;
  const std::uint32_t index = index_of(message->handle);
  const bool known = index < sends_.size() && sends_[index].handle == message->handle;
  return known ? message : nullptr;  // not known: its event send_posted was not handled yet
}

bool Session::is_newest(const SendMessage& message) const {
  return message.id == work_[message.peer].newest_id;
}

// The receive that the sender's message fills or will fill; null: there is none. With the framing
// uc_immediate a receive has an id before its first packet, so a message with the same id but
// another key is not the one that the receive is for.
ReceiveMessage* Session::receive_of(PeerIndex peer, const MessageName& name) {
  ReceiveMessage* begun = engine_.find_begun(peer, name.id);
  if (begun == nullptr || !begun->open) return engine_.find_posted(peer, name.key);
  return begun->key == name.key ? begun : nullptr;
}

// A message that is older than the newest one of its slot is over, too.
const Session::Outcome* Session::outcome(PeerIndex peer, std::uint32_t id) {
  const Outcome& newest = work_of(peer).outcomes[id & (config().message_slots - 1)];
  if (mutated(Mutant::outcome_of_any_generation)) return newest.known ? &newest : nullptr;
  return !newest.known || is_newer(id, newest.id) ? nullptr : &newest;
}

void Session::record_outcome(PeerIndex peer, std::uint32_t id, WcStatus status) {
  Outcome& newest = work_of(peer).outcomes[id & (config().message_slots - 1)];
  if (newest.known && is_newer(newest.id, id)) return;
  newest = {.id = id, .known = true, .status = status};
}

void Session::forget(const SendMessage& message) {
  over(message.handle);
  of(message).handle = kNoHandle;
  --work_of(message.peer).sends;
}

void Session::forget_receive(Handle handle, PeerIndex peer) {
  const std::uint32_t index = index_of(handle);
  if (index >= receives_.size() || receives_[index].handle != handle) return;
  over(handle);
  receives_[index].handle = kNoHandle;
  --work_of(peer).receives;
}

}  // namespace softroce
