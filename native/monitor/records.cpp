// SPDX-License-Identifier: GPL-2.0-or-later
#include "records.hpp"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace softroce::monitor {

RingDrain::RingDrain(const std::string& pin, Take take)
    : take_(std::move(take)),
      map_(checked(bpf_obj_get(pin.c_str()), pin.c_str())),
      ring_(ring_buffer__new(map_.get(), on_record, this, nullptr)) {
  if (!ring_) fail(errno, pin);
}

int RingDrain::on_record(void* self, void* record, std::size_t bytes) noexcept {
  auto& drain = *static_cast<RingDrain*>(self);
  std::uint64_t time_ns = 0;  // every record begins with it
  std::memcpy(&time_ns, record, sizeof(time_ns));
  drain.take_(record, bytes);
  return time_ns < drain.until_ns_ ? 0 : -ECANCELED;
}

void RingDrain::drain() {
  until_ns_ = now_ns();
  const int result = ring_buffer__consume(ring_.get());
  if (result < 0 && result != -ECANCELED) fail(-result, "ring buffer");
}

namespace {

std::uint64_t free_bytes(int fd, const std::string& path) {
  struct statvfs found {};
  if (fstatvfs(fd, &found) < 0) fail(errno, path);
  return static_cast<std::uint64_t>(found.f_bavail) * found.f_frsize;
}

}  // namespace

RecordFile::RecordFile(const std::string& path, const char (&magic)[9], std::uint32_t record_bytes)
    : path_(path),
      fd_(checked(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644),
                  path.c_str())) {
  const off_t end = lseek(fd_.get(), 0, SEEK_END);
  if (end < 0) fail(errno, path_);
  size_ = static_cast<std::uint64_t>(end);
  if (size_ == 0) begin(magic, record_bytes);
  limit_ = std::min(kMaxBytes, size_ + free_bytes(fd_.get(), path_) / 4);
}

void RecordFile::begin(const char (&magic)[9], std::uint32_t record_bytes) {
  lab_file_header header{};
  std::memcpy(header.magic, magic, sizeof(header.magic));
  header.header_bytes = sizeof(header);
  header.record_bytes = record_bytes;
  const auto* first = reinterpret_cast<const std::byte*>(&header);
  pending_.assign(first, first + sizeof(header));
  if (!write_pending()) fail(errno, path_);
  pending_.clear();
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
    if (errno != ENOSPC && errno != EDQUOT) fail(errno, path_);
    lost_ += pending_records_;
  }
  pending_.clear();
  pending_records_ = 0;
}

bool RecordFile::write_pending() noexcept {
  std::size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t written = write(fd_.get(), pending_.data() + done, pending_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int code = errno;
      const int cut =
          ftruncate(fd_.get(), static_cast<off_t>(size_));  // no reader finds a torn record
      errno = cut < 0 ? errno : code;
      return false;
    }
    done += static_cast<std::size_t>(written);
  }
  size_ += done;
  return true;
}

}  // namespace softroce::monitor
