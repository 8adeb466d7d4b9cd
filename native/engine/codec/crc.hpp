// SPDX-License-Identifier: GPL-2.0-or-later
// The CRC of Ethernet, which is also that of the ICRC.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef SOFTROCE_HAS_ISAL
#include <isa-l/crc.h>
#else
#include "sliced_crc.hpp"
#endif

namespace softroce {

#ifdef SOFTROCE_HAS_ISAL

// ISA-L leaves the upper halves of vector registers in use, and on recent Intel cores each SSE
// instruction that follows then pays for their saving: half the time of a packet, measured.
inline void release_upper_halves() {
#ifdef __x86_64__
  static const bool has_avx = __builtin_cpu_supports("avx");
  if (has_avx) asm volatile("vzeroupper");
#endif
}

// Over two runs of bytes, one behind the other.
inline std::uint32_t crc32(const std::uint8_t* head, std::size_t head_bytes,
                           const std::uint8_t* tail, std::size_t tail_bytes) {
  const std::uint32_t crc = crc32_gzip_refl(0, head, head_bytes);
  const std::uint32_t whole = crc32_gzip_refl(crc, tail, tail_bytes);
  release_upper_halves();
  return whole;
}

#else

inline std::uint32_t crc32(const std::uint8_t* head, std::size_t head_bytes,
                           const std::uint8_t* tail, std::size_t tail_bytes) {
  return sliced_crc32(sliced_crc32(0, head, head_bytes), tail, tail_bytes);
}

#endif

}  // namespace softroce
