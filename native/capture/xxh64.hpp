// SPDX-License-Identifier: GPL-2.0-or-later
// XXH64 with seed 0, by its specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md): fast,
// and computed by many a library, so that whoever doubts a hash can compute it. Not cryptographic:
// it distinguishes payloads that are not chosen to collide.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "../engine/codec/bytes.hpp"

namespace softroce::capture {

namespace detail {

inline constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F,
                               kPrime3 = 0x165667B19E3779F9, kPrime4 = 0x85EBCA77C2B2AE63,
                               kPrime5 = 0x27D4EB2F165667C5;

inline std::uint64_t round(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

// Four lanes of words; `at` is moved past the last whole stripe of 32 bytes.
inline std::uint64_t stripes(const std::uint8_t*& at, const std::uint8_t* end) {
  std::uint64_t lanes[4] = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  for (; end - at >= 32; at += 32)
    for (int i = 0; i < 4; ++i) lanes[i] = round(lanes[i], load<std::uint64_t>(at + 8 * i));
  std::uint64_t hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
                       std::rotl(lanes[3], 18);
  for (const std::uint64_t lane : lanes) hash = (hash ^ round(0, lane)) * kPrime1 + kPrime4;
  return hash;
}

}  // namespace detail

inline std::uint64_t xxh64(const std::uint8_t* at, std::size_t bytes) {
  using namespace detail;
  const std::uint8_t* end = at + bytes;
  std::uint64_t hash = bytes >= 32 ? stripes(at, end) : kPrime5;
  hash += bytes;
  for (; end - at >= 8; at += 8)
    hash = std::rotl(hash ^ round(0, load<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
  if (end - at >= 4) {
    hash = std::rotl(hash ^ load<std::uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at != end; ++at) hash = std::rotl(hash ^ *at * kPrime5, 11) * kPrime1;
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

}  // namespace softroce::capture
