// SPDX-License-Identifier: GPL-2.0-or-later
#include "port_owner.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

namespace softroce::verbs {
namespace {

constexpr int kBacklog = 8;

socklen_t address_of(const std::string& interface, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::string name = "softroce_lab/port/" + interface;  // behind a zero octet: abstract
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::string holder(const sockaddr_un& address, socklen_t bytes) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ucred credentials{};
  socklen_t length = sizeof credentials;
  const timeval patience{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const bool known = connect(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
                     getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0;
  close(fd);
  if (!known) return "another process";
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(credentials.pid) + "/comm"), name);
  return "process " + std::to_string(credentials.pid) + (name.empty() ? "" : " (" + name + ")");
}

}  // namespace

int PortOwner::hold(const std::string& interface) {
  sockaddr_un address;
  const socklen_t bytes = address_of(interface, address);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
      listen(fd, kBacklog) == 0) {
    fd_ = fd;
    return 0;
  }
  const int error = errno;
  close(fd);
  if (error != EADDRINUSE) return error;
  std::fprintf(stderr,
               "softroce: the port %s is in use by %s; one process opens a port: end that one "
               "first\n",
               interface.c_str(), holder(address, bytes).c_str());
  return EBUSY;
}

void PortOwner::release() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace softroce::verbs
