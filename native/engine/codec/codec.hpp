// SPDX-License-Identifier: GPL-2.0-or-later
// The wire format of the engine: packets to RoCEv2 frames and back, ICRC included.
//
//   Ethernet 14 | IPv4 20, IPv6 40 | UDP 8 | BTH 12 | extension headers of the opcode |
//   [lab_hdr 40] | payload | pad | ICRC 4
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "../counters.hpp"
#include "extensions.hpp"
#include "ip.hpp"
#include "packet.hpp"

namespace softroce {

inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kBthBytes = 12;
inline constexpr std::size_t kDethBytes = kDethSize;
inline constexpr std::size_t kIcrcBytes = 4;
inline constexpr std::size_t kMostPathMtu = 4096;  // IBA 9.2.6
inline constexpr std::size_t kMostPadBytes = 3;
inline constexpr std::size_t kMostOverheadBytes = kEthernetBytes + Ipv6::kBytes + kUdpBytes +
                                                  kBthBytes + most_extension_bytes() +
                                                  kMostPadBytes + kIcrcBytes;

// From the UDP header to the ICRC.
std::size_t udp_bytes(const Packet& packet);

// From the Ethernet header to the ICRC: what a link's rate counts.
inline std::uint32_t frame_bytes(const Packet& packet) {
  const std::size_t ip = packet.source.is_ipv4() ? Ipv4::kBytes : Ipv6::kBytes;
  return static_cast<std::uint32_t>(kEthernetBytes + ip + udp_bytes(packet));
}

// ICRC that the frame's last four bytes should be (IBA 7.8.1 with annex A17.3.2: fields that
// routers may change count as ones). Nothing: the frame is too short for its headers.
std::optional<std::uint32_t> icrc_of_frame(const std::uint8_t* frame, std::size_t bytes);

// Writes the frame; `out` holds at least kMostOverheadBytes more than the payload and the lab
// header. Returns the frame's length in bytes. The opcode is a known one, and has a payload if
// there is one.
std::size_t encode(const Packet& packet, std::uint64_t source_mac, std::uint8_t* out);

// Reads a frame into `packet`, whose payload then points into it. The lab header, which only the
// destination QP can distinguish from a payload, stays undecoded. Reserved bits but resv8a are not
// looked at (IBA 9.2). Returns the reason of a refusal.
std::optional<Counter> decode(const std::uint8_t* frame, std::size_t bytes, Packet& packet);

// How much of a packet's headers could be read.
enum class Extent : std::uint8_t {
  unknown,    // cut off before the UDP ports
  not_roce,   // not UDP to port 4791, straight over IPv4 or IPv6
  addresses,  // IP addresses and source port
  base,       // and the BTH
  all,
};

struct Inspection {
  Extent extent = Extent::unknown;
  std::optional<Counter> refusal = {};     // `decode` would refuse the packet, ICRC or not
  std::optional<std::uint32_t> icrc = {};  // as it is there, if the whole packet is
  bool icrc_is_right = false;
};

// Reads a packet's headers from its IP header on, whatever its ICRC. Of `bytes` on the wire only
// the first `captured` are there, and of `packet` only what they tell is set. The payload may reach
// beyond them.
Inspection inspect(const std::uint8_t* ip, std::size_t captured, std::size_t bytes, Packet& packet);

// Decodes `struct lab_hdr` from the head of the payload and moves past it. False: not valid.
bool decode_lab_header(Packet& packet);

}  // namespace softroce
