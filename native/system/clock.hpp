// SPDX-License-Identifier: GPL-2.0-or-later
// The real clock, and where a thread runs: for what drives the engine, never for the engine.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <cstdint>

namespace softroce {

inline std::int64_t monotonic_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Keeps the calling thread on one CPU; negative: wherever the scheduler likes.
inline void stay_on_cpu(int cpu) {
  if (cpu < 0) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
}

}  // namespace softroce
