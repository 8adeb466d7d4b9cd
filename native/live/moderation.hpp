// SPDX-License-Identifier: GPL-2.0-or-later
// Interrupt moderation: while frames flow, a receiver is not woken by each of them, which costs the
// sender's core more than the frame itself. It polls after a delay.
#pragma once

#include <poll.h>
#include <sys/prctl.h>
#include <time.h>

#include <cstdint>

#include "../system/clock.hpp"

namespace softroce {

inline constexpr std::int64_t kModerationNs = 50'000;
inline constexpr std::int64_t kFlowingNs =
    1'000'000;  // since the last frame: then they flow no more

// The waits of a bare receiver between polls of a socket. To be created by its thread.
class Moderation {
 public:
  explicit Moderation(bool wanted) : wanted_(wanted) { prctl(PR_SET_TIMERSLACK, 1'000UL); }  // ns
  void arrived() { last_ns_ = monotonic_ns(); }
  void wait(int fd) const {
    constexpr timespec kDoze{0, kModerationNs};
    constexpr int kPollMs = 10;
    if (wanted_ && monotonic_ns() - last_ns_ < kFlowingNs) {
      nanosleep(&kDoze, nullptr);
      return;
    }
    pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
    poll(&readable, 1, kPollMs);
  }

 private:
  bool wanted_;  // or else every frame wakes the receiver that sleeps
  std::int64_t last_ns_ = 0;
};

}  // namespace softroce
