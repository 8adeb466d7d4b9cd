// SPDX-License-Identifier: GPL-2.0-or-later
// Selects the message that sends the next packet for the first time, among all messages to all
// peers. The cost of a step does not depend on how many messages wait.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string_view>

#include "peer.hpp"

namespace softroce {

enum class Schedule : std::uint8_t {
  // Messages in a lower class of packets left (LeftClass) precede. Within a class, messages to one
  // peer leave in the order posted, and peers take turns, one message each. The order within a
  // class is not by packets left: then all hosts of a MoE step would end with their longest
  // message, and the step would take longer.
  least_left,
  fair,  // all messages take turns, one packet each
  fifo,  // messages to a peer leave in the order posted; peers take turns, one message each
};
Schedule schedule_of(std::string_view name);  // throws std::invalid_argument

// With `fair` and `fifo` all messages are in class 0.
class SendOrder {
 public:
  explicit SendOrder(Schedule schedule) : schedule_(schedule) {}

  // A message has packets that may be sent. `first`: it precedes the other messages of its class
  // to this peer; otherwise it follows them. `open` must follow if the peer may get packets.
  void add(SendMessage& message, Peer& peer, bool first = false);
  void remove(SendMessage& message, Peer& peer);  // no effect if the message is not in the order
  // The peer may get packets: it takes part in each class in which it has messages.
  void open(Peer& peer);
  // `peer` is `peer()`, and may get no packet now. It leaves the class whose turn it is.
  void close(Peer& peer);

  bool empty() const;
  std::uint32_t messages() const { return messages_; }  // of all peers, open or not
  // The peer that gets the next packet. Requires `!empty()`.
  PeerIndex peer() const { return peers_[next_class()].front(); }
  // The message that sends this packet; null if the peer has none. `peer` is `peer()`.
  SendMessage* message(const Peer& peer) const { return peer.sends.of[next_class()].first(); }
  // A packet of `message(peer)` was sent.
  void sent(SendMessage& message, Peer& peer);

 private:
  // After so many packets of the lowest class, one packet goes to the next class in rotation.
  static constexpr std::uint32_t kLowestInARow = 7;

  std::uint8_t class_of(const SendMessage& message) const;
  std::uint8_t next_class() const;
  void enter(Peer& peer, std::uint8_t which);
  void leave(Peer& peer, std::uint8_t which);  // `peer` is the first one of the class
  void next_peer(std::uint8_t which);

  const Schedule schedule_;
  std::uint32_t messages_ = 0;
  std::uint32_t lowest_in_a_row_ = 0;  // packets since the last one in rotation
  std::uint8_t rotated_to_ = 0;        // the class of the last packet in rotation
  // By class: the open peers with messages in it. The first peer gets the next packet.
  std::array<std::deque<PeerIndex>, LeftClass::kClasses> peers_;
};

}  // namespace softroce
