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
  std::uint32_t add(std::uint8_t* base, std::uint64_t length, std::uint32_t access,
                    std::uint32_t protection_domain = 0) {
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    if (base == nullptr || length == 0 || address + length < address)
      throw std::system_error(EINVAL, std::generic_category(), "register memory");
    const std::lock_guard lock(mutex_);
    // The low byte changes with every registration, as an RNIC's key does, so that the key of a
    // region that is gone does not fit the next one.
    const std::uint32_t key = next_key_;
    next_key_ += 0x101;
    regions_[key] = {base, length, access, protection_domain};
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
  // EINVAL), it is of the same protection domain (else EINVAL) and all of `access` was granted
  // (else EACCES). The region stays until `unpin`.
  std::uint8_t* pin(std::uint32_t key, std::uint64_t offset, std::uint64_t length,
                    std::uint32_t access, std::uint32_t protection_domain = 0) {
    const std::lock_guard lock(mutex_);
    return pin_locked(find(key, protection_domain), offset, length, access);
  }

  // The same by address, as a scatter-gather element names it.
  std::uint8_t* pin_address(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                            std::uint32_t access, std::uint32_t protection_domain) {
    const std::lock_guard lock(mutex_);
    Region& region = find(key, protection_domain);
    // Below the base the difference wraps, and is outside any region.
    const auto base = reinterpret_cast<std::uintptr_t>(region.base);
    return pin_locked(region, address - base, length, access);
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
    std::uint32_t protection_domain;
    std::uint32_t pins = 0;  // work requests that use it
  };

  Region& find(std::uint32_t key, std::uint32_t protection_domain) {
    const auto found = regions_.find(key);
    if (found == regions_.end())
      throw std::system_error(EINVAL, std::generic_category(), "no memory region has this key");
    if (found->second.protection_domain != protection_domain)
      throw std::system_error(EINVAL, std::generic_category(),
                              "memory region of another protection domain");
    return found->second;
  }

  static std::uint8_t* pin_locked(Region& region, std::uint64_t offset, std::uint64_t length,
                                  std::uint32_t access) {
    if ((region.access & access) != access)
      throw std::system_error(EACCES, std::generic_category(), "memory region lacks this access");
    if (offset > region.length || length > region.length - offset)
      throw std::system_error(EINVAL, std::generic_category(), "outside the memory region");
    ++region.pins;
    return region.base + offset;
  }

  std::mutex mutex_;
  std::unordered_map<std::uint32_t, Region> regions_;
  std::uint32_t next_key_ = 0x1001;
};

}  // namespace softroce
