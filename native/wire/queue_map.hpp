// SPDX-License-Identifier: GPL-2.0-or-later
// The pinned map `queues`, mapped into memory: bytes that wait in each directed link's queue, for
// the XDP programs' `lb: adaptive`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace softroce::wire {

class QueueMap {
 public:
  explicit QueueMap(const std::string& pin);  // throws std::system_error
  ~QueueMap();
  QueueMap(const QueueMap&) = delete;
  QueueMap& operator=(const QueueMap&) = delete;

  std::uint32_t count() const { return count_; }
  void set(std::uint32_t directed, std::uint64_t bytes) {
    __atomic_store_n(&bytes_[directed], bytes, __ATOMIC_RELAXED);
  }

 private:
  std::uint64_t* bytes_ = nullptr;
  std::size_t mapped_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace softroce::wire
