// SPDX-License-Identifier: GPL-2.0-or-later
#include "port_share.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "host_service.hpp"

namespace softroce::verbs {
namespace {

constexpr timeval kPatience{10, 0};

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
  fd_ = connect_to_host_service(ports::kAddress, kPatience.tv_sec);
  if (fd_ < 0) {
    std::snprintf(grant_.problem, sizeof grant_.problem,
                  "nobody serves @%s; start the program with: lab exec --verbs HOST -- COMMAND",
                  ports::kAddress);
    return ENODEV;
  }
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  ports::Request request{.share = share};
  std::snprintf(request.interface, sizeof request.interface, "%s", interface.c_str());
  if (send(fd_, &request, sizeof request, MSG_NOSIGNAL) != sizeof request) return EIO;
  const ssize_t got = receive_grant();
  if (got == sizeof grant_) return grant_.error;
  grant_ = {};
  return got < 0 ? errno : EIO;
}

ssize_t PortShare::receive_grant() {
  iovec words{&grant_, sizeof grant_};
  int fds[ports::kGiven];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)];
  msghdr message{};
  message.msg_iov = &words;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* rights = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_len != CMSG_LEN(sizeof fds)) return got;
  std::memcpy(fds, CMSG_DATA(rights), sizeof fds);
  std::ranges::transform(fds, given_.begin(), [](int fd) { return Descriptor(fd); });
  return got;
}

void PortShare::give_back() {
  given_ = {};
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
