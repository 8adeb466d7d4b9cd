// SPDX-License-Identifier: GPL-2.0-or-later
// Whose packet leaves next, of all messages with packets that were not sent yet, to all peers.
// Retransmissions leave before (sender.hpp). Each step costs O(log n).
#pragma once

#include <cstdint>
#include <string_view>

#include "peer.hpp"

namespace softroce {

enum class Schedule : std::uint8_t {
  least_left,  // the message with the least left: short ones do not wait behind long ones
  fair,        // each message in turn, a packet at a time
  fifo,        // the message that was posted first
};
Schedule schedule_of(std::string_view name);  // throws std::invalid_argument

// A peer before another: the one with the message that leaves first.
struct PeerByRank {
  bool operator()(const Peer& a, const Peer& b) const {
    return MessageByRank()(*a.sends.by_rank.first(), *b.sends.by_rank.first());
  }
};
struct PeerByAge {
  bool operator()(const Peer& a, const Peer& b) const {
    return MessageByAge()(*a.sends.by_age.first(), *b.sends.by_age.first());
  }
};

class SendOrder {
 public:
  explicit SendOrder(Schedule schedule) : schedule_(schedule) {}

  void posted(SendMessage& message) { message.number = posted_++; }
  // A message has packets that may be sent, or has none any more.
  void add(SendMessage& message, Peer& peer);
  void remove(SendMessage& message, Peer& peer);
  // Congestion control lets packets leave to a peer, or does not.
  void open(Peer& peer);
  void close(Peer& peer);

  static bool holds(const SendMessage& message) { return message.place_by_rank != kNotQueued; }
  bool empty() const { return by_rank_.empty(); }
  Peer* peer() const { return takes_share() ? by_age_.first() : by_rank_.first(); }
  // Of `peer()`, which is not null.
  SendMessage* message() const {
    return takes_share() ? peer()->sends.by_age.first() : peer()->sends.by_rank.first();
  }
  // A packet of it has left.
  void sent(SendMessage& message, Peer& peer);

 private:
  // One packet of so many goes to the message that was posted first, so that none waits for ever.
  static constexpr std::uint32_t kShareOfTheOldest = 8;

  bool has_share() const { return schedule_ == Schedule::least_left; }
  bool takes_share() const { return packets_ == kShareOfTheOldest - 1; }
  void rank(SendMessage& message);

  const Schedule schedule_;
  std::uint32_t packets_ = 0;  // since the share, of least_left
  std::uint64_t turn_ = 0;     // of fair: packets so far
  std::uint64_t posted_ = 0;   // messages
  PlacedHeap<Peer, &Peer::place_by_rank, PeerByRank> by_rank_;  // peers to whom packets may leave
  PlacedHeap<Peer, &Peer::place_by_age, PeerByAge> by_age_;
};

}  // namespace softroce
