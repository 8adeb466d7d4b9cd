// SPDX-License-Identifier: GPL-2.0-or-later
// The live edge of the engine: packets to RoCEv2 frames and back, ICRC included.
//
//   Ethernet 14 | IPv4 20 | UDP 8 | BTH 12 | DETH 8 | [lab_hdr 40] | payload | pad 0..3 | ICRC 4
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "counters.hpp"
#include "packet.hpp"

namespace softroce {

inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kIpv4Bytes = 20;
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kBthBytes = 12;
inline constexpr std::size_t kDethBytes = 8;
inline constexpr std::size_t kIcrcBytes = 4;
inline constexpr std::size_t kBaseHeaderBytes = kEthernetBytes + kIpv4Bytes + kUdpBytes + kBthBytes;
inline constexpr std::size_t kUdHeaderBytes = kBaseHeaderBytes + kDethBytes;
inline constexpr std::size_t kUdOverheadBytes = kUdHeaderBytes + kIcrcBytes + 3;  // pad at most 3

// ICRC of the packet that begins at the IPv4 header (IBA 7.8.1 with annex A17.3.2: fields that
// routers may change count as ones). `bytes` reaches to the end of the padded payload.
std::uint32_t icrc_ipv4(const std::uint8_t* ip, std::size_t bytes);

// Writes the frame; `out` holds at least kUdOverheadBytes more than the payload and our header.
// Returns the frame's length in bytes.
std::size_t encode(const Packet& packet, std::uint64_t source_mac, std::uint8_t* out);

// Reads a frame into `packet`, whose payload then points into it. Our header, which only the
// destination QP can tell from a payload, stays undecoded. Returns the reason of a refusal.
std::optional<Counter> decode(const std::uint8_t* frame, std::size_t bytes, Packet& packet);

// Decodes `struct lab_hdr` from the head of the payload and moves past it. False: not valid.
bool decode_lab_header(Packet& packet);

}  // namespace softroce
