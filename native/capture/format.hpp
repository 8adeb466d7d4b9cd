// SPDX-License-Identifier: GPL-2.0-or-later
// What both file formats are to the reader: they take one record after another off the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "../engine/codec/bytes.hpp"
#include "contents.hpp"

namespace softroce::capture {

using Bytes = std::span<const std::uint8_t>;

// What a format's `take` returns: bytes to go past, which may be more than it was given, or one of
// these.
inline constexpr std::uint64_t kNeedsMore = 0;
inline constexpr std::uint64_t kStop = UINT64_MAX;  // nothing behind this can be read

// Longer ones are not held in memory.
inline constexpr std::uint32_t kMostBlockBytes = 16 << 20;
inline constexpr std::uint32_t kMostFrameBytes = 256 << 10;  // as Wireshark has it

// The byte order of whoever wrote the file.
struct Order {
  bool swapped = false;
  std::uint16_t u16(const std::uint8_t* at) const {
    return swapped ? load16(at) : load<std::uint16_t>(at);
  }
  std::uint32_t u32(const std::uint8_t* at) const {
    return swapped ? load32(at) : load<std::uint32_t>(at);
  }
  std::uint64_t u64(const std::uint8_t* at) const {
    return swapped ? load64(at) : load<std::uint64_t>(at);
  }
};

}  // namespace softroce::capture
