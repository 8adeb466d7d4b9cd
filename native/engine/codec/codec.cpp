// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec.hpp"

#include <cstring>

#include "bytes.hpp"
#include "crc.hpp"

namespace softroce {
namespace {

static_assert(sizeof(lab_hdr) == LAB_HDR_BYTES && sizeof(lab_operation) == LAB_OPERATION_BYTES);

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
  const int trimmed = lab.trimmed ? LAB_HDR_TRIMMED : 0;
  const int version = lab.of_operation() ? LAB_OPERATION_VERSION : LAB_HDR_VERSION;
  at[0] = static_cast<std::uint8_t>(version << 4 | trimmed | lab.kind);
  at[1] = lab.path;
  store16(at + 2, lab.attempt);
  store16(at + 4, lab.operation);
  store16(at + 6, lab.step);
  store32(at + 8, lab.message);
  store32(at + 12, lab.message_id);
  store32(at + 16, lab.index);
  store32(at + 20, std::uint32_t{lab.code} << LAB_COUNT_BITS | lab.count);
  store32(at + 24, lab.length);
  store32(at + 28, lab.stamp_ns);
  store32(at + 32, std::uint32_t{lab.epoch} << LAB_NUMBER_BITS | lab.number);
  store16(at + 36, lab.srtt);
  store16(at + 38, lab.rttvar);
}

void put_operation(const Packet& packet, std::uint8_t* at) {
  store32(at, std::uint32_t{packet.lab.verb} << 24 | (packet.lab.receive & kPsnMask));
  store32(at + 4, packet.lab.connection & kPsnMask);
  store64(at + 8, packet.remote_address);
  store32(at + 16, packet.rkey);
  store32(at + 20, packet.immediate);
}

// False: it is none.
bool read_operation(Packet& packet) {
  const std::uint8_t* at = packet.payload;
  LabHeader& lab = packet.lab;
  const int verb = at[0] & ~LAB_VERB_SOLICITED;
  if (verb == LAB_VERB_NONE || verb > LAB_VERB_FETCH_ADD || at[4] != 0) return false;
  lab.verb = at[0];
  lab.receive = load24(at);
  lab.connection = load24(at + 4);
  packet.remote_address = load64(at + 8);
  packet.rkey = load32(at + 16);
  packet.immediate = load32(at + 20);
  packet.payload += LAB_OPERATION_BYTES;
  packet.payload_bytes -= LAB_OPERATION_BYTES;
  return lab.kind == LAB_KIND_DATA || lab.kind == LAB_KIND_PARITY;
}

std::uint32_t lab_bytes(const Packet& packet) {
  if (!packet.has_lab_header) return 0;
  return packet.lab.of_operation() ? LAB_HDR_BYTES + LAB_OPERATION_BYTES : LAB_HDR_BYTES;
}

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
  bth[1] = static_cast<std::uint8_t>(packet.solicited << 7 | packet.migrated << 6 | pad << 4);
  store16(bth + 2, packet.pkey);
  store32(bth + 4, std::uint32_t{packet.reserved} << 24 | (packet.destination_qp & kPsnMask));
  store32(bth + 8, std::uint32_t{packet.ack_request} << 31 | (packet.psn & kPsnMask));

  std::uint8_t* at = put_extensions(packet, extensions_of(packet.opcode).headers, bth + kBthBytes);
  if (packet.has_lab_header) put_lab_header(packet.lab, at);
  if (packet.has_lab_header && packet.lab.of_operation()) put_operation(packet, at + LAB_HDR_BYTES);
  at += lab_bytes(packet);
  if (packet.payload == nullptr)
    std::memset(at, 0, packet.payload_bytes);  // what is absent is written as zeros
  else
    std::memcpy(at, packet.payload, packet.payload_bytes);
  at += packet.payload_bytes;
  std::memset(at, 0, pad);
  at += pad;
  store(at, icrc<Ip>(ip, static_cast<std::size_t>(at - ip)));
  return static_cast<std::size_t>(at + kIcrcBytes - out);
}

template <typename Ip>
bool is_roce(const std::uint8_t* ip) {
  return Ip::is_plain_udp(ip) && load16(ip + Ip::kBytes + 2) == LAB_ROCE_UDP_PORT;
}

// Of a packet of which `bytes` were on the wire, padding of the frame included.
template <typename Ip>
bool lengths_agree(const std::uint8_t* ip, std::size_t bytes) {
  const std::size_t ip_bytes = Ip::packet_bytes(ip);
  return ip_bytes <= bytes && ip_bytes >= kLeastBytes<Ip> &&
         load16(ip + Ip::kBytes + 4) == ip_bytes - Ip::kBytes;
}

// What is between the BTH and the ICRC. It is looked up once: after what is written to a packet,
// the compiler would read all of it again.
struct Body {
  const Extensions& extensions;
  std::size_t pad, bytes;
};

// Of a packet whose lengths agree.
template <typename Ip>
Body body_of(const std::uint8_t* ip) {
  const std::uint8_t* bth = ip + Ip::kBytes + kUdpBytes;
  return {extensions_of(bth[0]), std::size_t{bth[1]} >> 4 & 3,
          Ip::packet_bytes(ip) - kLeastBytes<Ip>};
}

template <typename Ip>
std::optional<Counter> check_transport(const std::uint8_t* ip, const Body& body) {
  const std::uint8_t version = ip[Ip::kBytes + kUdpBytes + 1] & 0x0F;
  if (!body.extensions.known || version != 0)  // transport version 0, IBA 9.2.5
    return Counter::rx_bad_opcode;
  if (body.bytes < body.extensions.bytes + body.pad) return Counter::rx_truncated;
  // Pads make whole words of payloads (IBA 9.2.4); ACKs, READ requests and atomics have none.
  if (body.bytes % 4 != 0 ||
      (!body.extensions.carries_payload && body.bytes != body.extensions.bytes))
    return Counter::rx_bad_payload;
  return std::nullopt;
}

// The headers that every packet has. Inlined, like `read_body`: two callers make a call of it else.
template <typename Ip>
[[gnu::always_inline]] inline void read_base(const std::uint8_t* ip, Packet& packet) {
  const std::uint8_t* udp = ip + Ip::kBytes;
  const std::uint8_t* bth = udp + kUdpBytes;
  Ip::read(ip, packet);
  packet.source_port = load16(udp);
  packet.opcode = bth[0];
  packet.solicited = bth[1] >> 7 & 1;
  packet.migrated = bth[1] >> 6 & 1;
  packet.pkey = load16(bth + 2);
  packet.reserved = bth[4];
  packet.destination_qp = load24(bth + 4);
  packet.ack_request = bth[8] >> 7 & 1;
  packet.psn = load24(bth + 8);
  packet.has_lab_header = false;
}

// What follows them, of a packet that was checked.
template <typename Ip>
[[gnu::always_inline]] inline void read_body(const std::uint8_t* ip, const Body& body,
                                             Packet& packet) {
  const std::uint8_t* at = ip + Ip::kBytes + kUdpBytes + kBthBytes;
  packet.payload = read_extensions(at, body.extensions.headers, packet);
  packet.payload_bytes = static_cast<std::uint32_t>(body.bytes - body.extensions.bytes - body.pad);
}

template <typename Ip>
std::optional<Counter> decode_over(const std::uint8_t* frame, std::size_t bytes, Packet& packet) {
  if (bytes < kEthernetBytes + kLeastBytes<Ip>) return Counter::rx_truncated;
  const std::uint8_t* ip = frame + kEthernetBytes;
  if (!is_roce<Ip>(ip)) return Counter::rx_not_roce;
  if (!lengths_agree<Ip>(ip, bytes - kEthernetBytes)) return Counter::rx_truncated;
  const std::size_t covered = Ip::packet_bytes(ip) - kIcrcBytes;
  if (load<std::uint32_t>(ip + covered) != icrc<Ip>(ip, covered)) return Counter::rx_wrong_icrc;
  const Body body = body_of<Ip>(ip);
  if (const auto refusal = check_transport<Ip>(ip, body)) return refusal;
  read_base<Ip>(ip, packet);
  read_body<Ip>(ip, body, packet);
  return std::nullopt;
}

template <typename Ip>
Inspection inspect_over(const std::uint8_t* ip, std::size_t captured, std::size_t bytes,
                        Packet& packet) {
  using enum Extent;
  constexpr std::size_t kBase = Ip::kBytes + kUdpBytes + kBthBytes;
  Inspection found;
  if (captured < Ip::kBytes + kUdpBytes) return {captured < bytes ? unknown : not_roce};
  if (!is_roce<Ip>(ip)) return {not_roce};
  const bool agree = lengths_agree<Ip>(ip, bytes);
  if (!agree) found.refusal = Counter::rx_truncated;
  found.extent = addresses;
  if (captured < kBase) {
    Ip::read(ip, packet);
    packet.source_port = load16(ip + Ip::kBytes);
    return found;
  }
  found.extent = base;
  read_base<Ip>(ip, packet);
  if (!agree) return found;
  const std::size_t covered = Ip::packet_bytes(ip) - kIcrcBytes;
  if (captured >= covered + kIcrcBytes) {
    found.icrc = load<std::uint32_t>(ip + covered);
    found.icrc_is_right = found.icrc == icrc<Ip>(ip, covered);
  }
  const Body body = body_of<Ip>(ip);
  found.refusal = check_transport<Ip>(ip, body);
  if (found.refusal || captured < kBase + body.extensions.bytes) return found;
  found.extent = all;
  read_body<Ip>(ip, body, packet);
  return found;
}

template <typename Ip>
std::optional<std::uint32_t> icrc_over(const std::uint8_t* frame, std::size_t bytes) {
  if (bytes < kEthernetBytes + kLeastBytes<Ip>) return std::nullopt;
  return icrc<Ip>(frame + kEthernetBytes, bytes - kEthernetBytes - kIcrcBytes);
}

bool is_ipv6(const std::uint8_t* frame) { return load16(frame + 12) == Ipv6::kEthertype; }

}  // namespace

std::size_t udp_bytes(const Packet& packet) {
  return kUdpBytes + kBthBytes + extensions_of(packet.opcode).bytes + lab_bytes(packet) +
         packet.payload_bytes + pad_bytes(packet) + kIcrcBytes;
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

Inspection inspect(const std::uint8_t* ip, std::size_t captured, std::size_t bytes,
                   Packet& packet) {
  if (captured == 0) return {Extent::unknown};
  return ip[0] >> 4 == 6 ? inspect_over<Ipv6>(ip, captured, bytes, packet)
                         : inspect_over<Ipv4>(ip, captured, bytes, packet);
}

bool decode_lab_header(Packet& packet) {
  const std::uint8_t* at = packet.payload;
  if (packet.payload_bytes < LAB_HDR_BYTES) return false;
  const bool of_operation = at[0] >> 4 == LAB_OPERATION_VERSION;
  if (!of_operation && at[0] >> 4 != LAB_HDR_VERSION) return false;
  if (of_operation && packet.payload_bytes < LAB_HDR_BYTES + LAB_OPERATION_BYTES) return false;
  LabHeader& lab = packet.lab;
  lab.kind = at[0] & LAB_HDR_KIND;
  lab.trimmed = (at[0] & LAB_HDR_TRIMMED) != 0;
  lab.path = at[1];
  lab.attempt = load16(at + 2);
  lab.operation = load16(at + 4);
  lab.step = load16(at + 6);
  lab.message = load32(at + 8);
  lab.message_id = load32(at + 12);
  lab.index = load32(at + 16);
  lab.code = at[20];
  lab.count = load32(at + 20) & LAB_COUNT_MASK;
  lab.length = load32(at + 24);
  lab.stamp_ns = load32(at + 28);
  lab.epoch = at[32];
  lab.number = load32(at + 32) & LAB_NUMBER_MASK;
  lab.srtt = load16(at + 36);
  lab.rttvar = load16(at + 38);
  packet.has_lab_header = true;
  packet.payload += LAB_HDR_BYTES;
  packet.payload_bytes -= LAB_HDR_BYTES;
  lab.verb = LAB_VERB_NONE;
  if (of_operation) return read_operation(packet);
  return lab.kind <= LAB_KIND_PARITY;
}

}  // namespace softroce
