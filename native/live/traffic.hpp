// SPDX-License-Identifier: GPL-2.0-or-later
// Bare AF_XDP traffic, for benchmarks and tests. No protocol, no checks.
#pragma once

#include <cstdint>
#include <vector>

#include "xsk_port.hpp"

namespace softroce {

struct TrafficResult {
  std::uint64_t sent = 0, received = 0;
  std::int64_t elapsed_ns = 0;  // while the sender sent
};

struct RawJob {
  std::vector<std::uint8_t> frame;  // what is sent: the payload begins at `payload_offset`
  std::uint32_t payload_offset = 0;
  std::uint32_t index_offset = 0;  // four bytes that count the frames, big-endian; 0: none
  std::int64_t duration_ns = 0;
  bool moderate = false;  // the receiver's wakeups, as the lab's hosts do
  int sender_cpu = -1, receiver_cpu = -1;
};

// Sends from one port and receives at another for `duration_ns`. Throws std::system_error.
TrafficResult run_raw_traffic(XskPort& sender, XskPort& receiver, const RawJob& job);

// --- At an even rate, each frame with its number and the moment it left

struct PacedJob {
  std::vector<std::uint8_t> frame;
  std::uint32_t index_offset = 0;  // four bytes, big-endian: 0, 1, 2 ...
  std::uint32_t stamp_offset = 0;  // eight bytes in the machine's order: CLOCK_MONOTONIC, ns
  std::uint32_t count = 0;
  double frames_per_second = 0;
  int cpu = -1;
};

struct PacedResult {
  std::uint32_t sent = 0;       // fewer than requested only if the kernel took no more
  std::int64_t elapsed_ns = 0;  // from the first to behind the last
  std::int64_t latest_ns = 0;   // how far behind its moment a frame left at the most
};

// Frame n leaves n / frames_per_second after the first: the moments are absolute, what comes late
// is caught up with. The thread spins. Throws std::system_error.
PacedResult run_paced_traffic(XskPort& port, const PacedJob& job);

}  // namespace softroce
