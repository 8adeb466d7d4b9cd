// SPDX-License-Identifier: GPL-2.0-or-later
// Mistakes that a trial can make on purpose in what it shows the model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace softroce {

// What the model is shown falsely, so that tests see which rule notices it.
enum class Mistake : std::uint8_t {
  none,
  completion_lost,
  completion_twice,
  completions_swapped,
  receive_of_next,
  immediate_changed,
  error_hidden,
  written_byte_lost,
  received_byte_lost,
  last_byte_early,
  read_byte_lost,
  atomic_twice,
  atomic_result_changed,
  fence_ignored,
  posts_forgotten,  // before a queue pair goes to SQD
  guard_touched,
  region_pinned,
};
// In the order of `Mistake`, without the first.
inline const std::vector<std::string> kMistakeNames = {
    "completion_lost",   "completion_twice", "completions_swapped", "receive_of_next",
    "immediate_changed", "error_hidden",     "written_byte_lost",   "received_byte_lost",
    "last_byte_early",   "read_byte_lost",   "atomic_twice",        "atomic_result_changed",
    "fence_ignored",     "posts_forgotten",  "guard_touched",       "region_pinned"};

// std::invalid_argument for an unknown one; none for no name.
inline Mistake mistake_of(const std::string& name) {
  if (name.empty()) return Mistake::none;
  const auto found = std::ranges::find(kMistakeNames, name);
  if (found == kMistakeNames.end())
    throw std::invalid_argument("the operation trial has no mistake '" + name + "'");
  return static_cast<Mistake>(found - kMistakeNames.begin() + 1);
}

}  // namespace softroce
