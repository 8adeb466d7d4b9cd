// SPDX-License-Identifier: GPL-2.0-or-later
// What all AF_XDP sockets need when they are opened.
#pragma once

#include <sys/socket.h>
#include <time.h>

#include <string>

#include "descriptor.hpp"

namespace softroce {

// Calls `create` until it returns anything but -EBUSY, for up to a second: a socket that was closed
// a moment ago may still hold the queue. Throws std::system_error.
template <typename F>
void open_xsk(const std::string& interface, F&& create) {
  constexpr timespec kBusyWait{0, 10'000'000};
  int error = create();
  for (int tries = 0; error == -EBUSY && tries < 100; ++tries) {
    nanosleep(&kBusyWait, nullptr);
    error = create();
  }
  if (error != 0) fail(-error, "open an AF_XDP socket on " + interface);
}

// The kernel copies each frame into a socket buffer: lets the socket own a whole ring of them.
inline void own_whole_ring(int fd) {
  constexpr int kSendBufferBytes = 64 << 20;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &kSendBufferBytes, sizeof kSendBufferBytes);
}

}  // namespace softroce
