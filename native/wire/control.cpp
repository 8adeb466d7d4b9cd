// SPDX-License-Identifier: GPL-2.0-or-later
#include "control.hpp"

#include <exception>
#include <stdexcept>

namespace softroce::wire {
namespace {

constexpr int kWaiting = 16;

ssize_t receive(int client, Request& request, Descriptor& descriptor) {
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))];
  iovec data{.iov_base = &request, .iov_len = sizeof request};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  const ssize_t bytes = recvmsg(client, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  int fd = -1;
  const cmsghdr* with = bytes < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (with != nullptr && with->cmsg_level == SOL_SOCKET && with->cmsg_type == SCM_RIGHTS)
    std::memcpy(&fd, CMSG_DATA(with), sizeof fd);
  descriptor = Descriptor(fd);
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
      epoll_(open_epoll()),
      listener_(open_listener(path, kWaiting)),
      signals_(open_signals()) {
  for (const int fd : {listener_.get(), signals_.get(), stage_.deaths()}) watch(epoll_, fd);
}

Control::~Control() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

void Control::serve(int over) {
  watch(epoll_, over);
  while (true) {
    const int fd = wait_for(epoll_, -1);
    if (fd == signals_.get() || fd == over) return;
    if (fd == listener_.get())
      accept_one();
    else if (fd == stage_.deaths())
      stage_.bury();
    else if (fd >= 0)
      answer(fd);
  }
}

void Control::accept_one() {
  const int client = accept_from(listener_);
  if (client < 0) return;
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
    reply = reply_to(request, descriptor.get());
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
      stage_.open_port({request.number, request.body.port.rx_link, request.body.port.tx_link,
                        request.body.port.to_host != 0},
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
