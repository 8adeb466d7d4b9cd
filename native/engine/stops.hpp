// SPDX-License-Identifier: GPL-2.0-or-later
// How long a port's link was idle while the port had packets to send, by what stopped them.
//
// Each peer and queue pair reports when it is stopped and when it may send again. Whoever serves
// the link reports when it goes idle and when a packet leaves. Idle time counts for the cause of
// the last stop before it, or for what the fabric knows of that (native/sim/fabric_stops.cpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "counters.hpp"
#include "units.hpp"

namespace softroce {

enum class Stop : std::uint8_t {
  window,              // of packets in flight to a peer, while the RTT is that of an empty fabric
  in_order_cap,        // the same of a queue pair: its unacknowledged PSNs
  single_path,         // packets wait on the flow's only path, and less on another
  credit,              // frames that the peer has free
  congestion_control,  // its pace, or a window that it has narrowed
  queue,               // a window is full because packets wait in the fabric: the RTT has grown
  recovery,            // a wait that ended with a retransmission
  count_
};
inline constexpr std::size_t kStops = static_cast<std::size_t>(Stop::count_);
inline constexpr std::array<const char*, kStops> kStopNames = {
    "window", "in_order_cap", "single_path", "credit", "congestion_control", "queue", "recovery"};

// Packets wait in queues if a round trip takes a quarter longer than an empty fabric's. By Little's
// law a window of 1.25 bandwidth-delay products or more is full only then.
inline bool waits_in_queues(Time rtt, Time empty) { return rtt > empty + empty / 4; }

struct StoppedFlow {
  std::uint32_t destination = 0;  // IPv4 address, or the end of the IPv6 address
  std::uint16_t source_port = 0;  // of its last packet
  bool has_one_path = false;
};

class Stops {
 public:
  explicit Stops(const Counters& counters) : counters_(counters) {}

  // Who has packets may not send, for this reason; `stopped` is its own mark.
  void stop(bool& stopped, Stop why, const StoppedFlow& flow) {
    changed_ = changed_ || !stopped || why != why_;
    stopped_ += !stopped;
    stopped = true;
    why_ = why;
    flow_ = flow;
  }
  void go_on(bool& stopped) {
    changed_ = changed_ || stopped;
    stopped_ -= stopped;
    stopped = false;
  }

  // Whether `link_idle` has something to note, and whether its cause is news.
  bool concerned() const { return stopped_ != 0 || since_ != kNever; }
  bool changed() const { return changed_; }
  // The last stop, and whom it stopped.
  Stop why() const { return why_; }
  const StoppedFlow& flow() const { return flow_; }

  // The link takes packets from that time on, and there is none that may leave.
  void link_idle(Time from, Stop cause) {
    if (changed_) {
      pause(from);
      settle();
      cause_ = cause;
      recoveries_ = recoveries();
      changed_ = false;
    }
    since_ = stopped_ == 0 ? kNever : std::min(since_, from);
  }
  void packet_leaves(Time now) {
    if (since_ == kNever && pending_ == 0) [[likely]]
      return;
    pause(now);
    if (changed_) settle();
  }

  Time total(Stop why) const {
    return totals_[static_cast<std::size_t>(why)] + (why == cause_ ? pending_ : 0);
  }

 private:
  void pause(Time now) {
    if (since_ < now) pending_ += now - since_;
    since_ = kNever;
  }
  // Only its end tells whether a wait was one for a retransmission.
  void settle() {
    const Stop cause = recoveries() != recoveries_ ? Stop::recovery : cause_;
    totals_[static_cast<std::size_t>(cause)] += std::exchange(pending_, 0);
  }
  std::uint64_t recoveries() const {
    return counters_[Counter::tx_retransmitted] + counters_[Counter::req_went_back] +
           counters_[Counter::tx_connected_retransmitted] + counters_[Counter::window_forgiven];
  }

  const Counters& counters_;
  std::uint32_t stopped_ = 0;  // peers, messages and queue pairs
  Stop why_ = Stop::window;    // of the last of them
  StoppedFlow flow_;
  bool changed_ = false;       // any of these, since the link was idle last
  Stop cause_ = Stop::window;  // of what is pending
  Time pending_ = 0;           // idle since the last change
  Time since_ = kNever;        // the link is idle; kNever: it is busy, or none is stopped
  std::uint64_t recoveries_ = 0;
  std::array<Time, kStops> totals_{};
};

}  // namespace softroce
