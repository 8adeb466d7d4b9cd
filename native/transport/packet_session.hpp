// SPDX-License-Identifier: GPL-2.0-or-later
// What the transports share whose receiver answers data packets by feedback: `irn`, `srnic`,
// `rack_tlp`, `dcp` and `ndp` at once, `falcon` also several packets together
// (connection_session.hpp). Each message is a flow; its packet indices are its sequence numbers.
// The receiver's side is here, and the part of the sender's that reads feedback. A subclass decides
// which packets are lost. The session (session.hpp) decides which messages fail.
//
// Feedback takes the path of the packet that it acknowledges, and echoes its congestion mark if the
// path picker heeds marks. So it tells the sender's picker which path carried the packet, and how.
//
// After an RNR NAK (IBA 9.7.5.2.8) the session pauses the send. It continues when the receiver
// answers that the receive is posted.
#pragma once

#include <vector>

#include "session.hpp"

namespace softroce {

class PacketSession : public Session {
 public:
  explicit PacketSession(MessageEngine& engine);

  bool reacts() const final { return true; }
  void packet_arrived(ReceiveMessage& message, const Packet& packet, Time now) override;
  void packet_came_late(PeerIndex peer, const Packet& packet, Time now) final;
  void packet_trimmed(const TrimmedPacket& trimmed, Time now) final;
  bool feedback_arrived(PeerIndex peer, const Packet& packet, Time now) final;
  void timer_ended(SendMessage& message, Time now) final;

 protected:
  // The receiver's response to a packet beyond the cumulative acknowledgement. Fills in `type` and
  // what belongs to it.
  virtual Feedback out_of_order(const ReceiveMessage& message, std::uint32_t packet) const = 0;
  // Valid feedback on a message that is not over.
  virtual void feedback_known(SendMessage& message, const Feedback& feedback) = 0;
  // Whether the receiver answers a packet of which only the header arrived: by PACKET_TRIMMED, or,
  // if the payload is not missing, as if the whole packet had arrived again. A message without a
  // receive gets no answer. Otherwise both ends ignore trimmed packets.
  virtual bool answers_trimming() const { return false; }
  // A valid PACKET_TRIMMED about the newest transmission of a packet, of a message that is not
  // over. It gives no RTT sample: a trimmed packet overtakes queues.
  virtual void payload_lost(SendMessage&, const Feedback&) {}
  // At the receiver: a packet, whole or trimmed, took that path, and has its answer.
  virtual void answered(PeerIndex, std::uint8_t /*path*/) {}
  // The receiver pulls packets (PACKET_PULL). False: the transport knows no pulls.
  virtual bool pulled(PeerIndex, std::uint32_t /*pulls*/) { return false; }
  // The receive of a message that was paused is posted. Which of its packets have arrived is not
  // known.
  virtual void receiver_ready(SendMessage& message) = 0;

  // The knob `timeout` takes the place of both. RTO_high is also the RTO before the first sample of
  // the RTT.
  Time rto_low() const { return rto_low_; }
  Time rto_high() const { return rto_high_; }

  // The retransmission timeout to a peer by the knob `timeout`: a fixed time, or the measured RTO
  // as soon as there is a sample of the RTT. Otherwise `rto_ns`.
  Nanoseconds timeout_or(PeerIndex peer, Nanoseconds rto_ns) const;

  // What feedback echoes of the packet that it answers.
  struct Echo {
    std::uint32_t stamp_ns = 0;
    std::uint8_t path = 0;  // the feedback takes it, too
    bool marked = false;    // a congestion mark that the path picker heeds
  };
  Echo echo_of(const Packet& packet);
  void send_feedback(PeerIndex peer, Feedback feedback, const Echo& echo);
  // Sends the feedback that answers the packet. Returns the cumulative acknowledgement.
  std::uint32_t answer(const ReceiveMessage& message, std::uint32_t packet, const Echo& echo);
  // A PACKET_SACK: the 64-bit word of the receiver's bitmap that contains the packet.
  static Feedback sack_of(const ReceiveMessage& message, std::uint32_t packet);

 private:
  struct ReceiveFlow {
    Handle handle = kNoHandle;
    std::uint32_t cumulative = 0;
  };

  ReceiveFlow& flow_of(const ReceiveMessage& message);

  // ---- hooks of the session
  void acknowledge(PeerIndex, std::uint32_t) final {}  // its last packet was acknowledged already
  void first_packet(ReceiveMessage& message) final;
  void check_receive(ReceiveMessage& message) final;
  void status_requested(ReceiveMessage& message, std::uint32_t id) final;
  void control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) final;

  Time rto_low_, rto_high_;
  std::vector<ReceiveFlow> receives_;  // by the handle's index
};

}  // namespace softroce
