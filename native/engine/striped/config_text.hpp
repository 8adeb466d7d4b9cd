// SPDX-License-Identifier: GPL-2.0-or-later
// MessageConfig as text and back, for an engine in another process than the one that decides about
// its configuration. A field is called as in Python: `paths`, `timing.t_min_ns`, `options.beta`.
//
//   number, time in ns   8
//   truth                true, false
//   text                 csa_ud; printable, without spaces, commas and quotes
//   address              the GID as 32 hexadecimal digits
//   codes                k+m of each code, with '/' between; none
//   options              a truth, a number, a number with a point, or a text in double quotes
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "message_config.hpp"

namespace softroce {

enum class TextForm {
  lines,     // `NAME VALUE`, and '\n' behind each
  one_line,  // `NAME=VALUE`, and ',' between: for an environment variable, which launchers hand on
};

// All fields. Throws std::invalid_argument if a field holds a text that cannot be written.
std::string write_config(const MessageConfig& config, TextForm form);

// The inverse. Fields that the text does not name have their defaults. Throws as `set_field`.
MessageConfig read_config(std::string_view text, TextForm form);

// Throws std::invalid_argument for an unknown name and for a value that the field cannot hold. The
// message is a sentence that names the field. Whether an engine accepts the value shows when the
// engine is made.
void set_field(MessageConfig& config, std::string_view name, std::string_view value);

// A hash of what two endpoints must have in common to understand each other's packets.
std::uint64_t digest_of(const MessageConfig& config);

}  // namespace softroce
