// SPDX-License-Identifier: GPL-2.0-or-later
// The seam between the message engine and the session that recovers from losses (native/transport).
// The engine queues events; at the end of its turn the session handles them and acts on the engine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "../units.hpp"
#include "decision.hpp"
#include "message.hpp"

namespace softroce {

class MessageEngine;

// What a transport counted, for the run directory, by name.
using Figure = std::variant<std::int64_t, std::map<std::string, std::int64_t>,
                            std::map<std::uint32_t, std::vector<std::int64_t>>>;
using Figures = std::vector<std::pair<std::string, Figure>>;

class MessageSession {
 public:
  virtual ~MessageSession() = default;

  // Handles the events that wait. False: there were none.
  virtual bool turn(Time now) = 0;
  // Whoever drives the engine tells it the time of a clock that goes on while a turn lasts. Then
  // work that takes long is done in slices: `turn` returns true while some of it is left. Without
  // such a clock all of it is done at once.
  virtual void set_clock(std::int64_t (* /*now_ns*/)()) {}
  // A policy outside of the engine answers one event before the next is handled: its driver calls
  // `turn`, and the engine does not.
  virtual bool waits_for_answers() const { return false; }

  // The engine ended them without an event (MessageEngine::flush).
  virtual void flushed(const SendMessage& message) = 0;
  virtual void flushed(const ReceiveMessage& message) = 0;

  virtual Figures figures() const = 0;

  // From now on decisions are kept until they are taken.
  virtual void record_decisions() = 0;
  virtual std::vector<Decision> take_decisions() = 0;
};

// Null: no session is called so. Throws std::invalid_argument: an option is missing or unknown.
std::unique_ptr<MessageSession> make_session(std::string_view name, MessageEngine& engine);
std::vector<std::string> session_names();

}  // namespace softroce
