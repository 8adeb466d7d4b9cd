// SPDX-License-Identifier: GPL-2.0-or-later
// What `uet_rud` and `uet_rod` share: acknowledgements, trimming and the retransmission timer of
// Ultra Ethernet's packet delivery sublayer (PDS). A switch *trims* a packet by cutting it to its
// headers. The sources are:
//
//   [spec]      the Ultra Ethernet specification 1.0.3, known only from other publications
//   [provider]  its reference provider, github.com/ultraethernet/uet-ref-prov, uet_pds.c
//   [htsim]     its simulator, github.com/ultraethernet/uet-htsim, uec.cpp
//
// From the sources:
//
// - The window is 128 PSNs from the oldest unacknowledged one on [provider: UET_DEFAULT_MP_RANGE].
// - The receiver acknowledges as soon as 16,384 bytes are unacknowledged. A packet counts as at
//   least 1,024 bytes [spec, Table 3-28; provider: ack_gen_trigger, ack_gen_min_pkt_add].
// - The receiver acknowledges a retransmission at once, because a retransmission requests that
//   [provider; htsim]. The receiver also acknowledges a packet with a congestion mark at once
//   [htsim: processData].
// - The receiver answers a trimmed packet by a NACK. The NACK causes a retransmission [spec;
//   provider; htsim], unless a newer transmission of the packet is on its way.
// - Each packet has its own timer, which starts at each transmission. After n timeouts of the
//   packet, the timeout is RTO_INIT * 2^n [spec, p. 290].
// - RTO_INIT is 5 ms [provider: tx_timeout]. With trimming it is 100 us [htsim: _min_rto, which
//   htsim's experiments derive from the size of queues].
//
// This project's rules:
//
// - The timeout is at least two SRTTs of the peer. Before an RTT is measured, it is at least two
//   base RTTs.
// - Doubled timeouts vary, as in all sessions (backoff.hpp). They are at most
//   max(T_max, 16 * timeout). In [spec] they are at most 8 s.
// - The headers lack the AR bit, by which a sender requests an acknowledgement. [provider] sets the
//   bit at the end of a message, [htsim] also if the window is full. Instead, the receiver answers
//   a complete message at once. It answers other packets at most a quarter of a base RTT after the
//   first unanswered one.
// - In the count of unacknowledged bytes, a short last packet of a message counts as a full packet.
// - The session limits the transmissions of a packet (the knob `retry_count`). [provider] has five
//   retries. A NACK starts the count again. [spec] has a separate limit for retransmissions because
//   of NACKs, Max_NACK_Retx_Cnt, which may be infinite.
// - A packet is done as soon as a SACK reports it. [provider] keeps the packet until the cumulative
//   acknowledgement covers it. When the packet's timer ends, [provider] asks for that
//   acknowledgement.
// - The receiver sends NACKs only for trimmed packets and packets out of order. Other NACKs are not
//   needed: the receiver has room for all packets of a posted message, and connections have no
//   setup.
// - Congestion control is the lab's.
#pragma once

#include <vector>

#include "connection_session.hpp"
#include "transports.hpp"

namespace softroce {

class UetSession : public ConnectionSession {
 public:
  explicit UetSession(MessageEngine& engine);

  static std::vector<Option> options(std::string_view path_picker);

 protected:
  Nanoseconds base_rtt_ns() const { return config().initial_rtt / kNanosecond; }
  bool has_trimming() const { return has_trimming_; }

  // ---- hooks
  bool answers_trimming() const final { return has_trimming_; }
  bool answers_at_once(const Packet& packet) const final {
    return packet.lab.attempt > 0 || packet.congestion_experienced();
  }
  Nanoseconds rto_ns(PeerIndex index) const final;
  Nanoseconds wait_ns(const Record& record, Nanoseconds rto_ns, std::uint32_t) const final;
  void acknowledged(Connection&, const Acknowledgement&) override {}
  void payload_cut(Connection& connection, Psn psn, bool at_last_hop) override;

 private:
  const bool has_trimming_;
  const Nanoseconds rto_init_ns_;
};

}  // namespace softroce
