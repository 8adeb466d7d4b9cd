// SPDX-License-Identifier: GPL-2.0-or-later
// The message engine's part of the framing uc_immediate: sends match receives by their order, a
// send waits until its receive clears it, and a slot's uses are told apart by generations. A packet
// names a slot; the receive that was given the slot says which message that is.
#include <algorithm>

#include "../../../xdp/lab_hash.h"
#include "../mutant.hpp"
#include "message_engine.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kMostPatience = 3;  // doublings of the time between two clearances

// 0 to 255, of a host, a peer and a number: as good as drawn, and the same in every run.
std::uint32_t share_of(const Gid& host, std::uint32_t peer, std::uint32_t number) {
  return lab_mix64(host.low ^ lab_mix64(host.high ^ (std::uint64_t{peer} << 32 | number))) & 0xFF;
}

}  // namespace

// ---------------------------------------------------------------- sender

void MessageEngine::wait_for_clearance(Peer& peer, SendMessage& message, Time now) {
  peer.channels->waiting.emplace(message.id, message.handle);
  start_if_cleared(peer, message.id, now);
}

void MessageEngine::start_if_cleared(Peer& peer, std::uint32_t id, Time now) {
  Channels& channels = *peer.channels;
  const auto waiting = channels.waiting.find(id);
  const auto found = channels.cleared.find(id);
  if (waiting == channels.waiting.end() || found == channels.cleared.end()) return;
  if (peer.send_slots[slot_of(id)]) return;  // what used the slot before is not over here
  SendMessage& message = *sends_.find(waiting->second);
  const Cleared cleared = found->second;
  channels.waiting.erase(waiting);
  channels.cleared.erase(found);
  if (cleared.key != message.key || cleared.length != message.length)
    return emit_about(EventKind::too_long, message, now);
  peer.send_slots[slot_of(id)] = true;
  message.cleared = message.in_send_queue = true;
  peer.sends.push_back(message.handle);
  make_ready(peer);
}

// A send is over, begun or not.
void MessageEngine::leave_channel(Peer& peer, const SendMessage& message, Time now) {
  peer.channels->waiting.erase(message.id);
  peer.channels->cleared.erase(message.id);
  if (message.cleared) start_if_cleared(peer, message.id + config_.message_slots, now);
}

void MessageEngine::handle_clearance(Peer& peer, const Packet& packet, Time now) {
  Channels& channels = *peer.channels;
  Clearance clearance;
  if (!read_clearance(packet.payload, packet.payload_bytes, uc_framing::slot_bytes(chunk_bytes_),
                      clearance) ||
      (channels.target && *channels.target != clearance.target))
    return counters_.add(Counter::rx_bad_clear);
  counters_.add(Counter::rx_clear);
  relaxed_store(peer.heard_at, now);
  peer.newest.note(packet.lab.stamp_ns, now);
  channels.target = clearance.target;
  for (const Cleared& each : clearance.receives) {
    // Else the message has begun, or is over: it was said again.
    if (each.id - peer.next_id >= config_.message_slots && !channels.waiting.contains(each.id))
      continue;
    channels.cleared.emplace(each.id, each);
    start_if_cleared(peer, each.id, now);
  }
}

void MessageEngine::address_channel_packet(Peer& peer, const SendMessage& message, Time now,
                                           Packet& packet) {
  Channels& channels = *peer.channels;
  const uc_framing::Place place{
      .slot = slot_of(message.id),
      .generation = uc_framing::generation_of(message.id, config_.message_slots),
      .index = packet.lab.index,
      .user = uc_framing::user_fragment(message.key.message, packet.lab.index),
      .path = packet.lab.path};
  const std::uint32_t channel = uc_framing::channel_of(place.generation, place.path);
  packet.destination_mac = peer.address.mac;
  packet.source = config_.gid;
  packet.destination = peer.address.gid;
  packet.psn = channels.psn[channel]++ & kPsnMask;
  uc_framing::close(packet, place, *channels.target, chunk_bytes_);
  peer.flight.sent(now / kNanosecond, Channels::code_of(channel, packet.psn));
}

// A report names the newest packets that arrived: of those in flight, the one that was sent last
// tells which are accounted for, the one that arrived last tells the RTT.
bool MessageEngine::read_channel_echo(const Peer& peer, const Report& report, Time now,
                                      Echo& echo) const {
  if (report.echo_stamp_ns >= kMaxPaths) return false;
  const auto is_newest = [&report](std::uint32_t code) {
    return report.newest[Channels::channel_of(code) % kMaxPaths] == code;
  };
  const auto is_last = [last = report.newest[report.echo_stamp_ns]](std::uint32_t code) {
    return code == last;
  };
  const std::int64_t newest_ns = peer.flight.newest_named(is_newest);
  const std::int64_t last_ns = peer.flight.newest_named(is_last);
  echo.newest_ns = std::max(newest_ns, peer.echoed_ns);
  echo.overtaken = static_cast<std::int32_t>(report.packets - peer.reported_packets) < 0;
  echo.rtt = peer.rtt.srtt;
  if (newest_ns < 0) return true;  // it names none that is in flight
  const std::int64_t sent_ns = last_ns < 0 ? newest_ns : last_ns;
  echo.rtt = now - (sent_ns + report.echo_delay_ns) * kNanosecond;
  return echo.rtt >= 0 && echo.rtt <= kStampHorizon;
}

// ---------------------------------------------------------------- receiver

// Receives that were posted get the slots of their ids, in order, as these become free; then they
// are cleared to be sent.
void MessageEngine::give_slots(Peer& peer, Time now) {
  Channels& channels = *peer.channels;
  std::vector<Cleared> given;
  for (; !channels.slotless.empty(); channels.slotless.pop_front()) {
    const ReceiveMessage* message = receives_.find(channels.slotless.front());
    if (message == nullptr) continue;  // it failed meanwhile, and its id is used up
    ReceiveSlot& slot = peer.receive_slots[slot_of(message->id)];
    if (slot.state == ReceiveSlot::State::open && !mutated(Mutant::slot_given_twice)) break;
    slot = {.state = ReceiveSlot::State::open, .id = message->id, .message = message->handle};
    channels.names[slot_of(message->id)] = {message->key, message->length};
    channels.quiet.push_back(message->id);
    given.push_back({message->id, message->key, message->length});
  }
  if (given.empty()) return;
  channels.cleared_in_vain = 0;
  say_clearance(peer, given);
  if (channels.clear_at == kNever) arm_clearance(peer, now);
}

void MessageEngine::say_clearance(Peer& peer, const std::vector<Cleared>& receives) {
  const std::size_t most = (control_bytes() - Clearance::kFixedBytes) / Clearance::kEntryBytes;
  for (std::size_t said = 0; said < receives.size(); said += most) {
    if (control_queue_.size() >= kMostControlOut) return;  // the timer will say it again
    const auto first = receives.begin() + static_cast<std::ptrdiff_t>(said);
    const auto count = static_cast<std::ptrdiff_t>(std::min(most, receives.size() - said));
    const Clearance clearance{.target = peer.channels->own,
                              .slot_bytes = uc_framing::slot_bytes(chunk_bytes_),
                              .receives = {first, first + count}};
    control_queue_.push_back({peer.index, write_clearance(clearance), LAB_CONTROL_CLEAR});
  }
}

void MessageEngine::arm_clearance(Peer& peer, Time now) {
  Channels& channels = *peer.channels;
  Time wait = std::max(4 * peer.rtt.srtt, config_.persist_least)
              << std::min(channels.cleared_in_vain, kMostPatience);
  // Hosts that say it again in step would lose the same ones to a short queue, each time.
  if (channels.cleared_in_vain != 0)
    wait += wait / 4 * share_of(config_.gid, peer.index, channels.cleared_in_vain) / 256;
  channels.clear_at = now + wait;
  arm(channels.clear_at, TimerKind::clear, peer.index);
}

// A clearance may be lost: it is said again, as far as a packet goes, until the messages begin.
void MessageEngine::repeat_clearance(Peer& peer, Time now) {
  Channels& channels = *peer.channels;
  channels.clear_at = kNever;
  if (mutated(Mutant::clearance_not_repeated)) return;
  const auto waits_for = [&](std::uint32_t id) -> const ReceiveMessage* {
    const ReceiveSlot& slot = peer.receive_slots[slot_of(id)];
    if (slot.state != ReceiveSlot::State::open || slot.id != id) return nullptr;
    const ReceiveMessage* message = receives_.find(slot.message);
    return message->open ? nullptr : message;
  };
  std::erase_if(channels.quiet, [&](std::uint32_t id) { return waits_for(id) == nullptr; });
  if (channels.quiet.empty()) return;
  const std::size_t most = (control_bytes() - Clearance::kFixedBytes) / Clearance::kEntryBytes;
  std::vector<Cleared> again;
  for (std::size_t i = 0; i < std::min(most, channels.quiet.size()); ++i) {
    const ReceiveMessage* message = waits_for(channels.quiet[i]);
    again.push_back({message->id, message->key, message->length});
  }
  say_clearance(peer, again);
  ++channels.cleared_in_vain;
  arm_clearance(peer, now);
}

void MessageEngine::handle_channel_packet(Packet& packet, Time now) {
  Peer& peer = peers_[(packet.destination_qp - uc_framing::kFirstQp) / uc_framing::kChannels];
  if (packet.source != peer.address.gid) return counters_.add(Counter::rx_unknown_peer);
  if (packet.opcode != uc_framing::kOpcode) return counters_.add(Counter::rx_bad_opcode);
  uc_framing::Place place;
  if (const auto refusal = uc_framing::open(packet, peer.channels->own, chunk_bytes_, place))
    return counters_.add(*refusal);
  if (place.slot >= config_.message_slots) return counters_.add(Counter::rx_bad_header);
  ReceiveSlot& slot = peer.receive_slots[place.slot];
  if (slot.state == ReceiveSlot::State::empty) return counters_.add(Counter::rx_no_recv);

  const auto& [key, length] = peer.channels->names[place.slot];
  packet.lab = {.path = place.path,
                .operation = key.operation,
                .step = key.step,
                .message = key.message,
                .message_id = slot.id,
                .index = place.index,
                .count = packets_of(length, chunk_bytes_),
                .length = length};
  const std::uint32_t behind =
      uc_framing::generation_of(slot.id, config_.message_slots) - place.generation;
  if (behind % uc_framing::kGenerations != 0 &&
      !mutated(Mutant::generation_unchecked)) {  // late: of an earlier use of the slot
    note_arrival(peer, packet, now);
    counters_.add(Counter::rx_stale_generation);
    packet.lab.message_id -= behind % uc_framing::kGenerations * config_.message_slots;
    return tell_rarely(peer, slot, packet.lab, EventKind::late_packet, now);
  }
  if (place.user != uc_framing::user_fragment(key.message, place.index))
    return counters_.add(Counter::rx_inconsistent);
  handle_data(peer, packet, now);
}

// Data packets carry no stamps: what reports tell of them is the newest of each path.
void MessageEngine::note_channel(Peer& peer, const Packet& packet, Time now) {
  Channels& channels = *peer.channels;
  const std::uint32_t channel = packet.destination_qp - channels.own.first_qp;
  const std::uint32_t code = Channels::code_of(channel, packet.psn);
  std::uint32_t& newest = channels.newest[packet.lab.path];
  const bool comparable = newest != Channels::kNoCode && Channels::channel_of(newest) == channel;
  // RFC 1982, by as many bits as there are.
  const bool newer = ((code - newest) & Channels::kCodePsnMask) - 1 < Channels::kCodePsnMask / 2;
  if (comparable && !newer) return;
  newest = code;
  channels.last_path = packet.lab.path;
  relaxed_store(peer.newest_data.at, now);
}

}  // namespace softroce
