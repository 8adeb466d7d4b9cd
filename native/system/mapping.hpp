// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that is unmapped with its object.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "descriptor.hpp"

namespace softroce {

class Mapping {
 public:
  Mapping() = default;
  // mmap(2), readable and writable. Throws std::system_error.
  Mapping(std::size_t bytes, int flags, int fd, off_t offset, const char* what)
      : area_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, offset)), bytes_(bytes) {
    if (area_ == MAP_FAILED) fail(errno, what);
  }
  Mapping(Mapping&& other) noexcept
      : area_(std::exchange(other.area_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(area_, other.area_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping() {
    if (area_ != nullptr) munmap(area_, bytes_);
  }

  std::uint8_t* at(std::uint64_t offset) const {
    return static_cast<std::uint8_t*>(area_) + offset;
  }

 private:
  void* area_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace softroce
