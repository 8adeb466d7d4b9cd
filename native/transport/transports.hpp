// SPDX-License-Identifier: GPL-2.0-or-later
// The registry entry of a transport. The file of the transport's class makes it, registry.cpp lists
// it, and Python reads it (softroce_lab/transports/registry.py) to check what a user sets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../engine/striped/message_config.hpp"
#include "../engine/striped/path_picker.hpp"

namespace softroce {

struct Option {
  const char* name;
  OptionValue usual;  // the default
  const char* help;
  const char* unit = "";  // "time" or "bytes": users write it with a unit; "": without
  std::optional<double> least{}, most{};
  std::vector<std::string> choices{};
  std::uint32_t part = 0;  // bit of enum Mechanism that the value `false` switches off
};

// An option has a value that it does not accept.
struct OptionMistake : std::invalid_argument {
  OptionMistake(std::string option_, const std::string& what, std::string hint_)
      : std::invalid_argument(what), option(std::move(option_)), hint(std::move(hint_)) {}
  std::string option, hint;
};

struct Transport {
  const char* name;
  std::unique_ptr<MessageSession> (*make)(MessageEngine&);
  std::vector<std::string> framings{"ud", "uc_immediate"};  // supported ones, the default first
  std::vector<Option> options{};
  bool has_rto = false;                 // has the knob `timeout`
  bool sends_sacks = false;             // its receiver sends SACKs while packets arrive
  const char* schedule = "fifo";        // the default (native/engine/striped/send_order.hpp)
  const char* congestion_control = "";  // the default; "": what the fabric calls for
  bool path_probes = false;             // the engine detects losses by packet numbers on paths
  bool omniscient = false;              // only on the virtual clock; no bound of attempts
  // The erasure codes that its messages may have with these options; null: none. Throws
  // OptionMistake.
  std::vector<CodeShape> (*codes)(const Options&) = nullptr;
};

template <typename Class>
std::unique_ptr<MessageSession> make(MessageEngine& engine) {
  return std::make_unique<Class>(engine);
}

// The option `path_picker`: engine/striped/path_picker.hpp.
inline Option path_picker_option(std::string_view usual) {
  return {.name = "path_picker",
          .usual = std::string(usual),
          .help = "which path the next packet takes",
          .choices = path_picker_names()};
}

const std::vector<Transport>& transports();
// The session of a user's policy, which has no entry.
std::unique_ptr<MessageSession> make_python_policy(MessageEngine& engine);

}  // namespace softroce
