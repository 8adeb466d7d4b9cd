// SPDX-License-Identifier: GPL-2.0-or-later
// GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d): the field of ISA-L.
#pragma once

#include <array>
#include <cstdint>

namespace softroce::gf256 {

constexpr std::uint8_t twice(std::uint8_t x) {
  return static_cast<std::uint8_t>((x << 1) ^ ((x & 0x80) != 0 ? 0x1d : 0));
}

constexpr std::uint8_t multiply(std::uint8_t a, std::uint8_t b) {
  std::uint8_t result = 0;
  for (; b != 0; b >>= 1, a = twice(a)) {
    if ((b & 1) != 0) result ^= a;
  }
  return result;
}

// a^254, for a^255 is 1. Of 0 it is 0, which is nobody's inverse.
constexpr std::uint8_t inverse(std::uint8_t a) {
  std::uint8_t result = 1;
  for (unsigned bit = 1; bit < 8; ++bit) {
    a = multiply(a, a);
    result = multiply(result, a);
  }
  return result;
}

// Products of `factor` with every byte.
constexpr std::array<std::uint8_t, 256> multiples(std::uint8_t factor) {
  std::array<std::uint8_t, 256> result{};
  for (unsigned power = 1; power < 256; power <<= 1, factor = twice(factor)) {
    for (unsigned below = 0; below < power; ++below) {
      result[power + below] = static_cast<std::uint8_t>(result[below] ^ factor);
    }
  }
  return result;
}

// Of every byte with every byte.
inline constexpr auto kProducts = [] {
  std::array<std::array<std::uint8_t, 256>, 256> products{};
  for (unsigned factor = 0; factor < 256; ++factor)
    products[factor] = multiples(static_cast<std::uint8_t>(factor));
  return products;
}();

inline constexpr auto kInverses = [] {
  std::array<std::uint8_t, 256> inverses{};
  for (unsigned a = 0; a < 256; ++a) inverses[a] = inverse(static_cast<std::uint8_t>(a));
  return inverses;
}();

}  // namespace softroce::gf256
