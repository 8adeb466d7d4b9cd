// SPDX-License-Identifier: GPL-2.0-or-later
// What the selective-repeat transports `irn` and `srnic` share beyond packet_session.hpp: a flow's
// scoreboard and its timer. A subclass decides which packets are lost.
//
// The papers have queue pairs in place of messages. These rules are this project's, for both:
//
// - After three timeouts in a row without progress, each further one doubles the interval, from
//   2 RTO_high on. The limit is min(16 RTO_high, 40 ms), but at least RTO_high. The interval varies
//   between half of that and all of it. A timeout does not count if nothing was sent
//   since the one before, because a retransmission waits for the window.
// - After an RNR NAK (IBA 9.7.5.2.8) all packets that were sent count as lost.
// - A message stays on one path, as a queue pair's packets do, unless the option `path_picker` is
// set.
#pragma once

#include <algorithm>
#include <deque>

#include "packet_session.hpp"

namespace softroce {

class SelectiveRepeat : public PacketSession {
 public:
  using PacketSession::PacketSession;

  void posted(SendMessage& message) final;
  void packet_sent(SendMessage& message, std::uint32_t packet, Time now) final;

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

  Time base_rtt() const { return config().initial_rtt; }
  // Both return false if the bound of attempts forbids it for now, or has ended the message.
  bool retransmit(SendMessage& message, SendFlow& flow, std::uint32_t packet);
  bool retransmit_lost(SendMessage& message, SendFlow& flow);

 private:
  static constexpr std::uint32_t kMostDoublings = 4;  // of RTO_high
  // After an outage, recovery continues within this time.
  static constexpr Time kLongestWait = 40 * kMillisecond;

  SendFlow& flow_of(const SendMessage& message) { return sends_[index_of(message.handle)]; }
  // The transport's own timeout. With `timeout: measured` the RTO of RFC 6298, or RTO_high before
  // the first sample of the RTT.
  Time timer(const SendMessage& message, const SendFlow& flow) const;
  Time backed_off(Time interval, std::uint32_t timeouts_without_progress) const;
  void arm(SendMessage& message, Time at);
  bool note_feedback(SendMessage& message, SendFlow& flow, const Feedback& feedback);
  void note_packet(SendMessage& message, SendFlow& flow, std::uint32_t packet);
  void advance(SendMessage& message, SendFlow& flow, std::uint32_t cumulative);
  void resume(SendMessage& message, SendFlow& flow);

  void feedback_known(SendMessage& message, const Feedback& feedback) final;
  void receiver_ready(SendMessage& message) final;
  void check_send(SendMessage& message) final;

  RetransmitReason why_{};      // of the retransmissions that follow
  std::deque<SendFlow> sends_;  // by the handle's index
};

}  // namespace softroce
