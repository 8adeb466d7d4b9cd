// SPDX-License-Identifier: GPL-2.0-or-later
// The seam between the message engine and the session that recovers from losses (native/transport).
// The engine queues events; at the end of its turn the session handles them and acts on the engine.
// A session that reacts to every packet, as hardware does, is called in the engine's own work, too.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "../codec/packet.hpp"
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

  // ---- every packet
  virtual bool reacts() const { return false; }  // else none of these is called
  // Whether it learns of every loss and every refusal, as the simulated fabric alone can tell it.
  // Its packets take all paths.
  virtual bool omniscient() const { return false; }
  virtual void posted(SendMessage&) {}  // before anything of it leaves
  virtual void packet_sent(SendMessage&, std::uint32_t /*packet*/, Time /*now*/) {}
  // Its bit is set, now or before; the message may be complete by it, and ends afterwards.
  virtual void packet_arrived(ReceiveMessage&, const LabHeader&, Time /*now*/) {}
  // It has no effect: all of its message is here already, or no receive is posted for it.
  virtual void packet_came_late(PeerIndex, const LabHeader&) {}
  virtual void packet_refused(PeerIndex, const LabHeader&) {}
  virtual void packet_lost(PeerIndex, const LabHeader&) {}  // it would be here by now
  // A control message that begins with an octet from here on is about packets, and no event.
  static constexpr std::uint8_t kFeedback = 16;
  // Anything may be in a body. False: it makes no sense, and had no effect.
  virtual bool feedback_arrived(PeerIndex, std::span<const std::uint8_t>, Time /*now*/) {
    return false;
  }
  virtual void timer_ended(SendMessage&, Time /*now*/) {}

  // The engine ended them without an event (MessageEngine::flush).
  virtual void flushed(const SendMessage& message) = 0;
  virtual void flushed(const ReceiveMessage& message) = 0;

  virtual Figures figures() const = 0;

  // From now on decisions are kept until they are taken.
  virtual void record_decisions() = 0;
  virtual std::vector<Decision> take_decisions() = 0;
};

inline constexpr std::string_view kPolicyTransport = "policy";      // events by hand: no session
inline constexpr std::string_view kPythonPolicy = "python_policy";  // of a user

// Null for kPolicyTransport. Throws std::invalid_argument: the name is unknown (the message lists
// those that are known), or an option is missing.
std::unique_ptr<MessageSession> make_session(std::string_view name, MessageEngine& engine);

}  // namespace softroce
