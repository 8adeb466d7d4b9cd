// SPDX-License-Identifier: GPL-2.0-or-later
#include "control_queue.hpp"

#include <cstring>
#include <utility>

namespace softroce {

bool ControlQueue::push(PeerIndex peer, std::vector<std::uint8_t> body, std::uint32_t listener) {
  if (queue_.size() >= kMost) return false;
  queue_.push_back({peer, std::move(body), listener});
  return true;
}

void ControlQueue::push_small(PeerIndex peer, std::uint8_t path, bool marked,
                              std::span<const std::uint8_t> body) {
  if (small_.size() >= kMostSmall) return state_.counters.add(Counter::rx_event_overflow);
  SmallControl& out = small_.push();
  out.peer = peer;
  out.path = path < state_.config.paths ? path : kAnyPath;
  out.marked = marked;
  out.size = static_cast<std::uint8_t>(body.size());
  std::memcpy(out.body.data(), body.data(), body.size());
}

bool ControlQueue::poll_small(Packet& packet, Time now) {
  if (small_.empty()) return false;
  const SmallControl& out = small_.front();
  Peer& peer = state_.peers[out.peer];
  body_.assign(out.body.begin(), out.body.begin() + out.size);
  packet.lab = {.kind = LAB_KIND_CONTROL,
                .path = out.path != kAnyPath ? out.path : peer.control_path(),
                .message = peer.control_sequence++,
                .message_id = LAB_CONTROL_POLICY,
                .length = out.size};
  if (out.marked) packet.reserved = kBecn;
  small_.pop();
  send(peer, packet, now);
  return true;
}

bool ControlQueue::poll(Packet& packet, Time now) {
  if (queue_.empty()) return false;
  Control out = std::move(queue_.front());
  queue_.pop_front();
  Peer& peer = state_.peers[out.peer];
  body_ = std::move(out.body);
  packet.lab = {.kind = LAB_KIND_CONTROL,
                .path = peer.control_path(),
                .message = peer.control_sequence++,
                .message_id = out.listener,
                .length = static_cast<std::uint32_t>(body_.size())};
  send(peer, packet, now);
  return true;
}

void ControlQueue::send(Peer& peer, Packet& packet, Time now) {
  reporter_.append_report(peer, body_, state_.control_bytes(), now);
  packet.payload = body_.data();
  packet.payload_bytes = static_cast<std::uint32_t>(body_.size());
  state_.address(peer, true, now, packet);
  if (packet.lab.message_id == LAB_CONTROL_CLEAR) return state_.counters.add(Counter::tx_clear);
  state_.counters.add(Counter::tx_control);
  state_.events.note_control(peer.index, packet.lab.length, now);
}

}  // namespace softroce
