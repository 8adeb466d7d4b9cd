// SPDX-License-Identifier: GPL-2.0-or-later
#include "pace.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "../live/clock.hpp"

namespace softroce::wire {
namespace {

constexpr Time kLead = 60 * kMicrosecond;
constexpr Time kNap = 50 * kMicrosecond;
constexpr int kAwakePerNap = 9;  // a tenth of all time
constexpr int kPriority = 10;

timespec timespec_of(std::int64_t ns) {
  return {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
}

}  // namespace

void Pace::begin() {
  const sched_param wanted{.sched_priority = kPriority};
  fifo_ = sched_setscheduler(0, SCHED_FIFO, &wanted) == 0;
  fifo_errno_ = fifo_ ? 0 : errno;
  prctl(PR_SET_TIMERSLACK, 1UL);
  began_ = awake_since_ = clock();
}

Time Pace::clock() const { return (monotonic_ns() - base_ns_) * kNanosecond; }

void Pace::relax() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

bool Pace::worth_sleeping(Time next) const { return next - clock() > kLead; }

int Pace::sleep(int epoll, epoll_event* events, int most, Time next) {
  const Time began = clock();
  timespec wait{};
  if (next != kNever) wait = timespec_of(std::max<Time>(0, next - kLead - began) / kNanosecond);
  const int n = epoll_pwait2(epoll, events, most, next == kNever ? nullptr : &wait, nullptr);
  if (n < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "epoll");
  slept_since(began);
  return n;
}

void Pace::breathe() {
  if (!fifo_) return;
  const Time now = clock();
  if ((now - awake_since_) / kAwakePerNap + owed_ < kNap) return;
  const timespec until = timespec_of(base_ns_ + (now + kNap) / kNanosecond);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  ++naps_;
  slept_since(now);
}

// `owed_` is what was not made good for by the end of the last sleep; sleep is not saved up.
void Pace::slept_since(Time began) {
  const Time now = clock();
  owed_ = std::max<Time>(0, owed_ + (began - awake_since_) / kAwakePerNap - (now - began));
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
  figures.naps = naps_;
  return figures;
}

}  // namespace softroce::wire
