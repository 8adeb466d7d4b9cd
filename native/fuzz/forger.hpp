// SPDX-License-Identifier: GPL-2.0-or-later
// Frames of a peer that sends anything at all: well-formed packets about any memory, what was on
// the cable before with bytes, fields or lengths changed (the ICRC put right, so that it gets past
// the first check), or plain noise.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "../engine/codec/packet.hpp"

namespace softroce::fuzz {

using Random = std::mt19937_64;
using Frame = std::vector<std::uint8_t>;

inline constexpr std::uint32_t kPathMtu = 1024;
inline constexpr std::uint32_t kRegionBytes = 16384;

inline std::uint32_t below(Random& random, std::uint64_t bound) {
  return static_cast<std::uint32_t>(random() % bound);
}

struct Memory {
  std::uint64_t address = 0;  // of kRegionBytes
  std::uint32_t key = 0;
};

// A queue pair that frames are about, as far as an eavesdropper can determine.
struct Target {
  Gid gid{}, peer{};
  std::uint32_t qp = 0;
  std::uint8_t service = 0;  // opcode bits 7 to 5, IBA table 38: RC 0x00, UC 0x20, UD 0x60
  std::uint32_t qkey = 0;    // of UD
  std::uint32_t next_request = 0, next_response = 0;  // PSNs
  std::vector<Memory> regions{};
};

class Forger {
 public:
  explicit Forger(Random& random) : random_(random) {}

  // A frame of the cable, to be changed later.
  void saw(Frame frame) { sent_[next_sent_++ % sent_.size()] = std::move(frame); }
  // The same, and what it tells of the PSNs at its destination.
  void saw(Target& to, const Packet& packet, Frame frame);

  Frame lie(Target& to) { return below(random_, 2) ? forge(to) : change(to); }

 private:
  Frame forge(Target& to);
  Frame change(const Target& to);
  Frame noise();
  void change_bytes(Frame& frame);
  void change_fields(Frame& frame, const Target& to);
  void mend(Frame& frame);
  const Memory& any_region(const Target& to) {
    return to.regions[below(random_, to.regions.size())];
  }
  std::uint64_t any_address(const Memory& region);
  std::uint8_t any_opcode(const Target& to);

  static constexpr std::size_t kRemembered = 64;
  Random& random_;
  std::array<Frame, kRemembered> sent_;
  std::size_t next_sent_ = 0;
};

}  // namespace softroce::fuzz
