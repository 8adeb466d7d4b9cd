// SPDX-License-Identifier: GPL-2.0-or-later
#include "sender.hpp"

#include <algorithm>

#include "../mutant.hpp"

namespace softroce {

// An id whose slot is free: the receiver has done with what used the slot before.
std::uint32_t Sender::take_id(Peer& peer, Handle send) {
  while (peer.send_slots[state_.slot_of(peer.next_id)] != kNoHandle &&
         !mutated(Mutant::slot_reused_early))
    ++peer.next_id;
  peer.send_slots[state_.slot_of(peer.next_id)] = send;
  peer.ids.posted(peer.next_id);
  return peer.next_id++;
}

// Of the framing ud: a packet on its way might be taken for one of this message, or this message
// for one that is over.
bool Sender::waits_for_id(Peer& peer, SendMessage& message, Time now) {
  const Time ready_at = peer.ids.ready_at(message.id);
  if (ready_at <= now) return false;
  message.cleared = false;
  peer.held.push_back(message.handle);
  if (ready_at == kNever || peer.held_at == ready_at) return true;  // else with the end of others
  peer.held_at = ready_at;
  state_.timers.arm(ready_at, TimerKind::names, peer.index);
  return true;
}

void Sender::names_fired(Peer& peer, Time armed_for, Time now) {
  if (peer.held_at != armed_for) return;
  peer.held_at = kNever;
  send_held(peer, now);
}

void Sender::send_held(Peer& peer, Time now) {
  std::deque<Handle> held;
  held.swap(peer.held);
  for (const Handle each : held) {
    SendMessage* message = messages_.find(each);
    if (message == nullptr || waits_for_id(peer, *message, now)) continue;
    message->cleared = true;
    order_.add(*message, peer);
  }
  make_ready(peer);
}

bool Sender::post(const MessageRequest& request, Time now) {
  if (request.peer >= state_.peers.size()) return false;
  Peer& peer = state_.peers[request.peer];
  if (peer.sends_outstanding >= state_.config.message_slots) return false;
  const std::uint32_t place = peer.code_of(request.length);
  const CodeLayout layout = state_.layout_of(request.length, place);
  if (!state_.fits(request.length, layout)) return false;
  if (!outstanding_.insert({request.peer, request.key}).second) return false;
  SendMessage& message = start_message(peer, request, now);
  message.coded.begin(layout, place);
  message.tail.rows = message.tail.sent = 0;
  message.sent.assign(message.total(), {});
  if (state_.reacting != nullptr) {
    message.path = state_.keeps_to_one_path() ? peer.picker->pick(now) : kAnyPath;
    state_.reacting->posted(message);
  }
  if (!peer.channels && waits_for_id(peer, message, now)) {
    state_.counters.add(Counter::tx_name_waits);
  } else if (!peer.channels) {
    order_.add(message, peer);
    make_ready(peer);
  }
  state_.events.emit_about(EventKind::send_posted, message, now);
  if (peer.channels) wait_for_clearance(peer, message, now);
  return true;
}

SendMessage& Sender::start_message(Peer& peer, const MessageRequest& request, Time now) {
  SendMessage& message = messages_.acquire();
  // No lock is held meanwhile: no thread has the new handle before the event.
  message.peer = request.peer;
  message.key = request.key;
  message.id = peer.channels ? peer.next_id++ : take_id(peer, message.handle);
  ++peer.sends_outstanding;
  message.base = request.base;
  message.length = request.length;
  message.count = packets_of(request.length, state_.chunk_bytes);
  message.memory_key = request.memory_key;
  message.wr_id = request.wr_id;
  message.qp = request.qp;
  message.regions = state_.memory.generation();
  message.operation = request.operation;
  message.patience = request.patience;
  message.next = 0;
  message.retransmit.reset(message.count);
  message.copies.clear();
  message.retransmit_pending = 0;
  message.retransmit_cursor = 0;
  message.in_retransmit_queue = false;
  message.paused = false;
  message.cleared = !peer.channels;
  message.first_path = kAnyPath;
  message.timer_at = kNever;
  message.posted_at = now;
  message.first_at = 0;
  message.retransmitted = 0;
  return message;
}

void Sender::complete(Handle send, WcStatus status, Time now) {
  SendMessage* message = messages_.find(send);
  if (message == nullptr) return state_.counters.add(Counter::stale_action);
  if (message->coded.open) end_coding(*message);
  if (message->qp != 0) {
    state_.owner->ended(*message, status);
  } else {
    state_.events.complete({.wr_id = message->wr_id,
                            .status = status,
                            .opcode = WcOpcode::send,
                            .byte_len = message->length,
                            .qp_num = state_.data_qp,
                            .peer = message->peer,
                            .key = message->key,
                            .packets = message->count,
                            .retransmitted = message->retransmitted,
                            .posted_at = message->posted_at,
                            .first_at = message->first_at,
                            .completed_at = now});
    if (state_.config.carries_payload) state_.memory.unpin(message->memory_key);
  }
  outstanding_.erase({message->peer, message->key});
  state_.stops.go_on(message->stopped);
  Peer& peer = state_.peers[message->peer];
  order_.remove(*message, peer);
  --peer.sends_outstanding;
  if (message->cleared || !peer.channels) peer.send_slots[state_.slot_of(message->id)] = kNoHandle;
  if (peer.channels)
    leave_channel(peer, *message, now);
  else
    peer.ids.over(message->id, now, state_.config.packet_lifetime);
  messages_.release(*message);
  if (!peer.held.empty()) send_held(peer, now);
}

void Sender::flush(std::optional<PeerIndex> peer, Time now, WcStatus status) {
  messages_.for_each([&](SendMessage& m) {
    if (peer && m.peer != *peer) return;
    if (state_.session != nullptr) state_.session->flushed(m);
    complete(m.handle, status, now);
  });
}

bool Sender::poll_retransmit(Packet& packet, Time now) {
  while (!retransmit_ring_.empty()) {
    Peer& peer = state_.peers[retransmit_ring_.front()];
    if (peer.retransmissions.empty() || !flow_.may_send(peer, now)) {
      if (!peer.retransmissions.empty()) flow_.wait_to_send(peer, now);
      probe_when_idle(peer, now);
      peer.in_retransmit_ring = false;
      retransmit_ring_.pop_front();
      continue;
    }
    SendMessage* message = messages_.find(peer.retransmissions.front());
    if (message != nullptr && !has_memory(*message)) message->retransmit_pending = 0;
    if (message == nullptr || message->retransmit_pending == 0) {
      if (message != nullptr) message->in_retransmit_queue = false;
      peer.retransmissions.pop_front();
      continue;
    }
    std::uint32_t index = message->retransmit.take_next(message->retransmit_cursor);
    if (index == message->retransmit.bits()) index = message->retransmit.take_next(0);
    message->retransmit_cursor = index + 1 < message->count ? index + 1 : 0;
    if (!takes_copy(*message, index))
      relaxed_store(message->retransmit_pending, message->retransmit_pending - 1);
    build_data(peer, *message, index, true, now, packet);
    finish_if_drained(*message, now);
    return true;
  }
  return false;
}

bool Sender::poll_data(Packet& packet, Time now) {
  while (!order_.empty()) {
    Peer& peer = state_.peers[order_.peer()];
    SendMessage* message = order_.message(peer);
    if (message == nullptr || peer.is_held || !flow_.may_send(peer, now)) {
      if (!peer.sends.empty()) flow_.wait_to_send(peer, now);
      probe_when_idle(peer, now);
      order_.close(peer);
      continue;
    }
    if (!has_memory(*message)) message->paused = true;
    const std::uint32_t index = message->paused ? SendMessage::kNoPacket : message->next_first();
    if (index == SendMessage::kNoPacket) {
      leave_queue(*message, peer);
      continue;
    }
    if (index == 0) message->first_at = now;
    build_data(peer, *message, index, false, now, packet);
    if (index < message->count)
      relaxed_store(message->next, index + 1);
    else
      ++message->coded.next;
    order_.sent(*message, peer);
    finish_if_drained(*message, now);
    if (state_.parity.enabled) note_sent_data(*message, now);
    probe_when_idle(peer, now);
    return true;
  }
  return !tails_.empty() && queue_parity(now) && poll_parity(packet, now);
}

// False: what an operation sends may not be read any more. Its owner knows, and ends it.
bool Sender::has_memory(SendMessage& message) {
  if (message.qp == 0) return true;
  const std::uint32_t generation = state_.memory.generation();
  if (message.regions != generation) {
    message.regions = generation;
    message.base = state_.owner->memory_of(message);
  }
  return message.base != nullptr;
}

// Nothing of it may be sent for the first time just now.
void Sender::leave_queue(SendMessage& message, Peer& peer) {
  order_.remove(message, peer);
  if (!message.paused && message.next != message.count)
    state_.stops.stop(message.stopped, flow_.why_full(peer), flow_.flow_to(peer));
}

void Sender::build_data(Peer& peer, SendMessage& message, std::uint32_t index, bool retransmit,
                        Time now, Packet& packet) {
  Sent& sent = message.sent[index];
  const std::uint16_t attempt = sent.attempts();
  const std::uint8_t path = message.path != kAnyPath ? message.path
                            : retransmit             ? peer.picker->pick_again(sent.path(), now)
                                                     : first_path(peer, message, now);
  const int counted = mutated(Mutant::attempt_not_counted) ? attempt : attempt + 1;
  sent.note(now / kNanosecond, path, peer.sent_on[path] & LAB_NUMBER_MASK,
            static_cast<std::uint16_t>(std::min(counted, UINT16_MAX)));
  packet.lab = {.path = path, .attempt = attempt, .index = index, .code = message.coded.code};
  const bool neighbour = mutated(Mutant::retransmit_of_neighbour) && retransmit && index != 0;
  if (state_.config.carries_payload)
    packet.payload = message.base + std::uint64_t{index - neighbour} * state_.chunk_bytes;
  packet.payload_bytes = packet_bytes(index, message.count, message.length, state_.chunk_bytes);
  if (index >= message.count) put_parity(message, index - message.count, packet);
  peer.last_path = path;
  peer.unprobed |= 1U << path;
  ++peer.unprobed_packets;
  peer.probe_repeats = 0;
  peer.data_at = now;
  complete_packet(peer, message, retransmit, now, packet);
  if (retransmit) {
    ++message.retransmitted;
    state_.counters.add(Counter::tx_retransmitted);
  }
  if (state_.reacting != nullptr) state_.reacting->packet_sent(message, index, now);
}

// Completes a packet of data or parity that has its payload, path, index, attempt and code: adds
// the rest of the header, and counts the packet for path, window and rate.
void Sender::complete_packet(Peer& peer, const SendMessage& message, bool retransmit, Time now,
                             Packet& packet) {
  LabHeader& lab = packet.lab;
  lab.kind = lab.index < message.count ? LAB_KIND_DATA : LAB_KIND_PARITY;
  lab.operation = message.key.operation;
  lab.step = message.key.step;
  lab.message = message.key.message;
  lab.message_id = message.id;
  lab.count = message.count;
  lab.length = message.length;
  if (message.qp != 0) put_operation(message.operation, packet);
  lab.number = peer.sent_on[lab.path] & LAB_NUMBER_MASK;
  note_on_path(peer, lab.path, now);
  if (peer.channels) {
    address_channel_packet(peer, message, now, packet);
  } else {
    state_.address(peer, retransmit, now, packet);
    peer.flight.sent(now / kNanosecond);
  }
  if (peer.congestion->is_paced()) peer.congestion->on_sent(frame_bytes(packet), now);
  state_.counters.add(Counter::tx_data);
}

void Sender::finish_if_drained(SendMessage& message, Time now) {
  if (!message.all_sent() || message.retransmit_pending != 0) return;
  state_.events.emit_about(EventKind::sent, message, now);
}

void Sender::make_ready(Peer& peer) {
  state_.stops.go_on(peer.stopped);
  if (!peer.retransmissions.empty() && !peer.in_retransmit_ring) {
    peer.in_retransmit_ring = true;
    retransmit_ring_.push_back(peer.index);
  }
  order_.open(peer);
  if (!flow_.window_closed(peer)) peer.persist_at = kNever;
}

void Sender::retransmit(Handle send, std::span<const std::uint32_t> indices, bool urgent,
                        std::uint32_t copies, Time now, std::uint8_t cause) {
  SendMessage* message = messages_.find(send);
  if (message == nullptr) return state_.counters.add(Counter::stale_action);
  state_.events.note_retransmit(*message, indices, RetransmitReason::policy,
                                state_.peers[message->peer].address.gid, now, cause);
  if (message->retransmit_pending == 0 && !indices.empty()) message->retransmit_cursor = indices[0];
  for (const std::uint32_t index : indices) {
    if (index >= message->next) continue;
    if (message->retransmit.set(index))
      relaxed_store(message->retransmit_pending, message->retransmit_pending + 1);
    if (copies > 1) ask_for_copies(*message, index, copies);
  }
  if (message->retransmit_pending == 0) return;
  state_.peers[message->peer].congestion->on_loss(now);
  queue_retransmit(*message, urgent);
}

void Sender::ask_for_copies(SendMessage& message, std::uint32_t index, std::uint32_t copies) {
  if (message.copies.empty()) message.copies.assign(message.count, 0);
  const auto more = static_cast<std::uint8_t>(std::min(copies, kMostCopies) - 1);
  message.copies[index] = std::max(message.copies[index], more);
}

// A copy of the packet is to follow. It waits as the packet did: behind those after it, so that a
// burst of losses does not take all copies.
bool Sender::takes_copy(SendMessage& message, std::uint32_t index) {
  if (message.copies.empty() || message.copies[index] == 0) return false;
  --message.copies[index];
  return message.retransmit.set(index);
}

void Sender::retransmit(SendMessage& message, std::uint32_t packet, RetransmitReason why,
                        Time now) {
  if (!message.retransmit.set(packet)) return;
  state_.events.note_retransmit(message, {&packet, 1}, why, state_.peers[message.peer].address.gid,
                                now);
  relaxed_store(message.retransmit_pending, message.retransmit_pending + 1);
  Peer& peer = state_.peers[message.peer];
  const std::uint8_t lost_on = message.sent[packet].path();
  if (why == RetransmitReason::nak) peer.picker->lost(lost_on, now);
  if (why == RetransmitReason::timeout) peer.picker->timed_out(lost_on, now);
  peer.congestion->on_loss(now);
  queue_retransmit(message);
}

void Sender::forget_retransmit(SendMessage& message, std::uint32_t packet) {
  if (message.retransmit.clear(packet))
    relaxed_store(message.retransmit_pending, message.retransmit_pending - 1);
}

// Of the same peer an urgent message goes before all others, and the peer before all other peers.
// In both queues a name that stands there twice does no harm: it is passed over when there is
// nothing to do for it.
void Sender::queue_retransmit(SendMessage& message, bool urgent) {
  Peer& peer = state_.peers[message.peer];
  if (urgent) {
    peer.retransmissions.push_front(message.handle);
    peer.in_retransmit_ring = true;
    retransmit_ring_.push_front(peer.index);
  } else if (!message.in_retransmit_queue) {
    peer.retransmissions.push_back(message.handle);
  }
  message.in_retransmit_queue = true;
  make_ready(peer);
}

void Sender::pause(Handle send, bool paused) {
  SendMessage* message = messages_.find(send);
  if (message == nullptr) return state_.counters.add(Counter::stale_action);
  pause(*message, paused);
}

void Sender::pause(SendMessage& message, bool paused) {
  if (message.paused == paused) return;
  relaxed_store(message.paused, paused);
  if (!paused) queue_first_pass(message);
}

void Sender::allow(SendMessage& message, std::uint32_t limit) {
  const bool held = message.next >= message.limit;
  message.limit = limit;
  if (held && limit > message.next && !message.paused) queue_first_pass(message);
}

void Sender::hold(Peer& peer, bool held) {
  peer.is_held = held || mutated(Mutant::hold_not_released);
  if (!held) make_ready(peer);
}

void Sender::queue_first_pass(SendMessage& message) {
  if (!message.cleared || message.send_class != kNotSending || message.all_sent()) return;
  state_.stops.go_on(message.stopped);
  Peer& peer = state_.peers[message.peer];
  order_.add(message, peer, true);
  make_ready(peer);
}

}  // namespace softroce
