// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <bpf/libbpf.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "descriptor.hpp"

namespace softroce::monitor {

// Takes the records out of one pinned ring buffer. Every failure throws std::system_error.
class RingDrain {
 public:
  using Take = std::function<void(const void* record, std::size_t bytes)>;  // throws nothing

  RingDrain(const std::string& pin, Take take);
  RingDrain(const RingDrain&) = delete;
  RingDrain& operator=(const RingDrain&) = delete;

  // Readable while the ring holds records.
  int epoll_fd() const { return ring_buffer__epoll_fd(ring_.get()); }
  // Takes what the ring holds now; records that come meanwhile may stay.
  void drain();

 private:
  struct Free {
    void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
  };

  static int on_record(void* self, void* record, std::size_t bytes) noexcept;

  Take take_;
  Descriptor map_;
  std::unique_ptr<ring_buffer, Free> ring_;
  std::uint64_t until_ns_ = 0;  // a record from this time on ends the drain that runs
};

}  // namespace softroce::monitor
