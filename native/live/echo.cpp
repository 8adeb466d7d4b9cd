// SPDX-License-Identifier: GPL-2.0-or-later
#include "echo.hpp"

#include <atomic>
#include <cstring>
#include <exception>
#include <thread>

#include "../system/clock.hpp"

namespace softroce {
namespace {

constexpr std::int64_t kLostNs = 1'000'000'000;

void send(XskPort& port, const std::vector<std::uint8_t>& bytes) {
  std::uint8_t* frame = port.next_transmit_frame();
  if (frame == nullptr) return;  // found out by who waits for it
  std::memcpy(frame, bytes.data(), bytes.size());
  port.commit(static_cast<std::uint32_t>(bytes.size()));
  port.flush();
}

std::uint32_t received(XskPort& port, std::size_t bytes) {
  std::uint32_t of_ours = 0;
  port.receive([&](const std::uint8_t*, std::uint32_t length) { of_ours += length == bytes; });
  return of_ours;
}

void reflect(XskPort& port, const EchoJob& job, const std::atomic<bool>& over) {
  stay_on_cpu(job.far_cpu);
  while (!over)
    if (received(port, job.forth.size()) != 0) send(port, job.back);
}

void measure(XskPort& port, const EchoJob& job, std::vector<std::int64_t>& trips) {
  stay_on_cpu(job.near_cpu);
  for (std::uint32_t round = 0; round < job.rounds; ++round) {
    const std::int64_t began = monotonic_ns();
    std::int64_t now = began;
    send(port, job.forth);
    while (received(port, job.back.size()) == 0)
      if ((now = monotonic_ns()) - began > kLostNs) return;
    trips.push_back(monotonic_ns() - began);
  }
}

}  // namespace

std::vector<std::int64_t> run_echo(XskPort& near, XskPort& far, const EchoJob& job) {
  std::vector<std::int64_t> trips;
  trips.reserve(job.rounds);
  std::atomic<bool> over{false};
  std::exception_ptr near_failure, far_failure;
  const auto guarded = [](std::exception_ptr& failure, auto&& work) {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  std::thread reflector([&] { guarded(far_failure, [&] { reflect(far, job, over); }); });
  std::thread measurer([&] { guarded(near_failure, [&] { measure(near, job, trips); }); });
  measurer.join();
  over = true;
  reflector.join();
  for (const std::exception_ptr& failure : {near_failure, far_failure})
    if (failure) std::rethrow_exception(failure);
  return trips;
}

}  // namespace softroce
