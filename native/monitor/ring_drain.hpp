// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <bpf/libbpf.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "record_file.hpp"

namespace softroce::monitor {

// Moves the records of one pinned ring buffer into a file. Every failure throws std::system_error.
class RingDrain {
 public:
  RingDrain(const std::string& pin, RecordFile file);
  ~RingDrain();

  // Readable while the ring holds records.
  int epoll_fd() const { return ring_buffer__epoll_fd(ring_.get()); }
  // Moves what the ring holds now to the file; records that come meanwhile may stay.
  void drain();

  const RecordFile& file() const { return file_; }

 private:
  struct Free {
    void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
  };

  static int on_record(void* self, void* record, std::size_t bytes) noexcept;

  RecordFile file_;
  int map_fd_;
  std::unique_ptr<ring_buffer, Free> ring_;
  std::uint64_t until_ns_ = 0;  // a record from this time on ends the drain that runs
};

}  // namespace softroce::monitor
