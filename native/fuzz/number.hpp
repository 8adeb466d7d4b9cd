// SPDX-License-Identifier: GPL-2.0-or-later
// Numbers on a harness's command line.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

// False: it is not a number, all of it.
inline bool parse(std::string_view text, std::uint64_t& number) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  return result.ec == std::errc() && result.ptr == end;
}
