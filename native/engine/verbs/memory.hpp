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
  // Returns the region's key (lkey and rkey alike). Addresses in requests begin at `iova`, as those
  // of ibv_reg_mr_iova do. EINVAL for an empty or wrapping range.
  std::uint32_t add(std::uint8_t* base, std::uint64_t length, std::uint32_t access,
                    std::uint32_t protection_domain, std::uint64_t iova) {
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    if (base == nullptr || length == 0 || address + length < address || iova + length < iova)
      throw std::system_error(EINVAL, std::generic_category(), "register memory");
    const std::lock_guard lock(mutex_);
    // The low byte changes with every registration, as an RNIC's key does, so that the key of a
    // region that is gone does not fit the next one.
    const std::uint32_t key = next_key_;
    next_key_ += 0x101;
    regions_[key] = {base, length, iova, access, protection_domain};
    return key;
  }
  std::uint32_t add(std::uint8_t* base, std::uint64_t length, std::uint32_t access,
                    std::uint32_t protection_domain = 0) {
    return add(base, length, access, protection_domain, reinterpret_cast<std::uintptr_t>(base));
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

  // Makes the region another one with the same key, as ibv_rereg_mr does.
  void change(std::uint32_t key, std::uint8_t* base, std::uint64_t length, std::uint32_t access,
              std::uint32_t protection_domain, std::uint64_t iova) {
    const std::lock_guard lock(mutex_);
    Region& region = regions_.at(key);
    if (region.pins != 0)
      throw std::system_error(EBUSY, std::generic_category(),
                              "register again: work requests still use the memory region");
    region = {base, length, iova, access, protection_domain};
  }

  // The address of `offset` in region `key`, when `length` bytes from there lie within it (else
  // EINVAL), it is of the same protection domain (else EINVAL) and all of `access` was granted
  // (else EACCES). The region stays until `unpin`.
  std::uint8_t* pin(std::uint32_t key, std::uint64_t offset, std::uint64_t length,
                    std::uint32_t access, std::uint32_t protection_domain = 0) {
    const std::lock_guard lock(mutex_);
    return pin_locked(find(key, protection_domain), offset, length, access);
  }

  // The memory of `length` bytes at `address`, as a scatter-gather element or a packet names it, if
  // region `key` is of this protection domain, contains them, and grants all of `access`; else null
  // (IBA 10.6.3.3). To be used before the engine's turn ends: regions may go between turns.
  std::uint8_t* resolve(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                        std::uint32_t access, std::uint32_t protection_domain) {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(key);
    if (found == regions_.end()) return nullptr;
    const Region& region = found->second;
    const std::uint64_t offset = address - region.iova;  // below it: wraps, and is outside
    if (region.invalid || region.protection_domain != protection_domain ||
        (region.access & access) != access || offset > region.length ||
        length > region.length - offset)
      return nullptr;
    return region.base + offset;
  }

  // Remote invalidation (IBA 10.6.5): the key becomes invalid. False: there is no such
  // region, or it is another protection domain's.
  bool invalidate(std::uint32_t key, std::uint32_t protection_domain) {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(key);
    if (found == regions_.end() || found->second.invalid ||
        found->second.protection_domain != protection_domain)
      return false;
    found->second.invalid = true;
    return true;
  }

  void unpin(std::uint32_t key) {
    const std::lock_guard lock(mutex_);
    --regions_.at(key).pins;
  }

 private:
  struct Region {
    std::uint8_t* base;
    std::uint64_t length;
    std::uint64_t iova;
    std::uint32_t access;
    std::uint32_t protection_domain;
    std::uint32_t pins = 0;  // striped messages that use it
    bool invalid = false;
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
