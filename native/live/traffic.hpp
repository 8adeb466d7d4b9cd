// SPDX-License-Identifier: GPL-2.0-or-later
// What the traffic of benchmarks has in common: payloads from cold memory, and two threads.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "../system/clock.hpp"

namespace softroce {

// As much memory as a transfer of a few messages uses, so that both are as cold or warm.
class PayloadBuffer {
 public:
  explicit PayloadBuffer(std::size_t payload) : bytes_(kBytes, 0x5A), payload_(payload) {}
  std::uint8_t* next() {
    if (at_ + payload_ > bytes_.size()) at_ = 0;
    std::uint8_t* place = bytes_.data() + at_;
    at_ += payload_;
    return place;
  }

 private:
  static constexpr std::size_t kBytes = 8 << 20;
  std::vector<std::uint8_t> bytes_;
  std::size_t payload_;
  std::size_t at_ = 0;
};

struct TrafficResult {
  std::uint64_t sent = 0, received = 0;
  std::int64_t elapsed_ns = 0;  // while the sender sent
};

// Runs `give(until_ns)` for `duration_ns`, and `take(over)` in parallel until all has arrived. Each
// returns a number of frames. What either throws is thrown here when both have ended.
template <typename Give, typename Take>
TrafficResult run_traffic(std::int64_t duration_ns, Give&& give, Take&& take) {
  constexpr timespec kSettle{0, 20'000'000};
  std::atomic<bool> over{false};
  TrafficResult result;
  std::exception_ptr giving, taking;
  const auto guarded = [](std::exception_ptr& failure, auto&& work) {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  std::thread taker([&] { guarded(taking, [&] { result.received = take(over); }); });
  const std::int64_t began = monotonic_ns();
  std::thread giver([&] { guarded(giving, [&] { result.sent = give(began + duration_ns); }); });
  giver.join();
  result.elapsed_ns = monotonic_ns() - began;
  nanosleep(&kSettle, nullptr);
  over = true;
  taker.join();
  for (const std::exception_ptr& failure : {giving, taking})
    if (failure) std::rethrow_exception(failure);
  return result;
}

}  // namespace softroce
