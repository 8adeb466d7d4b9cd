// SPDX-License-Identifier: GPL-2.0-or-later
// The two headers that RoCEv2 lies upon (IBA annex A17.3): how each is written and read, and what
// of it routers may change, so that it counts as ones in the ICRC (A17.3.2).
#pragma once

#include "bytes.hpp"
#include "packet.hpp"

namespace softroce {

inline constexpr std::uint8_t kProtocolUdp = 17;
inline constexpr std::uint8_t kEcnMask = 3;  // RFC 3168

struct Ipv4 {
  static constexpr std::uint16_t kEthertype = 0x0800;
  static constexpr std::size_t kBytes = 20;
  // Little-endian words from the IP header to the BTH.
  static constexpr std::uint64_t kMask[5] = {
      0xFF00,       // DSCP and ECN
      0xFFFF00FF,   // TTL, IP checksum
      0,            // destination address, UDP ports
      0xFFFF'0000,  // UDP checksum
      0xFF,         // BTH resv8a: FECN, BECN
  };

  static void put(const Packet& packet, std::size_t udp_bytes, std::uint8_t* ip) {
    // As words, for bytes that were just written one by one are slow to read for the checksum.
    const std::uint32_t length = static_cast<std::uint16_t>(kBytes + udp_bytes);
    const std::uint32_t first = kVersionAndIhl | std::uint32_t{packet.traffic_class} << 16 | length;
    const std::uint32_t second = std::uint32_t{packet.ip_identifier} << 16 | kDontFragment;
    const std::uint32_t third = std::uint32_t{packet.hop_limit} << 24 | kUdpAsProtocol;
    const std::uint32_t source = packet.source.ipv4(), destination = packet.destination.ipv4();
    store32(ip, first);
    store32(ip + 4, second);
    store32(ip + 8, third | checksum(std::uint64_t{first} + second + third + source + destination));
    store32(ip + 12, source);
    store32(ip + 16, destination);
  }

  // UDP in one piece, behind a header without options.
  static bool is_plain_udp(const std::uint8_t* ip) {
    const bool fragment = (load16(ip + 6) & 0x3FFF) != 0;
    return ip[0] == 0x45 && ip[9] == kProtocolUdp && !fragment;
  }
  static std::size_t packet_bytes(const std::uint8_t* ip) { return load16(ip + 2); }
  static void read(const std::uint8_t* ip, Packet& packet) {
    packet.traffic_class = ip[1];
    packet.ip_identifier = load16(ip + 4);
    packet.hop_limit = ip[8];
    packet.source = Gid::of_ipv4(load32(ip + 12));
    packet.destination = Gid::of_ipv4(load32(ip + 16));
  }

 private:
  // Of the header's words.
  static constexpr std::uint32_t kVersionAndIhl = 0x45U << 24;
  static constexpr std::uint32_t kDontFragment = 0x4000;
  static constexpr std::uint32_t kUdpAsProtocol = std::uint32_t{kProtocolUdp} << 16;

  // Of the sum of five words: that of their halves is the same (RFC 1071, section 2).
  static std::uint16_t checksum(std::uint64_t sum) {
    sum = (sum & 0xFFFF) + (sum >> 16 & 0xFFFF) + (sum >> 32);
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum += sum >> 16;
    return static_cast<std::uint16_t>(~sum);
  }
};

struct Ipv6 {  // RFC 8200
  static constexpr std::uint16_t kEthertype = 0x86DD;
  static constexpr std::size_t kBytes = 40;
  static constexpr std::uint64_t kMask[7] = {
      0xFF00'0000'FFFF'FF0F,  // traffic class, flow label; hop limit
      0,
      0,
      0,
      0,                      // addresses
      0xFFFF'0000'0000'0000,  // UDP checksum
      0xFF'0000'0000,         // BTH resv8a
  };

  static void put(const Packet& packet, std::size_t udp_bytes, std::uint8_t* ip) {
    store32(ip, 6U << 28 | std::uint32_t{packet.traffic_class} << 20 |
                    (packet.flow_label & kFlowLabelMask));
    store16(ip + 4, static_cast<std::uint16_t>(udp_bytes));
    ip[6] = kProtocolUdp;
    ip[7] = packet.hop_limit;
    put_gid(packet.source, ip + 8);
    put_gid(packet.destination, ip + 24);
  }

  // UDP right behind this header. A mapped address is IPv4's and never on the wire.
  static bool is_plain_udp(const std::uint8_t* ip) {
    return ip[0] >> 4 == 6 && ip[6] == kProtocolUdp && !source(ip).is_ipv4() &&
           !destination(ip).is_ipv4();
  }
  static std::size_t packet_bytes(const std::uint8_t* ip) { return kBytes + load16(ip + 4); }
  static void read(const std::uint8_t* ip, Packet& packet) {
    const std::uint32_t first = load32(ip);
    packet.traffic_class = static_cast<std::uint8_t>(first >> 20);
    packet.flow_label = first & kFlowLabelMask;
    packet.hop_limit = ip[7];
    packet.source = source(ip);
    packet.destination = destination(ip);
  }

 private:
  static constexpr std::uint32_t kFlowLabelMask = 0xFFFFF;

  static Gid source(const std::uint8_t* ip) { return {load64(ip + 8), load64(ip + 16)}; }
  static Gid destination(const std::uint8_t* ip) { return {load64(ip + 24), load64(ip + 32)}; }
  static void put_gid(const Gid& gid, std::uint8_t* at) {
    store64(at, gid.high);
    store64(at + 8, gid.low);
  }
};

}  // namespace softroce
