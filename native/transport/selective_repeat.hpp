// SPDX-License-Identifier: GPL-2.0-or-later
// What selective-repeat transports share: each message is a flow with a sequence space of its own,
// its packet indices; every data packet is acknowledged at once. How a loss is found is left to the
// subclasses, and what becomes of messages that cannot succeed to the session.
//
// The papers behind them have queue pairs in place of messages. This project's definitions, for all
// subclasses:
//
// - From the fourth timeout in a row that brings nothing the interval doubles, beginning at twice
//   RTO_high, to 16 times RTO_high or 40 ms, whichever is less (backoff.hpp). One before which
//   nothing was sent, for want of a window, does not count.
// - RNR, as in IBA 9.7.5.2.8: what was sent is lost. The session pauses the send, which goes on
//   when the receiver answers that it is ready.
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
    std::uint32_t lost_below = 0;  // of packets [0, lost_below), those without a bit are lost
    std::uint32_t retransmitted_below =
        0;  // lost packets below have been retransmitted since the last timeout
    std::uint32_t timed_out_below = 0;            // packets sent before the newest timeout
    std::uint32_t timeouts_without_progress = 0;  // in a row
    bool tried = false;                           // something was sent since the timer ran out
    Time since = 0;                               // the timer runs from here
  };

  // How many packets past `cumulative` may be out.
  virtual std::uint32_t most_out() const = 0;
  // How long to wait, from `since`: it may grow until then, when it is called again.
  virtual Time timeout(const SendMessage& message, const SendFlow& flow) const = 0;
  // Feedback that is valid and has been noted: cumulative and bits, by `note`.
  virtual void react(SendMessage& message, SendFlow& flow, bool advanced) = 0;
  virtual void timed_out(SendMessage& message, SendFlow& flow) = 0;
  // A receiver's response to a packet that is not the expected one.
  virtual Feedback out_of_order(const ReceiveMessage& message, std::uint32_t packet) const = 0;

  Time base_rtt() const { return config().initial_rtt; }
  Time rto_low() const { return rto_low_; }
  Time rto_high() const { return rto_high_; }
  // Each returns false if the session does not let it, or has given up the message.
  bool retransmit(SendMessage& message, SendFlow& flow, std::uint32_t packet);
  bool retransmit_lost(SendMessage& message, SendFlow& flow);

 private:
  struct ReceiveFlow {
    Handle handle = kNoHandle;
    std::uint32_t cumulative = 0;
  };
  static constexpr std::uint32_t kMostDoubled = 4;  // times, of a timer
  // And not beyond this: a cable that is cut costs no more than that when it is whole again.
  static constexpr Time kLongestWait = 40 * kMillisecond;

  SendFlow& flow_of(const SendMessage& message) { return sends_[index_of(message.handle)]; }
  ReceiveFlow& flow_of(const ReceiveMessage& message);
  // How long a timer runs: the transport's own timeout, or the measured RTO if that is to count and
  // is longer. Before the first sample of the RTT that is RTO_high.
  Time timer(const SendMessage& message, const SendFlow& flow) const;
  Time backed_off(Time interval, std::uint32_t timeouts_without_progress) const;
  void arm(SendMessage& message, Time at);
  void send_feedback(PeerIndex peer, const Feedback& feedback, std::uint8_t path);
  bool note(SendMessage& message, SendFlow& flow, const Feedback& feedback);
  void note_packet(SendMessage& message, SendFlow& flow, std::uint32_t packet);
  void advance(SendMessage& message, SendFlow& flow, std::uint32_t cumulative);
  void go_on(SendMessage& message, SendFlow& flow);

  // ---- what the session asks for
  void acknowledge(PeerIndex, std::uint32_t) final {}  // each packet is
  void check_send(SendMessage& message) final;
  void first_packet(ReceiveMessage& message) final;
  void check_receive(ReceiveMessage& message) final;
  void status_requested(ReceiveMessage& message, std::uint32_t id) final;
  void control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) final;

  Time rto_low_, rto_high_;
  RetransmitReason why_{};            // of what is retransmitted now
  std::deque<SendFlow> sends_;        // by the handle's index
  std::deque<ReceiveFlow> receives_;  // likewise
};

}  // namespace softroce
