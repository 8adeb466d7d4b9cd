// SPDX-License-Identifier: GPL-2.0-or-later
// The codec with arbitrary frames: as they are, with its ICRC put right, and cut anywhere. What it
// takes, it writes again as the same packet, and its two readers agree.
#include "../engine/codec/codec.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace {

using namespace softroce;
using Frame = std::vector<std::uint8_t>;

constexpr std::size_t kMostFrameBytes = 1 << 16;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "codec: %s\n", what);
  std::abort();
}

// Of exactly its length, so that the sanitizer detects a read beyond it.
struct Exact {
  Exact(const std::uint8_t* data, std::size_t size)
      : bytes(std::make_unique_for_overwrite<std::uint8_t[]>(size)) {
    if (size != 0) std::memcpy(bytes.get(), data, size);
  }
  std::unique_ptr<std::uint8_t[]> bytes;
};

bool same_payload(const Packet& a, const Packet& b) {
  return a.payload_bytes == b.payload_bytes &&
         (a.payload_bytes == 0 || std::memcmp(a.payload, b.payload, a.payload_bytes) == 0);
}

bool same_headers(const Packet& a, const Packet& b) {
  return a.source == b.source && a.destination == b.destination && a.source_port == b.source_port &&
         a.traffic_class == b.traffic_class && a.hop_limit == b.hop_limit &&
         a.flow_label == b.flow_label && a.opcode == b.opcode && a.solicited == b.solicited &&
         a.migrated == b.migrated && a.ack_request == b.ack_request && a.reserved == b.reserved &&
         a.pkey == b.pkey && a.destination_qp == b.destination_qp && a.psn == b.psn &&
         a.qkey == b.qkey && a.source_qp == b.source_qp && a.remote_address == b.remote_address &&
         a.rkey == b.rkey && a.dma_length == b.dma_length && a.swap_or_add == b.swap_or_add &&
         a.compare == b.compare && a.syndrome == b.syndrome && a.msn == b.msn &&
         a.original == b.original && a.immediate == b.immediate &&
         a.invalidate_rkey == b.invalidate_rkey;
}

bool same_lab_headers(const LabHeader& a, const LabHeader& b) {
  return a.kind == b.kind && a.trimmed == b.trimmed && a.path == b.path && a.attempt == b.attempt &&
         a.operation == b.operation && a.step == b.step && a.message == b.message &&
         a.message_id == b.message_id && a.index == b.index && a.count == b.count &&
         a.code == b.code && a.length == b.length && a.stamp_ns == b.stamp_ns &&
         a.epoch == b.epoch && a.number == b.number && a.srtt == b.srtt && a.rttvar == b.rttvar &&
         a.verb == b.verb && a.receive == b.receive && a.connection == b.connection;
}

void write_again(const Packet& packet) {
  Frame frame(packet.payload_bytes + kMostOverheadBytes + kMostLabBytes);
  frame.resize(encode(packet, 1, frame.data()));
  Packet again;
  require(!decode(frame.data(), frame.size(), again), "what was written is refused");
  if (packet.has_lab_header) {
    require(decode_lab_header(again), "a lost struct lab_hdr");
    require(same_lab_headers(packet.lab, again.lab), "what was written is another header");
  }
  require(same_headers(packet, again), "what was written is another packet");
  require(same_payload(packet, again), "what was written carries something else");
}

void inspect_prefixes(const std::uint8_t* frame, std::size_t size, const Packet* decoded) {
  const std::size_t whole = size - kEthernetBytes;
  for (std::size_t captured = 0; captured <= whole; captured += 1 + captured / 16) {
    const Exact cut(frame + kEthernetBytes, captured);
    Packet packet;
    inspect(cut.bytes.get(), captured, whole, packet);
  }
  if (decoded == nullptr) return;
  Packet packet;
  const Inspection found = inspect(frame + kEthernetBytes, whole, whole, packet);
  require(found.extent == Extent::all && !found.refusal, "a good packet is not read");
  require(found.icrc_is_right, "a good ICRC is not right");
  require(same_headers(packet, *decoded) && same_payload(packet, *decoded), "readers disagree");
}

void tell(const std::uint8_t* data, std::size_t size) {
  const Exact frame(data, size);
  Packet packet;
  const bool taken = !decode(frame.bytes.get(), size, packet);
  if (size >= kEthernetBytes) inspect_prefixes(frame.bytes.get(), size, taken ? &packet : nullptr);
  if (!taken) return;
  write_again(packet);
  if (packet.opcode == LAB_BTH_OPCODE_UD_SEND_ONLY && decode_lab_header(packet))
    write_again(packet);
}

// Where the IP packet in the frame ends, if that is in the frame.
std::size_t end_of_packet(const Frame& frame) {
  if (frame.size() < kEthernetBytes + Ipv6::kBytes) return 0;
  const std::uint8_t* ip = frame.data() + kEthernetBytes;
  const bool ipv6 = load16(frame.data() + 12) == Ipv6::kEthertype;
  const std::size_t end = kEthernetBytes + (ipv6 ? Ipv6::packet_bytes(ip) : Ipv4::packet_bytes(ip));
  return end <= frame.size() ? end : 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > kMostFrameBytes) return 0;
  tell(data, size);
  Frame mended(data, data + size);
  const std::size_t end = end_of_packet(mended);
  const auto icrc = icrc_of_frame(mended.data(), end);
  if (!icrc) return 0;
  store(mended.data() + end - kIcrcBytes, *icrc);
  tell(mended.data(), mended.size());
  return 0;
}
