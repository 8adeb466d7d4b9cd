// SPDX-License-Identifier: GPL-2.0-or-later
#include "queue_map.hpp"

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace softroce::wire {

QueueMap::QueueMap(const std::string& pin) {
  const int map = bpf_obj_get(pin.c_str());
  bpf_map_info info{};
  std::uint32_t bytes = sizeof info;
  if (map < 0 || bpf_obj_get_info_by_fd(map, &info, &bytes) != 0)
    throw std::system_error(errno, std::generic_category(), pin);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  count_ = info.max_entries;
  mapped_ = (std::size_t{count_} * sizeof(lab_backlog) + page - 1) / page * page;
  void* area = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
  const int error = errno;
  close(map);
  if (area == MAP_FAILED) throw std::system_error(error, std::generic_category(), pin);
  backlogs_ = static_cast<lab_backlog*>(area);
}

QueueMap::~QueueMap() { munmap(backlogs_, mapped_); }

}  // namespace softroce::wire
