// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec.hpp"

#include <bit>
#include <cstring>

#include "crc.hpp"

namespace softroce {
namespace {

static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(lab_hdr) == LAB_HDR_BYTES);

using Vector = std::uint64_t __attribute__((vector_size(16)));

template <typename T>
void store(std::uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof value);
}
void store16(std::uint8_t* at, std::uint16_t value) { store(at, __builtin_bswap16(value)); }
void store32(std::uint8_t* at, std::uint32_t value) { store(at, __builtin_bswap32(value)); }

template <typename T>
T load(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
std::uint16_t load16(const std::uint8_t* at) { return __builtin_bswap16(load<std::uint16_t>(at)); }
std::uint32_t load32(const std::uint8_t* at) { return __builtin_bswap32(load<std::uint32_t>(at)); }
std::uint32_t load24(const std::uint8_t* at) { return load32(at) & 0xFFFFFF; }

constexpr std::uint16_t kEthertypeIpv4 = 0x0800;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::uint8_t kTtl = 64;
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint8_t kEct0 = 0x02;  // ECN-capable, RFC 3168
constexpr std::uint8_t kEcnMask = 0x03;
// IP to the end of the BTH: the headers with fields that count as ones.
constexpr std::size_t kIcrcMaskedBytes = kIpv4Bytes + kUdpBytes + kBthBytes;

// Ones where routers may change the packet, in little-endian words from the IP header on.
constexpr std::uint64_t kMask[5] = {
    0xFF00,       // DSCP and ECN
    0xFFFF00FF,   // TTL, IP checksum
    0,            // destination address, UDP ports
    0xFFFF'0000,  // UDP checksum
    0xFF,         // BTH resv8a: FECN, BECN
};

std::uint16_t ipv4_checksum(const std::uint8_t* ip) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4Bytes; i += 2) sum += load<std::uint16_t>(ip + i);
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum += sum >> 16;
  return static_cast<std::uint16_t>(~sum);  // in the byte order of the sum: network
}

void put_lab_header(const LabHeader& lab, std::uint8_t* at) {
  at[0] = static_cast<std::uint8_t>(LAB_HDR_VERSION << 4 | lab.kind);
  at[1] = 0;
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

}  // namespace

std::uint32_t icrc_ipv4(const std::uint8_t* ip, std::size_t bytes) {
  // Built from whole vectors, which the CRC then reads as they were stored: reading what smaller
  // stores wrote would wait until all copies before them have reached the cache.
  const Vector lrh = {~0ULL, load<std::uint64_t>(ip) | kMask[0]};
  const Vector head[3] = {lrh, load<Vector>(ip + 8) | Vector{kMask[1], kMask[2]},
                          load<Vector>(ip + 24) | Vector{kMask[3], kMask[4]}};
  return crc32(reinterpret_cast<const std::uint8_t*>(head), sizeof head, ip + kIcrcMaskedBytes,
               bytes - kIcrcMaskedBytes);
}

std::size_t encode(const Packet& packet, std::uint64_t source_mac, std::uint8_t* out) {
  const std::uint32_t lab_bytes = packet.has_lab_header ? LAB_HDR_BYTES : 0;
  const std::uint32_t pad = -(lab_bytes + packet.payload_bytes) & 3;
  const std::size_t udp_bytes =
      kUdpBytes + kBthBytes + kDethBytes + lab_bytes + packet.payload_bytes + pad + kIcrcBytes;

  store16(out, static_cast<std::uint16_t>(packet.destination_mac >> 32));
  store32(out + 2, static_cast<std::uint32_t>(packet.destination_mac));
  store16(out + 6, static_cast<std::uint16_t>(source_mac >> 32));
  store32(out + 8, static_cast<std::uint32_t>(source_mac));
  store16(out + 12, kEthertypeIpv4);

  std::uint8_t* ip = out + kEthernetBytes;
  ip[0] = 0x45;
  ip[1] = kEct0;
  store16(ip + 2, static_cast<std::uint16_t>(kIpv4Bytes + udp_bytes));
  store16(ip + 4, 0);
  store16(ip + 6, kDontFragment);
  ip[8] = kTtl;
  ip[9] = kProtocolUdp;
  store16(ip + 10, 0);
  store32(ip + 12, packet.source_ip);
  store32(ip + 16, packet.destination_ip);
  store<std::uint16_t>(ip + 10, ipv4_checksum(ip));

  std::uint8_t* udp = ip + kIpv4Bytes;
  store16(udp, packet.source_port);
  store16(udp + 2, LAB_ROCE_UDP_PORT);
  store16(udp + 4, static_cast<std::uint16_t>(udp_bytes));
  store16(udp + 6, 0);  // no checksum: the ICRC covers the packet

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
  at += lab_bytes;
  std::memcpy(at, packet.payload, packet.payload_bytes);
  at += packet.payload_bytes;
  std::memset(at, 0, pad);
  at += pad;
  store(at, icrc_ipv4(ip, static_cast<std::size_t>(at - ip)));
  return static_cast<std::size_t>(at + kIcrcBytes - out);
}

std::optional<Counter> decode(const std::uint8_t* frame, std::size_t bytes, Packet& packet) {
  if (bytes < kBaseHeaderBytes + kIcrcBytes) return Counter::rx_truncated;
  if (load16(frame + 12) != kEthertypeIpv4) return Counter::rx_not_roce;
  const std::uint8_t* ip = frame + kEthernetBytes;
  const bool fragment = (load16(ip + 6) & 0x3FFF) != 0;
  if (ip[0] != 0x45 || ip[9] != kProtocolUdp || fragment) return Counter::rx_not_roce;
  const std::uint8_t* udp = ip + kIpv4Bytes;
  if (load16(udp + 2) != LAB_ROCE_UDP_PORT) return Counter::rx_not_roce;

  const std::size_t ip_bytes = load16(ip + 2);
  const std::size_t least = kBaseHeaderBytes - kEthernetBytes + kIcrcBytes;
  if (ip_bytes + kEthernetBytes > bytes || ip_bytes < least) return Counter::rx_truncated;
  if (load16(udp + 4) != ip_bytes - kIpv4Bytes) return Counter::rx_truncated;
  const std::uint8_t* icrc = ip + ip_bytes - kIcrcBytes;
  if (load<std::uint32_t>(icrc) != icrc_ipv4(ip, ip_bytes - kIcrcBytes))
    return Counter::rx_wrong_icrc;

  const std::uint8_t* bth = udp + kUdpBytes;
  const std::uint8_t* deth = bth + kBthBytes;
  const std::uint8_t* payload = deth + kDethBytes;
  const std::size_t pad = bth[1] >> 4 & 3;
  if (bth[1] & 0x0F) return Counter::rx_bad_opcode;  // transport version 0, IBA 9.2.5
  // The opcode's upper bits are the service, which tells what headers follow (IBA 9.2.1).
  if (bth[0] >> 5 != LAB_BTH_OPCODE_UD_SEND_ONLY >> 5) return Counter::rx_bad_opcode;
  if (ip_bytes < least + kDethBytes + pad) return Counter::rx_truncated;

  packet.source_ip = load32(ip + 12);
  packet.destination_ip = load32(ip + 16);
  packet.source_port = load16(udp);
  packet.congestion_experienced = (ip[1] & kEcnMask) == kEcnMask;
  packet.opcode = bth[0];
  packet.solicited = bth[1] >> 7;
  packet.pkey = load16(bth + 2);
  packet.destination_qp = load24(bth + 4);
  packet.psn = load24(bth + 8);
  packet.qkey = load32(deth);
  packet.source_qp = load24(deth + 4);
  packet.has_lab_header = false;
  packet.payload = payload;
  packet.payload_bytes = static_cast<std::uint32_t>(icrc - payload - pad);
  return std::nullopt;
}

bool decode_lab_header(Packet& packet) {
  const std::uint8_t* at = packet.payload;
  if (packet.payload_bytes < LAB_HDR_BYTES) return false;
  if (at[0] >> 4 != LAB_HDR_VERSION || at[1] != 0) return false;
  LabHeader& lab = packet.lab;
  lab.kind = at[0] & 0x0F;
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
