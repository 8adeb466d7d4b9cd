// SPDX-License-Identifier: GPL-2.0-or-later
// File descriptors that close themselves, and what a process with a control socket opens. Every
// failure throws std::system_error.
#pragma once

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace softroce {

[[noreturn]] inline void fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

// The result of a system call that returns -1 for a failure.
inline int checked(int result, const char* what) {
  if (result < 0) fail(errno, what);
  return result;
}

// A file descriptor that is closed with it.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

inline Descriptor open_epoll() {
  return Descriptor(checked(epoll_create1(EPOLL_CLOEXEC), "epoll"));
}

inline void watch(const Descriptor& epoll, int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  checked(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

// The descriptor that is ready, or -1 after `timeout_ms`; -1 waits for ever.
inline int wait_for(const Descriptor& epoll, int timeout_ms) {
  epoll_event event{};
  const int ready = epoll_wait(epoll.get(), &event, 1, timeout_ms);
  if (ready < 0 && errno != EINTR) checked(ready, "epoll_wait");
  return ready > 0 ? event.data.fd : -1;
}

// Readable when SIGTERM or SIGINT has come. Blocks both in this thread, and in those that it
// starts.
inline Descriptor open_signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGINT);
  checked(sigprocmask(SIG_BLOCK, &wanted, nullptr), "sigprocmask");
  return Descriptor(checked(signalfd(-1, &wanted, SFD_CLOEXEC), "signalfd"));
}

// A socket of whole messages that listens at `path`, in the place of what is there.
inline Descriptor open_listener(const std::string& path, int backlog) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) fail(ENAMETOOLONG, path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  std::filesystem::remove(path);
  Descriptor made(
      checked(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), path.c_str()));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  checked(bind(made.get(), generic, sizeof address), path.c_str());
  checked(listen(made.get(), backlog), path.c_str());
  return made;
}

// The next client of a listener, or -1: it went away again.
inline int accept_from(const Descriptor& listener) {
  return accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

}  // namespace softroce
