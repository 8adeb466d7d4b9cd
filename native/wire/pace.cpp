// SPDX-License-Identifier: GPL-2.0-or-later
#include "pace.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "../system/clock.hpp"

namespace softroce::wire {
namespace {

constexpr Time kLeastLead = 40 * kMicrosecond, kMostLead = 200 * kMicrosecond;
constexpr Time kLeadStep = kMicrosecond / 10;
constexpr int kLeadQuantile = 99;  // percent

constexpr int kAwakePerRest = 14;  // a fifteenth of all time
constexpr Time kFairTurn = 2'000 * kMicrosecond;
constexpr int kMostNice = -20;
constexpr int kPriority = 10;

timespec timespec_of(std::int64_t ns) {
  return {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
}

// SCHED_FIFO, or the policy of everybody; returns 0 or an errno.
int schedule(bool fifo) {
  const sched_param wanted{.sched_priority = fifo ? kPriority : 0};
  return sched_setscheduler(0, fifo ? SCHED_FIFO : SCHED_OTHER, &wanted) == 0 ? 0 : errno;
}

// On the last CPU that we may use: a thread that spins in real time had better not wander to where
// others, which cannot evade it, are bound to run.
void stay_on_last_cpu() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu)
    if (CPU_ISSET(cpu, &allowed)) return stay_on_cpu(cpu);
}

}  // namespace

void Pace::begin() {
  stay_on_last_cpu();
  fifo_errno_ = schedule(true);
  fifo_ = fifo_errno_ == 0;
  setpriority(PRIO_PROCESS, 0, kMostNice);  // for fair turns; where refused, they cost more
  prctl(PR_SET_TIMERSLACK, 1UL);
  began_ = awake_since_ = clock();
}

Time Pace::clock() const { return (monotonic_ns() - base_ns_) * kNanosecond; }

void Pace::relax() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

Time Pace::turn() {
  const Time now = clock();
  pauses_.turn(monotonic_of(now));
  return now;
}

int Pace::sleep(int epoll, epoll_event* events, int most, Time next, Time longest) {
  if (fair_) end_fair_turn(clock());
  const Time began = clock();
  timespec wait{};
  const Time left = next == kNever ? kNever : std::max<Time>(0, next - lead_ - began);
  const Time wanted = std::min(left, longest);
  if (wanted != kNever) wait = timespec_of(wanted / kNanosecond);
  pauses_.sleep(monotonic_of(began), wanted == kNever ? Pauses::kForever : wanted / kNanosecond);
  const int n = epoll_pwait2(epoll, events, most, wanted == kNever ? nullptr : &wait, nullptr);
  if (n < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "epoll");
  slept_since(began);
  if (n == 0 && wanted == left) learn_lead(awake_since_ - began - wanted);
  return n;
}

// Moves up by much or down by little, so that it rests where the one is as seldom as the other is
// frequent.
void Pace::learn_lead(Time overslept) {
  lead_ += overslept > lead_ ? kLeadStep * kLeadQuantile : -kLeadStep * (100 - kLeadQuantile);
  lead_ = std::clamp(lead_, kLeastLead, kMostLead);
}

void Pace::breathe() {
  if (!fifo_) return;
  const Time now = clock();
  if (fair_) {
    if (now - awake_since_ >= owed_) end_fair_turn(now);
  } else if (owed_ + (now - awake_since_) / kAwakePerRest >= kFairTurn) {
    begin_fair_turn(now);
  }
}

void Pace::begin_fair_turn(Time now) {
  owed_ += (now - awake_since_) / kAwakePerRest;
  awake_since_ = now;
  fair_ = schedule(false) == 0;
  ++fair_turns_;
}

void Pace::end_fair_turn(Time now) {
  schedule(true);
  fair_ = false;
  owed_ = std::max<Time>(0, owed_ - (now - awake_since_));
  awake_since_ = now;
}

// `owed_` is what was not made good for by the end of the last sleep; sleep is not saved up.
void Pace::slept_since(Time began) {
  const Time now = clock();
  owed_ = std::max<Time>(0, owed_ + (began - awake_since_) / kAwakePerRest - (now - began));
  awake_since_ = now;
}

StageFigures Pace::figures() const {
  timespec cpu;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  StageFigures figures{};
  figures.cpu_ns = static_cast<std::uint64_t>(cpu.tv_sec) * 1'000'000'000 + cpu.tv_nsec;
  figures.wall_ns = static_cast<std::uint64_t>((clock() - began_) / kNanosecond);
  figures.fifo = fifo_;
  figures.fifo_errno = static_cast<std::uint64_t>(fifo_errno_);
  figures.fair_turns = fair_turns_;
  return figures;
}

}  // namespace softroce::wire
