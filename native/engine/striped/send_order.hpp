// SPDX-License-Identifier: GPL-2.0-or-later
// Which message sends a packet next, of all that have packets which were not sent yet, to all
// peers. A step costs the same, however many messages wait.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string_view>

#include "peer.hpp"

namespace softroce {

enum class Schedule : std::uint8_t {
  // A class of messages with few packets left before one with many. Messages of one class to one
  // peer leave in the order posted. Peers take turns, a message each. If each message of a MoE
  // step left strictly by what is left of it, all hosts would end with their longest, and the step
  // took longer.
  least_left,
  fair,  // each message in turn, a packet at a time
  fifo,  // messages to a peer in the order posted; peers take turns, a message each
};
Schedule schedule_of(std::string_view name);  // throws std::invalid_argument

class SendOrder {
 public:
  explicit SendOrder(Schedule schedule) : schedule_(schedule) {}

  // A message has packets that may be sent. `first`: it is the first one of its class to this peer.
  void add(SendMessage& message, Peer& peer, bool first = false);
  void remove(SendMessage& message, Peer& peer);  // nothing unless it was added
  // Packets may be sent to a peer; until `close`, which the next packet's sender calls when it
  // finds that they may not.
  void open(Peer& peer);
  void close(Peer& peer);

  bool empty() const;
  // The peer that gets the next packet, and its message; null: the peer has none. Not if `empty`.
  PeerIndex peer() const { return peers_[next_class()].front(); }
  SendMessage* message(const Peer& peer) const { return peer.sends.of[next_class()].first(); }
  // A packet of `message(peer)` has left.
  void sent(SendMessage& message, Peer& peer);

 private:
  // So many packets go by class, the next one to the next class in turn, so that none starves.
  static constexpr std::uint32_t kPacketsByClass = 7;

  std::uint8_t class_of(const SendMessage& message) const;
  std::uint8_t next_class() const;
  void enter(Peer& peer, std::uint8_t which);
  void take_turns(std::uint8_t which);

  const Schedule schedule_;
  std::uint32_t by_class_ = 0;  // packets since one went to a class in turn
  std::uint8_t had_turn_ = 0;   // the class that it went to
  std::array<std::deque<PeerIndex>, LeftClass::kClasses> peers_;  // to whom packets may be sent
};

}  // namespace softroce
