// SPDX-License-Identifier: GPL-2.0-or-later
// The sender's part of the framing uc_immediate: sends match receives by their order, a send waits
// until its receive clears it, and generations distinguish a slot's uses.
#include "sender.hpp"

namespace softroce {

void Sender::wait_for_clearance(Peer& peer, SendMessage& message, Time now) {
  peer.channels->waiting.emplace(message.id, message.handle);
  start_if_cleared(peer, message.id, now);
}

void Sender::start_if_cleared(Peer& peer, std::uint32_t id, Time now) {
  Channels& channels = *peer.channels;
  const auto waiting = channels.waiting.find(id);
  const auto found = channels.cleared.find(id);
  if (waiting == channels.waiting.end() || found == channels.cleared.end()) return;
  if (peer.send_slots[state_.slot_of(id)] != kNoHandle)
    return;  // what used the slot before is not over here
  SendMessage& message = *messages_.find(waiting->second);
  const Cleared cleared = found->second;
  channels.waiting.erase(waiting);
  channels.cleared.erase(found);
  if (cleared.key != message.key || cleared.length != message.length)
    return state_.events.emit_about(EventKind::too_long, message, now);
  peer.send_slots[state_.slot_of(id)] = message.handle;
  message.cleared = true;
  order_.add(message, peer);
  make_ready(peer);
}

// A send is over, begun or not.
void Sender::leave_channel(Peer& peer, const SendMessage& message, Time now) {
  peer.channels->waiting.erase(message.id);
  peer.channels->cleared.erase(message.id);
  if (message.cleared) start_if_cleared(peer, message.id + state_.config.message_slots, now);
}

void Sender::handle_clearance(Peer& peer, const Packet& packet, Time now) {
  Channels& channels = *peer.channels;
  Clearance clearance;
  if (!read_clearance(packet.payload, packet.payload_bytes,
                      uc_framing::slot_bytes(state_.chunk_bytes), clearance) ||
      (channels.target && *channels.target != clearance.target))
    return state_.counters.add(Counter::rx_bad_clear);
  state_.counters.add(Counter::rx_clear);
  relaxed_store(peer.last_received_at, now);
  peer.newest.note(packet.lab.stamp_ns, now);
  channels.target = clearance.target;
  for (const Cleared& each : clearance.receives) {
    // Else the message has begun, or is over: this is a repetition.
    if (each.id - peer.next_id >= state_.config.message_slots &&
        !channels.waiting.contains(each.id))
      continue;
    channels.cleared.emplace(each.id, each);
    start_if_cleared(peer, each.id, now);
  }
}

void Sender::address_channel_packet(Peer& peer, const SendMessage& message, Time now,
                                    Packet& packet) {
  Channels& channels = *peer.channels;
  const uc_framing::Place place{
      .slot = state_.slot_of(message.id),
      .generation = uc_framing::generation_of(message.id, state_.config.message_slots),
      .index = packet.lab.index,
      .user = uc_framing::user_fragment(message.key.message, packet.lab.index),
      .path = packet.lab.path};
  const std::uint32_t channel = uc_framing::channel_of(place.generation, place.path);
  packet.destination_mac = peer.address.mac;
  packet.source = state_.config.gid;
  packet.destination = peer.address.gid;
  packet.psn = channels.psn[channel]++ & kPsnMask;
  uc_framing::close(packet, place, *channels.target, state_.chunk_bytes);
  peer.flight.sent(now / kNanosecond, Channels::code_of(channel, packet.psn));
}

}  // namespace softroce
