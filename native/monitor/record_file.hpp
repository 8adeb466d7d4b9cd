// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lab_records.h"

namespace softroce::monitor {

// An append-only file of whole records behind a struct lab_file_header. It takes kMaxBytes at
// most, and a quarter of what its file system has free at the start if that is less: /run is
// often a small piece of memory, shared with other files. Records beyond that, or those that
// find the file system full, are lost and counted. Every other failure throws std::system_error.
class RecordFile {
 public:
  static constexpr std::uint64_t kMaxBytes = 64 << 20;

  // Continues the file at `path`, or creates it.
  RecordFile(const std::string& path, const char (&magic)[9], std::uint32_t record_bytes);
  RecordFile(RecordFile&& other) noexcept;
  RecordFile& operator=(RecordFile&&) = delete;
  ~RecordFile();

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
  int fd_;
  std::uint64_t size_ = 0;
  std::uint64_t limit_ = 0;  // of size_
  std::uint64_t lost_ = 0;
  std::uint64_t pending_records_ = 0;
  std::vector<std::byte> pending_;
};

}  // namespace softroce::monitor
