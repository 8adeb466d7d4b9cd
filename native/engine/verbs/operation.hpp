// SPDX-License-Identifier: GPL-2.0-or-later
// Operations of reliable connections as striped messages: a request to the responder, and the result
// of a READ or an atomic back. Every packet says what its operation is (`struct lab_operation`), so
// that it can be placed alone, whatever was lost before it: as in IRN (Mittal et al., SIGCOMM 2018,
// section 5). All else is this project's definition.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "../../../xdp/lab_wire.h"
#include "../codec/packet.hpp"
#include "../units.hpp"
#include "completion.hpp"

namespace softroce {

// `struct lab_operation` in host order; xdp/lab_wire.h documents the fields.
struct OperationHeader {
  std::uint8_t verb = LAB_VERB_NONE;  // with LAB_VERB_SOLICITED or not
  std::uint32_t receive = 0;
  std::uint32_t connection = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t argument = 0;

  bool is(lab_verb other) const { return (verb & ~LAB_VERB_SOLICITED) == other; }
  bool is_atomic() const { return is(LAB_VERB_COMPARE_SWAP) || is(LAB_VERB_FETCH_ADD); }
  bool is_write() const { return is(LAB_VERB_WRITE) || is(LAB_VERB_WRITE_WITH_IMMEDIATE); }
  bool is_send() const {
    return is(LAB_VERB_SEND) || is(LAB_VERB_SEND_WITH_IMMEDIATE) ||
           is(LAB_VERB_SEND_WITH_INVALIDATE);
  }
  bool has_result() const { return is(LAB_VERB_READ) || is_atomic(); }
  bool takes_receive() const { return is_send() || is(LAB_VERB_WRITE_WITH_IMMEDIATE); }
};

inline OperationHeader operation_of(const Packet& packet) {
  return {packet.lab.verb,       packet.lab.receive, packet.lab.connection,
          packet.remote_address, packet.rkey,        packet.immediate};
}
inline void put_operation(const OperationHeader& operation, Packet& packet) {
  packet.lab.verb = operation.verb;
  packet.lab.receive = operation.receive;
  packet.lab.connection = operation.connection;
  packet.remote_address = operation.remote_address;
  packet.rkey = operation.rkey;
  packet.immediate = operation.argument;
}

// The key of a message: its class, the queue pair that it is for, and the operation's number there.
inline MessageKey operation_key(lab_operation_class of, std::uint32_t qp, std::uint32_t number) {
  return {static_cast<std::uint16_t>(of << 8 | (qp >> 16 & 0xFF)), static_cast<std::uint16_t>(qp),
          number};
}
inline bool is_result(const MessageKey& key) { return key.operation >> 8 == LAB_CLASS_RESULT; }
inline std::uint32_t qp_of(const MessageKey& key) {
  return (std::uint32_t{key.operation} << 16 & 0xFF0000) | key.step;
}

// How long an RNR NAK asks to wait, IBA 9.7.5.2.8 (table 45); `code` has five bits.
inline Time rnr_time(std::uint8_t code) {
  constexpr std::uint32_t kTensOfMicroseconds[32] = {
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return kTensOfMicroseconds[code & 31] * 10 * kMicrosecond;
}

// How long a message may wait for a receiver that is not ready.
struct Patience {
  std::uint8_t rnr_retry = 7;   // RNR NAKs; 7: without end (IBA 9.7.5.2.8)
  Time without_qp = kNever;     // while the peer has no such queue pair
};

// Where a message goes whose first packet has come.
struct Place {
  enum class Kind : std::uint8_t {
    memory,
    not_ready,  // an RNR NAK answers
    refused,    // the message ends in `status` at its sender
    dropped,    // without an answer; it was counted
  };
  Kind kind = Kind::dropped;
  std::uint8_t* base = nullptr;
  std::uint32_t capacity = 0;
  // Its last packet is put there by the queue pair (`MessageEnd::held`), unless all else of the
  // message is there, and what went before it has taken effect.
  bool holds_last = false;
  WcStatus status = WcStatus::success;
};

// How a message ended.
struct MessageEnd {
  MessageKey key;
  bool sent = false;  // else received
  std::optional<std::uint32_t> unopened_id{};  // its sender gave it up before it had a place
  WcStatus status = WcStatus::success;
  std::uint32_t length = 0, packets = 0, retransmitted = 0;
  Time first_at = 0;
  std::vector<std::uint8_t> held{};  // the last packet's payload, if it is not in its place yet
};

// Why no receive is there for a message.
enum class Unready : std::uint8_t {  // above the timer codes of RNR NAKs (IBA table 45)
  no_queue_pair = 32,
  come_again = 33,  // it was not ready before, and is ready now
};

}  // namespace softroce
