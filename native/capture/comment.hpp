// SPDX-License-Identifier: GPL-2.0-or-later
// What the injector did to a packet, in the words of a capture's comments (docs/howto/capture.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../../xdp/lab_fault.h"

namespace softroce::capture {

// `corrupted: 1%, rule noise; duplicated: ...`, or nothing. `text_of(rule_id, bad)` describes
// what a rule does; `bad`: what a gemodel does in its bad state.
template <typename TextOf>
std::string comment_of(std::uint32_t effects, const lab_u32 (&rule_id)[4], TextOf&& text_of) {
  // By enum lab_verdict_slot; the effects in the same order.
  constexpr const char* kDone[]{"dropped", "corrupted", "duplicated", "reordered"};
  std::string text;
  if (effects & LAB_EFFECT_CUT) text = "cut: " + text_of(rule_id[LAB_SLOT_DROP], false);
  for (std::size_t slot = 0; slot < std::size(kDone); ++slot) {
    if (!(effects & 1U << slot)) continue;
    if (!text.empty()) text += "; ";
    const bool bad = slot == LAB_SLOT_DROP && effects & LAB_EFFECT_BAD;
    text += std::string(kDone[slot]) + ": " + text_of(rule_id[slot], bad);
  }
  return text;
}

}  // namespace softroce::capture
