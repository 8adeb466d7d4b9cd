// SPDX-License-Identifier: GPL-2.0-or-later
// Control messages of the session: what travels in a body on the recovery QP. All of it is this
// project's definition. Integers are big-endian. RNR and REFUSE are in bodies.hpp; besides
//
//   ACK        ids                              complete, or their REFUSE came; none: answers
//                                               a keepalive
//   KEEPALIVE  (id, key) pairs                  the sender asks for their status; none: for life
//   SACK       id, key, [packet set]            what the receiver misses
//   CHUNKS     id, key, packets, [packet set]   the same, by chunks of so many packets (SDR-RDMA's
//                                               cumulative chunk and bitmap fragment)
//
// A receiver that no packet has reached knows neither id nor count, and sends no set: all is
// missing.
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
  std::optional<PacketSet> set;  // none: no packet has arrived
};

inline constexpr std::size_t kMostInKeepalive = 64, kMostAcked = 256;

// As many ids, or names, as fit.
std::vector<std::uint8_t> write_ack(std::span<const std::uint32_t> ids, std::size_t most_bytes);
std::vector<std::uint8_t> write_keepalive(std::span<const MessageName> names,
                                          std::size_t most_bytes);
std::vector<std::uint8_t> write_missing(const Missing& missing, std::size_t most_bytes);

// False, or nothing: the body is not of such a form.
bool read_ack(std::span<const std::uint8_t> body, std::vector<std::uint32_t>& ids);
bool read_keepalive(std::span<const std::uint8_t> body, std::vector<MessageName>& names);
std::optional<Missing> read_missing(std::span<const std::uint8_t> body);

}  // namespace softroce
