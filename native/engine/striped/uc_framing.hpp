// SPDX-License-Identifier: GPL-2.0-or-later
// The framing of striped messages over UC: one RDMA WRITE with immediate a packet, as SDR-RDMA does
// it (arXiv 2505.05366): a UC message of several packets would not survive reordering.
//
//   Ethernet | IP | UDP | BTH (UC RDMA WRITE ONLY with immediate) | RETH | ImmDt | data | ICRC
//   immediate = 10 bits message slot | 18 bits packet offset | 4 bits of the user's immediate
//
// The address is that of the packet's place under a zero-based root key, where slot i covers
// [i*M, (i+1)*M). Packets go round-robin over queue pairs, the channels; generations distinguish
// a slot's uses, and each has channels of its own. The channels of a generation, M, and the content
// of the user's immediate are this project's definitions (docs/reference/wire-format.md).
#pragma once

#include <optional>

#include "../codec/opcode.hpp"
#include "../codec/packet.hpp"
#include "../counters.hpp"
#include "paths.hpp"

namespace softroce::uc_framing {

inline constexpr std::uint8_t kOpcode = opcode_of(Service::uc, Operation::write_only_immediate);
inline constexpr std::uint32_t kSlotBits = 10, kOffsetBits = 18, kUserBits = 4;
inline constexpr std::uint32_t kMostSlots = 1U << kSlotBits;
inline constexpr std::uint32_t kMostPackets = 1U << kOffsetBits;
inline constexpr std::uint32_t kUserFragments = 32 / kUserBits;
inline constexpr std::uint32_t kGenerations = 64;  // uses until the numbers repeat
inline constexpr std::uint32_t kChannels = kGenerations * kMaxPaths;  // of a peer
inline constexpr std::uint32_t kFirstQp = 0x800000;  // of the channels, in the order of peers
inline constexpr std::uint32_t kMostPeers = (0xFFFFFF - kFirstQp) / kChannels;

constexpr std::uint32_t first_qp_of(std::uint32_t peer) { return kFirstQp + peer * kChannels; }
constexpr std::uint64_t slot_bytes(std::uint32_t chunk_bytes) {  // M
  return std::uint64_t{kMostPackets} * chunk_bytes;
}
constexpr std::uint32_t generation_of(std::uint32_t id, std::uint32_t slots) {
  return id / slots % kGenerations;
}

// Each packet carries one of the eight fragments of the user's immediate, in turn; the lowest four
// bits come first.
constexpr std::uint32_t user_fragment(std::uint32_t user, std::uint32_t index) {
  return user >> index % kUserFragments * kUserBits & ((1U << kUserBits) - 1);
}

// Where a receiver takes a peer's packets; its clearance of a message carries it.
struct Target {
  std::uint32_t first_qp = 0;
  std::uint32_t root_key = 0;
  bool operator==(const Target&) const = default;
};

// The fields in a packet: all but the message's length and name.
struct Place {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t index = 0;
  std::uint32_t user = 0;  // a fragment
  std::uint8_t path = 0;
};

constexpr std::uint32_t channel_of(std::uint32_t generation, std::uint8_t path) {
  return generation * kMaxPaths + path;
}
constexpr std::uint64_t address_of(const Place& place, std::uint32_t chunk_bytes) {
  return place.slot * slot_bytes(chunk_bytes) + std::uint64_t{place.index} * chunk_bytes;
}

// The payload is there; the packet is to be addressed yet.
inline void close(Packet& packet, const Place& place, const Target& target,
                  std::uint32_t chunk_bytes) {
  packet.has_lab_header = false;
  packet.opcode = kOpcode;
  packet.destination_qp = target.first_qp + channel_of(place.generation, place.path);
  packet.source_port = static_cast<std::uint16_t>(LAB_UDP_SPORT_BASE + place.path);
  packet.remote_address = address_of(place, chunk_bytes);
  packet.rkey = target.root_key;
  packet.dma_length = packet.payload_bytes;
  packet.immediate =
      place.slot << (kOffsetBits + kUserBits) | place.index << kUserBits | place.user;
}

// Reads a packet to one of the channels that begin at `own`. Returns the reason of a refusal.
inline std::optional<Counter> open(const Packet& packet, const Target& own,
                                   std::uint32_t chunk_bytes, Place& place) {
  const std::uint32_t channel = packet.destination_qp - own.first_qp;
  place = {.slot = packet.immediate >> (kOffsetBits + kUserBits),
           .generation = channel / kMaxPaths,
           .index = packet.immediate >> kUserBits & (kMostPackets - 1),
           .user = packet.immediate & ((1U << kUserBits) - 1),
           .path = static_cast<std::uint8_t>(channel % kMaxPaths)};
  if (packet.source_port != LAB_UDP_SPORT_BASE + place.path) return Counter::rx_bad_header;
  if (packet.rkey != own.root_key) return Counter::rx_wrong_root_key;
  if (packet.remote_address != address_of(place, chunk_bytes)) return Counter::rx_wrong_address;
  if (packet.dma_length != packet.payload_bytes) return Counter::rx_bad_length;
  return std::nullopt;
}

}  // namespace softroce::uc_framing
