// SPDX-License-Identifier: GPL-2.0-or-later
// The receiver's part of the framing uc_immediate: receives get slots in the order in which they
// were posted, and are cleared to be sent. A packet names a slot; the receive that was given the
// slot determines the message.
#include <algorithm>

#include "../../../xdp/lab_hash.h"
#include "../mutant.hpp"
#include "receiver.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kMostPatience = 3;  // doublings of the time between two clearances

// 0 to 255, of a host, a peer and a number: as good as drawn, and the same in every run.
std::uint32_t share_of(const Gid& host, std::uint32_t peer, std::uint32_t number) {
  return lab_mix64(host.low ^ lab_mix64(host.high ^ (std::uint64_t{peer} << 32 | number))) & 0xFF;
}

}  // namespace

// Receives that were posted get the slots of their ids, in order, as these become free; then they
// are cleared to be sent.
void Receiver::give_slots(Peer& peer, Time now) {
  Channels& channels = *peer.channels;
  std::vector<Cleared> given;
  for (; !channels.slotless.empty(); channels.slotless.pop_front()) {
    const ReceiveMessage* message = messages_.find(channels.slotless.front());
    if (message == nullptr) {  // it failed meanwhile, and its id is used up
      channels.uses.given();
      continue;
    }
    ReceiveSlot& slot = peer.receive_slots[state_.slot_of(message->id)];
    if (slot.state == ReceiveSlot::State::open && !mutated(Mutant::slot_given_twice)) break;
    if (waits_for_name(peer, now)) break;
    channels.uses.given();
    slot = {.state = ReceiveSlot::State::open, .id = message->id, .message = message->handle};
    channels.names[state_.slot_of(message->id)] = {message->key, message->length};
    channels.quiet.push_back(message->id);
    given.push_back({message->id, message->key, message->length});
  }
  if (given.empty()) return;
  channels.clearances_without_effect = 0;
  send_clearance(peer, given);
  if (channels.clear_at == kNever) arm_clearance(peer, now);
}

// Packets of the last use of the slot and the generation may be on their way.
bool Receiver::waits_for_name(Peer& peer, Time now) {
  Channels& channels = *peer.channels;
  const Time ready_at = channels.uses.ready_at(now, state_.config.packet_lifetime);
  if (ready_at <= now) return false;
  if (channels.slots_at == ready_at) return true;
  state_.counters.add(Counter::rx_name_waits);
  channels.slots_at = ready_at;
  state_.timers.arm(ready_at, TimerKind::names, peer.index);
  return true;
}

void Receiver::names_fired(Peer& peer, Time armed_for, Time now) {
  if (!peer.channels || peer.channels->slots_at != armed_for) return;
  peer.channels->slots_at = kNever;
  give_slots(peer, now);
}

void Receiver::send_clearance(Peer& peer, const std::vector<Cleared>& receives) {
  const std::size_t most =
      (state_.control_bytes() - Clearance::kFixedBytes) / Clearance::kEntryBytes;
  for (std::size_t sent = 0; sent < receives.size(); sent += most) {
    const auto first = receives.begin() + static_cast<std::ptrdiff_t>(sent);
    const auto count = static_cast<std::ptrdiff_t>(std::min(most, receives.size() - sent));
    const Clearance clearance{.target = peer.channels->own,
                              .slot_bytes = uc_framing::slot_bytes(state_.chunk_bytes),
                              .receives = {first, first + count}};
    if (!control_.push(peer.index, write_clearance(clearance), LAB_CONTROL_CLEAR))
      return;  // the timer sends it again
  }
}

void Receiver::arm_clearance(Peer& peer, Time now) {
  Channels& channels = *peer.channels;
  Time wait = std::max(4 * peer.rtt.srtt, state_.config.persist_least)
              << std::min(channels.clearances_without_effect, kMostPatience);
  // Hosts that repeat it synchronously would lose the same ones to a short queue, each time.
  if (channels.clearances_without_effect != 0)
    wait += wait / 4 * share_of(state_.config.gid, peer.index, channels.clearances_without_effect) /
            256;
  channels.clear_at = now + wait;
  state_.timers.arm(channels.clear_at, TimerKind::clear, peer.index);
}

void Receiver::clear_fired(Peer& peer, Time armed_for, Time now) {
  if (peer.channels->clear_at == armed_for) repeat_clearance(peer, now);
}

// A clearance may be lost: it is repeated, as far as one packet holds, until the messages begin.
void Receiver::repeat_clearance(Peer& peer, Time now) {
  Channels& channels = *peer.channels;
  channels.clear_at = kNever;
  if (mutated(Mutant::clearance_not_repeated)) return;
  const auto waits_for = [&](std::uint32_t id) -> const ReceiveMessage* {
    const ReceiveSlot& slot = peer.receive_slots[state_.slot_of(id)];
    if (slot.state != ReceiveSlot::State::open || slot.id != id) return nullptr;
    const ReceiveMessage* message = messages_.find(slot.message);
    return message->open ? nullptr : message;
  };
  std::erase_if(channels.quiet, [&](std::uint32_t id) { return waits_for(id) == nullptr; });
  if (channels.quiet.empty()) return;
  const std::size_t most =
      (state_.control_bytes() - Clearance::kFixedBytes) / Clearance::kEntryBytes;
  std::vector<Cleared> again;
  for (std::size_t i = 0; i < std::min(most, channels.quiet.size()); ++i) {
    const ReceiveMessage* message = waits_for(channels.quiet[i]);
    again.push_back({message->id, message->key, message->length});
  }
  send_clearance(peer, again);
  ++channels.clearances_without_effect;
  arm_clearance(peer, now);
}

void Receiver::handle_channel_packet(Packet& packet, Time now) {
  Peer& peer = state_.peers[(packet.destination_qp - uc_framing::kFirstQp) / uc_framing::kChannels];
  if (packet.source != peer.address.gid) return state_.counters.add(Counter::rx_unknown_peer);
  if (packet.opcode != uc_framing::kOpcode) return state_.counters.add(Counter::rx_bad_opcode);
  uc_framing::Place place;
  if (const auto refusal = uc_framing::open(packet, peer.channels->own, state_.chunk_bytes, place))
    return state_.counters.add(*refusal);
  if (place.slot >= state_.config.message_slots) return state_.counters.add(Counter::rx_bad_header);
  ReceiveSlot& slot = peer.receive_slots[place.slot];
  if (slot.state == ReceiveSlot::State::empty) return state_.counters.add(Counter::rx_no_recv);

  const auto& [key, length] = peer.channels->names[place.slot];
  const std::uint32_t count = packets_of(length, state_.chunk_bytes);
  const bool is_parity = place.index >= count;
  packet.lab = {.kind = is_parity ? std::uint8_t{LAB_KIND_PARITY} : std::uint8_t{LAB_KIND_DATA},
                .path = place.path,
                .operation = key.operation,
                .step = key.step,
                .message = key.message,
                .message_id = slot.id,
                .index = place.index,
                .count = count,
                .code = std::uint8_t{state_.layout_of(length, 0).coded()},
                .length = length};
  const std::uint32_t behind =
      uc_framing::generation_of(slot.id, state_.config.message_slots) - place.generation;
  if (behind % uc_framing::kGenerations != 0 &&
      !mutated(Mutant::generation_unchecked)) {  // late: of an earlier use of the slot
    reporter_.note_arrival(peer, packet, now);
    state_.counters.add(Counter::rx_stale_generation);
    packet.lab.message_id -= behind % uc_framing::kGenerations * state_.config.message_slots;
    return report_at_intervals(peer, slot, packet.lab, EventKind::late_packet, now);
  }
  if (place.user != uc_framing::user_fragment(key.message, place.index))
    return state_.counters.add(Counter::rx_inconsistent);
  handle_data(peer, packet, now);
}

}  // namespace softroce
