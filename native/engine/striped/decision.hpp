// SPDX-License-Identifier: GPL-2.0-or-later
// What a transport decided, and upon what: a line of the run directory's events.
#pragma once

#include <cstdint>

#include "../verbs/qp_event.hpp"
#include "event.hpp"

namespace softroce {

// clang-format off
#define SOFTROCE_EACH_DECISION(D) \
  D(retransmit) D(retransmit_gap) D(retransmit_probe) D(retransmit_timer) \
  D(nack) D(ack) D(keepalive) D(rnr) D(refused) D(sack) D(chunks) D(clear) D(control) \
  D(encode) D(restore) D(fail_receive) D(pause) D(move_path) D(use_paths) D(refuse)
// clang-format on

#define SOFTROCE_DECISION_NAME(name) name,
enum class DecisionKind : std::uint8_t { SOFTROCE_EACH_DECISION(SOFTROCE_DECISION_NAME) };
#undef SOFTROCE_DECISION_NAME
#define SOFTROCE_DECISION_TEXT(name) #name,
inline constexpr const char* kDecisionNames[] = {SOFTROCE_EACH_DECISION(SOFTROCE_DECISION_TEXT)};
#undef SOFTROCE_DECISION_TEXT

struct Decision {
  std::int64_t at_ns = 0;
  MessageKey key{};  // zeros: several messages, or none
  std::uint32_t packets = 0;
  DecisionKind kind{};
};

// Why a transport retransmits, in `Recovery::cause`: the kind of the event that it reacts to, the
// type of a control message behind those, or the ways in which losses were found, by bits.
inline constexpr std::uint8_t kCauseOfEvent = 1, kCauseOfControl = 32, kCauseOfLoss = 64;

}  // namespace softroce
