// SPDX-License-Identifier: GPL-2.0-or-later
// What a transport is: declared in the file of its class, named in registry.cpp, and read by Python
// (softroce_lab/recovery/registry.py), which checks what a user sets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../engine/striped/message_config.hpp"

namespace softroce {

struct Option {
  const char* name;
  OptionValue usual;  // if none is set
  const char* help;
  const char* unit = "";  // "time", "bytes": written as a text with a unit
  std::optional<double> least{}, most{};
  std::vector<std::string> choices{};
  std::uint32_t part = 0;  // of enum Mechanism, which `false` switches off
};

// A value that an option does not take.
struct OptionMistake : std::invalid_argument {
  OptionMistake(std::string option_, const std::string& what, std::string hint_)
      : std::invalid_argument(what), option(std::move(option_)), hint(std::move(hint_)) {}
  std::string option, hint;
};

struct Transport {
  const char* name;
  std::unique_ptr<MessageSession> (*make)(MessageEngine&);
  std::vector<std::string> framings{"ud", "uc_immediate"};  // those that it works over, the usual
                                                            // one first
  std::vector<Option> options{};
  bool has_rto = false;      // the knob `timeout`
  bool sends_sacks = false;  // while packets arrive
  bool path_probes = false;  // losses are found by numbers on paths
  bool omniscient = false;   // of the virtual clock alone; its packets are sent without end
  // The erasure codes that its messages may have, by its options. Throws OptionMistake.
  std::vector<CodeShape> (*codes)(const Options&) = nullptr;
};

template <typename Class>
std::unique_ptr<MessageSession> make(MessageEngine& engine) {
  return std::make_unique<Class>(engine);
}

const std::vector<Transport>& transports();
std::unique_ptr<MessageSession> make_python_policy(MessageEngine& engine);  // of users: no entry

}  // namespace softroce
