// SPDX-License-Identifier: GPL-2.0-or-later
// The address of an RNIC's port: a GID, which for RoCEv2 is an IPv6 address. An IPv4 address is
// mapped, ::ffff:0:0/96 (IBA annex A17.4.5, RFC 4291 section 2.5.5.2).
#pragma once

#include <cstdint>

namespace softroce {

struct Gid {
  std::uint64_t high = 0;  // both in host order
  std::uint64_t low = 0;

  static constexpr Gid of_ipv4(std::uint32_t address) {
    return {0, std::uint64_t{0xFFFF} << 32 | address};
  }
  constexpr bool is_ipv4() const { return high == 0 && low >> 32 == 0xFFFF; }
  constexpr std::uint32_t ipv4() const { return static_cast<std::uint32_t>(low); }
  bool operator==(const Gid&) const = default;
};

}  // namespace softroce
