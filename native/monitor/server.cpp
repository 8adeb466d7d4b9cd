// SPDX-License-Identifier: GPL-2.0-or-later
#include "server.hpp"

#include <poll.h>
#include <signal.h>

#include <cstring>
#include <filesystem>
#include <utility>

namespace softroce::monitor {

namespace {

// How long records may gather before they are moved. A ring wakes us only when we had caught up
// with it, so this also bounds what waking us costs those who send packets.
constexpr int kGatherMs = 10;
constexpr int kReaderMs = 1;  // how long the reader of a pipe, which was full, is given
// While somebody is connected: one who sleeps for ever would not notice that it was stopped.
constexpr int kWatchedMs = 100;
constexpr int kBacklog = 64;
// Time of all readers of pipes together, when the monitor has to end.
constexpr std::uint64_t kFarewellNs = 500'000'000;

}  // namespace

Server::Server(const std::string& bpffs, const std::string& directory)
    : drops_file_(directory + "/drops.bin", LAB_DROPS_MAGIC, sizeof(lab_drop)),
      drops_(bpffs + "/drops", [this](const void* r, std::size_t n) { drops_file_.append(r, n); }),
      captures_(bpffs, directory + "/rules.txt"),
      path_(directory + "/monitor.sock"),
      signals_(open_signals()),
      listener_(open_listener(path_, kBacklog)),
      requests_(open_epoll()),
      all_(open_epoll()) {
  signal(SIGPIPE, SIG_IGN);  // a reader that goes away is that capture's affair
  signal(SIGXFSZ, SIG_IGN);
  // Records wake the outer set only; while they gather, requests and signals alone matter.
  watch(requests_, signals_.get());
  watch(requests_, listener_.get());
  watch(all_, requests_.get());
  watch(all_, drops_.epoll_fd());
  watch(all_, captures_.epoll_fd());
}

Server::~Server() {
  std::error_code none;
  std::filesystem::remove(path_, none);
}

void Server::run() {
  while (true) {
    const bool is_waiting = captures_.is_waiting();
    const int idle_ms = clients_.empty() ? -1 : kWatchedMs;
    if (wait(all_, is_waiting ? kReaderMs : idle_ms) < 0 && !is_waiting) continue;
    const int request = wait(requests_, is_waiting ? kReaderMs : kGatherMs);
    if (request == signals_.get()) break;
    if (request == listener_.get())
      accept_one();
    else if (request >= 0)
      serve(request);
    else
      drain();
    end_those_that_are_over();
  }
  drain();
  end_all();
}

// As `wait_for`; notes how much longer it took than was asked for.
int Server::wait(const Descriptor& epoll, int timeout_ms) {
  const std::int64_t longest_ns = timeout_ms < 0 ? Pauses::kForever : timeout_ms * 1'000'000LL;
  pauses_.sleep(monotonic_ns(), longest_ns);
  const int ready = wait_for(epoll, timeout_ms);
  pauses_.turn(monotonic_ns());
  return ready;
}

void Server::drain() {
  drops_.drain();
  drops_file_.flush();
  captures_.drain();
}

void Server::accept_one() {
  const int fd = accept_from(listener_);
  if (fd < 0) return;
  watch(requests_, fd);
  clients_[fd].socket = Descriptor(fd);
}

void Server::serve(int socket) {
  Client& client = clients_.at(socket);
  Received received{};
  if (receive(client, received)) return answer(client, received);
  if (client.sink) {  // its client is gone; the capture is complete
    drain();
    client.sink->finish(captures_.taps());
  }
  forget(socket);
}

// False: the client has gone, or violates the protocol.
bool Server::receive(Client& from, Received& into) {
  iovec part{&into.request, sizeof(into.request)};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(2 * sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  const ssize_t bytes = recvmsg(from.socket.get(), &message, MSG_CMSG_CLOEXEC);
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= head->cmsg_len && i < 2; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(fd), sizeof(fd));
      into.files[i] = Descriptor(fd);
    }
  }
  return bytes == static_cast<ssize_t>(sizeof(into.request));
}

void Server::answer(Client& client, Received& received) {
  const Word word = received.request.word;
  switch (word) {
    case Word::kSync:
      drain();
      return say(client, word, 0, synced());
    case Word::kCapture:
      return say(client, word, begin(client, received), {});
    case Word::kCount:
      drain();
      if (!client.sink) return say(client, word, EINVAL, {});
      return say(client, word, client.sink->error(), figures(*client.sink));
    case Word::kEnd:
      if (!client.sink) return say(client, word, EINVAL, {});
      drain();
      return end(client);
  }
  say(client, word, EINVAL, {});
}

// 0, or the errno of what hinders the capture.
int Server::begin(Client& client, Received& received) {
  if (client.sink) return EBUSY;
  const Request& request = received.request;
  auto& [file, list] = received.files;
  try {
    client.sink =
        std::make_unique<Sink>(std::move(file), captures_.interfaces_in(list), request.snap_bytes,
                               request.most_packets, captures_.taps());
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  captures_.add(*client.sink);
  return 0;
}

// The response follows when all is written.
void Server::end(Client& client) {
  client.ending = true;
  client.sink->finish(captures_.taps());
}

void Server::end_those_that_are_over() {
  for (auto next = clients_.begin(); next != clients_.end();) {
    const int socket = next->first;
    Client& client = next->second;
    ++next;
    if (!client.sink) continue;
    if (client.sink->is_over() && !client.ending) end(client);
    if (!client.ending || client.sink->is_waiting()) continue;
    const int error = client.sink->error();
    const std::vector<std::uint64_t> numbers = figures(*client.sink);
    release(client);
    say(client, Word::kEnd, error, numbers);
    forget(socket);
  }
}

void Server::end_all() {
  for (auto& [socket, client] : clients_)
    if (client.sink) end(client);
  const std::uint64_t until_ns = now_ns() + kFarewellNs;
  while (captures_.is_waiting() && now_ns() < until_ns) {
    poll(nullptr, 0, 1);
    captures_.drain();
  }
  end_those_that_are_over();
}

// Its file is closed, and nothing more is copied for it.
void Server::release(Client& client) {
  if (client.sink) captures_.remove(*client.sink);
  client.sink.reset();
}

void Server::forget(int socket) {
  release(clients_.at(socket));
  clients_.erase(socket);  // and closed, it leaves the set of those watched
}

void Server::say(const Client& to, Word word, int error,
                 const std::vector<std::uint64_t>& numbers) const {
  Answer head{word, error};
  std::array<iovec, 2> parts{
      {{&head, sizeof(head)},
       {const_cast<std::uint64_t*>(numbers.data()), numbers.size() * sizeof(std::uint64_t)}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  sendmsg(to.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::vector<std::uint64_t> Server::synced() const {
  std::vector<std::uint64_t> numbers{drops_file_.size(), drops_file_.lost()};
  for (const Pause& each : pauses_.kept())
    numbers.insert(numbers.end(), {each.begin_ns, each.end_ns});
  return numbers;
}

std::vector<std::uint64_t> Server::figures(const Sink& sink) const {
  std::vector<std::uint64_t> numbers;
  for (const Interface& each : sink.interfaces()) {
    const std::uint64_t missed = sink.missed(each, captures_.taps());
    numbers.insert(numbers.end(), {each.taken + missed, missed});
  }
  return numbers;
}

}  // namespace softroce::monitor
