// SPDX-License-Identifier: GPL-2.0-or-later
// What RC and UC share: cutting messages into packets, and putting them together.
#pragma once

#include "queue_pair.hpp"

namespace softroce {

// The distance from b to a, PSNs being 24 bits (IBA 9.7.2): negative, if a was before.
inline std::int32_t psn_distance(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>((a - b) << 8) >> 8;
}
inline std::uint32_t psn_add(std::uint32_t psn, std::uint32_t packets) {
  return (psn + packets) & kPsnMask;
}

// A message on its way in: what packets may follow, where they go (IBA 9.7.4.1 and 9.8.2.2). What
// an error means is the service's business.
struct Inbound {
  Family family = Family::none;           // send or write; none: no message is under way
  std::uint64_t offset = 0;               // bytes that are there
  std::optional<ReceiveRequest> receive;  // of a SEND
  std::uint64_t remote_address = 0;       // of a WRITE, from its RETH
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;
  Time first_at = 0;

  bool under_way() const { return family != Family::none; }
  void reset() { *this = {}; }

  // Whether the packet may come next, IBA 9.7.4.1.2 (table 46).
  bool expects(const OpcodeTraits& traits) const {
    return traits.begins ? !under_way() : family == traits.family;
  }
};

// Payload that fits the packet's place, IBA 9.7.4.1.6: all but the last are full, a last one has at
// least a byte.
inline bool fits_place(const OpcodeTraits& traits, std::uint32_t bytes, std::uint32_t path_mtu) {
  if (!traits.carries_payload) return bytes == 0;
  if (!traits.ends) return bytes == path_mtu;
  return bytes <= path_mtu && (traits.begins || bytes != 0);
}

class ConnectedQp : public QueuePair {
 public:
  ConnectedQp(std::uint32_t number, QpConfig config, QpHome& home);
  ~ConnectedQp() override { give_back_receive(); }

  bool handle_cnp(const Packet& packet, Time now) override;
  void note_mark(const Packet& packet, Time now) override;
  std::optional<CongestionControl::Figures> congestion_figures(Time now) const override {
    if (!congestion_) return std::nullopt;
    return congestion_->figures(now);
  }

 protected:
  enum class Fault : std::uint8_t {
    none,
    sequence,    // this packet may not come now, IBA 9.7.4.1.2
    length,      // its payload does not fit, or the message its receive
    access,      // remote memory: key, bounds, rights
    no_receive,  // nothing is posted
    invalidate,  // the key may not be invalidated
    local,       // the posted receive names memory that may not be written
    overrun,     // the message is longer than the posted receive
  };

  int check_send(const SendRequest& request) const override;

  // ---- out
  // A READ takes as many PSNs as its response (IBA 9.7.3.1).
  std::uint32_t packets_of(const Send& send) const {
    return softroce::packets_of(send.bytes, attr_.path_mtu);
  }
  // Headers and payload of packet `index` of a SEND or WRITE. False: its memory may not be read.
  bool cut(const Send& send, std::uint32_t index, Service service, Packet& packet);
  void address_peer(Packet& packet) const;
  void note_sent(const Send& send, Time now);  // all of it, for the first time

  // ---- congestion control
  // Data may leave when `paced_until_` has come; what acknowledges others' may at any time.
  bool is_paced(Time now) const { return paced_until_ != kNever && now < paced_until_; }
  void sent_data(const Packet& packet, Time now);
  void set_pace(Time now);
  bool poll_cnp(Packet& packet);
  void reset_congestion();

  std::unique_ptr<CongestionControl> congestion_;  // null: `bdp`, whose window never changes
  Time paced_until_ = kNever;                      // kNever: not waiting
  bool cnp_queued_ = false;

  // ---- in
  // Takes a packet of a SEND or WRITE. When it `ends` the message without fault, the receive that
  // it used up, if any, has been completed.
  Fault take(const Packet& packet, const OpcodeTraits& traits, Time now);
  // A shared receive that a message has begun to fill is for others, when this one ends without.
  void give_back_receive();
  bool qp_grants(Family family) const;
  // Whether the packet is of the connection at all, by its addresses (IBA 9.6.1.5).
  bool is_from_peer(const Packet& packet) const;

  Inbound inbound_;

 private:
  NotificationPoint notification_;

  Fault begin(const Packet& packet, const OpcodeTraits& traits, Time now);
  Fault place(const Packet& packet, const OpcodeTraits& traits);
  Fault finish(const Packet& packet, const OpcodeTraits& traits, Time now);
};

}  // namespace softroce
