// SPDX-License-Identifier: GPL-2.0-or-later
// Memory regions: what the RNIC may touch, by key and within bounds (IBA 10.6.3).
#pragma once

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <unordered_map>

namespace softroce {

enum Access : std::uint32_t {  // values of enum ibv_access_flags
  kLocalWrite = 1,
  kRemoteWrite = 2,
  kRemoteRead = 4,
  kRemoteAtomic = 8,
};

class MemoryTable {
 public:
  // Returns the region's key (lkey and rkey alike). EINVAL for an empty or wrapping range.
  std::uint32_t add(std::uint8_t* base, std::uint64_t length, std::uint32_t access) {
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    if (base == nullptr || length == 0 || address + length < address)
      throw std::system_error(EINVAL, std::generic_category(), "register memory");
    const std::lock_guard lock(mutex_);
    // The low byte changes with every registration, as an RNIC's key does, so that the key of a
    // region that is gone does not fit the next one.
    const std::uint32_t key = next_key_;
    next_key_ += 0x101;
    regions_[key] = {base, length, access, 0};
    return key;
  }

  void remove(std::uint32_t key) {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(key);
    if (found == regions_.end())
      throw std::system_error(EINVAL, std::generic_category(), "deregister: no such memory region");
    if (found->second.pins != 0)
      throw std::system_error(EBUSY, std::generic_category(),
                              "deregister: work requests still use the memory region");
    regions_.erase(found);
  }

  // The address of `offset` in region `key`, when `length` bytes from there lie within it (else
  // EINVAL) and all of `access` was granted (else EACCES). The region stays until `unpin`.
  std::uint8_t* pin(std::uint32_t key, std::uint64_t offset, std::uint64_t length,
                    std::uint32_t access) {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(key);
    if (found == regions_.end())
      throw std::system_error(EINVAL, std::generic_category(), "no memory region has this key");
    Region& region = found->second;
    if ((region.access & access) != access)
      throw std::system_error(EACCES, std::generic_category(), "memory region lacks this access");
    if (offset > region.length || length > region.length - offset)
      throw std::system_error(EINVAL, std::generic_category(), "outside the memory region");
    ++region.pins;
    return region.base + offset;
  }

  void unpin(std::uint32_t key) {
    const std::lock_guard lock(mutex_);
    --regions_.at(key).pins;
  }

 private:
  struct Region {
    std::uint8_t* base;
    std::uint64_t length;
    std::uint32_t access;
    std::uint32_t pins = 0;  // work requests that use it
  };
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, Region> regions_;
  std::uint32_t next_key_ = 0x1001;
};

}  // namespace softroce
