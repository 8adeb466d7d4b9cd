// SPDX-License-Identifier: GPL-2.0-or-later
// From the XDP programs' ring buffers to a file of records.
#pragma once

#include <bpf/libbpf.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../system/clock.hpp"
#include "../system/descriptor.hpp"
#include "lab_records.h"

namespace softroce::monitor {

// The clock of bpf_ktime_get_ns().
inline std::uint64_t now_ns() { return static_cast<std::uint64_t>(monotonic_ns()); }

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

// An append-only file of whole records behind a struct lab_file_header. It takes kMaxBytes at
// most, and a quarter of what its file system has free at the start if that is less: /run is
// often a small piece of memory, shared with other files. Records beyond that, or those that
// find the file system full, are lost and counted. Every other failure throws std::system_error.
class RecordFile {
 public:
  static constexpr std::uint64_t kMaxBytes = 64 << 20;

  // Continues the file at `path`, or creates it.
  RecordFile(const std::string& path, const char (&magic)[9], std::uint32_t record_bytes);

  // Keeps the record in memory until the next flush.
  void append(const void* record, std::size_t bytes);
  // Writes what was appended to the kernel, where it is visible to every reader.
  void flush();
  // Bytes in the file, its header included, after the last flush.
  std::uint64_t size() const { return size_; }
  // Records that were appended and, after the last flush, are not in the file.
  std::uint64_t lost() const { return lost_; }

 private:
  void begin(const char (&magic)[9], std::uint32_t record_bytes);
  // Writes what is pending; on failure the file is unchanged, and errno has the reason.
  bool write_pending() noexcept;

  std::string path_;
  Descriptor fd_;
  std::uint64_t size_ = 0;
  std::uint64_t limit_ = 0;  // of size_
  std::uint64_t lost_ = 0;
  std::uint64_t pending_records_ = 0;
  std::vector<std::byte> pending_;
};

}  // namespace softroce::monitor
