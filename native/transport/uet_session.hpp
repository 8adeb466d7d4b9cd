// SPDX-License-Identifier: GPL-2.0-or-later
// What `uet_rud` and `uet_rod` share: acknowledgements, trimming and the retransmission timer of
// Ultra Ethernet's packet delivery sublayer (PDS).
//
//   [spec]      the Ultra Ethernet specification 1.0.3, second-hand
//   [provider]  its reference provider, github.com/ultraethernet/uet-ref-prov, uet_pds.c
//   [htsim]     its simulator, github.com/ultraethernet/uet-htsim, uec.cpp
//
// From the sources:
//
// - The window is 128 PSNs from the oldest unacknowledged one on [provider: UET_DEFAULT_MP_RANGE].
// - The receiver acknowledges when packets of 16,384 bytes are unanswered. A packet counts as 1,024
//   bytes at least [spec, Table 3-28; provider: ack_gen_trigger, ack_gen_min_pkt_add].
// - It acknowledges a retransmission at once: a retransmission asks for that [provider; htsim].
//   It also acknowledges a packet with a congestion mark at once [htsim: processData].
// - A trimmed packet is answered by a NACK. The NACK causes a retransmission [spec; provider;
//   htsim], unless a newer transmission of the packet is on its way.
// - A packet has its own timer, which starts at each transmission. The timeout is RTO_INIT * 2^n
//   after n timeouts of the packet [spec, p. 290].
// - RTO_INIT is 5 ms [provider: tx_timeout]. With trimming it is 100 us [htsim: _min_rto, which its
//   experiments set by the size of queues].
//
// This project's rules:
//
// - The timeout is at least two SRTTs of the peer, before a first sample two base RTTs.
// - Doubled timeouts vary, as those of all sessions do (backoff.hpp), and end at
//   max(T_max, 16 * timeout). [spec] ends at 8 s.
// - The headers lack the AR bit, by which a sender asks for an acknowledgement. [provider] sets it
//   at the end of a message, [htsim] also if the window is full. Instead, the receiver answers a
//   complete message at once, and all else a quarter of a base RTT after the first unanswered
//   packet. The last packet of a message counts as if it were full.
// - The session bounds the attempts of a packet (the knob `retry_count`). [provider] has five
//   retries.
// - A packet that a SACK reports is done. [provider] keeps it until the cumulative acknowledgement
//   contains it, and asks for that when the packet's timer ends.
// - The receiver has room for all packets of a posted message, so no PSN is out of its window.
//   Connections are not set up. So no NACKs exist but those of trimming and order.
// - Congestion control is the lab's.
#pragma once

#include <deque>
#include <vector>

#include "connection_session.hpp"
#include "transports.hpp"

namespace softroce {

class UetSession : public ConnectionSession {
 public:
  explicit UetSession(MessageEngine& engine);

  static std::vector<Option> options(std::string_view path_picker);

 protected:
  // Retransmits the packet, whose timer has ended.
  virtual void timed_out(Connection& connection, Psn psn) = 0;

  Nanoseconds base_rtt_ns() const { return config().initial_rtt / kNanosecond; }
  bool has_trimming() const { return has_trimming_; }
  // A retransmission that does not double the packet's timeout.
  void retransmit_early(Connection& connection, Psn psn, RetransmitReason why);

  // ---- hooks
  bool answers_trimming() const final { return has_trimming_; }
  bool answers_at_once(const Packet& packet) const final {
    return packet.lab.attempt > 0 || packet.congestion_experienced();
  }
  void packet_left(Connection& connection, Psn psn) override;
  void acknowledged(Connection&, const Acknowledgement&) override {}
  void time_passed(Connection& connection) override;
  void payload_cut(Connection& connection, Psn psn, bool at_last_hop) override;

 private:
  Nanoseconds& timeout_due_of(const Connection& connection);
  Nanoseconds rto_ns(PeerIndex index) const;
  Nanoseconds wait_ns(const Record& record, Nanoseconds rto_ns) const;

  const bool has_trimming_;
  const Nanoseconds rto_init_ns_;
  std::deque<Nanoseconds> timeouts_due_;  // by peer; no packet's timer ends before
};

}  // namespace softroce
