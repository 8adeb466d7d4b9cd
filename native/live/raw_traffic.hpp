// SPDX-License-Identifier: GPL-2.0-or-later
// Bare AF_XDP traffic, for benchmarks: one thread writes payloads into frames, another
// reads them out. No protocol, no checks.
#pragma once

#include <cstdint>
#include <vector>

#include "traffic.hpp"
#include "xsk_port.hpp"

namespace softroce {

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

}  // namespace softroce
