// SPDX-License-Identifier: GPL-2.0-or-later
// The pinned map `queues`, mapped into memory: the backlog of each directed link. The wire stage
// writes it, for the XDP programs' `lb: adaptive` and for the ports of hosts (live/port_pace.hpp).
#pragma once

#include "../../xdp/lab_maps.h"
#include "../system/mapped_map.hpp"

namespace softroce::wire {

class QueueMap : public MappedMap<lab_backlog> {
 public:
  using MappedMap::MappedMap;

  void set(std::uint32_t directed, const lab_backlog& backlog) {
    lab_backlog& cell = (*this)[directed];
    __atomic_store_n(&cell.waiting_bytes, backlog.waiting_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&cell.rate_bps, backlog.rate_bps, __ATOMIC_RELAXED);
    __atomic_store_n(&cell.clear_ns, backlog.clear_ns, __ATOMIC_RELAXED);
  }
  std::uint64_t rate_bps(std::uint32_t directed) const {
    return __atomic_load_n(&(*this)[directed].rate_bps, __ATOMIC_RELAXED);
  }
  std::uint64_t clear_ns(std::uint32_t directed) const {
    return __atomic_load_n(&(*this)[directed].clear_ns, __ATOMIC_RELAXED);
  }
};

}  // namespace softroce::wire
