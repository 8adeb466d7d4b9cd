// SPDX-License-Identifier: GPL-2.0-or-later
// The clock of the loop, when it sleeps or spins, and whom it gives way to.
//
// A sleeper wakes tens of microseconds late, so the loop sleeps until some lead before the next
// event and spins from then on, under SCHED_FIFO where the machine permits it: without, stalls of
// milliseconds come and go. The lead is what all but a hundredth of the sleeps overslept less.
//
// A real-time thread that never sleeps is stalled by the kernel for 50 ms of every second
// (sched_rt_runtime_us, or the fair server that came after it). So the loop owes a part of the
// time that it is awake. What it does not sleep, it spends spinning at normal priority, at the
// least nice there may be, in turns of 2 ms: a waiting process runs within some turns, and without
// one the loop continues. Short naps instead do not do: arming a timer may take 30 us in a virtual
// machine, and one of less than 20 us has rung before the thread is asleep.
#pragma once

#include <sys/epoll.h>
#include <time.h>

#include <cstdint>

#include "../engine/units.hpp"
#include "../system/pauses.hpp"
#include "figures.hpp"

namespace softroce::wire {

class Pace {
 public:
  explicit Pace(std::int64_t base_ns) : base_ns_(base_ns) {}

  // Makes the calling thread the one that is paced.
  void begin();

  Time clock() const;
  std::int64_t base_ns() const { return base_ns_; }  // CLOCK_MONOTONIC of moment 0
  Time signed_time_of(std::uint64_t monotonic_ns) const {
    return (static_cast<std::int64_t>(monotonic_ns) - base_ns_) * kNanosecond;
  }
  std::int64_t monotonic_of(Time at) const { return base_ns_ + at / kNanosecond; }
  Time time_of(std::uint64_t monotonic_ns) const {
    const Time at = signed_time_of(monotonic_ns);
    return at < 0 ? 0 : at;
  }

  bool worth_sleeping(Time next) const { return next - clock() > lead_; }
  // The time; a round of the loop begins.
  Time turn();
  // Until an event of `epoll` or shortly before `next`, for `longest` at most; returns how many
  // events there are.
  int sleep(int epoll, epoll_event* events, int most, Time next, Time longest);
  // Begins a turn without SCHED_FIFO when that is owed, and ends it when it is paid.
  void breathe();
  static void relax();

  StageFigures figures() const;  // those of time
  const Pauses& pauses() const { return pauses_; }

 private:
  void begin_fair_turn(Time now);
  void end_fair_turn(Time now);
  void slept_since(Time began);
  void learn_lead(Time overslept);

  std::int64_t base_ns_;
  Time awake_since_ = 0;
  Time owed_ = 0;
  Time lead_ = 60 * kMicrosecond;
  Time began_ = 0;
  Pauses pauses_;
  std::uint64_t fair_turns_ = 0;
  bool fifo_ = false;
  bool fair_ = false;  // for a turn
  int fifo_errno_ = 0;
};

}  // namespace softroce::wire
