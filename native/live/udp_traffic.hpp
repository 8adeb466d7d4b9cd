// SPDX-License-Identifier: GPL-2.0-or-later
// UDP through the kernel as fast as sockets allow, the yardstick of what a user has without a lab:
// sendmmsg(2) and recvmmsg(2) in batches, no segmentation offload.
#pragma once

#include <cstdint>

#include "traffic.hpp"

namespace softroce {

struct UdpJob {
  int sender_fd = -1;    // a connected socket
  int receiver_fd = -1;  // bound where the sender sends to
  std::uint32_t payload_bytes = 0;
  std::int64_t duration_ns = 0;
  bool moderate = false;  // the receiver's wakeups, as the lab's hosts do
  int sender_cpu = -1, receiver_cpu = -1;
};

// Sends and receives for `duration_ns`. Throws std::system_error.
TrafficResult run_udp_traffic(const UdpJob& job);

}  // namespace softroce
