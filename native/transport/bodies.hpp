// SPDX-License-Identifier: GPL-2.0-or-later
// Bodies of control messages with a fixed size, which travel on the recovery QP; control.hpp has
// the others. All of it is this project's definition. Integers are big-endian.
//
//   RNR          id, key, [why]                             no receive is posted for the message;
//                                                           of an operation, why (Unready)
//   REFUSE       id, key, by receiver, status               the message has failed
//
// The feedback on data packets:
//
//   PACKET_ACK   id, cumulative, echo stamp                 a packet in order, or a duplicate
//   PACKET_NACK  id, cumulative, echo stamp, packet         `packet` arrived out of order, and
//                                                           `uet_rod` has dropped it
//   PACKET_SACK  id, cumulative, echo stamp, base, 64 bits  a packet arrived out of order; bit i is
//                                                           set if packet base + i has arrived
//
// A transport with a rule for trimmed packets adds:
//
//   PACKET_TRIMMED  id, cumulative, echo stamp, packet, path, last hop     only the header of
//                                                           `packet` arrived, on that path; the
//                                                           last hop cut its payload off, or not
//
// A transport whose receiver pulls packets adds:
//
//   PACKET_PULL  pulls                                      so many packets may leave, of all that
//                                                           the peer ever sends, modulo 2^32
//
// Packets [0, cumulative) have arrived. The echo stamp is the timestamp of the data packet.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "../engine/verbs/completion.hpp"

namespace softroce {

// A body's first byte. 1 and 9 are the engine's: NACK and CLEAR (engine/striped).
enum class BodyType : std::uint8_t {
  ack = 3,
  keepalive = 4,
  rnr = 5,
  refuse = 6,
  sack = 7,
  chunks = 8,
  packet_ack = 16,
  packet_nack = 17,
  packet_sack = 18,
  packet_trimmed = 19,
  packet_pull = 20,
};

struct Feedback {
  BodyType type = BodyType::packet_ack;
  std::uint32_t id = 0;
  std::uint32_t cumulative = 0;
  std::uint32_t echo_stamp_ns = 0;
  // NACK: the packet that arrived; TRIMMED: that lost its payload; SACK: the base, a multiple of 64
  std::uint32_t packet = 0;
  std::uint64_t bits = 0;    // SACK
  std::uint8_t path = 0;     // TRIMMED
  bool at_last_hop = false;  // TRIMMED

  // The highest packet that a NACK or SACK reports as arrived, or a TRIMMED as cut.
  std::uint32_t highest() const {
    return type == BodyType::packet_sack
               ? packet + 63 - static_cast<std::uint32_t>(__builtin_clzll(bits))
               : packet;
  }
};

// The content of RNR and REFUSE.
struct Naming {
  std::uint32_t id = 0;
  MessageKey key;
  bool flag = false;        // REFUSE: the receiver sent it; false: the sender. RNR: has `status`
  std::uint8_t status = 0;  // REFUSE; RNR of an operation: a timer code (IBA table 45), or Unready
};

class SmallBody {
 public:
  explicit SmallBody(BodyType type) { put(static_cast<std::uint8_t>(type)); }
  template <typename T>
  SmallBody& put(T value) {
    if constexpr (sizeof(T) == 2) value = __builtin_bswap16(value);
    if constexpr (sizeof(T) == 4) value = __builtin_bswap32(value);
    if constexpr (sizeof(T) == 8) value = __builtin_bswap64(value);
    std::memcpy(&bytes_[size_], &value, sizeof(T));
    size_ += sizeof(T);
    return *this;
  }
  SmallBody& put_name(std::uint32_t id, const MessageKey& key) {
    return put(id).put(key.operation).put(key.step).put(key.message);
  }
  std::span<const std::uint8_t> bytes() const { return {bytes_.data(), size_}; }

 private:
  std::array<std::uint8_t, 31> bytes_;
  std::size_t size_ = 0;
};

class BodyReader {
 public:
  explicit BodyReader(std::span<const std::uint8_t> body) : at_(body.data()) {}
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    if constexpr (sizeof(T) == 2) value = __builtin_bswap16(value);
    if constexpr (sizeof(T) == 4) value = __builtin_bswap32(value);
    if constexpr (sizeof(T) == 8) value = __builtin_bswap64(value);
    return value;
  }

 private:
  const std::uint8_t* at_;
};

inline SmallBody write(const Feedback& feedback) {
  SmallBody body(feedback.type);
  body.put(feedback.id).put(feedback.cumulative).put(feedback.echo_stamp_ns);
  if (feedback.type != BodyType::packet_ack) body.put(feedback.packet);
  if (feedback.type == BodyType::packet_sack) body.put(feedback.bits);
  if (feedback.type == BodyType::packet_trimmed)
    body.put(feedback.path).put(static_cast<std::uint8_t>(feedback.at_last_hop));
  return body;
}

inline SmallBody write_pull(std::uint32_t pulls) {
  return SmallBody(BodyType::packet_pull).put(pulls);
}

inline SmallBody write(BodyType type, const Naming& naming) {
  SmallBody body(type);
  body.put_name(naming.id, naming.key);
  if (type == BodyType::refuse) {
    body.put(static_cast<std::uint8_t>(naming.flag)).put(naming.status);
  } else if (naming.flag) {
    body.put(naming.status);
  }
  return body;
}

// nullopt: the body is malformed or contradicts itself.
inline std::optional<Feedback> read_feedback(std::span<const std::uint8_t> body) {
  Feedback feedback{.type = static_cast<BodyType>(body[0])};
  const bool nack = feedback.type == BodyType::packet_nack;
  const bool sack = feedback.type == BodyType::packet_sack;
  const bool trimmed = feedback.type == BodyType::packet_trimmed;
  if (body.size() != (sack ? 25U : trimmed ? 19U : nack ? 17U : 13U)) return std::nullopt;
  BodyReader reader(body.subspan(1));
  feedback.id = reader.take<std::uint32_t>();
  feedback.cumulative = reader.take<std::uint32_t>();
  feedback.echo_stamp_ns = reader.take<std::uint32_t>();
  if (!nack && !sack && !trimmed) return feedback;
  feedback.packet = reader.take<std::uint32_t>();
  if (sack) {
    feedback.bits = reader.take<std::uint64_t>();
    if (feedback.bits == 0 || feedback.packet % 64 != 0) return std::nullopt;
  }
  if (trimmed) {
    feedback.path = reader.take<std::uint8_t>();
    const auto last_hop = reader.take<std::uint8_t>();
    feedback.at_last_hop = last_hop == 1;
    if (last_hop > 1 || feedback.packet < feedback.cumulative) return std::nullopt;
    return feedback;
  }
  if (feedback.highest() <= feedback.cumulative) return std::nullopt;  // not out of order
  return feedback;
}

inline std::optional<std::uint32_t> read_pull(std::span<const std::uint8_t> body) {
  if (body.size() != 5) return std::nullopt;
  return BodyReader(body.subspan(1)).take<std::uint32_t>();
}

inline std::optional<Naming> read_naming(std::span<const std::uint8_t> body) {
  const auto type = static_cast<BodyType>(body[0]);
  const bool refuse = type == BodyType::refuse;
  const bool tells_why = !refuse && body.size() == 14;
  if (!tells_why && body.size() != (refuse ? 15U : 13U)) return std::nullopt;
  BodyReader reader(body.subspan(1));
  Naming naming;
  std::uint8_t flag = 0;
  naming.id = reader.take<std::uint32_t>();
  naming.key.operation = reader.take<std::uint16_t>();
  naming.key.step = reader.take<std::uint16_t>();
  naming.key.message = reader.take<std::uint32_t>();
  if (refuse) {
    flag = reader.take<std::uint8_t>();
    naming.status = reader.take<std::uint8_t>();
  }
  if (flag > 1) return std::nullopt;
  if (tells_why) naming.status = reader.take<std::uint8_t>();
  naming.flag = flag == 1 || tells_why;
  return naming;
}

}  // namespace softroce
