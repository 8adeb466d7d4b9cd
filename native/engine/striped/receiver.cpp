// SPDX-License-Identifier: GPL-2.0-or-later
#include "receiver.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "../mutant.hpp"

namespace softroce {
namespace {

constexpr Time kReportInterval = kMillisecond;  // between events of packets without effect

}  // namespace

bool Receiver::post(const MessageRequest& request, Time now) {
  const PeerKey key{request.peer, request.key};
  if (request.peer >= state_.peers.size() || posted_.contains(key)) return false;
  Peer& peer = state_.peers[request.peer];
  const CodeLayout layout =
      peer.channels ? state_.layout_of(request.length, 0) : CodeLayout();  // else by its code
  if (!state_.fits(request.length, layout)) return false;
  ReceiveMessage& message = messages_.acquire();
  // No lock is held meanwhile: no thread has the new handle before the event.
  message.peer = request.peer;
  message.key = request.key;
  message.open = false;
  message.code = std::uint8_t{layout.coded()};
  message.id = peer.channels ? peer.channels->next_receive_id++ : 0;
  message.base = request.base;
  message.capacity = request.length;
  message.length = request.length;
  message.count = packets_of(request.length, state_.chunk_bytes);
  message.memory_key = request.memory_key;
  message.wr_id = request.wr_id;
  message.qp = request.qp;
  message.regions = state_.memory.generation();
  message.connection = request.operation.connection;
  message.holds_last = request.holds_last;
  message.held.clear();
  message.is_overwritten = false;
  message.coded.begin(layout, message.count);
  message.tail.block = message.tail.rows = 0;
  message.bitmap.reset(message.total());
  message.received = 0;
  message.lacking = message.count;
  message.highest = 0;
  message.duplicates = 0;
  message.timer_at = kNever;
  message.gaps.reset();
  message.gap_check_at = kNever;
  message.posted_at = now;
  message.first_at = 0;
  message.last_at = 0;
  posted_.emplace(key, message.handle);
  state_.events.emit_about(EventKind::receive_posted, message, now);
  if (peer.channels) {
    peer.channels->slotless.push_back(message.handle);
    give_slots(peer, now);
  }
  return true;
}

void Receiver::flush(std::optional<PeerIndex> peer, Time now, WcStatus status) {
  messages_.for_each([&](ReceiveMessage& m) {
    if (peer && m.peer != *peer) return;
    if (state_.session != nullptr) state_.session->flushed(m);
    fail(m.handle, status, now);
  });
}

void Receiver::handle_data(Peer& peer, const Packet& packet, Time now) {
  const LabHeader& lab = packet.lab;
  if (lab.of_operation() != state_.config.carries_operations)
    return state_.counters.add(Counter::rx_bad_header);
  const bool is_tail = is_tail_parity(lab);
  const std::uint32_t most_code =
      is_tail ? std::min(lab.count, kMostBlockPackets)
              : static_cast<std::uint32_t>(state_.config.code.shapes.size());
  if (lab.count != packets_of(lab.length, state_.chunk_bytes) || lab.code > most_code ||
      (is_tail && lab.code == 0))
    return state_.counters.add(Counter::rx_bad_count);
  const CodeLayout layout = is_tail ? CodeLayout() : state_.layout_of(lab.length, lab.code - 1U);
  const std::uint32_t parity = is_tail ? kMostParity : layout.parity_packets();
  const bool is_parity = lab.kind == LAB_KIND_PARITY;
  if (is_parity ? lab.index - lab.count >= parity : lab.index >= lab.count)
    return state_.counters.add(Counter::rx_bad_index);
  if (lab.trimmed && packet.payload_bytes == 0) {
    if (state_.numbers_paths()) losses_.arrived(peer, packet, now);
    state_.grants.note_trimmed(now);
    state_.counters.add(Counter::rx_trimmed);
    return report_trimmed(peer, packet, now);
  }
  const std::uint32_t bytes =
      is_tail     ? state_.tail_block(nullptr, lab.length, lab.code).row_bytes
      : is_parity ? layout.bytes_of_parity(lab.index - lab.count)
                  : packet_bytes(lab.index, lab.count, lab.length, state_.chunk_bytes);
  if (lab.trimmed || packet.payload_bytes != bytes)
    return state_.counters.add(Counter::rx_bad_length);
  state_.counters.add(Counter::rx_data);

  ReceiveSlot& slot = peer.receive_slots[state_.slot_of(lab.message_id)];
  const bool opened = slot.state == ReceiveSlot::State::open && slot.id == lab.message_id;
  ReceiveMessage* message = opened ? messages_.find(slot.message) : nullptr;
  if (message != nullptr &&
      (lab.length != message->length || (lab.code != message->code && !is_tail) ||
       MessageKey{lab.operation, lab.step, lab.message} != message->key))
    return state_.counters.add(Counter::rx_inconsistent);
  // Before it is known whether the packet has any effect: the sender's window holds those of
  // messages that are complete or unexpected too, until a report accounts for them.
  reporter_.note_arrival(peer, packet, now);
  if (state_.numbers_paths()) losses_.arrived(peer, packet, now);
  if (message == nullptr) message = open_message(peer, slot, packet, layout, now);
  if (message == nullptr) return;
  if (!message->open) begin(*message, now);

  if (is_tail) return take_parity(*message, packet, now);
  place(peer, slot, *message, packet, now);
}

// A packet of a message that failed, or that its slot cannot hold, is dropped as a whole packet
// would be.
void Receiver::report_trimmed(Peer& peer, const Packet& packet, Time now) {
  using State = ReceiveSlot::State;
  const LabHeader& lab = packet.lab;
  if (lab.kind != LAB_KIND_DATA || state_.session == nullptr) return;
  TrimmedPacket trimmed{.peer = peer.index, .packet = packet};
  ReceiveSlot& slot = peer.receive_slots[state_.slot_of(lab.message_id)];
  const MessageKey key{lab.operation, lab.step, lab.message};
  if (slot.state != State::empty && slot.id == lab.message_id) {
    if (slot.state == State::failed) return;
    if (slot.state == State::open) trimmed.message = messages_.find(slot.message);
    const ReceiveMessage* message = trimmed.message;
    if (message != nullptr && (lab.length != message->length || key != message->key)) return;
    trimmed.has_arrived = message == nullptr || message->bitmap.test(lab.index);
  } else {
    const bool older = static_cast<std::int32_t>(lab.message_id - slot.id) < 0;
    if (slot.state == State::open || (slot.state != State::empty && older)) return;
    trimmed.message = find_posted(peer.index, key);
    if (trimmed.message == nullptr && lab.of_operation())
      trimmed.message = open_operation(peer, slot, packet, now);
    if (trimmed.message != nullptr && lab.length > trimmed.message->capacity) return;
  }
  if (state_.reacting != nullptr) state_.reacting->packet_trimmed(trimmed, now);
  if (trimmed.message == nullptr || trimmed.has_arrived || !state_.session->takes_trimmed()) return;
  if (state_.events.full()) return state_.counters.add(Counter::rx_event_overflow);
  const PayloadLoss loss{lab.index, packet.trimmed_at_last_hop()};
  state_.events.emit_about(EventKind::trimmed, *trimmed.message, now,
                           std::as_bytes(std::span(&loss, 1)));
}

void Receiver::place(Peer& peer, ReceiveSlot& slot, ReceiveMessage& message, const Packet& packet,
                     Time now) {
  const LabHeader& lab = packet.lab;
  relaxed_store(message.last_at, now);
  if (!has_memory(message, now)) return;
  if (state_.reacting != nullptr && state_.reacting->refuses(message, packet, now))
    return state_.counters.add(Counter::rx_out_of_order);
  if (!mutated(Mutant::bit_skipped) && !message.bitmap.set(lab.index)) {
    if (mutated(Mutant::duplicate_counts) && lab.index < message.count) --message.lacking;
    if (lab.kind == LAB_KIND_PARITY) {
      state_.counters.add(Counter::rx_late_parity);
    } else if (!came_when_restored(peer, lab)) {
      relaxed_store(message.duplicates, message.duplicates + 1);
      state_.counters.add(Counter::rx_duplicate);
    }
    if (state_.reacting != nullptr) state_.reacting->packet_arrived(message, packet, now);
    return;
  }
  const bool skipped = mutated(Mutant::bytes_skipped) && lab.index + 1 == message.total();
  if (state_.config.carries_payload && packet.payload != nullptr && packet.payload_bytes != 0 &&
      !skipped) {
    if (is_held(message, lab.index))
      message.held.assign(packet.payload, packet.payload + packet.payload_bytes);
    else
      std::memcpy(place_of(message, lab.index), packet.payload, packet.payload_bytes);
  }
  state_.counters.add(Counter::rx_placed);
  if (lab.index < message.count) {
    --message.lacking;
    state_.grants.expect(peer, -1);
    relaxed_store(message.highest, std::max(message.highest, lab.index));
  }
  relaxed_store(message.received, message.received + 1);
  if (state_.reacting != nullptr) state_.reacting->packet_arrived(message, packet, now);
  const bool early = mutated(Mutant::one_too_early) && message.count > 1;
  if (message.lacking == (early ? 1 : 0)) return finish(message, now);
  if (message.coded.open) note_chunk(message, lab.index, now);
  if (message.tail.rows != 0) return restore_tail(message, now);
  if (lab.index + 1 == message.total())
    state_.events.emit_about(EventKind::tail_seen, message, now);
  if (message.gaps.watched()) {
    message.gaps.arrived(lab.index, now);
    arm_gap_check(message, now);
  }
}

// A program that looks at the last byte of a WRITE must find all that comes before it in RC's order:
// what is missing of the message, and of the operations ahead.
bool Receiver::is_held(const ReceiveMessage& message, std::uint32_t index) const {
  return message.holds_last && index + 1 == message.count && !mutated(Mutant::last_packet_not_held) &&
         (message.lacking != 1 || !state_.owner->is_next(message.key));
}

// False: an operation's bytes have no place any more. Its owner knows; its sender is told.
bool Receiver::has_memory(ReceiveMessage& message, Time now) {
  if (message.qp == 0) return true;
  const std::uint32_t generation = state_.memory.generation();
  if (message.regions == generation) return message.base != nullptr;
  message.regions = generation;
  WcStatus why_not = WcStatus::rem_access_err;
  message.base = state_.owner->memory_of(message, why_not);
  if (message.base == nullptr)
    state_.events.emit_about(EventKind::refused, message, now,
                             std::as_bytes(std::span(&why_not, 1)));
  return message.base != nullptr;
}

void Receiver::detect_gaps(Handle receive, Time window, Time now) {
  ReceiveMessage* message = messages_.find(receive);
  if (message == nullptr) return state_.counters.add(Counter::stale_action);
  message->gaps.watch(window, message->received == 0 ? 0 : message->highest + 1, now);
  arm_gap_check(*message, now);
}

void Receiver::arm_gap_check(ReceiveMessage& message, Time not_before) {
  const Time due = message.gaps.due();
  if (due == kNever || due >= message.gap_check_at) return;
  message.gap_check_at = std::max(due, not_before);
  state_.timers.arm(message.gap_check_at, TimerKind::gap, message.handle);
}

void Receiver::gap_fired(Handle receive, Time armed_for, Time now) {
  ReceiveMessage* message = messages_.find(receive);
  if (message == nullptr || message->gap_check_at != armed_for) return;
  message->gap_check_at = kNever;
  if (!state_.events.full()) {
    report_gaps(*message, now);
    return arm_gap_check(*message, now);
  }
  state_.counters.add(Counter::rx_event_overflow);
  arm_gap_check(*message, now + kReportInterval);  // the gaps are kept until then
}

void Receiver::report_gaps(ReceiveMessage& message, Time now) {
  std::vector<std::uint32_t> missing;
  message.gaps.take_due(now, [&](std::uint32_t index) {
    if (!message.bitmap.test(index)) missing.push_back(index);
  });
  if (missing.empty()) return;
  state_.events.emit_about(EventKind::gap, message, now, std::as_bytes(std::span(missing)));
}

ReceiveMessage* Receiver::open_message(Peer& peer, ReceiveSlot& slot, const Packet& packet,
                                       const CodeLayout& layout, Time now) {
  if (slot_taken(peer, slot, packet, now)) return nullptr;
  const LabHeader& lab = packet.lab;
  ReceiveMessage* message = find_posted(peer.index, {lab.operation, lab.step, lab.message});
  if (message == nullptr && lab.of_operation()) {
    message = open_operation(peer, slot, packet, now);
    if (message == nullptr) return nullptr;
  }
  if (message == nullptr) {
    if (state_.reacting != nullptr) state_.reacting->packet_refused(peer.index, lab);
    return refuse(peer, slot, lab, Counter::rx_no_recv, EventKind::no_receive, now);
  }
  if (lab.connection != message->connection) {
    state_.counters.add(Counter::rx_stale_operation);
    return nullptr;
  }
  if (lab.length > message->capacity)
    return refuse(peer, slot, lab, Counter::rx_message_too_long, EventKind::too_long, now);

  {
    const std::lock_guard lock(message->lock);
    message->id = lab.message_id;
    message->length = lab.length;
    message->lacking = message->count = lab.count;
    message->code = is_tail_parity(lab) ? 0 : lab.code;
    message->coded.begin(layout, message->count);
    if (layout.coded()) message->bitmap.reset(message->total());
  }
  slot = {.state = ReceiveSlot::State::open, .id = lab.message_id, .message = message->handle};
  return message;
}

// The receive of an operation that nobody announced. Null: it may not come.
ReceiveMessage* Receiver::open_operation(Peer& peer, ReceiveSlot& slot, const Packet& packet,
                                         Time now) {
  const LabHeader& lab = packet.lab;
  const MessageKey key{lab.operation, lab.step, lab.message};
  const Place place = state_.owner->place_for(peer, packet, now);
  switch (place.kind) {
    case Place::Kind::memory:
      post({.peer = peer.index,
            .key = key,
            .base = place.base,
            .length = place.capacity,
            .qp = qp_of(key),
            .operation = operation_of(packet),
            .holds_last = place.holds_last},
           now);
      return find_posted(peer.index, key);
    case Place::Kind::not_ready:
      return refuse(peer, slot, lab, Counter::rx_no_recv, EventKind::no_receive, now);
    case Place::Kind::refused:
      slot.state = ReceiveSlot::State::failed;  // what is still on its way is late
      slot.id = lab.message_id;
      refuse_operation(peer.index, lab.message_id, key, place.status, now);
      return nullptr;
    case Place::Kind::dropped:
      return nullptr;
  }
  return nullptr;
}

void Receiver::refuse_operation(PeerIndex peer, std::uint32_t id, const MessageKey& key,
                                WcStatus status, Time now) {
  Event event{.kind = EventKind::refused, .peer = peer, .at = now, .key = key, .id = id};
  event.body.assign(1, static_cast<std::uint8_t>(status));
  state_.events.emit(std::move(event));
}

// By an earlier message that is not over here, by a newer one, or by this one, which is over.
bool Receiver::slot_taken(Peer& peer, ReceiveSlot& slot, const Packet& packet, Time now) {
  using State = ReceiveSlot::State;
  const LabHeader& lab = packet.lab;
  const auto newer = static_cast<std::int32_t>(lab.message_id - slot.id);
  if (slot.state != State::empty && newer < 0) {
    state_.counters.add(Counter::rx_stale_generation);
    return true;
  }
  if (slot.state == State::complete && newer == 0 &&
      lab.kind == LAB_KIND_PARITY) {  // nobody waits for it
    state_.counters.add(Counter::rx_late_parity);
    return true;
  }
  if ((slot.state == State::complete || slot.state == State::failed) && newer == 0) {
    if (!came_when_restored(peer, lab)) state_.counters.add(Counter::rx_duplicate);
    if (state_.reacting != nullptr && slot.state == State::complete)
      state_.reacting->packet_came_late(peer.index, packet, now);
    else
      report_at_intervals(peer, slot, lab, EventKind::late_packet, now);
    return true;
  }
  if (slot.state == State::open) {
    state_.counters.add(Counter::rx_slot_busy);
    return true;
  }
  return false;
}

// A program may have several operations outstanding whose memory overlaps. Each puts its packets
// there, but none can be restored from what is there.
void Receiver::note_overlap(ReceiveMessage& message) {
  std::erase_if(restorable_, [this](Handle each) { return messages_.find(each) == nullptr; });
  for (const Handle each : restorable_) {
    ReceiveMessage& other = *messages_.find(each);
    const bool apart =
        other.base + other.length <= message.base || message.base + message.length <= other.base;
    if (!apart) other.is_overwritten = message.is_overwritten = true;
  }
  if (message.count > 1) restorable_.push_back(message.handle);
}

void Receiver::overwritten(const std::uint8_t* at, std::uint64_t bytes) {
  for (const Handle each : restorable_) {
    ReceiveMessage* message = messages_.find(each);
    if (message == nullptr) continue;
    const bool apart = at + bytes <= message->base || message->base + message->length <= at;
    if (!apart) message->is_overwritten = true;
  }
}

// With its first packet, of which everything is known.
void Receiver::begin(ReceiveMessage& message, Time now) {
  posted_.erase({message.peer, message.key});
  {
    const std::lock_guard lock(message.lock);
    message.open = true;
    message.first_at = now;
  }
  if (message.qp != 0 && state_.parity.enabled) note_overlap(message);
  Peer& peer = state_.peers[message.peer];
  state_.grants.expect(peer, message.lacking);
  if (losses_.is_enabled()) losses_.note_begun(peer, message.id);
  if (peer.channels) peer.channels->uses.begun(message.id, now, state_.config.packet_lifetime);
  state_.events.emit_about(EventKind::first_packet, message, now);
}

ReceiveMessage* Receiver::refuse(Peer& peer, ReceiveSlot& slot, const LabHeader& lab, Counter why,
                                 EventKind event, Time now) {
  state_.counters.add(why);
  report_at_intervals(peer, slot, lab, event, now);
  return nullptr;
}

void Receiver::report_at_intervals(Peer& peer, ReceiveSlot& slot, const LabHeader& lab,
                                   EventKind event, Time now) {
  const bool reported = slot.reported_at >= 0 && slot.reported_id == lab.message_id;
  if (reported && now - slot.reported_at < kReportInterval) return;
  if (state_.events.full()) return state_.counters.add(Counter::rx_event_overflow);
  slot.reported_id = lab.message_id;
  slot.reported_at = now;
  state_.events.emit({.kind = event,
                      .peer = peer.index,
                      .at = now,
                      .key = {lab.operation, lab.step, lab.message},
                      .id = lab.message_id,
                      .length = lab.length,
                      .count = lab.count});
}

void Receiver::complete(ReceiveMessage& message, WcStatus status, Time now) {
  if (message.qp != 0)
    state_.owner->ended(message, status);
  else
    state_.events.complete({.wr_id = message.wr_id,
                            .status = status,
                            .opcode = WcOpcode::recv,
                            .byte_len = message.length,
                            .qp_num = state_.data_qp,
                            .peer = message.peer,
                            .key = message.key,
                            .packets = message.count,
                            .duplicates = message.duplicates,
                            .posted_at = message.posted_at,
                            .first_at = message.first_at,
                            .completed_at = now});
  if (status == WcStatus::success)
    state_.events.emit_about(EventKind::receive_complete, message, now);
  if (message.open)
    state_.grants.expect(state_.peers[message.peer], -std::int64_t{message.lacking});
  if (message.coded.open) end_coding(message);
  if (state_.config.carries_payload && message.qp == 0) state_.memory.unpin(message.memory_key);
  if (losses_.is_enabled() && message.open)
    losses_.note_over(state_.peers[message.peer], message.id);
  messages_.release(message);
}

void Receiver::fail(Handle receive, WcStatus status, Time now) {
  ReceiveMessage* message = messages_.find(receive);
  if (message == nullptr) return state_.counters.add(Counter::stale_action);
  Peer& peer = state_.peers[message->peer];
  ReceiveSlot& slot = peer.receive_slots[state_.slot_of(message->id)];
  if (!message->open) posted_.erase({message->peer, message->key});
  if (slot.state == ReceiveSlot::State::open && slot.message == receive)
    slot.state = ReceiveSlot::State::failed;  // what is still on its way is late
  complete(*message, status, now);
  if (peer.channels) give_slots(peer, now);
}

}  // namespace softroce
