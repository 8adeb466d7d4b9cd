// SPDX-License-Identifier: GPL-2.0-or-later
#include "record_file.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace softroce::monitor {

namespace {

[[noreturn]] void fail(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

std::uint64_t free_bytes(int fd, const std::string& path) {
  struct statvfs found {};
  if (fstatvfs(fd, &found) < 0) fail(path);
  return static_cast<std::uint64_t>(found.f_bavail) * found.f_frsize;
}

}  // namespace

RecordFile::RecordFile(const std::string& path, const char (&magic)[9], std::uint32_t record_bytes)
    : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (fd_ < 0) fail(path_);
  const off_t end = lseek(fd_, 0, SEEK_END);
  if (end < 0) fail(path_);
  size_ = static_cast<std::uint64_t>(end);
  if (size_ == 0) begin(magic, record_bytes);
  limit_ = std::min(kMaxBytes, size_ + free_bytes(fd_, path_) / 4);
}

void RecordFile::begin(const char (&magic)[9], std::uint32_t record_bytes) {
  lab_file_header header{};
  std::memcpy(header.magic, magic, sizeof(header.magic));
  header.header_bytes = sizeof(header);
  header.record_bytes = record_bytes;
  const auto* first = reinterpret_cast<const std::byte*>(&header);
  pending_.assign(first, first + sizeof(header));
  if (!write_pending()) fail(path_);
  pending_.clear();
}

RecordFile::RecordFile(RecordFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      limit_(other.limit_),
      lost_(other.lost_),
      pending_records_(other.pending_records_),
      pending_(std::move(other.pending_)) {}

RecordFile::~RecordFile() {
  if (fd_ >= 0) close(fd_);
}

void RecordFile::append(const void* record, std::size_t bytes) {
  if (size_ + pending_.size() + bytes > limit_) {
    ++lost_;
    return;
  }
  ++pending_records_;
  const auto* first = static_cast<const std::byte*>(record);
  pending_.insert(pending_.end(), first, first + bytes);
}

void RecordFile::flush() {
  if (!write_pending()) {
    if (errno != ENOSPC && errno != EDQUOT) fail(path_);
    lost_ += pending_records_;
  }
  pending_.clear();
  pending_records_ = 0;
}

bool RecordFile::write_pending() noexcept {
  std::size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t written = write(fd_, pending_.data() + done, pending_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int code = errno;
      const int cut = ftruncate(fd_, static_cast<off_t>(size_));  // no reader finds a torn record
      errno = cut < 0 ? errno : code;
      return false;
    }
    done += static_cast<std::size_t>(written);
  }
  size_ += done;
  return true;
}

}  // namespace softroce::monitor
