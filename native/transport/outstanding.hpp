// SPDX-License-Identifier: GPL-2.0-or-later
// Sends that are not over, by peer and id: ids of one slot take turns.
#pragma once

#include <vector>

#include "../engine/striped/packet_transport.hpp"

namespace softroce {

class OutstandingSends {
 public:
  // `slots`: of messages outstanding per peer, a power of two.
  OutstandingSends(TransportHost& host, std::uint32_t slots) : host_(host), slots_(slots) {}

  void add(const SendMessage& message) {
    if (message.peer >= by_peer_.size()) by_peer_.resize(message.peer + 1);
    auto& handles = by_peer_[message.peer];
    if (handles.empty()) handles.resize(slots_, kNoHandle);
    handles[message.id & (slots_ - 1)] = message.handle;
  }
  // Null: it is over, or never was.
  SendMessage* find(PeerIndex peer, std::uint32_t id) const {
    if (peer >= by_peer_.size() || by_peer_[peer].empty()) return nullptr;
    SendMessage* message = host_.find_send(by_peer_[peer][id & (slots_ - 1)]);
    return message != nullptr && message->id == id ? message : nullptr;
  }

 private:
  TransportHost& host_;
  std::uint32_t slots_;
  std::vector<std::vector<Handle>> by_peer_;
};

}  // namespace softroce
