// SPDX-License-Identifier: GPL-2.0-or-later
#include "port_share.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

namespace softroce::verbs {
namespace {

constexpr timeval kPatience{10, 0};

int connect_to_service() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::strlen(ports::kAddress);
  std::memcpy(address.sun_path + 1, ports::kAddress, length);  // behind a zero octet: abstract
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

int PortShare::take(const std::string& interface) {
  const int error = ask(interface, true);
  if (error == 0) return 0;
  const char* why = grant_.problem[0] != 0 ? grant_.problem : std::strerror(error);
  std::fprintf(stderr, "softroce: the port %s: %s\n", interface.c_str(), why);
  give_back();
  return error;
}

bool PortShare::link_is_up(const std::string& interface) {
  PortShare none;
  return none.ask(interface, false) != 0 || none.grant_.up != 0;
}

int PortShare::ask(const std::string& interface, bool share) {
  grant_ = {};
  fd_ = connect_to_service();
  if (fd_ < 0) {
    std::snprintf(grant_.problem, sizeof grant_.problem,
                  "nobody serves @%s; start the program with: lab exec --verbs HOST -- COMMAND",
                  ports::kAddress);
    return ENODEV;
  }
  ports::Request request{.share = share};
  std::snprintf(request.interface, sizeof request.interface, "%s", interface.c_str());
  if (send(fd_, &request, sizeof request, MSG_NOSIGNAL) != sizeof request) return EIO;
  const ssize_t got = recv(fd_, &grant_, sizeof grant_, 0);
  if (got == sizeof grant_) return grant_.error;
  grant_ = {};
  return got < 0 ? errno : EIO;
}

void PortShare::give_back() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

// A service that has ended says nothing any more; the share stays as it is.
std::optional<bool> PortShare::news() {
  std::optional<bool> newest;
  for (ports::State state; fd_ >= 0;) {
    const ssize_t got = recv(fd_, &state, sizeof state, MSG_DONTWAIT);
    if (got < 0) break;
    if (got == sizeof state)
      newest = state.up != 0;
    else
      give_back();
  }
  return newest;
}

}  // namespace softroce::verbs
