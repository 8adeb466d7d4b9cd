// SPDX-License-Identifier: GPL-2.0-or-later
// What selective-repeat transports share: each message is a flow with a sequence space of its own,
// its packet indices; every data packet is acknowledged at once. How a loss is found is left to the
// subclasses.
//
// The papers behind them have queue pairs in place of messages, do not cover messages that cannot
// succeed, and leave retry limits open. This project's definitions, for all subclasses:
//
// - From the fourth timeout in a row that brings nothing the interval doubles, beginning at twice
//   RTO_high, to 16 times RTO_high or 40 ms, whichever is less, and varies between a half and all
//   of that, or RTO_high and twice that where 40 ms are less. After `retry_limit` of them the send
//   fails in IBV_WC_RETRY_EXC_ERR; the receiver gets a REFUSE, repeated until it
//   acknowledges it. One before which nothing was sent, for want of a window, does not count.
// - A receiver without arrivals sends keepalives (ASK), at intervals that grow in the same way, and
//   fails the receive if `retry_limit` of them in a row bring no response.
// - RNR, as in IBA 9.7.5.2.8: what was sent is lost; the send pauses, then tries its first missing
//   packet again, and continues when that is acknowledged. Pauses double from RTO_high to 40 ms, so
//   that a receive that is late by seconds costs a hundred tries and not thousands.
// - A message stays on one path, as a queue pair's packets do, unless MessageConfig.spray is set.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "../engine/striped/packet_transport.hpp"
#include "bodies.hpp"
#include "outstanding.hpp"

namespace softroce {

class SelectiveRepeat : public PacketTransport {
 public:
  SelectiveRepeat(const TransportConfig& config, TransportHost& host);

  void send_posted(SendMessage& message) final;
  void packet_sent(SendMessage& message, std::uint32_t packet, Time now) final;
  void receive_posted(ReceiveMessage& message, Time now) final;
  void packet_arrived(ReceiveMessage& message, const LabHeader& lab, Time now) final;
  void packet_refused(PeerIndex peer, const LabHeader& lab, Refusal why) final;
  bool control_arrived(PeerIndex peer, std::span<const std::uint8_t> body, Time now) final;
  void woken(Handle subject, Time asked_for, Time now) final;

 protected:
  struct SendFlow {
    Bitmap acked;
    std::uint32_t cumulative = 0;  // packets [0, cumulative) have arrived
    std::uint32_t lost_below = 0;  // of packets [0, lost_below), those without a bit are lost
    std::uint32_t retransmitted_below =
        0;  // lost packets below have been retransmitted since the last timeout
    std::uint32_t timed_out_below = 0;            // packets sent before the newest timeout
    bool answered = false;                        // something of it has arrived
    bool waiting = false;                         // for the receiver to be ready
    bool tried = false;                           // something was sent since the timer ran out
    std::uint32_t timeouts_without_progress = 0;  // timeouts in a row without progress
    std::uint32_t not_ready = 0;                  // RNRs in a row
    Time since = 0;                               // the timer runs from here
    Time armed_for = kNever;                      // the earliest time of its next loss check
  };

  // How many packets past `cumulative` may be out.
  virtual std::uint32_t most_out() const = 0;
  // How long to wait, from `since`: it may grow until then, when it is called again.
  virtual Time timeout(const SendMessage& message, const SendFlow& flow) const = 0;
  // Feedback that is valid and has been noted: cumulative and bits, by `note`.
  virtual void react(SendMessage& message, SendFlow& flow, const Feedback& feedback, bool advanced,
                     Time now) = 0;
  virtual void timed_out(SendMessage& message, SendFlow& flow, Time now) = 0;
  // A receiver's response to a packet that is not the expected one.
  virtual Feedback out_of_order(const ReceiveMessage& message, std::uint32_t packet) const = 0;

  const TransportConfig& config() const { return config_; }
  void retransmit(SendMessage& message, SendFlow& flow, std::uint32_t packet, Time now);
  void retransmit_lost(SendMessage& message, SendFlow& flow, Time now);

 private:
  struct ReceiveFlow {
    std::uint32_t cumulative = 0;
    std::uint32_t timeouts_without_progress = 0;  // consecutive keepalives without a response
    Time asked_at = -1;
    Time armed_for = kNever;
  };
  struct GivenUp {  // a send that failed, until the receiver acknowledges that
    PeerIndex peer;
    Naming naming;
    std::uint32_t reported;
  };
  static constexpr std::size_t kMostGivenUp = 1 << 12;
  static constexpr std::uint32_t kEager = 3;  // rounds without progress before the interval doubles
  static constexpr std::uint32_t kMostDoubled = 4;  // times, of a timer
  static constexpr std::uint32_t kLargestShift = 16;
  // And not beyond this: forty waits outlast a cable that is cut for a second, and are soon over.
  static constexpr Time kLongestWait = 40 * kMillisecond;

  SendFlow& flow_of(const SendMessage& message) {
    return sends_[static_cast<std::uint32_t>(message.handle)];
  }
  ReceiveFlow& flow_of(const ReceiveMessage& message) {
    return receives_[static_cast<std::uint32_t>(message.handle)];
  }
  // How long a timer runs: the transport's own timeout, or the measured RTO if that is to count and
  // is longer. Before the first sample of the RTT that is RTO_high.
  Time timer(const SendMessage& message, const SendFlow& flow) const;
  // Doubled behind eager rounds, and varied: an outage that comes round does not meet every one.
  Time backed_off(Time interval, std::uint32_t timeouts_without_progress) const {
    return backed_off(interval, timeouts_without_progress, longest());
  }
  Time backed_off(Time interval, std::uint32_t rounds, Time most) const;
  Time longest() const {
    return std::max(config_.rto_high, std::min(config_.rto_high << kMostDoubled, kLongestWait));
  }
  SendMessage* find(PeerIndex peer, std::uint32_t id) const { return outstanding_.find(peer, id); }
  void arm(SendFlow& flow, Handle handle, Time at);

  bool fed_back(PeerIndex peer, std::span<const std::uint8_t> body, Time now);
  bool note(SendMessage& message, SendFlow& flow, const Feedback& feedback, Time now);
  void note_packet(SendMessage& message, SendFlow& flow, std::uint32_t packet);
  void advance(SendMessage& message, SendFlow& flow, std::uint32_t cumulative, Time now);
  bool acknowledged(PeerIndex peer, std::span<const std::uint8_t> body);
  void not_ready(SendMessage& message, Time now);
  bool refused(PeerIndex peer, const Naming& naming, Time now);
  void asked(PeerIndex peer, const Naming& naming);
  void go_on(SendMessage& message, SendFlow& flow);
  void timer_fired(SendMessage& message, SendFlow& flow, Time now);
  void timer_fired(ReceiveMessage& message, ReceiveFlow& flow, Time now);
  void give_up(SendMessage& message, Time now);
  void refuse_again(Time now);
  void send_control(PeerIndex peer, const SmallBody& body, std::uint8_t path = kAnyPath) {
    host_.send_control(peer, path, body.bytes());
  }

  TransportConfig config_;
  TransportHost& host_;
  RetransmitReason why_{};            // of what is retransmitted now
  std::deque<SendFlow> sends_;        // by the handle's index
  std::deque<ReceiveFlow> receives_;  // likewise
  OutstandingSends outstanding_;
  std::vector<GivenUp> given_up_;
  bool refusing_ = false;
};

std::unique_ptr<PacketTransport> make_irn(const TransportConfig& config, TransportHost& host);
std::unique_ptr<PacketTransport> make_srnic(const TransportConfig& config, TransportHost& host);

}  // namespace softroce
