// SPDX-License-Identifier: GPL-2.0-or-later
// GIDs as RoCE has them, IPv4 mapped to IPv6 (annex A17.4.5), and the way to one from the RNIC's
// port.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace softroce::cm {

inline constexpr std::uint8_t kPort = 1, kHopLimit = 64;
inline constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

inline bool is_ipv4(const std::uint8_t* gid) {
  return std::memcmp(gid, kMapped, sizeof kMapped) == 0;
}

inline void put_ipv4(const void* octets, std::uint8_t* gid) {
  std::memcpy(gid, kMapped, sizeof kMapped);
  std::memcpy(gid + sizeof kMapped, octets, 4);
}

// The port's first GID of the other's IP version; the end: it has none.
inline auto first_like(const std::vector<ibv_gid>& own, const std::uint8_t* other) {
  return std::ranges::find_if(
      own, [&](const ibv_gid& each) { return is_ipv4(each.raw) == is_ipv4(other); });
}

inline ibv_ah_attr way_to(const std::uint8_t* gid, const std::vector<ibv_gid>& own) {
  ibv_ah_attr way{};
  way.is_global = 1;
  way.port_num = kPort;
  way.grh.hop_limit = kHopLimit;
  std::memcpy(way.grh.dgid.raw, gid, 16);
  if (const auto from = first_like(own, gid); from != own.end())
    way.grh.sgid_index = static_cast<std::uint8_t>(from - own.begin());
  return way;
}

}  // namespace softroce::cm
