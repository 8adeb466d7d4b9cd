// SPDX-License-Identifier: GPL-2.0-or-later
// A session whose receiver sends bitmaps of what is missing, by packets (SACK) or by chunks of
// packets (CHUNKS). The transport decides when the receiver sends them and how the sender reacts.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "session.hpp"

namespace softroce {

class SackSession : public Session {
 public:
  // `chunk_packets`: packets for each bit of CHUNKS; 0: the feedback is SACKs.
  explicit SackSession(MessageEngine& engine, std::uint32_t chunk_packets = 0)
      : Session(engine), chunk_packets_(chunk_packets) {}

 protected:
  // ---- hooks
  virtual void feedback_known(SendMessage&) {}    // `known_missing` was updated
  virtual void feedback_arrived(SendMessage&) {}  // then, unless the send was paused: it continues
  virtual void send_timer(SendMessage&) {}
  virtual void receive_timer(ReceiveMessage&) {}
  virtual void gap_seen(ReceiveMessage&, std::span<const std::uint32_t> /*missing*/) {}

  std::uint32_t chunk_packets() const final { return chunk_packets_; }
  void set_chunk_packets(std::uint32_t packets) { chunk_packets_ = packets; }
  std::uint32_t chunks_of(const SendMessage& message) const {
    const std::uint32_t packets = std::max(chunk_packets_, 1U);
    return (message.count + packets - 1) / packets;
  }
  // What the newest feedback lacks, as packets or as chunks; nullopt: no feedback has arrived.
  const std::optional<PacketSet>& known_missing(const SendMessage& message) {
    return known_[index_of(message.handle)];
  }
  // Packets that are not known to have arrived. Before the first feedback these are all packets. If
  // none is missing, the result is the last packet: when it arrives again, the receiver repeats its
  // acknowledgement.
  std::vector<std::uint32_t> missing(const SendMessage& message);
  void send_feedback(ReceiveMessage& message) { send_feedback(message, message.id); }
  // Retransmits those of `packets` that were sent before, within the bound of attempts.
  void retransmit_sent(SendMessage& message, std::vector<std::uint32_t> packets,
                       bool urgent = false, std::uint32_t copies = 1);
  // max(rto_ns, T_min), or the knob `timeout` if the user set it.
  Nanoseconds fixed_or(Nanoseconds rto_ns) const {
    return timing().fixed_rto_ns != 0 ? timing().fixed_rto_ns : std::max(rto_ns, timing().t_min_ns);
  }
  // With the knob `timeout: measured`, SRTT + max(G, 4 RTTVAR) as in RFC 6298, where G is the
  // clock's granularity. Before the first sample of the RTT, max(rto_ns, T_max).
  Nanoseconds measured_or(PeerIndex peer, Nanoseconds rto_ns) const;

  void send_posted(SendMessage& message) override;
  void check_send(SendMessage& message) final;
  void check_receive(ReceiveMessage& message) final;
  void status_requested(ReceiveMessage& message, std::uint32_t id) final {
    send_feedback(message, id);
  }
  void control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) final;
  void gap(ReceiveMessage& message, std::span<const std::uint32_t> packets) final;

 private:
  void send_feedback(ReceiveMessage& message, std::uint32_t id);
  bool learn(SendMessage& message, const Missing& feedback);

  std::uint32_t chunk_packets_;
  std::deque<std::optional<PacketSet>> known_;  // by the handle's index
};

// The receiver's side of a transport whose sender has the timer. It sends a SACK every quarter of
// an RTT while packets arrive, then at growing intervals up to T_max. This project's definition
// (docs/explanation/transports.md, `ud_rto`).
class SackReceiver : public SackSession {
 public:
  using SackSession::SackSession;

 protected:
  void first_packet(ReceiveMessage& message) override;
  void last_packet(ReceiveMessage& message) override { send_feedback(message); }
  void receive_timer(ReceiveMessage& message) override;

  Nanoseconds sack_interval_ns(PeerIndex peer) const;       // while packets arrive
  Nanoseconds& interval_of(const ReceiveMessage& message);  // the current one

 private:
  std::deque<Nanoseconds> intervals_;  // by the handle's index
};

}  // namespace softroce
