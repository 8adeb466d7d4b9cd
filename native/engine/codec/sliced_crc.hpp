// SPDX-License-Identifier: GPL-2.0-or-later
// CRC-32 (IEEE 802.3, 3.2.9), eight bytes a step, for machines without ISA-L: the slicing-by-8 of
// M. Kounavis and F. Berry, "A Systematic Approach to Building High Performance, Software-based,
// CRC Generators" (ISCC 2005).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace softroce {

// [k][b]: the CRC of byte b with k zero bytes behind it.
using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr CrcTables crc_tables() {
  constexpr std::uint32_t kPolynomial = 0xEDB88320;  // reflected
  CrcTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t zeros = 1; zeros < 8; ++zeros)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[zeros - 1][byte];
      tables[zeros][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  return tables;
}

inline constexpr CrcTables kCrcTables = crc_tables();

// Continues from `crc`, that of the bytes before; 0 if there are none.
inline std::uint32_t sliced_crc32(std::uint32_t crc, const std::uint8_t* at, std::size_t bytes) {
  const auto word = [](const std::uint8_t* p) {
    return std::uint32_t{p[0]} | std::uint32_t{p[1]} << 8 | std::uint32_t{p[2]} << 16 |
           std::uint32_t{p[3]} << 24;
  };
  const auto four = [](std::uint32_t w, std::size_t zeros) {
    return kCrcTables[zeros + 3][w & 0xFF] ^ kCrcTables[zeros + 2][w >> 8 & 0xFF] ^
           kCrcTables[zeros + 1][w >> 16 & 0xFF] ^ kCrcTables[zeros][w >> 24];
  };
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, at += 8) crc = four(crc ^ word(at), 4) ^ four(word(at + 4), 0);
  for (; bytes > 0; --bytes, ++at) crc = (crc >> 8) ^ kCrcTables[0][(crc ^ *at) & 0xFF];
  return ~crc;
}

}  // namespace softroce
