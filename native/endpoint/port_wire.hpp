// SPDX-License-Identifier: GPL-2.0-or-later
// What a program's libibverbs and the service of its host say to each other about a port, a message
// a packet of a UNIX socket: the program asks once, the service answers and then tells of the link.
// The program's share of the port (xdp/lab_maps.h) ends with the socket.
#pragma once

#include <cstdint>

namespace softroce::ports {

inline constexpr const char* kAddress = "softroce_lab/ports";  // an abstract UNIX address

struct Request {
  char interface[16] = {};  // of the port
  std::uint32_t share = 1;  // 0: only to know whether its link is up
};

struct Grant {
  std::int32_t error = 0;   // an errno value; EBUSY: another process has the port alone
  std::uint32_t share = 0;  // of this port; 0 is the port itself
  std::uint32_t key = 0;    // of the socket in the map of shares, if it is not 0
  std::uint32_t up = 0;     // whether the port's link is up
  char interface[16] = {};  // which the socket is to be bound to
  char problem[128] = {};   // in words, ended by a zero
};

// From the service, when it changes.
struct State {
  std::uint32_t up = 0;
};

}  // namespace softroce::ports
