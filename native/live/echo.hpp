// SPDX-License-Identifier: GPL-2.0-or-later
// A bare AF_XDP echo, the yardstick of round trips: two threads that spin, no protocol, no checks.
#pragma once

#include <cstdint>
#include <vector>

#include "xsk_port.hpp"

namespace softroce {

struct EchoJob {
  std::vector<std::uint8_t> forth, back;  // the frames
  std::uint32_t rounds = 0;
  int near_cpu = -1, far_cpu = -1;
};

// Each round trip, ns; fewer than requested if a frame did not come back within a second. Throws
// std::system_error.
std::vector<std::int64_t> run_echo(XskPort& near, XskPort& far, const EchoJob& job);

}  // namespace softroce
