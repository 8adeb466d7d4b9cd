// SPDX-License-Identifier: GPL-2.0-or-later
// Values in packets: any alignment, network order (or as they are, without a number of bits).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace softroce {

static_assert(std::endian::native == std::endian::little);

template <typename T>
void store(std::uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof value);
}
inline void store16(std::uint8_t* at, std::uint16_t value) { store(at, __builtin_bswap16(value)); }
inline void store32(std::uint8_t* at, std::uint32_t value) { store(at, __builtin_bswap32(value)); }
inline void store64(std::uint8_t* at, std::uint64_t value) { store(at, __builtin_bswap64(value)); }

template <typename T>
T load(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
inline std::uint16_t load16(const std::uint8_t* at) {
  return __builtin_bswap16(load<std::uint16_t>(at));
}
inline std::uint32_t load32(const std::uint8_t* at) {
  return __builtin_bswap32(load<std::uint32_t>(at));
}
inline std::uint64_t load64(const std::uint8_t* at) {
  return __builtin_bswap64(load<std::uint64_t>(at));
}
inline std::uint32_t load24(const std::uint8_t* at) { return load32(at) & 0xFFFFFF; }

}  // namespace softroce
