// SPDX-License-Identifier: GPL-2.0-or-later
// What sender and receiver do for coded messages alone.
#include "coding.hpp"

#include <cstring>

#include "../mutant.hpp"
#include "receiver.hpp"
#include "sender.hpp"

namespace softroce {

void CodedReceive::begin(const CodeLayout& with, std::uint32_t packets) {
  layout = with;
  open = layout.coded();
  left.clear();
  chunks_there.clear();
  data_there.clear();
  if (!open) return;
  const std::uint32_t most = layout.shape().parity_chunks, each = layout.chunk_packets();
  left.assign(layout.chunks() + layout.submessages() * most, static_cast<std::uint16_t>(each));
  left[layout.chunks() - 1] = static_cast<std::uint16_t>(packets - (layout.chunks() - 1) * each);
  const CodeLayout::Submessage last = layout.submessage(layout.submessages() - 1);
  std::fill_n(left.end() - most, last.parity_chunks,
              static_cast<std::uint16_t>(last.chunk_packets));
  chunks_there.assign(layout.submessages(), 0);
  data_there.assign(layout.submessages(), 0);
}

CodedReceive::Arrival CodedReceive::arrived(std::uint32_t index, std::uint32_t packets) {
  const bool is_data = index < packets;
  const std::uint32_t number = is_data
                                   ? index / (layout.chunk_packets() * layout.shape().data_chunks)
                                   : layout.submessage_of_parity(index - packets);
  const CodeLayout::Submessage part = layout.submessage(number);
  const std::uint32_t chunk = is_data
                                  ? index / layout.chunk_packets()
                                  : layout.chunks() + number * layout.shape().parity_chunks +
                                        (index - packets - part.first_parity) / part.chunk_packets;
  if (--left[chunk] != 0) return {number, false};
  ++chunks_there[number];
  data_there[number] += is_data;
  const bool enough = chunks_there[number] >= part.data_chunks;
  return {number, enough && data_there[number] < part.data_chunks};
}

void CodedReceive::restored(std::uint32_t submessage) {
  data_there[submessage] = static_cast<std::uint16_t>(layout.submessage(submessage).data_chunks);
}

// ---------------------------------------------------------------- sender

void Sender::release_parity(Handle send, std::uint32_t submessage, Time now) {
  SendMessage* message = messages_.find(send);
  if (message == nullptr) return state_.counters.add(Counter::stale_action);
  CodedSend& coded = message->coded;
  if (submessage >= coded.layout.submessages()) return state_.counters.add(Counter::stale_action);
  coded.released = std::max(coded.released, coded.layout.parity_end(submessage));
  if (!message->paused) queue_first_pass(*message);
  state_.events.emit_about(EventKind::parity, *message, now,
                           std::as_bytes(std::span(&submessage, 1)));
}

void Sender::put_parity(const SendMessage& message, std::uint32_t parity, Packet& packet) const {
  packet.payload_bytes = message.coded.layout.bytes_of_parity(parity);
  if (mutated(Mutant::parity_of_neighbour) && parity != 0) --parity;
  if (state_.config.carries_payload)
    packet.payload = message.coded.bytes.get() + std::uint64_t{parity} * state_.chunk_bytes;
  state_.counters.add(Counter::tx_parity);
}

// Waits for a policy's thread that encodes: the memory is its owner's from now on.
void Sender::end_coding(SendMessage& message) {
  const std::lock_guard lock(message.lock);
  message.coded.open = false;
  message.coded.bytes.reset();
}

// ---------------------------------------------------------------- receiver

CodeLayout EngineState::layout_of(std::uint32_t length, std::uint32_t place) const {
  if (place >= config.code.shapes.size()) return {};
  return CodeLayout(config.code.shapes[place], config.code.chunk_packets, chunk_bytes, length);
}

std::uint8_t* Receiver::place_of(ReceiveMessage& message, std::uint32_t index) {
  if (index < message.count) return message.base + std::uint64_t{index} * state_.chunk_bytes;
  CodedReceive& coded = message.coded;
  if (coded.bytes == nullptr)
    coded.bytes = std::make_unique_for_overwrite<std::uint8_t[]>(coded.layout.parity_bytes());
  return coded.bytes.get() + std::uint64_t{index - message.count} * state_.chunk_bytes;
}

void Receiver::note_chunk(ReceiveMessage& message, std::uint32_t index, Time now) {
  const CodedReceive::Arrival arrival = message.coded.arrived(index, message.count);
  if (!arrival.completes) return;
  if (state_.events.full()) return state_.counters.add(Counter::rx_event_overflow);
  state_.events.emit_about(EventKind::chunk, message, now,
                           std::as_bytes(std::span(&arrival.submessage, 1)));
}

void Receiver::restored(Handle receive, std::uint32_t submessage, Time now) {
  ReceiveMessage* message = messages_.find(receive);
  if (message == nullptr || submessage >= message->coded.layout.submessages())
    return state_.counters.add(Counter::stale_action);
  const CodeLayout& layout = message->coded.layout;
  const std::uint32_t end =
      layout.data_end(submessage + mutated(Mutant::restored_too_much), message->count);
  const std::uint32_t first = submessage * layout.shape().data_chunks * layout.chunk_packets();
  for (std::uint32_t index = first; index < end; ++index) {
    if (!message->bitmap.test(index)) note_restored(*message, index, now);
  }
  message->coded.restored(submessage);
  if (message->lacking == 0) finish(*message, now);
}

// The bytes of a packet are there, which did not arrive itself.
void Receiver::note_restored(ReceiveMessage& message, std::uint32_t index, Time now) {
  Peer& peer = state_.peers[message.peer];
  message.bitmap.set(index);
  --message.lacking;
  state_.grants.expect(peer, -1);
  state_.counters.add(Counter::rx_restored);
  const auto [known, fresh] = restored_.try_emplace(restored_key(peer, message.id));
  if (fresh || known->second.id != message.id) {
    known->second.id = message.id;
    known->second.packets.reset(message.count);
  }
  known->second.packets.set(index);
  state_.events.note_restored(message, index, peer.address.gid, now);
  if (state_.on_restored) state_.on_restored(peer.address.gid, message.id, index, now);
}

// Of a packet that was there before it came: whether it comes for the first time, and parity had
// restored it. It counts as needless if it was sent again. Packets of the framing uc_immediate do
// not tell their attempt, and count as sent again.
bool Receiver::came_when_restored(const Peer& peer, const LabHeader& lab) {
  if (restored_.empty() || lab.kind != LAB_KIND_DATA) return false;
  const auto known = restored_.find(restored_key(peer, lab.message_id));
  if (known == restored_.end() || known->second.id != lab.message_id) return false;
  Bitmap& packets = known->second.packets;
  if (lab.index >= packets.bits() || !packets.clear(lab.index)) return false;
  const bool again = lab.attempt != 0 || peer.channels != nullptr;
  state_.counters.add(again ? Counter::rx_needless : Counter::rx_overtaken);
  return true;
}

// Waits for a policy's thread that decodes.
void Receiver::end_coding(ReceiveMessage& message) {
  const std::lock_guard lock(message.lock);
  message.coded.open = false;
  message.coded.bytes.reset();
}

void Receiver::finish(ReceiveMessage& message, Time now) {
  Peer& peer = state_.peers[message.peer];
  peer.receive_slots[state_.slot_of(message.id)].state = ReceiveSlot::State::complete;
  complete(message, WcStatus::success, now);
  if (peer.channels) give_slots(peer, now);
}

}  // namespace softroce
