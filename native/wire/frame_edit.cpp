// SPDX-License-Identifier: GPL-2.0-or-later
#include "frame_edit.hpp"

#include "../engine/codec/codec.hpp"

namespace softroce::wire {
namespace {

constexpr std::size_t kTypeAt = 12;
constexpr std::size_t kLeastLeft = kUdpBytes + kBthBytes + kDethBytes + LAB_HDR_BYTES + kIcrcBytes;
constexpr std::uint8_t kPadBits = 0x30;  // of the BTH's second byte

bool is_ipv4(const std::uint8_t* frame) { return load16(frame + kTypeAt) == Ipv4::kEthertype; }
bool is_ipv6(const std::uint8_t* frame) { return load16(frame + kTypeAt) == Ipv6::kEthertype; }

// Writes a 16-bit word of an IPv4 header, and corrects its checksum (RFC 1624, equation 3).
void replace16(std::uint8_t* ip, std::size_t at, std::uint16_t value) {
  std::uint32_t sum = static_cast<std::uint16_t>(~load16(ip + 10));
  sum += static_cast<std::uint16_t>(~load16(ip + at));
  sum += value;
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum += sum >> 16;
  store16(ip + at, value);
  store16(ip + 10, static_cast<std::uint16_t>(~sum));
}

// DSCP and ECN: IPv4's second byte, IPv6's bits 4 to 11.
std::uint8_t traffic_class(const std::uint8_t* frame) {
  const std::uint8_t* ip = frame + kEthernetBytes;
  return is_ipv4(frame) ? ip[1] : static_cast<std::uint8_t>(load16(ip) >> 4);
}

void set_traffic_class(std::uint8_t* frame, std::uint8_t value) {
  std::uint8_t* ip = frame + kEthernetBytes;
  if (is_ipv4(frame))
    replace16(ip, 0, static_cast<std::uint16_t>(ip[0] << 8 | value));
  else
    store16(ip, static_cast<std::uint16_t>((load16(ip) & 0xF00F) | value << 4));
}

// A packet of a striped message that still has its data or parity.
bool is_whole_packet(const std::uint8_t* udp) {
  const std::uint8_t* bth = udp + kUdpBytes;
  const std::uint8_t* lab = bth + kBthBytes + kDethBytes;
  const int version = lab[0] >> 4, kind = lab[0] & (LAB_HDR_TRIMMED | LAB_HDR_KIND);
  return load16(udp + 2) == LAB_ROCE_UDP_PORT && bth[0] == LAB_BTH_OPCODE_UD_SEND_ONLY &&
         (version == LAB_HDR_VERSION || version == LAB_OPERATION_VERSION) &&
         (kind == LAB_KIND_DATA || kind == LAB_KIND_PARITY);
}

// Bytes behind the IP header that trimming leaves of a packet of a striped message. What an
// operation says of itself stays: without it, nobody knows where the packet belongs.
std::size_t left_behind_ip(const std::uint8_t* udp) {
  const std::uint8_t* lab = udp + kUdpBytes + kBthBytes + kDethBytes;
  return lab[0] >> 4 == LAB_OPERATION_VERSION ? kLeastLeft + LAB_OPERATION_BYTES : kLeastLeft;
}

template <typename Ip>
std::size_t trimmed_over(const std::uint8_t* frame, std::size_t bytes) {
  constexpr std::size_t kUdpAt = kEthernetBytes + Ip::kBytes;
  if (bytes <= kUdpAt + kLeastLeft || !Ip::is_plain_udp(frame + kEthernetBytes) ||
      !is_whole_packet(frame + kUdpAt))
    return 0;
  const std::size_t left = kUdpAt + left_behind_ip(frame + kUdpAt);
  return bytes > left ? left : 0;
}

// `bytes` of the frame may reach beyond its packet: Ethernet pads.
template <typename Ip>
bool icrc_is_right(const std::uint8_t* frame, std::size_t bytes) {
  const std::size_t end = kEthernetBytes + Ip::packet_bytes(frame + kEthernetBytes);
  if (end > bytes) return false;
  return icrc_of_frame(frame, end) == load<std::uint32_t>(frame + end - kIcrcBytes);
}

}  // namespace

bool ecn_capable(const std::uint8_t* frame, std::size_t bytes) {
  if (bytes < kEthernetBytes + Ipv4::kBytes) return false;
  return (is_ipv4(frame) || is_ipv6(frame)) && (traffic_class(frame) & kEcnMask) != 0;
}

void mark_ce(std::uint8_t* frame) { set_traffic_class(frame, traffic_class(frame) | kEcnMask); }

std::size_t trimmed_bytes(const std::uint8_t* frame, std::size_t bytes) {
  if (bytes < kEthernetBytes + Ipv4::kBytes) return 0;
  if (is_ipv4(frame)) return trimmed_over<Ipv4>(frame, bytes);
  return is_ipv6(frame) ? trimmed_over<Ipv6>(frame, bytes) : 0;
}

void trim(std::uint8_t* frame, std::size_t bytes, bool last_hop) {
  const bool right =
      is_ipv4(frame) ? icrc_is_right<Ipv4>(frame, bytes) : icrc_is_right<Ipv6>(frame, bytes);
  std::uint8_t* ip = frame + kEthernetBytes;
  const std::size_t ip_bytes = is_ipv4(frame) ? Ipv4::kBytes : Ipv6::kBytes;
  std::uint8_t* udp = ip + ip_bytes;
  std::uint8_t* bth = udp + kUdpBytes;
  std::uint8_t* lab = bth + kBthBytes + kDethBytes;
  const std::size_t behind_ip = left_behind_ip(udp);
  set_traffic_class(frame, trimmed_class(traffic_class(frame), last_hop));
  if (is_ipv4(frame))
    replace16(ip, 2, static_cast<std::uint16_t>(ip_bytes + behind_ip));
  else
    store16(ip + 4, static_cast<std::uint16_t>(behind_ip));
  store16(udp + 4, static_cast<std::uint16_t>(behind_ip));
  store16(udp + 6, 0);  // no checksum, over IPv6 neither (RFC 6936): the ICRC covers the packet
  bth[1] &= static_cast<std::uint8_t>(~kPadBits);
  lab[0] |= LAB_HDR_TRIMMED;
  const std::size_t left = kEthernetBytes + ip_bytes + behind_ip;
  const std::uint32_t icrc = icrc_of_frame(frame, left).value_or(0);
  store(frame + left - kIcrcBytes, right ? icrc : ~icrc);
}

}  // namespace softroce::wire
