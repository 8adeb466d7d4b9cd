// SPDX-License-Identifier: GPL-2.0-or-later
// The interface between the message engine and the session that recovers from losses
// (native/transport). The engine queues events. At the end of the engine's turn the session handles
// them and acts on the engine. A session that reacts to every packet, as hardware does, is also
// called while the engine handles the packet.
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

// What a transport counted, by name: for the run directory.
using Figure = std::variant<std::int64_t, std::map<std::string, std::int64_t>,
                            std::map<std::uint32_t, std::vector<std::int64_t>>>;
using Figures = std::vector<std::pair<std::string, Figure>>;

// A data packet of which only the header arrived: a queue cut off its payload.
struct TrimmedPacket {
  PeerIndex peer = 0;
  const Packet& packet;
  // Its payload arrived with another copy. If `message` is null, the message is complete.
  bool has_arrived = false;
  // Its receive. `open` is false if no payload of the message has arrived. Null: no receive is
  // posted, or the message is complete.
  ReceiveMessage* message = nullptr;
};

class MessageSession {
 public:
  virtual ~MessageSession() = default;

  // Handles the events that wait. False: there were none.
  virtual bool turn(Time now) = 0;
  // Sets a clock that advances while a turn lasts. With it the session does long work (erasure
  // codes) in slices, and `turn` returns true while work is left. Without it the work is done in
  // one turn.
  virtual void set_clock(std::int64_t (* /*now_ns*/)()) {}
  // True: a user's policy must answer an event before the next one is handled. Its driver calls
  // `turn`; the engine does not.
  virtual bool waits_for_answers() const { return false; }

  // Whether the session gets the event `trimmed`.
  virtual bool takes_trimmed() const { return false; }

  // ---- hooks for every packet, which the engine calls at once
  virtual bool reacts() const { return false; }  // false: none of these hooks is called
  // Whether the simulated fabric reports each loss and each refusal (`packet_lost`,
  // `packet_refused`).
  virtual bool omniscient() const { return false; }
  virtual void posted(SendMessage&) {}  // before the first packet is sent
  virtual void packet_sent(SendMessage&, std::uint32_t /*packet*/, Time /*now*/) {}
  // True: the receiver drops the packet of this message, as if it had never arrived.
  virtual bool refuses(ReceiveMessage&, const Packet&, Time /*now*/) { return false; }
  // The packet's bit is set; it may have been set before. If this packet completes the message, the
  // message ends after this call.
  virtual void packet_arrived(ReceiveMessage&, const Packet&, Time /*now*/) {}
  // Its message is complete already.
  virtual void packet_came_late(PeerIndex, const Packet&, Time /*now*/) {}
  virtual void packet_refused(PeerIndex, const LabHeader&) {}  // no receive is posted for it
  // The packet may be a retransmission.
  virtual void packet_trimmed(const TrimmedPacket&, Time /*now*/) {}
  // At the receiver, when a packet that the fabric lost would have arrived.
  virtual void packet_lost(PeerIndex, const LabHeader&) {}
  // Control messages whose first byte is at least kFeedback go to `feedback_arrived`. Others become
  // events.
  static constexpr std::uint8_t kFeedback = 16;
  // The body comes from the network and may be anything. False: it is invalid and had no effect.
  virtual bool feedback_arrived(PeerIndex, const Packet&, Time /*now*/) { return false; }
  virtual void timer_ended(SendMessage&, Time /*now*/) {}
  virtual void connection_timer_ended(PeerIndex, Time /*now*/) {}

  // The engine ended the message without an event (MessageEngine::flush).
  virtual void flushed(const SendMessage& message) = 0;
  virtual void flushed(const ReceiveMessage& message) = 0;

  // Ends a message of an operation here, and in this status at its peer.
  virtual void withdraw(SendMessage& message, WcStatus status, Time now) = 0;
  virtual void withdraw(ReceiveMessage& message, WcStatus status, Time now) = 0;

  virtual Figures figures() const = 0;

  // From now on each decision is kept until `take_decisions` returns it.
  virtual void record_decisions() = 0;
  virtual std::vector<Decision> take_decisions() = 0;
};

inline constexpr std::string_view kPolicyTransport = "policy";  // no session: tests take the events
inline constexpr std::string_view kPythonPolicy = "python_policy";  // a user's policy

// Null for kPolicyTransport. Throws std::invalid_argument if the name is unknown (the message lists
// the known ones) or an option is missing.
std::unique_ptr<MessageSession> make_session(std::string_view name, MessageEngine& engine);

}  // namespace softroce
