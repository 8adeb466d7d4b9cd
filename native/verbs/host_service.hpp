// SPDX-License-Identifier: GPL-2.0-or-later
// Reaches the process that serves the programs of a host (softroce_lab/programs/device/beside.py).
#pragma once

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace softroce {

// Anybody can listen at an abstract address that the service has left.
inline bool is_of_root(int fd) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == 0;
}

// A socket of whole messages that is connected to an abstract UNIX address of the network
// namespace, or -1 and errno. `longest_s`: how long it may take to connect, and to send. The
// service gives its addresses up for a moment when it finds no program: who is refused tries again
// for up to a second.
inline int connect_to_host_service(const char* name, time_t longest_s) {
  constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 10'000'000};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::strlen(name);
  std::memcpy(address.sun_path + 1, name, length);  // behind a zero octet: abstract
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const timeval longest{.tv_sec = longest_s, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
  for (int tries = 0; connect(fd, reinterpret_cast<const sockaddr*>(&address), bytes) != 0;) {
    if (errno == ECONNREFUSED && ++tries < 100) {
      nanosleep(&kNap, nullptr);
      continue;
    }
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  if (is_of_root(fd)) return fd;
  close(fd);
  errno = EPERM;
  return -1;
}

}  // namespace softroce
