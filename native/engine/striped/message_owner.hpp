// SPDX-License-Identifier: GPL-2.0-or-later
// What the engine asks about messages that are operations of queue pairs. The calls come from within
// its own work, so that none of them may post or end a message.
#pragma once

#include <cstdint>
#include <vector>

#include "message.hpp"

namespace softroce {

struct Peer;

class MessageOwner {
 public:
  virtual ~MessageOwner() = default;
  // Where the message goes of which a packet has come, and that no receive waits for.
  virtual Place place_for(const Peer& peer, const Packet& packet, Time now) = 0;
  // Why there is none for a message that its sender asks about: the timer code of an RNR NAK, or a
  // value of Unready.
  virtual std::uint8_t why_unready(const MessageKey& key) = 0;
  // Whether all before the message took effect.
  virtual bool is_next(const MessageKey& key) = 0;
  // The memory of a message again, after regions have changed. Null: it may not be used any more.
  virtual const std::uint8_t* memory_of(const SendMessage& message) = 0;
  // `why_not`: how it ends at its sender then.
  virtual std::uint8_t* memory_of(const ReceiveMessage& message, WcStatus& why_not) = 0;
  // Its sender has given up a message that is not here.
  virtual void given_up(const MessageKey& key, std::uint32_t id, WcStatus status) = 0;
  virtual void rnr_nak_came(const SendMessage& message) = 0;
  virtual void ended(SendMessage& message, WcStatus status) = 0;
  virtual void ended(ReceiveMessage& message, WcStatus status) = 0;
};

}  // namespace softroce
