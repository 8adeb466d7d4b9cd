// SPDX-License-Identifier: GPL-2.0-or-later
// The engine's helper thread: turns the engine for programs that do not poll. Where one polls, the
// helper looks ever more rarely whether it still does.
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "../system/clock.hpp"
#include "engine.hpp"
#include "quiet_thread.hpp"

namespace softroce::verbs {
namespace {

constexpr Time kPolls = 15 * kMicrosecond;  // since its last poll: then the program polls no more
constexpr std::int64_t kShortestDozeNs = 20'000, kLongestDozeNs = 1'000'000;
constexpr Time kSpin = 20 * kMicrosecond;  // since anything came: then the helper sleeps
constexpr std::int64_t kLongestSleepNs = 10'000'000;
constexpr unsigned long kTimerSlackNs = 1'000;

timespec time_of(std::int64_t ns) {
  return {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
}

}  // namespace

bool Engine::polls(Time at) const {
  return at - polled_at_.load(std::memory_order_relaxed) < kPolls;
}

void Engine::sleeps() {
  polled_at_.store(kLongAgo, std::memory_order_relaxed);
  doze_ns_.store(kShortestDozeNs, std::memory_order_relaxed);
  if (asleep_.load(std::memory_order_relaxed)) wake_helper();
}

void Engine::start_helper() {
  if (wake_fd_ < 0) wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  stopping_ = false;
  helper_ = start_quiet_thread(&Engine::help, this);
  helps_ = true;
}

// Called with the lock, which the helper needs in order to end.
void Engine::stop_helper() {
  if (!helps_) return;
  helps_ = false;
  stopping_ = true;
  wake_helper();
  lock_.unlock();
  pthread_join(helper_, nullptr);
  lock_.lock();
}

void Engine::wake_helper() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

void* Engine::help(void* engine) {
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  prctl(PR_SET_NAME, "softroce");
  static_cast<Engine*>(engine)->assist();
  return nullptr;
}

void Engine::assist() {
  doze_ns_ = kShortestDozeNs;
  while (!stopping_) {
    look_at_link();
    if (polls(since_epoch())) {
      const timespec doze = time_of(doze_ns_);
      nanosleep(&doze, nullptr);
      doze_ns_ = std::min(2 * doze_ns_.load(), kLongestDozeNs);
      continue;
    }
    if (const std::int64_t longest_ns = turn_for_the_idle(); longest_ns > 0)
      sleep(longest_ns);
    else
      sched_yield();
  }
}

// How long there is nothing to do.
std::int64_t Engine::turn_for_the_idle() {
  const auto held = hold();
  const bool busy = turn();
  const Time at = now();
  if (busy) {
    busy_at_ = at;
    doze_ns_ = kShortestDozeNs;
  }
  if (at - busy_at_ < kSpin) return 0;
  asleep_ = true;  // while it has the lock: what is posted from now on wakes it
  if (port_ && port_->unsent() != 0) return kLongestDozeNs;
  Time due = rnic_.next_timeout();
  if (holds_back()) due = std::min(due, pace_->wakes_at());
  if (due == kNever) return kLongestSleepNs;
  return std::clamp<std::int64_t>((due - at) / kNanosecond, 1, kLongestSleepNs);
}

void Engine::sleep(std::int64_t longest_ns) {
  pollfd fds[] = {{.fd = wake_fd_, .events = POLLIN, .revents = 0},
                  {.fd = port_fd_, .events = POLLIN, .revents = 0},
                  {.fd = share_fd_, .events = POLLIN, .revents = 0}};
  const timespec timeout = time_of(longest_ns);
  ppoll(fds, std::size(fds), &timeout, nullptr);
  asleep_ = false;
  std::uint64_t count;
  [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof count);
}

}  // namespace softroce::verbs
