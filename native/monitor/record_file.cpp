// SPDX-License-Identifier: GPL-2.0-or-later
#include "record_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace softroce::monitor {

namespace {

[[noreturn]] void fail(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

}  // namespace

RecordFile::RecordFile(const std::string& path, const char (&magic)[9], std::uint32_t record_bytes)
    : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (fd_ < 0) fail(path_);
  const off_t end = lseek(fd_, 0, SEEK_END);
  if (end < 0) fail(path_);
  size_ = static_cast<std::uint64_t>(end);
  if (size_ > 0) return;
  lab_file_header header{};
  std::memcpy(header.magic, magic, sizeof(header.magic));
  header.header_bytes = sizeof(header);
  header.record_bytes = record_bytes;
  append(&header, sizeof(header));
  flush();
}

RecordFile::RecordFile(RecordFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      pending_(std::move(other.pending_)) {}

RecordFile::~RecordFile() {
  if (fd_ >= 0) close(fd_);
}

void RecordFile::append(const void* record, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(record);
  pending_.insert(pending_.end(), first, first + bytes);
}

void RecordFile::flush() {
  const std::byte* next = pending_.data();
  std::size_t left = pending_.size();
  while (left > 0) {
    const ssize_t written = write(fd_, next, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_);
    next += written;
    left -= static_cast<std::size_t>(written);
    size_ += static_cast<std::uint64_t>(written);
  }
  pending_.clear();
}

}  // namespace softroce::monitor
