// SPDX-License-Identifier: GPL-2.0-or-later
#include "control.hpp"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace softroce::wire {
namespace {

constexpr int kWaiting = 16;

int checked(int result, const std::string& what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

int open_signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGINT);
  return checked(signalfd(-1, &wanted, SFD_CLOEXEC), "signalfd");
}

int open_listener(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw std::system_error(ENAMETOOLONG, std::generic_category(), path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  std::filesystem::remove(path);
  const int fd = checked(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), path);
  checked(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), path);
  checked(listen(fd, kWaiting), path);
  return fd;
}

void watch(int epoll, int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  checked(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

// A descriptor that came with a request, closed in the end.
struct Descriptor {
  int fd = -1;
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

ssize_t receive(int client, Request& request, Descriptor& descriptor) {
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))];
  iovec data{.iov_base = &request, .iov_len = sizeof request};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  const ssize_t bytes = recvmsg(client, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const cmsghdr* with = bytes < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (with != nullptr && with->cmsg_level == SOL_SOCKET && with->cmsg_type == SCM_RIGHTS)
    std::memcpy(&descriptor.fd, CMSG_DATA(with), sizeof descriptor.fd);
  return bytes;
}

std::string packed(Status status, const void* payload, std::size_t bytes) {
  const Answer head{status, static_cast<std::uint32_t>(bytes)};
  std::string answer(reinterpret_cast<const char*>(&head), sizeof head);
  return answer.append(static_cast<const char*>(payload), bytes);
}

std::string refused(const std::string& why) {
  return packed(Status::failed, why.data(), why.size());
}

template <typename Payload>
std::string done(const Payload& payload) {
  return packed(Status::done, &payload, sizeof payload);
}

std::string done() { return packed(Status::done, "", 0); }

}  // namespace

Control::Control(Stage& stage, const std::string& path)
    : stage_(stage),
      path_(path),
      epoll_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      listener_(open_listener(path)),
      signals_(open_signals()) {
  for (const int fd : {listener_, signals_, stage_.deaths()}) watch(epoll_, fd);
}

Control::~Control() {
  for (const int fd : {listener_, signals_, epoll_}) close(fd);
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

void Control::serve(int over) {
  watch(epoll_, over);
  while (true) {
    epoll_event event{};
    const int ready = epoll_wait(epoll_, &event, 1, -1);
    if (ready < 0 && errno != EINTR) checked(ready, "epoll_wait");
    if (ready <= 0) continue;
    const int fd = event.data.fd;
    if (fd == signals_ || fd == over) return;
    if (fd == listener_)
      accept_one();
    else if (fd == stage_.deaths())
      stage_.bury();
    else
      answer(fd);
  }
}

void Control::accept_one() {
  const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (client < 0) return;  // it went away again
  watch(epoll_, client);
  if (clients_++ == 0) stage_.set_watched(true);
}

void Control::forget(int client) {
  close(client);
  if (--clients_ == 0) stage_.set_watched(false);
}

void Control::answer(int client) {
  Request request{};
  Descriptor descriptor;
  const ssize_t bytes = receive(client, request, descriptor);
  if (bytes < 0 && errno == EAGAIN) return;
  if (bytes <= 0) return forget(client);
  std::string reply;
  try {
    if (bytes != sizeof request) throw std::runtime_error("a request of the wrong size");
    reply = reply_to(request, descriptor.fd);
  } catch (const std::out_of_range&) {
    reply = refused("the lab has no such link or port");
  } catch (const std::exception& error) {
    reply = refused(error.what());
  }
  if (send(client, reply.data(), reply.size(), MSG_NOSIGNAL) < 0) forget(client);
}

std::string Control::reply_to(const Request& request, int descriptor) {
  switch (request.operation) {
    case Operation::open_port:
      if (descriptor < 0) return refused("no network namespace came with the request");
      stage_.open_port({request.number, request.body.port.rx_link, request.body.port.tx_link},
                       descriptor);
      return done();
    case Operation::shape: {
      NoRoom refusal{};
      if (stage_.shape(request.number, request.body.shape, refusal)) return done();
      return packed(Status::no_room, &refusal, sizeof refusal);
    }
    case Operation::epoch:
      stage_.set_epoch(request.body.epoch_ns);
      return done();
    case Operation::link_figures:
      return done(stage_.link_figures(request.number));
    case Operation::link_base:
      return done(stage_.link_base(request.number));
    case Operation::port_figures:
      return done(stage_.port_figures(request.number));
    case Operation::stage_figures:
      return done(stage_.figures());
    case Operation::pauses: {
      const std::vector<Pause> found = stage_.pauses();
      return packed(Status::done, found.data(), found.size() * sizeof(Pause));
    }
  }
  return refused("an unknown operation");
}

}  // namespace softroce::wire
