// SPDX-License-Identifier: GPL-2.0-or-later
#include "manager.hpp"

#include <endian.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../exit_lock.hpp"
#include "gids.hpp"

namespace softroce::cm {
namespace {

constexpr auto kLongestCall = std::chrono::seconds(10);
constexpr auto kLongestFlush = std::chrono::milliseconds(3500);  // three DREQs
constexpr std::size_t kLongestMessage = 512;
constexpr int kMostMessages = 64;  // from the manager, before MADs have their turn again

std::mutex making;
std::atomic<Manager*> the_manager;

[[noreturn]] void fail(int error, const char* what) {
  throw std::system_error(error, std::generic_category(), what);
}

// The event of this goes to its channel's descriptor, which counts as a semaphore.
void ring(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof one);
}

// Waits for room until then. 0, ETIMEDOUT: nothing is sent, or EIO: nothing can be any more.
int send_until(int socket, const Call& call, std::chrono::steady_clock::time_point until) {
  for (;;) {
    if (::send(socket, &call, sizeof call, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof call) return 0;
    if (errno != EAGAIN && errno != EINTR) return EIO;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return ETIMEDOUT;
    pollfd fds{.fd = socket, .events = POLLOUT, .revents = 0};
    poll(&fds, 1, static_cast<int>(left.count()));
  }
}

bool is_request(const Event& event) { return event.event == RDMA_CM_EVENT_CONNECT_REQUEST; }

// A request concerns its listener until the program has taken it.
bool concerns(const Event& event, const Id& id) {
  return id.number != 0 && (is_request(event) ? event.listen_id : event.id) == id.number;
}

}  // namespace

Manager& Manager::get() {
  const std::lock_guard lock(making);
  if (Manager* known = the_manager) {
    if (known->process_ != getpid()) fail(ENODEV, "a child has no RNIC");
    return *known;
  }
  auto* made = new Manager;  // lives as long as the process: its thread uses it
  the_manager = made;
  std::atexit(finish);
  return *made;
}

Manager* Manager::known() { return the_manager; }

Manager::Manager() : process_(getpid()) {
  open_device();
  connect();
  try {
    port_ = std::make_unique<MadPort>(context_, pd_, gids_);
    start();
  } catch (...) {
    ::close(socket_);
    throw;
  }
}

void Manager::open_device() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (devices != nullptr && count != 0) context_ = ibv_open_device(devices[0]);
  if (devices != nullptr) ibv_free_device_list(devices);
  if (context_ == nullptr) fail(ENODEV, "open the RNIC");
  pd_ = ibv_alloc_pd(context_);
  ibv_device_attr device;
  ibv_port_attr port;
  if (pd_ == nullptr || ibv_query_device(context_, &device) != 0 ||
      ibv_query_port(context_, kPort, &port) != 0)
    fail(ENODEV, "ask the RNIC");
  guid_ = be64toh(device.node_guid);
  most_reads_ = static_cast<std::uint8_t>(std::min(device.max_qp_rd_atom, 0xFF));
  mtu_ = static_cast<std::uint8_t>(port.active_mtu);
  ack_delay_ = device.local_ca_ack_delay;
  for (int i = 0; i < port.gid_tbl_len && gids_.size() < kMostGids; ++i) {
    ibv_gid gid;
    if (ibv_query_gid(context_, kPort, i, &gid) == 0) gids_.push_back(gid);
  }
}

void Manager::connect() {
  const char* name = secure_getenv(kSocketVariable);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = name != nullptr ? std::strlen(name) : 0;
  if (length == 0 || length >= sizeof address.sun_path) fail(ENODEV, kSocketVariable);
  std::memcpy(address.sun_path + 1, name, length);
  socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  const timeval longest{.tv_sec = kLongestCall.count(), .tv_usec = 0};  // of connect(), too
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
  if (socket_ < 0 || ::connect(socket_, reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
    const int error = errno;
    std::fprintf(stderr, "softroce: the connection manager at @%s: %s\n", name,
                 std::strerror(error));
    if (socket_ >= 0) ::close(socket_);
    fail(ENODEV, "reach the connection manager");
  }
  Hello hello;
  hello.gids = static_cast<std::uint32_t>(gids_.size());
  hello.guid = guid_;
  hello.mtu = mtu_;
  hello.ack_delay = ack_delay_;
  for (std::size_t i = 0; i < gids_.size(); ++i) std::memcpy(hello.gid[i], gids_[i].raw, 16);
  [[maybe_unused]] const ssize_t sent = ::send(socket_, &hello, sizeof hello, MSG_NOSIGNAL);
}

// Signals are for the program's own threads.
void Manager::start() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread_, nullptr, &Manager::work, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) fail(error, "start a thread");
}

void* Manager::work(void* manager) {
  prctl(PR_SET_NAME, "softroce-cm");
  static_cast<Manager*>(manager)->listen();
  return nullptr;
}

// At exit: what tells the peers that connections are over has arrived. Then the engine may go.
// Without a lock, the peers get no message.
void Manager::finish() {
  Manager* manager = the_manager;
  if (manager == nullptr || manager->process_ != getpid()) return;
  if (!verbs::lock_at_exit(manager->calls_)) return;
  if (const auto lock = verbs::lock_at_exit(manager->lock_))
    manager->finishing_ = true;
  else
    return;
  manager->call({.verb = Verb::flush});
  ::shutdown(manager->socket_, SHUT_RDWR);
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  ++until.tv_sec;
  pthread_timedjoin_np(manager->thread_, nullptr, &until);  // it may need the engine's lock
}

bool Manager::has(const std::uint8_t* gid) const {
  return std::ranges::any_of(
      gids_, [&](const ibv_gid& own) { return std::memcmp(own.raw, gid, 16) == 0; });
}

int Manager::call(const Call& call, Reply& reply) {
  if (process_ != getpid()) return ENODEV;
  const std::lock_guard one(calls_);
  const bool waits = call.verb == Verb::flush;
  const auto until = std::chrono::steady_clock::now() +
                     (waits ? std::chrono::milliseconds(kLongestFlush) : kLongestCall);
  {
    const std::lock_guard lock(lock_);
    if (broken_) return EIO;
    reply_.reset();
  }
  // Without the lock: the thread reads meanwhile, which makes the manager read.
  if (const int error = send_until(socket_, call, until)) return error;
  std::unique_lock lock(lock_);
  replied_.wait_until(lock, until, [&] { return broken_ || reply_; });
  if (!reply_) return broken_ = true, EIO;  // a late reply would be taken for the next one's
  reply = *reply_;
  return reply.error;
}

int Manager::call(const Call& wanted) {
  Reply reply;
  return call(wanted, reply);
}

// ---------------------------------------------------------------- the thread

// It never waits for either side: a MAD that the manager has no room for is lost, and its sender
// repeats it. Each side has its turn, however much the other one sends.
void Manager::listen() {
  for (bool more = false;;) {
    pollfd fds[] = {{.fd = socket_, .events = POLLIN, .revents = 0},
                    {.fd = port_->fd(), .events = POLLIN, .revents = 0}};
    if (poll(fds, 2, more ? 0 : -1) < 0) continue;
    if (more || fds[1].revents != 0)
      more = port_->receive(
          [&](const Mad& mad) { ::send(socket_, &mad, sizeof mad, MSG_NOSIGNAL | MSG_DONTWAIT); });
    if (fds[0].revents != 0 && !receive()) return;
  }
}

// False: there is no manager any more.
bool Manager::receive() {
  alignas(8) std::uint8_t message[kLongestMessage];
  for (int i = 0; i < kMostMessages; ++i) {
    const ssize_t bytes = recv(socket_, message, sizeof message, MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (bytes < static_cast<ssize_t>(sizeof(Kind))) {
      break_down("it has ended, or has closed the socket: this process left its messages unread");
      return false;
    }
    handle(message, static_cast<std::size_t>(bytes));
  }
  return true;
}

void Manager::handle(const std::uint8_t* message, std::size_t size) {
  Kind kind;
  std::memcpy(&kind, message, sizeof kind);
  if (kind == Kind::mad && size == sizeof(Mad)) {
    Mad mad;
    std::memcpy(&mad, message, sizeof mad);
    port_->send(mad);
  } else if (kind == Kind::event && size == sizeof(Event)) {
    Event event;
    std::memcpy(&event, message, sizeof event);
    deliver(event);
  } else if (kind == Kind::reply && size == sizeof(Reply)) {
    const std::lock_guard lock(lock_);
    reply_.emplace();
    std::memcpy(&*reply_, message, sizeof(Reply));
    replied_.notify_all();
  }
}

// A request is of a number that no id has yet: its listener's channel gets it.
void Manager::deliver(const Event& event) {
  const std::lock_guard lock(lock_);
  const auto found = ids_.find(is_request(event) ? event.listen_id : event.id);
  if (found == ids_.end()) return;
  Channel& channel = of(found->second->channel);
  channel.waiting.push_back(event);
  ring(channel.fd);
}

void Manager::break_down(const char* why) {
  const std::lock_guard lock(lock_);
  broken_ = true;
  replied_.notify_all();
  if (!finishing_) std::fprintf(stderr, "softroce: the connection manager: %s\n", why);
}

// ---------------------------------------------------------------- who gets which event

void Manager::watch(std::uint32_t number, Id* id) {
  const std::lock_guard lock(lock_);
  ids_[number] = id;
}

// Its descriptor may tell of events that are gone; `take` finds none then.
void Manager::forget(Id& id) {
  const std::lock_guard lock(lock_);
  ids_.erase(id.number);
  std::erase_if(of(id.channel).waiting, [&](const Event& event) { return concerns(event, id); });
}

void Manager::move(Id& id, Channel& to) {
  const std::lock_guard lock(lock_);
  Channel& from = of(id.channel);
  id.channel = &to;
  if (&from == &to) return;
  std::erase_if(from.waiting, [&](const Event& event) {
    const bool its = concerns(event, id);
    if (its) {
      to.waiting.push_back(event);
      ring(to.fd);
    }
    return its;
  });
}

bool Manager::take(Channel& channel, Event& event, Id*& id) {
  const std::lock_guard lock(lock_);
  if (channel.waiting.empty()) return false;
  event = channel.waiting.front();
  channel.waiting.pop_front();
  const auto found = ids_.find(is_request(event) ? event.listen_id : event.id);
  if (found == ids_.end()) return false;
  id = found->second;
  // Before the lock is gone: from now on, rdma_destroy_id waits for the acknowledgement.
  const std::lock_guard counting(id->lock);
  ++id->taken;
  return true;
}

}  // namespace softroce::cm
