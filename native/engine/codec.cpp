// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec.hpp"

#include <cstring>

#include "bytes.hpp"
#include "crc.hpp"

namespace softroce {
namespace {

static_assert(sizeof(lab_hdr) == LAB_HDR_BYTES);

using Vector = std::uint64_t __attribute__((vector_size(16)));

// Headers up to the BTH and the ICRC, from the IP header on: no packet is shorter.
template <typename Ip>
constexpr std::size_t kLeastBytes = Ip::kBytes + kUdpBytes + kBthBytes + kIcrcBytes;

// Of the packet that begins at the IP header; `bytes` reaches to the end of the padded payload.
template <typename Ip>
std::uint32_t icrc(const std::uint8_t* ip, std::size_t bytes) {
  // Built from whole vectors, which the CRC then reads as they were stored: reading what smaller
  // stores wrote would wait until all copies before them have reached the cache.
  constexpr std::size_t kWords = std::size(Ip::kMask);
  Vector head[(kWords + 1) / 2];
  head[0] = Vector{~0ULL, load<std::uint64_t>(ip) | Ip::kMask[0]};  // in place of the LRH: ones
  for (std::size_t word = 1; word < kWords; word += 2)
    head[(word + 1) / 2] =
        load<Vector>(ip + 8 * word) | Vector{Ip::kMask[word], Ip::kMask[word + 1]};
  return crc32(reinterpret_cast<const std::uint8_t*>(head), sizeof head, ip + 8 * kWords,
               bytes - 8 * kWords);
}

void put_lab_header(const LabHeader& lab, std::uint8_t* at) {
  at[0] = static_cast<std::uint8_t>(LAB_HDR_VERSION << 4 | lab.kind);
  at[1] = lab.trimmed ? LAB_HDR_TRIMMED : 0;
  at[2] = lab.path;
  at[3] = lab.attempt;
  store16(at + 4, lab.operation);
  store16(at + 6, lab.step);
  store32(at + 8, lab.message);
  store32(at + 12, lab.message_id);
  store32(at + 16, lab.index);
  store32(at + 20, lab.count);
  store32(at + 24, lab.length);
  store32(at + 28, lab.stamp_ns);
  store32(at + 32, lab.srtt_ns);
  store32(at + 36, lab.rttvar_ns);
}

std::uint32_t lab_bytes(const Packet& packet) { return packet.has_lab_header ? LAB_HDR_BYTES : 0; }

std::uint32_t pad_bytes(const Packet& packet) {
  return -(lab_bytes(packet) + packet.payload_bytes) & 3;
}

template <typename Ip>
std::size_t encode_over(const Packet& packet, std::uint64_t source_mac, std::uint8_t* out) {
  const std::uint32_t pad = pad_bytes(packet);
  const std::size_t length = udp_bytes(packet);

  store16(out, static_cast<std::uint16_t>(packet.destination_mac >> 32));
  store32(out + 2, static_cast<std::uint32_t>(packet.destination_mac));
  store16(out + 6, static_cast<std::uint16_t>(source_mac >> 32));
  store32(out + 8, static_cast<std::uint32_t>(source_mac));
  store16(out + 12, Ip::kEthertype);

  std::uint8_t* ip = out + kEthernetBytes;
  Ip::put(packet, length, ip);

  std::uint8_t* udp = ip + Ip::kBytes;
  store16(udp, packet.source_port);
  store16(udp + 2, LAB_ROCE_UDP_PORT);
  store16(udp + 4, static_cast<std::uint16_t>(length));
  store16(udp + 6, 0);  // no checksum, over IPv6 neither (RFC 6936): the ICRC covers the packet

  std::uint8_t* bth = udp + kUdpBytes;
  bth[0] = packet.opcode;
  bth[1] = static_cast<std::uint8_t>(packet.solicited << 7 | pad << 4);
  store16(bth + 2, packet.pkey);
  store32(bth + 4, packet.destination_qp);
  store32(bth + 8, packet.psn & 0xFFFFFF);

  std::uint8_t* deth = bth + kBthBytes;
  store32(deth, packet.qkey);
  store32(deth + 4, packet.source_qp);

  std::uint8_t* at = deth + kDethBytes;
  if (packet.has_lab_header) put_lab_header(packet.lab, at);
  at += lab_bytes(packet);
  std::memcpy(at, packet.payload, packet.payload_bytes);
  at += packet.payload_bytes;
  std::memset(at, 0, pad);
  at += pad;
  store(at, icrc<Ip>(ip, static_cast<std::size_t>(at - ip)));
  return static_cast<std::size_t>(at + kIcrcBytes - out);
}

template <typename Ip>
std::optional<Counter> decode_over(const std::uint8_t* frame, std::size_t bytes, Packet& packet) {
  if (bytes < kEthernetBytes + kLeastBytes<Ip>) return Counter::rx_truncated;
  const std::uint8_t* ip = frame + kEthernetBytes;
  const std::uint8_t* udp = ip + Ip::kBytes;
  if (!Ip::is_plain_udp(ip) || load16(udp + 2) != LAB_ROCE_UDP_PORT) return Counter::rx_not_roce;

  const std::size_t ip_bytes = Ip::packet_bytes(ip);
  if (ip_bytes + kEthernetBytes > bytes || ip_bytes < kLeastBytes<Ip>) return Counter::rx_truncated;
  if (load16(udp + 4) != ip_bytes - Ip::kBytes) return Counter::rx_truncated;
  const std::uint8_t* end = ip + ip_bytes - kIcrcBytes;
  if (load<std::uint32_t>(end) != icrc<Ip>(ip, ip_bytes - kIcrcBytes))
    return Counter::rx_wrong_icrc;

  const std::uint8_t* bth = udp + kUdpBytes;
  const std::uint8_t* deth = bth + kBthBytes;
  const std::uint8_t* payload = deth + kDethBytes;
  const std::size_t pad = bth[1] >> 4 & 3;
  if (bth[1] & 0x0F) return Counter::rx_bad_opcode;  // transport version 0, IBA 9.2.5
  // The opcode's upper bits are the service, which tells what headers follow (IBA 9.2.1).
  if (bth[0] >> 5 != LAB_BTH_OPCODE_UD_SEND_ONLY >> 5) return Counter::rx_bad_opcode;
  if (ip_bytes < kLeastBytes<Ip> + kDethBytes + pad) return Counter::rx_truncated;

  packet.source = Ip::source(ip);
  packet.destination = Ip::destination(ip);
  packet.source_port = load16(udp);
  packet.congestion_experienced = Ip::ecn(ip) == kEcnMask;
  packet.opcode = bth[0];
  packet.solicited = bth[1] >> 7;
  packet.pkey = load16(bth + 2);
  packet.destination_qp = load24(bth + 4);
  packet.psn = load24(bth + 8);
  packet.qkey = load32(deth);
  packet.source_qp = load24(deth + 4);
  packet.has_lab_header = false;
  packet.payload = payload;
  packet.payload_bytes = static_cast<std::uint32_t>(end - payload - pad);
  return std::nullopt;
}

template <typename Ip>
std::optional<std::uint32_t> icrc_over(const std::uint8_t* frame, std::size_t bytes) {
  if (bytes < kEthernetBytes + kLeastBytes<Ip>) return std::nullopt;
  return icrc<Ip>(frame + kEthernetBytes, bytes - kEthernetBytes - kIcrcBytes);
}

bool is_ipv6(const std::uint8_t* frame) { return load16(frame + 12) == Ipv6::kEthertype; }

}  // namespace

std::size_t udp_bytes(const Packet& packet) {
  return kUdpBytes + kBthBytes + kDethBytes + lab_bytes(packet) + packet.payload_bytes +
         pad_bytes(packet) + kIcrcBytes;
}

std::optional<std::uint32_t> icrc_of_frame(const std::uint8_t* frame, std::size_t bytes) {
  if (bytes < kEthernetBytes) return std::nullopt;
  return is_ipv6(frame) ? icrc_over<Ipv6>(frame, bytes) : icrc_over<Ipv4>(frame, bytes);
}

std::size_t encode(const Packet& packet, std::uint64_t source_mac, std::uint8_t* out) {
  return packet.destination.is_ipv4() ? encode_over<Ipv4>(packet, source_mac, out)
                                      : encode_over<Ipv6>(packet, source_mac, out);
}

std::optional<Counter> decode(const std::uint8_t* frame, std::size_t bytes, Packet& packet) {
  if (bytes < kEthernetBytes + kLeastBytes<Ipv4>) return Counter::rx_truncated;
  if (load16(frame + 12) == Ipv4::kEthertype) return decode_over<Ipv4>(frame, bytes, packet);
  if (is_ipv6(frame)) return decode_over<Ipv6>(frame, bytes, packet);
  return Counter::rx_not_roce;
}

bool decode_lab_header(Packet& packet) {
  const std::uint8_t* at = packet.payload;
  if (packet.payload_bytes < LAB_HDR_BYTES) return false;
  if (at[0] >> 4 != LAB_HDR_VERSION || (at[1] & ~LAB_HDR_TRIMMED) != 0) return false;
  LabHeader& lab = packet.lab;
  lab.kind = at[0] & 0x0F;
  lab.trimmed = at[1] != 0;
  lab.path = at[2];
  lab.attempt = at[3];
  lab.operation = load16(at + 4);
  lab.step = load16(at + 6);
  lab.message = load32(at + 8);
  lab.message_id = load32(at + 12);
  lab.index = load32(at + 16);
  lab.count = load32(at + 20);
  lab.length = load32(at + 24);
  lab.stamp_ns = load32(at + 28);
  lab.srtt_ns = load32(at + 32);
  lab.rttvar_ns = load32(at + 36);
  packet.has_lab_header = true;
  packet.payload += LAB_HDR_BYTES;
  packet.payload_bytes -= LAB_HDR_BYTES;
  return lab.kind <= LAB_KIND_REPORT;
}

}  // namespace softroce
