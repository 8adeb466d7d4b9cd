// SPDX-License-Identifier: GPL-2.0-or-later
// The clock of the loop, and when it sleeps, spins or naps.
//
// A sleeper wakes tens of microseconds late, so the loop sleeps until some lead before the next
// event and spins from then on, under SCHED_FIFO where the machine lets it: without, stalls of
// milliseconds come and go. The lead is what all but a hundredth of the sleeps overslept less.
//
// A real-time thread that never sleeps is stalled by the kernel for tens of milliseconds
// (sched_rt_runtime_us, or the fair server that came after it). So the loop owes a ninth of the
// time that it is awake, and naps for it in the smallest pieces there are: the kernel needs some
// 30 us to put a thread to sleep and wake it, however short the sleep.
#pragma once

#include <sys/epoll.h>
#include <time.h>

#include <cstdint>

#include "../engine/units.hpp"
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
  Time time_of(std::uint64_t monotonic_ns) const {
    const Time at = signed_time_of(monotonic_ns);
    return at < 0 ? 0 : at;
  }

  bool worth_sleeping(Time next) const { return next - clock() > lead_; }
  // Until an event of `epoll` or shortly before `next`; returns how many events there are.
  int sleep(int epoll, epoll_event* events, int most, Time next);
  // Naps if that is owed: when the next event, at `next`, is some way off, if possible.
  void breathe(Time next);
  static void relax();

  StageFigures figures() const;  // those of time

 private:
  void slept_since(Time began);
  void learn_lead(Time overslept);

  std::int64_t base_ns_;
  Time awake_since_ = 0;
  Time owed_ = 0;
  Time lead_ = 60 * kMicrosecond;
  Time began_ = 0;
  std::uint64_t naps_ = 0;
  bool fifo_ = false;
  int fifo_errno_ = 0;
};

}  // namespace softroce::wire
