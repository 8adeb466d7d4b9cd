// SPDX-License-Identifier: GPL-2.0-or-later
#include "traffic.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <thread>

#include "../system/clock.hpp"
#include "moderation.hpp"

namespace softroce {
namespace {

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

constexpr std::uint32_t kBatch = 32;

std::uint64_t send(XskPort& port, const RawJob& job, std::int64_t until_ns) {
  stay_on_cpu(job.sender_cpu);
  const std::size_t payload = job.frame.size() - job.payload_offset;
  PayloadBuffer buffer(payload);
  std::uint32_t sent = 0;
  while (monotonic_ns() < until_ns) {
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      std::uint8_t* frame = port.next_transmit_frame();
      if (frame == nullptr) break;
      std::memcpy(frame, job.frame.data(), job.payload_offset);
      std::memcpy(frame + job.payload_offset, buffer.next(), payload);
      if (job.index_offset != 0) {
        const std::uint32_t index = __builtin_bswap32(sent);
        std::memcpy(frame + job.index_offset, &index, sizeof index);
      }
      port.commit(static_cast<std::uint32_t>(job.frame.size()));
      ++sent;
    }
    port.flush();
  }
  return sent;
}

std::uint64_t receive(XskPort& port, const RawJob& job, const std::atomic<bool>& over) {
  stay_on_cpu(job.receiver_cpu);
  const std::size_t payload = job.frame.size() - job.payload_offset;
  PayloadBuffer buffer(payload);
  Moderation moderation(job.moderate);
  std::uint64_t received = 0;
  while (true) {
    const std::uint32_t n = port.receive([&](const std::uint8_t* frame, std::uint32_t bytes) {
      if (bytes == job.frame.size())
        std::memcpy(buffer.next(), frame + job.payload_offset, payload);
    });
    received += n;
    if (n != 0) {
      moderation.arrived();
      continue;
    }
    if (over) return received;
    moderation.wait(port.fd());
  }
}

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

PacedResult send_paced(XskPort& port, const PacedJob& job) {
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

TrafficResult run_raw_traffic(XskPort& sender, XskPort& receiver, const RawJob& job) {
  return run_traffic(
      job.duration_ns, [&](std::int64_t until_ns) { return send(sender, job, until_ns); },
      [&](const std::atomic<bool>& over) { return receive(receiver, job, over); });
}

PacedResult run_paced_traffic(XskPort& port, const PacedJob& job) {
  PacedResult result;
  std::exception_ptr failure;
  std::thread sender([&] {  // of its own, for the calling thread stays on its CPUs
    try {
      result = send_paced(port, job);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  sender.join();
  if (failure) std::rethrow_exception(failure);
  return result;
}

}  // namespace softroce
