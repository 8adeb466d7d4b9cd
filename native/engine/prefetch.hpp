// SPDX-License-Identifier: GPL-2.0-or-later
// Fetching from memory what will soon be needed; a hint, without effect on any result.
#pragma once

#include <cstddef>

namespace softroce {

inline void prefetch_lines(const void* begin, const void* end) {
  constexpr std::ptrdiff_t kLine = 64;
  for (const auto* at = static_cast<const char*>(begin); at < end; at += kLine)
    __builtin_prefetch(at, 1);
}

}  // namespace softroce
