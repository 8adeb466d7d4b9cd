// SPDX-License-Identifier: GPL-2.0-or-later
#include "framing.hpp"

#include <array>
#include <stdexcept>

#include "../../../xdp/lab_wire.h"

namespace softroce {
namespace {

constexpr std::array<std::string_view, 2> kNames = {"ud", "uc_immediate"};  // of enum Framing

}  // namespace

Framing framing_named(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Framing>(i);
  std::string known;
  for (const std::string_view each : kNames)
    known += (known.empty() ? "" : ", ") + std::string(each);
  throw std::invalid_argument("unknown framing '" + std::string(name) + "'; known: " + known);
}

std::vector<std::string> framing_names() { return {kNames.begin(), kNames.end()}; }

// The lab header is payload to InfiniBand and counts toward the MTU; a WRITE's headers do not.
std::uint32_t chunk_bytes_of(Framing framing, std::uint32_t path_mtu) {
  return framing == Framing::ud ? path_mtu - LAB_HDR_BYTES : path_mtu;
}

}  // namespace softroce
