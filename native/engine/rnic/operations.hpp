// SPDX-License-Identifier: GPL-2.0-or-later
// Joins queue pairs to the message engine: reliable connections whose operations are striped
// messages of any transport.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../striped/message_engine.hpp"
#include "../verbs/striped_qp.hpp"
#include "greeter.hpp"

namespace softroce {

class Operations final : public MessageCarrier, public MessageOwner {
 public:
  // Throws std::invalid_argument if no session of the engine's own recovers what is lost.
  Operations(MessageEngine& engine, const std::vector<Gid>& gids);

  // Without one, peers are connected by hand.
  void set_greeter(Greeter* greeter) { greeter_ = greeter; }

  std::unique_ptr<QueuePair> make_qp(std::uint32_t number, QpConfig config, QpHome& home);
  bool carries(std::uint32_t qp) const { return qps_.contains(qp); }
  void forget(std::uint32_t qp);  // before it is destroyed

  void wake(std::uint32_t qp);  // the queue pair may have something to do
  void wake_blocked();          // a peer agrees, or does not
  void receives_posted();       // shared ones
  // Does whatever can be done. All messages are begun here, and nowhere within the engine's work.
  void settle(Time now);

 private:
  struct Carried {
    StripedQp* qp = nullptr;
    bool is_awake = false;
  };

  // ---- of the queue pairs
  bool keeps_apart() const override { return !engine_.config().code.shapes.empty(); }
  void connected(StripedQp& qp, Time now) override;
  Begun send(StripedQp& qp, const OutgoingMessage& message, Time now) override;
  void receive(StripedQp& qp, const MessageKey& key, const OperationHeader& header,
               const Place& place, Time now) override;
  void starves(StripedQp& qp) override;
  void overwrites(const std::uint8_t* at, std::uint64_t bytes) override;
  void refuse(StripedQp& qp, const MessageKey& key, std::uint32_t message_id, WcStatus status,
              Time now) override;
  void withdraw(StripedQp& qp, const MessageKey& key, WcStatus status, Time now) override;
  void withdraw_all(StripedQp& qp, WcStatus status, Time now) override;

  // ---- of the engine
  Place place_for(const Peer& peer, const Packet& packet, Time now) override;
  std::uint8_t why_unready(const MessageKey& key) override;
  bool is_next(const MessageKey& key) override;
  const std::uint8_t* memory_of(const SendMessage& message) override;
  std::uint8_t* memory_of(const ReceiveMessage& message, WcStatus& why_not) override;
  void given_up(const MessageKey& key, std::uint32_t id, WcStatus status) override;
  void rnr_nak_came(const SendMessage& message) override;
  void ended(SendMessage& message, WcStatus status) override;
  void ended(ReceiveMessage& message, WcStatus status) override;

  StripedQp* find(std::uint32_t qp);
  PeerName name_of(const StripedQp& qp) const;
  const Peer* peer_of(const StripedQp& qp) const;
  void wake_starving();
  void take_ends();

  MessageEngine& engine_;
  const std::vector<Gid>& gids_;
  Greeter* greeter_ = nullptr;
  std::unordered_map<std::uint32_t, Carried> qps_;
  std::vector<std::pair<std::uint32_t, MessageEnd>> ends_, ending_;
  std::vector<std::uint32_t> awake_, advancing_;
  std::vector<std::uint32_t> blocked_;   // queue pairs that wait for a message to end
  std::vector<std::uint32_t> starving_;  // that found no receive posted
  std::uint32_t withdrawn_ = 0;  // the queue pair whose messages are being withdrawn
  bool settles_ = false;
  Time now_ = 0;
};

}  // namespace softroce
