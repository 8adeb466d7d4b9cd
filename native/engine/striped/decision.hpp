// SPDX-License-Identifier: GPL-2.0-or-later
// What a transport decided, and upon what: a line of the run directory's events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "../verbs/qp_event.hpp"
#include "event.hpp"

namespace softroce {

// clang-format off
#define SOFTROCE_EACH_DECISION(D) \
  D(retransmit) D(retransmit_gap) D(retransmit_probe) D(retransmit_timer) \
  D(retransmit_trimmed) D(nack) D(ack) D(keepalive) D(rnr) D(refused) D(sack) D(chunks) D(clear) D(control) \
  D(encode) D(restore) D(fail_receive) D(pause) D(move_path) D(use_paths) D(refuse)
// clang-format on

#define SOFTROCE_DECISION_NAME(name) name,
enum class DecisionKind : std::uint32_t { SOFTROCE_EACH_DECISION(SOFTROCE_DECISION_NAME) };
#undef SOFTROCE_DECISION_NAME
#define SOFTROCE_DECISION_TEXT(name) #name,
inline constexpr const char* kDecisionNames[] = {SOFTROCE_EACH_DECISION(SOFTROCE_DECISION_TEXT)};
#undef SOFTROCE_DECISION_TEXT

// As Python reads it (experiment/hosts/report.py).
struct Decision {
  std::int64_t time_ns;
  std::uint32_t kind;             // a DecisionKind
  std::uint16_t operation, step;  // zeros, as of `message`: several messages, or none
  std::uint32_t message;
  std::uint32_t packets;
};

// Why a transport retransmits, in `Recovery::cause`: from kCauseOfEvent on the kind of the event
// that it reacts to, from kCauseOfControl on the type of a control message, from kCauseOfLoss on
// the ways in which the losses were found, by bits. 0: not known.
inline constexpr std::uint8_t kCauseOfEvent = 1, kCauseOfControl = 32, kCauseOfLoss = 64;
inline constexpr std::size_t kCauses = kCauseOfLoss + (1 << kLossReasons);

// Words for a cause, as in events.parquet.
inline std::string cause_name(std::size_t cause) {
  if (cause >= kCauseOfLoss) {
    std::string ways;
    for (std::size_t reason = 0; reason < kLossReasons; ++reason)
      if (cause >> reason & 1) ways += (ways.empty() ? "" : ", ") + std::string(kLossNames[reason]);
    return ways;
  }
  constexpr const char* kControls[] = {"nack",    "",     "ack",    "keepalive", "rnr",
                                       "refused", "sack", "chunks", "clear"};  // from type 1 on
  const std::size_t type = cause - kCauseOfControl - 1;
  if (cause > kCauseOfControl) return type < std::size(kControls) ? kControls[type] : "";
  const std::size_t event = cause - kCauseOfEvent;
  return cause >= kCauseOfEvent && event < std::size(kEventNames) ? kEventNames[event] : "";
}

}  // namespace softroce
