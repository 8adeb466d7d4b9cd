// SPDX-License-Identifier: GPL-2.0-or-later
// The live edge of the engine: packets to RoCEv2 frames and back, ICRC included.
//
//   Ethernet 14 | IPv4 20, IPv6 40 | UDP 8 | BTH 12 | DETH 8 | [lab_hdr 40] | payload | pad | ICRC
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "counters.hpp"
#include "ip.hpp"
#include "packet.hpp"

namespace softroce {

inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kBthBytes = 12;
inline constexpr std::size_t kDethBytes = 8;
inline constexpr std::size_t kIcrcBytes = 4;
inline constexpr std::size_t kMostUdOverheadBytes =
    kEthernetBytes + Ipv6::kBytes + kUdpBytes + kBthBytes + kDethBytes + 3 + kIcrcBytes;

// From the UDP header to the ICRC.
std::size_t udp_bytes(const Packet& packet);

// ICRC that the frame's last four bytes should be (IBA 7.8.1 with annex A17.3.2: fields that
// routers may change count as ones). Nothing: the frame is too short for its headers.
std::optional<std::uint32_t> icrc_of_frame(const std::uint8_t* frame, std::size_t bytes);

// Writes the frame; `out` holds at least kMostUdOverheadBytes more than the payload and our header.
// Returns the frame's length in bytes.
std::size_t encode(const Packet& packet, std::uint64_t source_mac, std::uint8_t* out);

// Reads a frame into `packet`, whose payload then points into it. Our header, which only the
// destination QP can tell from a payload, stays undecoded. Returns the reason of a refusal.
std::optional<Counter> decode(const std::uint8_t* frame, std::size_t bytes, Packet& packet);

// Decodes `struct lab_hdr` from the head of the payload and moves past it. False: not valid.
bool decode_lab_header(Packet& packet);

}  // namespace softroce
