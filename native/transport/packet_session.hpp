// SPDX-License-Identifier: GPL-2.0-or-later
// What the transports share whose receiver acknowledges every data packet at once: `irn`, `srnic`
// and `rack_tlp`. Each message is a flow; its packet indices are its sequence numbers. The
// receiver's side is here, and the part of the sender's that reads feedback. A subclass decides
// which packets are lost. The session (session.hpp) decides which messages fail.
//
// After an RNR NAK (IBA 9.7.5.2.8) the session pauses the send. It continues when the receiver
// answers that the receive is posted.
#pragma once

#include <deque>

#include "session.hpp"

namespace softroce {

class PacketSession : public Session {
 public:
  explicit PacketSession(MessageEngine& engine);

  bool reacts() const final { return true; }
  void packet_arrived(ReceiveMessage& message, const LabHeader& lab, Time now) override;
  void packet_came_late(PeerIndex peer, const LabHeader& lab) final;
  bool feedback_arrived(PeerIndex peer, std::span<const std::uint8_t> body, Time now) final;
  void timer_ended(SendMessage& message, Time now) final;

 protected:
  // The receiver's response to a packet beyond the cumulative acknowledgement. Fills in `type` and
  // what belongs to it.
  virtual Feedback out_of_order(const ReceiveMessage& message, std::uint32_t packet) const = 0;
  // Valid feedback on a message that is not over.
  virtual void feedback_known(SendMessage& message, const Feedback& feedback) = 0;
  // The receive of a message that was paused is posted. Which of its packets have arrived is not
  // known.
  virtual void receiver_ready(SendMessage& message) = 0;

  // The knob `timeout` takes the place of both. RTO_high is also the RTO before the first sample of
  // the RTT.
  Time rto_low() const { return rto_low_; }
  Time rto_high() const { return rto_high_; }

  // Sends the feedback that answers the packet. `stamp_ns`: of the packet that is echoed. `path`:
  // the one that the feedback takes.
  // Returns the cumulative acknowledgement.
  std::uint32_t answer(const ReceiveMessage& message, std::uint32_t packet, std::uint32_t stamp_ns,
                       std::uint8_t path);
  // A PACKET_SACK: the 64-bit word of the receiver's bitmap that contains the packet.
  static Feedback sack_of(const ReceiveMessage& message, std::uint32_t packet);

 private:
  struct ReceiveFlow {
    Handle handle = kNoHandle;
    std::uint32_t cumulative = 0;
  };

  ReceiveFlow& flow_of(const ReceiveMessage& message);
  void send_feedback(PeerIndex peer, const Feedback& feedback, std::uint8_t path);

  // ---- hooks of the session
  void acknowledge(PeerIndex, std::uint32_t) final {}  // its last packet was acknowledged already
  void first_packet(ReceiveMessage& message) final;
  void check_receive(ReceiveMessage& message) final;
  void status_requested(ReceiveMessage& message, std::uint32_t id) final;
  void control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) final;

  Time rto_low_, rto_high_;
  std::deque<ReceiveFlow> receives_;  // by the handle's index
};

}  // namespace softroce
