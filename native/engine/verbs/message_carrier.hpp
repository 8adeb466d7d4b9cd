// SPDX-License-Identifier: GPL-2.0-or-later
// What a queue pair asks of whoever moves its operations as messages.
#pragma once

#include <cstdint>

#include "operation.hpp"

namespace softroce {

class StripedQp;

struct OutgoingMessage {
  MessageKey key;
  OperationHeader header;
  const std::uint8_t* base = nullptr;
  std::uint32_t length = 0;
  Patience patience;
};

class MessageCarrier {
 public:
  virtual ~MessageCarrier() = default;
  // Whether messages must stay apart from the memory of requests, which may go at any time: erasure
  // codes read and write them for longer than a call.
  virtual bool keeps_apart() const = 0;
  enum class Begun : std::uint8_t {
    begun,
    later,  // `StripedQp::advance` is called when it may be possible
    never,  // the peer does not use this transport, or does not answer
  };
  // The queue pair has a peer now.
  virtual void connected(StripedQp& qp, Time now) = 0;
  // Sends a message to the queue pair's peer.
  virtual Begun send(StripedQp& qp, const OutgoingMessage& message, Time now) = 0;
  // A message with this header is expected, and has its place.
  virtual void receive(StripedQp& qp, const MessageKey& key, const OperationHeader& header,
                       const Place& place, Time now) = 0;
  // An operation has found no receive: `StripedQp::advance` is called when shared ones are posted.
  virtual void starves(StripedQp& qp) = 0;
  // The program's memory changes otherwise than by a message.
  virtual void overwrites(const std::uint8_t* at, std::uint64_t bytes) = 0;
  // A message from the peer that an RNR NAK answered ends in this status there.
  virtual void refuse(StripedQp& qp, const MessageKey& key, std::uint32_t message_id,
                      WcStatus status, Time now) = 0;
  // Ends a message of its own, or all of its messages both ways, in this status at the peer.
  // `StripedQp::ended` is not called for them.
  virtual void withdraw(StripedQp& qp, const MessageKey& key, WcStatus status, Time now) = 0;
  virtual void withdraw_all(StripedQp& qp, WcStatus status, Time now) = 0;
};

}  // namespace softroce
