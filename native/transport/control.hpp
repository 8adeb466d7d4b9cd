// SPDX-License-Identifier: GPL-2.0-or-later
// Bodies of the session's control messages, which travel on the recovery QP. All of it is this
// project's definition. Integers are big-endian. RNR and REFUSE are in bodies.hpp. This file has:
//
//   ACK        ids                              these messages are complete, or their REFUSE
//                                               arrived; without ids: the answer to a KEEPALIVE
//   KEEPALIVE  (id, key) pairs                  the sender asks for the status of these messages;
//                                               without pairs: for any answer
//   SACK       id, key, [packet set]            packets that are missing at the receiver
//   CHUNKS     id, key, packets, [packet set]   the same by chunks of `packets` packets (SDR-RDMA's
//                                               cumulative chunk and bitmap fragment)
//
// A SACK or CHUNKS without a set: no packet of the message has arrived, so the receiver does not
// know how many there are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bodies.hpp"
#include "packet_set.hpp"

namespace softroce {

struct MessageName {
  std::uint32_t id = 0;
  MessageKey key;
};

// SACK, or CHUNKS if `chunk_packets` is not 0.
struct Missing {
  MessageName name;
  std::uint16_t chunk_packets = 0;
  std::optional<PacketSet> set;  // nullopt: no packet has arrived
};

inline constexpr std::size_t kMostInKeepalive = 64, kMostAcked = 256;

// These write as much as fits into `most_bytes`.
std::vector<std::uint8_t> write_ack(std::span<const std::uint32_t> ids, std::size_t most_bytes);
std::vector<std::uint8_t> write_keepalive(std::span<const MessageName> names,
                                          std::size_t most_bytes);
std::vector<std::uint8_t> write_missing(const Missing& missing, std::size_t most_bytes);

// False or nullopt: the body is malformed.
bool read_ack(std::span<const std::uint8_t> body, std::vector<std::uint32_t>& ids);
bool read_keepalive(std::span<const std::uint8_t> body, std::vector<MessageName>& names);
std::optional<Missing> read_missing(std::span<const std::uint8_t> body);

}  // namespace softroce
