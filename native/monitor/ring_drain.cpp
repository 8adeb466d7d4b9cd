// SPDX-License-Identifier: GPL-2.0-or-later
#include "ring_drain.hpp"

#include <bpf/bpf.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace softroce::monitor {

namespace {

// The clock of bpf_ktime_get_ns().
std::uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

int open_pin(const std::string& pin) {
  const int fd = bpf_obj_get(pin.c_str());
  if (fd < 0) throw std::system_error(-fd, std::generic_category(), pin);
  return fd;
}

}  // namespace

RingDrain::RingDrain(const std::string& pin, RecordFile file)
    : file_(std::move(file)),
      map_fd_(open_pin(pin)),
      ring_(ring_buffer__new(map_fd_, on_record, this, nullptr)) {
  if (ring_) return;
  const int code = errno;
  close(map_fd_);
  throw std::system_error(code, std::generic_category(), pin);
}

RingDrain::~RingDrain() {
  ring_.reset();
  close(map_fd_);
}

int RingDrain::on_record(void* self, void* record, std::size_t bytes) noexcept {
  auto& drain = *static_cast<RingDrain*>(self);
  std::uint64_t time_ns = 0;  // every record begins with it
  std::memcpy(&time_ns, record, sizeof(time_ns));
  drain.file_.append(record, bytes);
  return time_ns < drain.until_ns_ ? 0 : -ECANCELED;
}

void RingDrain::drain() {
  until_ns_ = now_ns();
  const int result = ring_buffer__consume(ring_.get());
  if (result < 0 && result != -ECANCELED)
    throw std::system_error(-result, std::generic_category(), "ring buffer");
  file_.flush();
}

}  // namespace softroce::monitor
