// SPDX-License-Identifier: GPL-2.0-or-later
// Runs a seed: two RNICs on an imagined cable carry out a plan (operation_plan.hpp) with real
// memory, and the model (order_model.hpp) judges what completions and memory show. Nothing here
// depends on how a queue pair moves its operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../engine/striped/message_config.hpp"

namespace softroce {

struct TrialOptions {
  std::vector<std::uint32_t> without_posts{};       // numbers of posts that are left out
  std::vector<std::string> without_disturbances{};  // of kDisturbances
  // A mistake in what the model is shown, which tests that it notices: one of `trial_mistakes`.
  std::string mistake{};
  // Packets are placed as they arrive, so that WRITEs that overlap may mix (OrderModel).
  bool overlaps_mix = false;
  bool tells_story = false;
};

struct TrialOutcome {
  std::vector<std::string> violations{};  // "RULE: WHAT"
  std::vector<std::string> met{};         // features of the seed
  std::vector<std::uint32_t> posts{};     // numbers of those that were in the plan
  std::vector<std::string> story{};       // what was posted and what completed, if asked for
};

// `config` is that of both ends, except for their addresses. std::invalid_argument for an unknown
// disturbance or mistake.
TrialOutcome run_operation_trial(std::uint64_t seed, const MessageConfig& config,
                                 const TrialOptions& options);

const std::vector<std::string>& trial_mistakes();

}  // namespace softroce
