// SPDX-License-Identifier: GPL-2.0-or-later
// Interrupt moderation: while frames flow, a receiver is not woken by each of them, which costs the
// sender's core more than the frame itself. It polls after a delay.
#pragma once

#include <cstdint>

namespace softroce {

inline constexpr std::int64_t kModerationNs = 50'000;
inline constexpr std::int64_t kFlowingNs =
    1'000'000;  // since the last frame: then they flow no more

}  // namespace softroce
