// SPDX-License-Identifier: GPL-2.0-or-later
// A pinned array of BPF, mapped into memory.
#pragma once

#include <bpf/bpf.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "descriptor.hpp"

namespace softroce {

template <typename T>
class MappedMap {
 public:
  explicit MappedMap(const std::string& pin) {  // throws std::system_error
    const Descriptor map(checked(bpf_obj_get(pin.c_str()), pin.c_str()));
    bpf_map_info info{};
    std::uint32_t length = sizeof info;
    checked(bpf_obj_get_info_by_fd(map.get(), &info, &length), pin.c_str());
    if (info.value_size != sizeof(T)) fail(EINVAL, pin);
    count_ = info.max_entries;
    void* const area = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, map.get(), 0);
    if (area == MAP_FAILED) fail(errno, pin);
    cells_ = static_cast<T*>(area);
  }
  // The first cells of the map, to be read only. Needs no rights.
  MappedMap(const Descriptor& map, std::uint32_t count) : count_(count) {
    void* const area = mmap(nullptr, bytes(), PROT_READ, MAP_SHARED, map.get(), 0);
    if (area == MAP_FAILED) fail(errno, "map cells of a BPF map");
    cells_ = static_cast<T*>(area);
  }
  ~MappedMap() { munmap(cells_, bytes()); }
  MappedMap(const MappedMap&) = delete;
  MappedMap& operator=(const MappedMap&) = delete;

  std::uint32_t count() const { return count_; }
  T& operator[](std::uint32_t index) { return cells_[index]; }
  const T& operator[](std::uint32_t index) const { return cells_[index]; }

 private:
  std::size_t bytes() const {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return (count_ * sizeof(T) + page - 1) / page * page;
  }

  std::uint32_t count_ = 0;
  T* cells_ = nullptr;
};

}  // namespace softroce
