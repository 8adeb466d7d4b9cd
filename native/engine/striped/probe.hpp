// SPDX-License-Identifier: GPL-2.0-or-later
// The body of a path probe: the next numbers of other paths than its own, whose number the header
// has. `attempt` of the header: how often nothing has answered.
//
//   n x { path u8, number u24 }          big-endian
#pragma once

#include <cstdint>
#include <vector>

#include "../codec/bytes.hpp"
#include "paths.hpp"

namespace softroce {

struct ProbedPath {
  std::uint8_t path = 0;
  std::uint32_t number = 0;
};

inline constexpr std::uint32_t kProbedPathBytes = 4;

inline void write_probe(const std::vector<ProbedPath>& paths, std::vector<std::uint8_t>& out) {
  out.resize(paths.size() * kProbedPathBytes);
  std::uint8_t* at = out.data();
  for (const ProbedPath& each : paths) {
    store32(at, std::uint32_t{each.path} << LAB_NUMBER_BITS | each.number);
    at += kProbedPathBytes;
  }
}

// False: not the body of a probe.
inline bool read_probe(const std::uint8_t* body, std::uint32_t bytes,
                       std::vector<ProbedPath>& paths) {
  paths.clear();
  if (bytes % kProbedPathBytes != 0 || bytes > kMaxPaths * kProbedPathBytes) return false;
  for (std::uint32_t at = 0; at < bytes; at += kProbedPathBytes) {
    const std::uint32_t word = load32(body + at);
    if (word >> LAB_NUMBER_BITS >= kMaxPaths) return false;
    paths.push_back({static_cast<std::uint8_t>(word >> LAB_NUMBER_BITS), word & LAB_NUMBER_MASK});
  }
  return true;
}

}  // namespace softroce
