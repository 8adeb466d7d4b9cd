// SPDX-License-Identifier: GPL-2.0-or-later
// What the selective-repeat transports `irn` and `srnic` share. Each message is a flow; its packet
// indices are its sequence numbers. The receiver acknowledges every data packet at once. A subclass
// decides which packets are lost. The session (session.hpp) decides which messages fail.
//
// The papers have queue pairs in place of messages. These rules are this project's, for both:
//
// - After three timeouts in a row without progress, each further one doubles the interval, from
//   2 RTO_high on. The limit is min(16 RTO_high, 40 ms), but at least RTO_high. The interval varies
//   between half of that and all of it. A timeout does not count if nothing was sent
//   since the one before, because a retransmission waits for the window.
// - After an RNR NAK (IBA 9.7.5.2.8) all packets that were sent count as lost. The session pauses
//   the send. It continues when the receiver answers that the receive is posted.
// - A message stays on one path, as a queue pair's packets do, unless MessageConfig.spray is set.
#pragma once

#include <algorithm>
#include <deque>

#include "session.hpp"

namespace softroce {

class SelectiveRepeat : public Session {
 public:
  explicit SelectiveRepeat(MessageEngine& engine);

  bool reacts() const final { return true; }
  void posted(SendMessage& message) final;
  void packet_sent(SendMessage& message, std::uint32_t packet, Time now) final;
  void packet_arrived(ReceiveMessage& message, const LabHeader& lab, Time now) final;
  void packet_came_late(PeerIndex peer, const LabHeader& lab) final;
  bool feedback_arrived(PeerIndex peer, std::span<const std::uint8_t> body, Time now) final;
  void timer_ended(SendMessage& message, Time now) final;

 protected:
  struct SendFlow {
    Bitmap acked;
    std::uint32_t cumulative = 0;  // packets [0, cumulative) have arrived
    std::uint32_t lost_below = 0;  // packets below that are not in `acked` are lost
    // Lost packets below have been retransmitted since the last timeout.
    std::uint32_t retransmitted_below = 0;
    std::uint32_t timed_out_below = 0;            // packets below were sent before the last timeout
    std::uint32_t timeouts_without_progress = 0;  // in a row
    bool sent_since_timeout = false;
    Time timer_start = 0;
  };

  // How many packets past `cumulative` may be in flight.
  virtual std::uint32_t most_out() const = 0;
  // How long the timer runs from `timer_start`. Called again when that time is over: the timeout
  // may have grown meanwhile.
  virtual Time timeout(const SendMessage& message, const SendFlow& flow) const = 0;
  // Called for valid feedback, after the flow was updated by it. `advanced`: `cumulative` has
  // grown.
  virtual void react(SendMessage& message, SendFlow& flow, bool advanced) = 0;
  virtual void timed_out(SendMessage& message, SendFlow& flow) = 0;
  // The receiver's response to a packet beyond the cumulative acknowledgement. Fills in `type` and
  // what belongs to it.
  virtual Feedback out_of_order(const ReceiveMessage& message, std::uint32_t packet) const = 0;

  Time base_rtt() const { return config().initial_rtt; }
  Time rto_low() const { return rto_low_; }
  Time rto_high() const { return rto_high_; }
  // Both return false if the bound of attempts forbids it for now, or has ended the message.
  bool retransmit(SendMessage& message, SendFlow& flow, std::uint32_t packet);
  bool retransmit_lost(SendMessage& message, SendFlow& flow);

 private:
  struct ReceiveFlow {
    Handle handle = kNoHandle;
    std::uint32_t cumulative = 0;
  };
  static constexpr std::uint32_t kMostDoublings = 4;  // of RTO_high
  // After an outage, recovery continues within this time.
  static constexpr Time kLongestWait = 40 * kMillisecond;

  SendFlow& flow_of(const SendMessage& message) { return sends_[index_of(message.handle)]; }
  ReceiveFlow& flow_of(const ReceiveMessage& message);
  // The transport's own timeout. With `timeout: measured` at least the measured RTO, which is
  // RTO_high before the first sample of the RTT.
  Time timer(const SendMessage& message, const SendFlow& flow) const;
  Time backed_off(Time interval, std::uint32_t timeouts_without_progress) const;
  void arm(SendMessage& message, Time at);
  void send_feedback(PeerIndex peer, const Feedback& feedback, std::uint8_t path);
  bool note_feedback(SendMessage& message, SendFlow& flow, const Feedback& feedback);
  void note_packet(SendMessage& message, SendFlow& flow, std::uint32_t packet);
  void advance(SendMessage& message, SendFlow& flow, std::uint32_t cumulative);
  void resume(SendMessage& message, SendFlow& flow);

  // ---- hooks of the session
  void acknowledge(PeerIndex, std::uint32_t) final {}  // its last packet was acknowledged already
  void check_send(SendMessage& message) final;
  void first_packet(ReceiveMessage& message) final;
  void check_receive(ReceiveMessage& message) final;
  void status_requested(ReceiveMessage& message, std::uint32_t id) final;
  void control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) final;

  Time rto_low_, rto_high_;
  RetransmitReason why_{};            // of the retransmissions that follow
  std::deque<SendFlow> sends_;        // by the handle's index
  std::deque<ReceiveFlow> receives_;  // likewise
};

}  // namespace softroce
