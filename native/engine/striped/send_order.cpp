// SPDX-License-Identifier: GPL-2.0-or-later
#include "send_order.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace softroce {
Schedule schedule_of(std::string_view name) {
  if (name == "least-left") return Schedule::least_left;
  if (name == "fair") return Schedule::fair;
  if (name == "fifo") return Schedule::fifo;
  throw std::invalid_argument("unknown schedule '" + std::string(name) +
                              "'; known: least-left, fair, fifo");
}

std::uint8_t SendOrder::class_of(const SendMessage& message) const {
  if (schedule_ != Schedule::least_left) return 0;
  const std::uint32_t left = message.total() - message.next - message.coded.next;
  return LeftClass::of(left);
}

bool SendOrder::empty() const {
  return std::ranges::all_of(peers_, [](const auto& peers) { return peers.empty(); });
}

// The first class with an open peer: from class 0 on, or in rotation from the class after the one
// that had the last packet in rotation.
std::uint8_t SendOrder::next_class() const {
  std::uint8_t which = lowest_in_a_row_ < kLowestInARow ? 0 : rotated_to_ + 1;
  for (std::size_t n = 0; n < peers_.size(); ++n, ++which)
    if (!peers_[which % peers_.size()].empty()) break;
  return which % peers_.size();
}

void SendOrder::add(SendMessage& message, Peer& peer, bool first) {
  ++messages_;
  message.send_class = class_of(message);
  peer.sends.of[message.send_class].add(message, first);
}

void SendOrder::remove(SendMessage& message, Peer& peer) {
  if (message.send_class == kNotSending) return;
  --messages_;
  peer.sends.of[message.send_class].remove(message);
  message.send_class = kNotSending;
}

void SendOrder::open(Peer& peer) {
  for (std::uint8_t which = 0; which < peers_.size(); ++which)
    if (peer.sends.of[which].first() != nullptr) enter(peer, which);
}

void SendOrder::enter(Peer& peer, std::uint8_t which) {
  if ((peer.sends.entered >> which & 1) != 0) return;
  peer.sends.entered |= 1U << which;
  peers_[which].push_back(peer.index);
}

void SendOrder::close(Peer& peer) { leave(peer, next_class()); }

void SendOrder::leave(Peer& peer, std::uint8_t which) {
  peer.sends.entered &= ~(1U << which);
  peers_[which].pop_front();
}

void SendOrder::sent(SendMessage& message, Peer& peer) {
  const std::uint8_t which = next_class();
  if (lowest_in_a_row_ == kLowestInARow) {
    rotated_to_ = which;
    lowest_in_a_row_ = 0;
  } else {
    ++lowest_in_a_row_;
  }
  if (message.all_sent()) {
    remove(message, peer);
    peer.sends.of[which].first() != nullptr ? next_peer(which) : leave(peer, which);
  } else if (schedule_ == Schedule::fair) {
    remove(message, peer);
    add(message, peer);
    next_peer(which);
  } else if (class_of(message) != which) {  // it becomes the last one of its new class
    remove(message, peer);
    add(message, peer);
    enter(peer, message.send_class);
    next_peer(which);
  }
}

// The first peer of the class becomes the last one.
void SendOrder::next_peer(std::uint8_t which) {
  peers_[which].push_back(peers_[which].front());
  peers_[which].pop_front();
}

}  // namespace softroce
