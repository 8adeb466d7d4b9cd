// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lab_records.h"

namespace softroce::monitor {

// An append-only file of records behind a struct lab_file_header. Every failure throws
// std::system_error.
class RecordFile {
 public:
  // Goes on with the file at `path`, or makes it.
  RecordFile(const std::string& path, const char (&magic)[9], std::uint32_t record_bytes);
  RecordFile(RecordFile&& other) noexcept;
  RecordFile& operator=(RecordFile&&) = delete;
  ~RecordFile();

  // Keeps the record in memory until the next flush.
  void append(const void* record, std::size_t bytes);
  // Hands what was appended to the kernel, where every reader sees it.
  void flush();
  // Bytes in the file, its header included, after the last flush.
  std::uint64_t size() const { return size_; }

 private:
  std::string path_;
  int fd_;
  std::uint64_t size_ = 0;
  std::vector<std::byte> pending_;
};

}  // namespace softroce::monitor
