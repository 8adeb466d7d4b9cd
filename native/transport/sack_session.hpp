// SPDX-License-Identifier: GPL-2.0-or-later
// A session whose receiver tells by bitmaps what it misses: of packets (SACK), or of chunks of
// packets (CHUNKS). When it does so, and what the sender makes of it, is the transport's.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "session.hpp"

namespace softroce {

class SackSession : public Session {
 public:
  // `chunk_packets`: for which a bit of the feedback stands; 0: for one packet, by SACKs.
  explicit SackSession(MessageEngine& engine, std::uint32_t chunk_packets = 0)
      : Session(engine), chunk_packets_(chunk_packets) {}

 protected:
  // ---- hooks
  virtual void feedback_arrived(SendMessage&) {}
  virtual void feedback_known(SendMessage&) {}  // of a paused send, too, which then goes on
  virtual void send_timer(SendMessage&) {}
  virtual void receive_timer(ReceiveMessage&) {}
  virtual void gap_seen(ReceiveMessage&, std::span<const std::uint32_t> /*missing*/) {}

  std::uint32_t chunk_packets() const { return chunk_packets_; }
  void set_chunk_packets(std::uint32_t packets) { chunk_packets_ = packets; }
  std::uint32_t chunks_of(const SendMessage& message) const {
    const std::uint32_t packets = std::max(chunk_packets_, 1U);
    return (message.count + packets - 1) / packets;
  }
  // Packets, or chunks, by the newest feedback; none: nothing is known.
  const std::optional<PacketSet>& known_missing(const SendMessage& message) {
    return known_[index_of(message.handle)];
  }
  // Packets that are not known to have arrived: all before the first feedback. If none is missing,
  // the last packet: its second arrival makes the receiver acknowledge again.
  std::vector<std::uint32_t> missing(const SendMessage& message);
  void send_feedback(ReceiveMessage& message) { send_feedback(message, message.id); }
  // Those of the packets that were sent, within the bounds of attempts.
  void retransmit_sent(SendMessage& message, std::vector<std::uint32_t> packets,
                       bool urgent = false, std::uint32_t copies = 1);
  // T_0 = max(`rto_srtt` SRTT, T_min), or what the user chose in its place.
  Nanoseconds fixed_or(Nanoseconds rto_ns) const {
    return timing().fixed_rto_ns != 0 ? timing().fixed_rto_ns : std::max(rto_ns, timing().t_min_ns);
  }
  // With the knob `timeout: measured` no RTO is shorter than SRTT + 4 RTTVAR (RFC 6298), nor than
  // T_max before the RTT was measured.
  Nanoseconds no_shorter_than_measured(PeerIndex peer, Nanoseconds rto_ns) const;

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

// The receiver's side of a sender-driven transport: SACKs a quarter of an RTT apart while packets
// arrive, then ever more rarely. This project's definition (docs/protocols.md, section 2).
class SackReceiver : public SackSession {
 public:
  using SackSession::SackSession;

 protected:
  void first_packet(ReceiveMessage& message) override;
  void last_packet(ReceiveMessage& message) override { send_feedback(message); }
  void receive_timer(ReceiveMessage& message) override;

  Nanoseconds sack_interval_ns(PeerIndex peer) const;       // while packets arrive
  Nanoseconds& interval_of(const ReceiveMessage& message);  // until the next; 0: none is due

 private:
  std::deque<Nanoseconds> intervals_;  // by the handle's index
};

}  // namespace softroce
