// SPDX-License-Identifier: GPL-2.0-or-later
#include "tap_map.hpp"

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace softroce::monitor {

TapMap::TapMap(const std::string& pin) : fd_(checked(bpf_obj_get(pin.c_str()), pin.c_str())) {
  bpf_map_info info{};
  std::uint32_t length = sizeof(info);
  checked(bpf_obj_get_info_by_fd(fd_.get(), &info, &length), pin.c_str());
  links_ = info.max_entries;
  if (info.value_size != sizeof(lab_tap))
    throw std::system_error(EINVAL, std::generic_category(), pin);
  void* const mapped = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (mapped == MAP_FAILED) throw std::system_error(errno, std::generic_category(), pin);
  taps_ = static_cast<lab_tap*>(mapped);
  for (std::uint32_t link = 0; link < links_; ++link) set_snap(link, 0);  // a predecessor's
}

TapMap::~TapMap() { munmap(taps_, bytes()); }

std::size_t TapMap::bytes() const {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (links_ * sizeof(lab_tap) + page - 1) / page * page;
}

void TapMap::set_snap(std::uint32_t link, std::uint32_t snap_bytes) {
  __atomic_store_n(&taps_[link].snap, snap_bytes, __ATOMIC_RELAXED);
}

std::uint64_t TapMap::missed(std::uint32_t link) const {
  return __atomic_load_n(&taps_[link].missed, __ATOMIC_RELAXED);
}

}  // namespace softroce::monitor
