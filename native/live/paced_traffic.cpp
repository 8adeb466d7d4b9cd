// SPDX-License-Identifier: GPL-2.0-or-later
#include "paced_traffic.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>

#include "../system/clock.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kBatch = 32;
constexpr std::int64_t kStuckNs = 1'000'000'000;  // the kernel has taken nothing for so long

// False: all frames are on their way.
bool write_frame(XskPort& port, const PacedJob& job, std::uint32_t number, std::int64_t now_ns) {
  std::uint8_t* frame = port.next_transmit_frame();
  if (frame == nullptr) return false;
  const std::uint32_t index = __builtin_bswap32(number);
  std::memcpy(frame, job.frame.data(), job.frame.size());
  std::memcpy(frame + job.index_offset, &index, sizeof index);
  std::memcpy(frame + job.stamp_offset, &now_ns, sizeof now_ns);
  port.commit(static_cast<std::uint32_t>(job.frame.size()));
  return true;
}

PacedResult send(XskPort& port, const PacedJob& job) {
  stay_on_cpu(job.cpu);
  PacedResult result;
  const std::int64_t began = monotonic_ns();
  std::int64_t last = began;
  const auto due_ns = [&](std::uint32_t number) {
    return began + static_cast<std::int64_t>(number * 1e9 / job.frames_per_second);
  };
  while (result.sent < job.count) {
    const std::int64_t now = monotonic_ns();
    std::uint32_t batch = 0;
    while (batch < kBatch && result.sent < job.count && due_ns(result.sent) <= now) {
      if (!write_frame(port, job, result.sent, now)) break;
      result.latest_ns = std::max(result.latest_ns, now - due_ns(result.sent));
      ++result.sent;
      ++batch;
    }
    if (port.unsent() != 0) port.flush();
    if (batch != 0) last = now;
    if (now - std::max(last, due_ns(result.sent)) > kStuckNs) break;
  }
  result.elapsed_ns = monotonic_ns() - began;
  return result;
}

}  // namespace

PacedResult run_paced_traffic(XskPort& port, const PacedJob& job) {
  PacedResult result;
  std::exception_ptr failure;
  std::thread sender([&] {  // of its own, for the calling thread stays on its CPUs
    try {
      result = send(port, job);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  sender.join();
  if (failure) std::rethrow_exception(failure);
  return result;
}

}  // namespace softroce
