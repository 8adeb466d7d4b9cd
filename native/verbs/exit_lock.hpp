// SPDX-License-Identifier: GPL-2.0-or-later
// Locks at the end of a process. A handler of a signal may call exit(3), as libinfinipath's of
// SIGTERM does, while its own thread has the lock: then nobody will ever give it back.
#pragma once

#include <chrono>
#include <mutex>
#include <thread>

namespace softroce::verbs {

inline constexpr std::chrono::milliseconds kExitPatience{500};

// Without the lock, where nobody gave it back in that time. That `try_lock` fails for who has it is
// of POSIX's mutexes, not of C++'s.
inline std::unique_lock<std::mutex> lock_at_exit(std::mutex& mutex) {
  const auto until = std::chrono::steady_clock::now() + kExitPatience;
  std::unique_lock lock(mutex, std::try_to_lock);
  while (!lock && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    [[maybe_unused]] const bool taken = lock.try_lock();
  }
  return lock;
}

}  // namespace softroce::verbs
