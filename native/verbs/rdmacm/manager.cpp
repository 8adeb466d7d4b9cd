// SPDX-License-Identifier: GPL-2.0-or-later
#include "manager.hpp"

#include <endian.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "../host_service.hpp"
#include "gids.hpp"

namespace softroce::cm {
namespace {

constexpr auto kLongestCall = std::chrono::seconds(10);
constexpr std::size_t kLongestMessage = 512;

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

// std::system_error: it cannot be asked.
Device open(ibv_context* context) {
  Device made{.context = context, .pd = ibv_alloc_pd(context)};
  ibv_device_attr device;
  ibv_port_attr port;
  if (made.pd == nullptr || ibv_query_device(context, &device) != 0 ||
      ibv_query_port(context, kPort, &port) != 0)
    fail(ENODEV, "ask the RNIC");
  made.guid = be64toh(device.node_guid);
  made.most_reads = static_cast<std::uint8_t>(std::min(device.max_qp_rd_atom, 0xFF));
  made.mtu = static_cast<std::uint8_t>(port.active_mtu);
  made.ack_delay = device.local_ca_ack_delay;
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid;
    if (ibv_query_gid(context, kPort, i, &gid) == 0) made.gids.push_back(gid);
  }
  return made;
}

bool is_request(const Event& event) { return event.event == RDMA_CM_EVENT_CONNECT_REQUEST; }

// A request concerns its listener until the program has taken it.
bool concerns(const Event& event, const Id& id) {
  return id.number != 0 && (is_request(event) ? event.listen_id : event.id) == id.number;
}

}  // namespace

bool Device::has(const std::uint8_t* gid) const {
  return std::ranges::any_of(
      gids, [&](const ibv_gid& own) { return std::memcmp(own.raw, gid, 16) == 0; });
}

Manager& Manager::get() {
  const std::lock_guard lock(making);
  if (Manager* known = the_manager) {
    if (known->process_ != getpid()) fail(ENODEV, "a child has no RNIC");
    return *known;
  }
  auto* made = new Manager;  // lives as long as the process: its thread uses it
  the_manager = made;
  return *made;
}

Manager* Manager::known() { return the_manager; }

Manager::Manager() : process_(getpid()) {
  open_devices();
  connect();
  try {
    start();
  } catch (...) {
    ::close(socket_);
    throw;
  }
}

void Manager::open_devices() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i)
    if (ibv_context* context = ibv_open_device(devices[i])) devices_.push_back(open(context));
  if (devices != nullptr) ibv_free_device_list(devices);
  if (devices_.empty()) fail(ENODEV, "open the RNIC");
}

void Manager::connect() {
  socket_ = connect_to_host_service(kAddress, kLongestCall.count());
  if (socket_ < 0) {
    std::fprintf(stderr,
                 "softroce: the connection manager at @%s: %s. `lab exec --verbs HOST -- COMMAND` "
                 "starts it.\n",
                 kAddress, std::strerror(errno));
    fail(ENODEV, "reach the connection manager");
  }
  Hello hello;
  for (const Device& device : devices_)
    for (const ibv_gid& gid : device.gids) {
      if (hello.gids == kMostGids) break;
      LocalGid& local = hello.gid[hello.gids++];
      std::memcpy(local.octets, gid.raw, 16);
      local.guid = device.guid;
      local.mtu = device.mtu;
      local.ack_delay = device.ack_delay;
    }
  [[maybe_unused]] const ssize_t sent = ::send(socket_, &hello, sizeof hello, MSG_NOSIGNAL);
}

// Signals are for the program's own threads.
void Manager::start() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_t thread;
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread, nullptr, &Manager::work, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) fail(error, "start a thread");
  pthread_detach(thread);
}

void* Manager::work(void* manager) {
  prctl(PR_SET_NAME, "softroce-cm");
  static_cast<Manager*>(manager)->listen();
  return nullptr;
}

const Device* Manager::device_with(const std::uint8_t* gid) const {
  const auto found =
      std::ranges::find_if(devices_, [&](const Device& device) { return device.has(gid); });
  return found == devices_.end() ? nullptr : &*found;
}

int Manager::call(const Call& call, Reply& reply) {
  if (process_ != getpid()) return ENODEV;
  const std::lock_guard one(calls_);
  const auto until = std::chrono::steady_clock::now() + kLongestCall;
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

void Manager::listen() {
  alignas(8) std::uint8_t message[kLongestMessage];
  for (;;) {
    const ssize_t bytes = recv(socket_, message, sizeof message, 0);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < static_cast<ssize_t>(sizeof(Kind))) break;
    handle(message, static_cast<std::size_t>(bytes));
  }
  break_down("it has ended, or has closed the socket: this process left its messages unread");
}

void Manager::handle(const std::uint8_t* message, std::size_t size) {
  Kind kind;
  std::memcpy(&kind, message, sizeof kind);
  if (kind == Kind::event && size == sizeof(Event)) {
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
  std::fprintf(stderr, "softroce: the connection manager: %s\n", why);
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
