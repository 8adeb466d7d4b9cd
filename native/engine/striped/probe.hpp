// SPDX-License-Identifier: GPL-2.0-or-later
// The body of a path probe: the newest timestamp of a control packet that has arrived, how many
// have arrived on each path, modulo 256, the id of the sender's next message, and the next numbers
// of other paths than its own, whose number the header has. `attempt` of the header: how often
// nothing has answered.
//
//   0 newest_control_ns  4 control packets of 16 paths u8  20 next_id
//   24 n x { path u8, number u24 }
//   big-endian
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../codec/bytes.hpp"
#include "control_paths.hpp"
#include "paths.hpp"

namespace softroce {

struct Probe {
  std::uint32_t newest_control_ns = 0;
  ControlCounts controls{};
  std::uint32_t next_id = 0;
  std::vector<PathNumber> paths;
};

inline constexpr std::uint32_t kProbeFixedBytes = 8 + kMaxPaths, kProbedPathBytes = 4;

inline void write_probe(const Probe& probe, std::vector<std::uint8_t>& out) {
  out.resize(kProbeFixedBytes + probe.paths.size() * kProbedPathBytes);
  store32(out.data(), probe.newest_control_ns);
  std::uint8_t* at = std::ranges::copy(probe.controls, out.data() + 4).out;
  store32(at, probe.next_id);
  at += 4;
  for (const PathNumber& each : probe.paths) {
    store32(at, each.word());
    at += kProbedPathBytes;
  }
}

// False: not the body of a probe.
inline bool read_probe(const std::uint8_t* body, std::uint32_t bytes, Probe& probe) {
  probe.paths.clear();
  if (bytes < kProbeFixedBytes || bytes % kProbedPathBytes != 0 ||
      bytes > kProbeFixedBytes + kMaxPaths * kProbedPathBytes)
    return false;
  probe.newest_control_ns = load32(body);
  std::copy_n(body + 4, kMaxPaths, probe.controls.begin());
  probe.next_id = load32(body + 4 + kMaxPaths);
  for (std::uint32_t at = kProbeFixedBytes; at < bytes; at += kProbedPathBytes) {
    probe.paths.push_back(PathNumber::of_word(load32(body + at)));
    if (probe.paths.back().path >= kMaxPaths) return false;
  }
  return true;
}

}  // namespace softroce
