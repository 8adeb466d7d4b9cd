// SPDX-License-Identifier: GPL-2.0-or-later
#include "operations.hpp"

#include <algorithm>
#include <stdexcept>

#include "../../../xdp/lab_maps.h"

namespace softroce {

Operations::Operations(MessageEngine& engine, const std::vector<Gid>& gids)
    : engine_(engine), gids_(gids) {
  if (!engine.handles_events())
    throw std::invalid_argument("operations of queue pairs need a native transport");
  engine.set_owner(this);
}

std::unique_ptr<QueuePair> Operations::make_qp(std::uint32_t number, QpConfig config,
                                               QpHome& home) {
  auto qp = std::make_unique<StripedQp>(number, std::move(config), home, *this);
  qps_[number] = {.qp = qp.get()};
  return qp;
}

void Operations::forget(std::uint32_t number) {
  const auto found = qps_.find(number);
  if (found == qps_.end()) return;
  found->second.qp->part(now_);
  qps_.erase(found);
}

StripedQp* Operations::find(std::uint32_t number) {
  const auto found = qps_.find(number);
  return found == qps_.end() ? nullptr : found->second.qp;
}

PeerName Operations::name_of(const StripedQp& qp) const {
  const QpAttr& attr = qp.attributes();
  return {gids_[attr.address.sgid_index], attr.address.destination,
          attr.dest_qp >> LAB_SHARE_QPN_BITS};
}

// Null: there is no session with it.
const Peer* Operations::peer_of(const StripedQp& qp) const {
  const PeerName name = name_of(qp);
  if (greeter_ == nullptr)
    return engine_.find_peer(name.gid, name.share << LAB_SHARE_QPN_BITS | kDataQpNumber);
  const auto session = greeter_->session_with(name);
  return session ? &engine_.peers()[*session] : nullptr;
}

// ---------------------------------------------------------------- turns

void Operations::wake(std::uint32_t number) {
  const auto found = qps_.find(number);
  if (found == qps_.end() || std::exchange(found->second.is_awake, true)) return;
  awake_.push_back(number);
}

void Operations::wake_starving() {
  for (const std::uint32_t number : starving_) wake(number);
  starving_.clear();
}

void Operations::receives_posted() {
  wake_starving();
  settle(now_);
}

void Operations::wake_blocked() {
  for (const std::uint32_t number : blocked_) wake(number);
  blocked_.clear();
}

void Operations::settle(Time now) {
  now_ = now;
  if (std::exchange(settles_, true)) return;
  while (!ends_.empty() || !awake_.empty()) {
    take_ends();
    advancing_.swap(awake_);
    for (const std::uint32_t number : advancing_) {
      const auto found = qps_.find(number);
      if (found == qps_.end()) continue;
      found->second.is_awake = false;
      StripedQp& qp = *found->second.qp;
      qp.advance(now);
      if (qp.is_doomed()) qp.fail(AsyncEventType::qp_fatal, now);
    }
    advancing_.clear();
  }
  settles_ = false;
}

void Operations::take_ends() {
  ending_.swap(ends_);
  bool has_room = false;
  for (auto& [number, end] : ending_) {
    has_room |= end.sent;
    if (StripedQp* qp = find(number)) qp->ended(std::move(end));
    wake(number);
  }
  ending_.clear();
  if (has_room) wake_blocked();
}

// ---------------------------------------------------------------- of the queue pairs

void Operations::connected(StripedQp& qp, Time now) {
  constexpr Time kLeast = 1'000 * kMillisecond, kMost = 10 * kLeast;
  if (greeter_) greeter_->ask(name_of(qp), std::clamp(qp.retry_time(), kLeast, kMost), now);
}

MessageCarrier::Begun Operations::send(StripedQp& qp, const OutgoingMessage& message, Time now) {
  const Peer* peer = peer_of(qp);
  if (greeter_ && greeter_->state_of(name_of(qp)) == Greeter::State::refuses) return Begun::never;
  const bool begun =
      peer != nullptr && engine_.post_send({.peer = peer->index,
                                            .key = message.key,
                                            .base = const_cast<std::uint8_t*>(message.base),
                                            .length = message.length,
                                            .qp = qp.number(),
                                            .operation = message.header,
                                            .patience = message.patience},
                                           now);
  if (!begun) blocked_.push_back(qp.number());
  return begun ? Begun::begun : Begun::later;
}

void Operations::receive(StripedQp& qp, const MessageKey& key, const OperationHeader& header,
                         const Place& place, Time now) {
  const Peer* peer = peer_of(qp);
  if (peer == nullptr) return;  // it began anew with another transport
  engine_.post_receive({.peer = peer->index,
                        .key = key,
                        .base = place.base,
                        .length = place.capacity,
                        .qp = qp.number(),
                        .operation = header,
                        .holds_last = place.holds_last},
                       now);
}

void Operations::refuse(StripedQp& qp, const MessageKey& key, std::uint32_t message_id,
                        WcStatus status, Time now) {
  if (const Peer* peer = peer_of(qp)) engine_.refuse(peer->index, message_id, key, status, now);
}

void Operations::starves(StripedQp& qp) { starving_.push_back(qp.number()); }

void Operations::overwrites(const std::uint8_t* at, std::uint64_t bytes) {
  engine_.overwritten(at, bytes);
}

void Operations::withdraw(StripedQp& qp, const MessageKey& key, WcStatus status, Time now) {
  withdrawn_ = qp.number();
  engine_.withdraw(qp.number(), key, status, now);
  withdrawn_ = 0;
}

void Operations::withdraw_all(StripedQp& qp, WcStatus status, Time now) {
  withdrawn_ = qp.number();
  engine_.withdraw(qp.number(), std::nullopt, status, now);
  withdrawn_ = 0;
  wake_starving();  // it gives shared receives back
}

// ---------------------------------------------------------------- of the engine

Place Operations::place_for(const Peer& peer, const Packet& packet, Time now) {
  const MessageKey key{packet.lab.operation, packet.lab.step, packet.lab.message};
  if (is_result(key))  // one that somebody waits for has its place
    return {.kind = Place::Kind::refused, .status = WcStatus::retry_exc_err};
  StripedQp* qp = find(qp_of(key));
  if (qp == nullptr) return {.kind = Place::Kind::not_ready};
  if (qp->is_connected() && peer_of(*qp) != &peer) return {};
  const Place place = qp->place_for(packet, now);
  // A queue pair that refused a message has to end.
  if (place.kind == Place::Kind::refused) wake(qp->number());
  return place;
}

std::uint8_t Operations::why_unready(const MessageKey& key) {
  StripedQp* qp = is_result(key) ? nullptr : find(qp_of(key));
  return qp == nullptr ? static_cast<std::uint8_t>(Unready::no_queue_pair) : qp->why_unready(key);
}

bool Operations::is_next(const MessageKey& key) {
  const StripedQp* qp = find(qp_of(key));
  return qp == nullptr || qp->is_next(key);
}

const std::uint8_t* Operations::memory_of(const SendMessage& message) {
  StripedQp* qp = find(message.qp);
  wake(message.qp);
  return qp == nullptr ? nullptr : qp->source_of(message.key);
}

std::uint8_t* Operations::memory_of(const ReceiveMessage& message, WcStatus& why_not) {
  StripedQp* qp = find(message.qp);
  wake(message.qp);
  return qp == nullptr ? nullptr : qp->target_of(message.key, why_not);
}

void Operations::rnr_nak_came(const SendMessage& message) {
  if (StripedQp* qp = find(message.qp)) qp->count_rnr_nak();
}

void Operations::given_up(const MessageKey& key, std::uint32_t id, WcStatus status) {
  if (!is_result(key))
    ends_.emplace_back(qp_of(key), MessageEnd{.key = key, .unopened_id = id, .status = status});
}

void Operations::ended(SendMessage& message, WcStatus status) {
  if (message.qp == withdrawn_) return;
  ends_.emplace_back(message.qp, MessageEnd{.key = message.key,
                                            .sent = true,
                                            .status = status,
                                            .length = message.length,
                                            .packets = message.count,
                                            .retransmitted = message.retransmitted,
                                            .first_at = message.first_at});
}

void Operations::ended(ReceiveMessage& message, WcStatus status) {
  if (message.qp == withdrawn_) return;
  ends_.emplace_back(message.qp, MessageEnd{.key = message.key,
                                            .status = status,
                                            .length = message.length,
                                            .packets = message.count,
                                            .first_at = message.first_at,
                                            .held = std::move(message.held)});
}

}  // namespace softroce
