// SPDX-License-Identifier: GPL-2.0-or-later
// Events from the engine to the session of an endpoint (message_session.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "message.hpp"

namespace softroce {

enum class EventKind : std::uint8_t {
  send_posted,       // a send was posted
  sent,              // no packet of a send waits any more, first transmission or retransmission
  receive_posted,    // a receive was posted
  first_packet,      // the first packet of a posted receive arrived; its id is known from now on
  tail_seen,         // the last packet of a receive arrived, and others are missing
  receive_complete,  // every bit is set; the receive's completion has been pushed
  timer,             // the timer of a message ended
  peer_timer,        // the timer of a peer ended
  control,           // a control message of the peer's session: `body`
  no_receive,        // a packet came for which no receive is posted: `key`, `id`
  too_long,          // a message is larger than its receive: `key`, `id`
  late_packet,       // a packet of a message that is over, complete or failed: `key`, `id`
  gap,      // packets of a receive were overtaken and have not arrived: `body`, their indices
  loss,     // packets of a send are lost: `body`, a LostPacket each
  parity,   // the parity of a submessage may be sent: `body`, the submessage's index
  chunk,    // enough chunks of a submessage have arrived to restore its data, and at least one of
            // them is parity: `body`, the submessage's index
  trimmed,  // only the header of a missing packet of a receive arrived, which may not have begun:
            // `body`, a PayloadLoss
  refused,  // an operation of a queue pair may not come, or has no place any more: `key`, `id`, and
            // `body`, the WcStatus; `message` if it had begun
};

inline constexpr const char* kEventNames[] = {
    "send_posted", "sent",       "receive_posted", "first_packet", "tail_seen", "receive_complete",
    "timer",       "peer_timer", "control",        "no_receive",   "too_long",  "late_packet",
    "gap",         "loss",       "parity",         "chunk",        "trimmed",   "refused"};

// Indices of packets in an event's body, in this machine's byte order.
inline constexpr std::size_t kIndexBytes = sizeof(std::uint32_t);

enum class LossReason : std::uint8_t { gap, probe, timer, trimmed };
inline constexpr std::size_t kLossReasons = 4;
inline constexpr const char* kLossNames[kLossReasons] = {"gap", "probe", "timer", "trimmed"};

struct LostPacket {
  std::uint32_t index;
  std::uint16_t attempts;  // transmissions since one is known to have reached the receiver
  std::uint8_t path;       // of the last transmission
  LossReason reason;
};
static_assert(sizeof(LostPacket) == 8, "no padding: numpy's dtype has none");

struct PayloadLoss {
  std::uint32_t index;
  std::uint32_t last_hop;  // 1: the link that leads to the receiver cut the payload off; else 0
};

struct Event {
  EventKind kind{};
  PeerIndex peer = 0;
  Handle message = kNoHandle;
  Time at = 0;
  MessageKey key{};
  std::uint32_t id = 0;
  std::uint32_t length = 0;
  std::uint32_t count = 0;
  std::vector<std::uint8_t> body{};
};

}  // namespace softroce
