// SPDX-License-Identifier: GPL-2.0-or-later
// Memory regions and windows: what the RNIC may touch, by key and within bounds (IBA 10.6.3).
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <unordered_map>
#include <utility>

namespace softroce {

enum Access : std::uint32_t {  // values of enum ibv_access_flags
  kLocalWrite = 1,
  kRemoteWrite = 2,
  kRemoteRead = 4,
  kRemoteAtomic = 8,
  kBindWindows = 16,
};

// What a memory window is bound to (IBA 10.6.6).
struct Binding {
  std::uint32_t region = 0;               // its key
  std::uint64_t address = 0, length = 0;  // in the region; no bytes: the window is bound to nothing
  std::uint64_t iova = 0;                 // where requests have it
  std::uint32_t access = 0;
  std::uint32_t protection_domain = 0;
  std::uint32_t qp = 0;  // of type 2: whose packets may use it; of type 1: 0
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
    const std::uint32_t key = fresh_key();
    regions_[key] = {base, length, iova, access, protection_domain};
    return key;
  }
  std::uint32_t add(std::uint8_t* base, std::uint64_t length, std::uint32_t access,
                    std::uint32_t protection_domain = 0) {
    return add(base, length, access, protection_domain, reinterpret_cast<std::uintptr_t>(base));
  }
  // A region of another RNIC of the host, under the key that it has there.
  void add_under(std::uint32_t key, std::uint8_t* base, std::uint64_t length, std::uint32_t access,
                 std::uint32_t protection_domain, std::uint64_t iova) {
    const std::lock_guard lock(mutex_);
    regions_[key] = {base, length, iova, access, protection_domain};
  }
  // Changes whenever memory goes that could be used before.
  std::uint32_t generation() const { return generation_.load(std::memory_order_relaxed); }
  // Before the first is there. RNICs whose regions have one key number their own in ranges apart.
  void number_in_range(std::uint32_t which) { next_key_ |= which << 29; }

  void remove(std::uint32_t key) {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(key);
    if (found == regions_.end())
      throw std::system_error(EINVAL, std::generic_category(), "deregister: no such memory region");
    if (found->second.pins != 0)
      throw std::system_error(EBUSY, std::generic_category(),
                              "deregister: work requests still use the memory region");
    if (found->second.windows != 0)
      throw std::system_error(EBUSY, std::generic_category(),
                              "deregister: windows are bound to the memory region");
    regions_.erase(found);
    ++generation_;
  }

  // Makes the region another one with the same key, as ibv_rereg_mr does.
  void change(std::uint32_t key, std::uint8_t* base, std::uint64_t length, std::uint32_t access,
              std::uint32_t protection_domain, std::uint64_t iova) {
    const std::lock_guard lock(mutex_);
    Region& region = regions_.at(key);
    if (region.pins != 0 || region.windows != 0)
      throw std::system_error(EBUSY, std::generic_category(),
                              "register again: work requests or windows use the memory region");
    region = {base, length, iova, access, protection_domain};
    ++generation_;
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
  // (IBA 10.6.3.3). To be used before the engine's turn ends: regions may go between turns. `qp`
  // got the packet; 0: the key is a local one, and no window's.
  std::uint8_t* resolve(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                        std::uint32_t access, std::uint32_t protection_domain,
                        std::uint32_t qp = 0) {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(key);
    if (found == regions_.end()) return nullptr;
    const Region& region = found->second;
    const std::uint64_t offset = address - region.iova;  // below it: wraps, and is outside
    if (region.invalid || region.protection_domain != protection_domain ||
        (region.access & access) != access || offset > region.length ||
        length > region.length - offset)
      return nullptr;
    if (region.is_window && (qp == 0 || (region.qp != 0 && region.qp != qp))) return nullptr;
    return region.base + offset;
  }

  // Invalidation, local or remote (IBA 10.6.5): the key becomes invalid. False: there is no such
  // region or window of type 2, it is another protection domain's or another queue pair's, or
  // windows are bound to the region.
  bool invalidate(std::uint32_t key, std::uint32_t protection_domain, std::uint32_t qp) {
    const std::lock_guard lock(mutex_);
    Region* region = find_to_invalidate(key, protection_domain, qp);
    if (region == nullptr) return false;
    ++generation_;
    if (region->is_window)
      unbind(windows_.at(key >> kTagBits));
    else
      region->invalid = true;
    return true;
  }
  bool may_invalidate(std::uint32_t key, std::uint32_t protection_domain, std::uint32_t qp) {
    const std::lock_guard lock(mutex_);
    return find_to_invalidate(key, protection_domain, qp) != nullptr;
  }

  // ---- windows. The low byte of a window's key may change whenever it is bound.

  std::uint32_t add_window() {
    const std::lock_guard lock(mutex_);
    const std::uint32_t key = fresh_key();
    windows_[key >> kTagBits] = 0;
    return key;
  }

  void remove_window(std::uint32_t key) {
    const std::lock_guard lock(mutex_);
    const auto found = windows_.find(key >> kTagBits);
    if (found == windows_.end()) return;
    unbind(found->second);
    windows_.erase(found);
  }

  // False: there is no such window, one of type 2 is still bound, or the region does not allow it.
  bool bind(std::uint32_t key, const Binding& to) {
    const std::lock_guard lock(mutex_);
    const auto window = windows_.find(key >> kTagBits);
    if (window == windows_.end() || (to.qp != 0 && window->second != 0)) return false;
    if (to.length == 0 && to.qp == 0) {
      unbind(window->second);
      return true;
    }
    const auto found = regions_.find(to.region);
    if (found == regions_.end() || !allows(found->second, to)) return false;
    unbind(window->second);
    Region& region = found->second;
    ++region.windows;
    Region& bound = regions_[window->second = key];
    bound = {region.base + (to.address - region.iova), to.length, to.iova,
             to.access & (kRemoteWrite | kRemoteRead | kRemoteAtomic), to.protection_domain};
    bound.is_window = true;
    bound.qp = to.qp;
    bound.parent = to.region;
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
    bool is_window = false;
    std::uint32_t qp = 0, parent = 0;  // of a window: as of its binding
    std::uint32_t windows = 0;         // that are bound to it
  };
  static constexpr int kTagBits = 8;  // of a key: the rest is one region's or one window's
  static constexpr std::uint32_t kRange = (1U << 29) - 1;  // keys of one of eight RNICs of a host

  // The low byte changes with every registration, as an RNIC's key does, so that the key of a
  // region that is gone does not fit the next one.
  std::uint32_t fresh_key() {
    std::uint32_t key;
    do {
      key = next_key_;
      next_key_ = (key & ~kRange) | ((key + 0x101) & kRange);
    } while (regions_.contains(key) || windows_.contains(key >> kTagBits));
    return key;
  }

  Region* find_to_invalidate(std::uint32_t key, std::uint32_t protection_domain, std::uint32_t qp) {
    const auto found = regions_.find(key);
    if (found == regions_.end()) return nullptr;
    Region& region = found->second;
    if (region.invalid || region.protection_domain != protection_domain || region.windows != 0 ||
        (region.is_window && region.qp != qp))
      return nullptr;
    return &region;
  }

  static bool allows(const Region& region, const Binding& to) {
    constexpr std::uint32_t kWrites = kRemoteWrite | kRemoteAtomic;
    if (region.is_window || region.invalid || !(region.access & kBindWindows)) return false;
    if (region.protection_domain != to.protection_domain) return false;
    if ((to.access & kWrites) && !(region.access & kLocalWrite)) return false;
    const std::uint64_t offset = to.address - region.iova;
    return to.length != 0 && offset <= region.length && to.length <= region.length - offset;
  }

  void unbind(std::uint32_t& key) {
    if (key == 0) return;
    const auto bound = regions_.find(key);
    --regions_.at(bound->second.parent).windows;
    ++generation_;
    regions_.erase(bound);
    key = 0;
  }

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
  std::unordered_map<std::uint32_t, std::uint32_t> windows_;  // the key that each is bound by; or 0
  std::uint32_t next_key_ = 0x1001;
  std::atomic<std::uint32_t> generation_{0};
};

}  // namespace softroce
