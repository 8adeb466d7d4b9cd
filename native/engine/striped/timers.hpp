// SPDX-License-Identifier: GPL-2.0-or-later
// The timers of an endpoint's messages and peers. They are re-armed lazily: one that no longer
// agrees with its subject is void.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "../units.hpp"
#include "pool.hpp"

namespace softroce {

enum class TimerKind : std::uint8_t {
  message,       // the session's timer of a message
  peer_timer,    // the session's timer of a peer
  connection,    // the timer of a transport's connection to a peer
  report,        // a quarter of an RTT after the first unreported packet
  persist,       // a closed window, and nothing received
  clear,         // cleared messages of which no packet has come
  names,         // a message waits until its name is that of no packet on its way
  pace,          // congestion control releases the next packet
  gap,           // the reordering window of a message's oldest gap
  path_gap,      // the same of a peer's paths
  probe,         // a sender that may not send probes its paths
  probe_repeat,  // nothing has answered a probe
};
struct Timer {
  Time at;
  std::uint64_t sequence;  // ties go in the order of arming
  TimerKind kind;
  Handle subject;
  bool operator>(const Timer& other) const {
    return at != other.at ? at > other.at : sequence > other.sequence;
  }
};

class TimerQueue {
 public:
  void arm(Time at, TimerKind kind, Handle subject) {
    timers_.push({at, sequence_++, kind, subject});
  }

  Time next() const { return timers_.empty() ? kNever : timers_.top().at; }

  bool is_due(Time now) const { return !timers_.empty() && timers_.top().at <= now; }

  // Takes the next timer, which is due.
  Timer take() {
    const Timer timer = timers_.top();
    timers_.pop();
    return timer;
  }

 private:
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::uint64_t sequence_ = 0;
};

}  // namespace softroce
