// SPDX-License-Identifier: GPL-2.0-or-later
// Where completion queues signal completions (struct ibv_comp_channel): a descriptor to
// wait on, and which queue it was. Queues ring from the engine's thread; any thread takes.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>

namespace softroce {

// Shared by `shared_from_this` alone, as CompletionQueue is: the engine's thread must not hold
// Python objects.
class CompletionChannel : public std::enable_shared_from_this<CompletionChannel> {
 public:
  // Counts as a semaphore: readable as long as events wait.
  CompletionChannel() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE)) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  ~CompletionChannel() { close(fd_); }
  CompletionChannel(const CompletionChannel&) = delete;
  CompletionChannel& operator=(const CompletionChannel&) = delete;

  int fd() const { return fd_; }

  // `cookie` names the queue among those that use the channel.
  void ring(std::uint64_t cookie) {
    const std::lock_guard lock(mutex_);
    events_.push_back(cookie);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
  }

  std::optional<std::uint64_t> take() {
    const std::lock_guard lock(mutex_);
    if (events_.empty()) return std::nullopt;
    const std::uint64_t cookie = events_.front();
    events_.pop_front();
    count_down(1);
    return cookie;
  }

  // Events of a destroyed queue.
  void forget(std::uint64_t cookie) {
    const std::lock_guard lock(mutex_);
    count_down(std::erase(events_, cookie));
  }

 private:
  void count_down(std::size_t events) {
    for (std::uint64_t one; events != 0; --events)
      if (read(fd_, &one, sizeof one) < 0) return;
  }

  std::mutex mutex_;
  std::deque<std::uint64_t> events_;
  const int fd_;
};

}  // namespace softroce
