// SPDX-License-Identifier: GPL-2.0-or-later
// What a pair of RNICs cannot do without: the copies and CRCs of its packets, and nothing else.
#pragma once

#include <cstdint>

namespace softroce {

// Moves `bytes` in packets of `chunk_bytes`: each is copied behind room for its headers, the CRC
// of both is written, then checked, then the payload is copied out. Frames are used in bursts as
// the pair's. Returns the number of packets; throws std::runtime_error on a wrong CRC.
std::uint64_t bare_loop(const std::uint8_t* source, std::uint8_t* target, std::uint64_t bytes,
                        std::uint32_t chunk_bytes);

}  // namespace softroce
