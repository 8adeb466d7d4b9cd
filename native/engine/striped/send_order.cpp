// SPDX-License-Identifier: GPL-2.0-or-later
#include "send_order.hpp"

#include <bit>
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

void SendOrder::add(SendMessage& message, Peer& peer) {
  rank(message);
  peer.sends.by_rank.add(message);
  if (by_rank_.holds(peer)) by_rank_.moved(peer);
  if (!has_share()) return;
  peer.sends.by_age.add(message);
  if (by_age_.holds(peer)) by_age_.moved(peer);
}

void SendOrder::remove(SendMessage& message, Peer& peer) {
  peer.sends.by_rank.remove(message);
  if (has_share()) peer.sends.by_age.remove(message);
  if (peer.sends.empty()) return close(peer);
  if (by_rank_.holds(peer)) by_rank_.moved(peer);
  if (by_age_.holds(peer)) by_age_.moved(peer);
}

void SendOrder::open(Peer& peer) {
  if (peer.sends.empty() || by_rank_.holds(peer)) return;
  by_rank_.add(peer);
  if (has_share()) by_age_.add(peer);
}

void SendOrder::close(Peer& peer) {
  if (by_rank_.holds(peer)) by_rank_.remove(peer);
  if (by_age_.holds(peer)) by_age_.remove(peer);
}

void SendOrder::sent(SendMessage& message, Peer& peer) {
  ++turn_;
  packets_ = has_share() ? (packets_ + 1) % kShareOfTheOldest : 0;
  rank(message);
  peer.sends.by_rank.moved(message);
  by_rank_.moved(peer);
}

void SendOrder::rank(SendMessage& message) {
  if (schedule_ == Schedule::fair) message.rank = turn_;
  if (schedule_ == Schedule::least_left)
    message.rank = message.total() - message.next - message.coded.next;
}

}  // namespace softroce
