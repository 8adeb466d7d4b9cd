// SPDX-License-Identifier: GPL-2.0-or-later
#include "raw_traffic.hpp"

#include <cstring>

#include "moderation.hpp"

namespace softroce {
namespace {

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

}  // namespace

TrafficResult run_raw_traffic(XskPort& sender, XskPort& receiver, const RawJob& job) {
  return run_traffic(
      job.duration_ns, [&](std::int64_t until_ns) { return send(sender, job, until_ns); },
      [&](const std::atomic<bool>& over) { return receive(receiver, job, over); });
}

}  // namespace softroce
