// SPDX-License-Identifier: GPL-2.0-or-later
// A bounded queue from one thread to one other, without locks.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

namespace softroce {

template <typename T>
class SpscRing {
 public:
  explicit SpscRing(std::size_t capacity) : slots_(capacity + 1) {}

  // False: full; `value` is untouched.
  bool push(T& value) {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    const std::size_t next = tail + 1 == slots_.size() ? 0 : tail + 1;
    if (next == head_.load(std::memory_order_acquire)) return false;
    slots_[tail] = std::move(value);
    tail_.store(next, std::memory_order_release);
    return true;
  }

  // False: empty.
  bool pop(T& value) {
    const std::size_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return false;
    value = std::move(slots_[head]);
    head_.store(head + 1 == slots_.size() ? 0 : head + 1, std::memory_order_release);
    return true;
  }

  bool empty() const {
    return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_acquire);
  }

 private:
  std::vector<T> slots_;
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
};

}  // namespace softroce
