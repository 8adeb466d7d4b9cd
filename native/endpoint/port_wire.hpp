// SPDX-License-Identifier: GPL-2.0-or-later
// What a program's libibverbs and the service of its host say to each other about a port, a message
// a packet of a UNIX socket: the program asks once, the service answers and then tells of the link.
// The program's share of the port (xdp/lab_maps.h) ends with the socket. The service opens what
// needs root, so that programs of any user can use it.
#pragma once

#include <cstdint>

namespace softroce::ports {

inline constexpr const char* kAddress = "softroce_lab/ports";  // an abstract UNIX address

struct Request {
  char interface[16] = {};  // of the port
  std::uint32_t share = 1;  // 0: only to know whether its link is up
};

// Descriptors that come with a share (SCM_RIGHTS), in this order.
enum Given : std::uint32_t {
  kSocket,      // of AF_XDP, to which the port's frames for this share are led
  kFrames,      // the memory of its frames (live/xsk_port.hpp)
  kQueues,      // the map of backlogs (wire/queue_map.hpp)
  kStatistics,  // a file for the process's counters (endpoint/statistics.hpp)
  kGiven,
};

struct Grant {
  std::int32_t error = 0;    // an errno value; EBUSY: another process has the port alone
  std::uint32_t share = 0;   // of this port; 0 is the port itself
  std::uint32_t uplink = 0;  // the directed link that begins at the port
  std::uint32_t up = 0;      // whether the port's link is up
  char interface[16] = {};   // which the socket is to be bound to
  char problem[128] = {};    // in words, ended by a zero
};

// From the service, when it changes.
struct State {
  std::uint32_t up = 0;
};

}  // namespace softroce::ports
