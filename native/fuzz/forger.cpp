// SPDX-License-Identifier: GPL-2.0-or-later
#include "forger.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "../engine/codec/bytes.hpp"
#include "../engine/codec/codec.hpp"

namespace softroce::fuzz {
namespace {

constexpr std::array<std::uint8_t, 6> kForgedSyndromes = {0x1F, 0x60, 0x61, 0x62, 0x21, 0x00};
constexpr std::uint8_t kOpcodes = 24;  // of a service
constexpr std::size_t kLeastBytes = kEthernetBytes + 44;

bool is_response(const OpcodeTraits& traits) {
  return traits.family == Family::read_response || traits.family == Family::acknowledge;
}

}  // namespace

void Forger::saw(Target& to, const Packet& packet, Frame frame) {
  const OpcodeTraits& traits = traits_of(packet.opcode);
  const std::uint32_t packets = traits.family == Family::read
                                    ? std::max(1U, (packet.dma_length + kPathMtu - 1) / kPathMtu)
                                    : 1;
  (is_response(traits) ? to.next_response : to.next_request) = (packet.psn + packets) & kPsnMask;
  saw(std::move(frame));
}

std::uint8_t Forger::any_opcode(const Target& to) {
  for (;;) {
    const auto opcode = static_cast<std::uint8_t>(to.service + below(random_, kOpcodes));
    if (traits_of(opcode).known()) return opcode;
  }
}

// A well-formed packet of any opcode that is about any memory.
Frame Forger::forge(Target& to) {
  Packet packet;
  packet.opcode = any_opcode(to);
  const OpcodeTraits& traits = traits_of(packet.opcode);
  packet.source = to.peer;
  packet.destination = to.gid;
  packet.destination_qp = to.qp;
  packet.psn = is_response(traits) ? to.next_response : to.next_request;
  if (below(random_, 4) == 0) packet.psn = (packet.psn + below(random_, 9) - 4) & kPsnMask;
  packet.ack_request = below(random_, 2);
  packet.solicited = below(random_, 2);
  packet.qkey = below(random_, 8) ? to.qkey : static_cast<std::uint32_t>(random_());
  packet.source_qp = below(random_, 1 << 24);
  const Memory& region = any_region(to);
  packet.rkey = below(random_, 8) ? region.key : below(random_, 1 << 20);
  packet.remote_address = any_address(region);
  const std::array<std::uint32_t, 4> lengths = {kPathMtu, below(random_, kPathMtu + 1), 8,
                                                2 * kPathMtu};
  packet.payload_bytes = traits.carries_payload ? lengths[below(random_, 3)] : 0;
  packet.dma_length = below(random_, 2) ? packet.payload_bytes : lengths[below(random_, 4)];
  if (below(random_, 16) == 0) packet.dma_length = static_cast<std::uint32_t>(random_());
  packet.compare = packet.swap_or_add = packet.original = random_();
  packet.syndrome = below(random_, 2) ? kForgedSyndromes[below(random_, kForgedSyndromes.size())]
                                      : static_cast<std::uint8_t>(random_());
  packet.msn = below(random_, 1 << 24);
  packet.invalidate_rkey = below(random_, 4) ? below(random_, 1 << 20) : region.key;
  static const Frame kPayload(2 * kPathMtu, 0xEE);
  packet.payload = kPayload.data();
  Frame frame(kMostPathMtu + kMostOverheadBytes);
  frame.resize(encode(packet, 1, frame.data()));
  if (!is_response(traits) && (traits.ends || below(random_, 2)))
    to.next_request = (packet.psn + 1) & kPsnMask;  // if it is accepted
  return frame;
}

std::uint64_t Forger::any_address(const Memory& region) {
  const std::array<std::uint64_t, 7> addresses = {region.address,
                                                  region.address + 8 * below(random_, 512),
                                                  region.address - 1,
                                                  region.address + kRegionBytes - 8,
                                                  region.address + kRegionBytes,
                                                  UINT64_MAX - below(random_, 64),
                                                  random_()};
  return addresses[below(random_, addresses.size())];
}

Frame Forger::change(const Target& to) {
  Frame frame = sent_[below(random_, kRemembered)];
  if (frame.size() < kLeastBytes || below(random_, 64) == 0) return noise();
  const std::uint32_t kind = below(random_, 8);
  if (kind == 0) frame.resize(below(random_, static_cast<std::uint32_t>(frame.size()) + 1));
  if (kind == 1) frame.resize(frame.size() + below(random_, 64), 0x5A);
  if (kind < 5) change_bytes(frame);
  if (kind >= 3) change_fields(frame, to);
  mend(frame);
  return frame;
}

Frame Forger::noise() {
  Frame frame(below(random_, 200));
  for (auto& byte : frame) byte = static_cast<std::uint8_t>(random_());
  return frame;
}

void Forger::change_bytes(Frame& frame) {
  for (std::uint32_t n = 1 + below(random_, 4); n != 0 && !frame.empty(); --n)
    frame[below(random_, frame.size())] ^= static_cast<std::uint8_t>(1U << below(random_, 8));
}

// Gives a packet's fields plausible values.
void Forger::change_fields(Frame& frame, const Target& to) {
  constexpr std::size_t kBth = kEthernetBytes + 28;
  if (frame.size() < kBth + 32) return;
  std::uint8_t* bth = frame.data() + kBth;
  if (below(random_, 2)) bth[0] = static_cast<std::uint8_t>(to.service + below(random_, kOpcodes));
  if (below(random_, 4) == 0) bth[1] = static_cast<std::uint8_t>(random_());
  if (below(random_, 2)) bth[8] ^= 0x80;  // AckReq
  if (below(random_, 2))
    store32(bth + 8, (load32(bth + 8) & 0xFF000000) |
                         ((load24(bth + 8) + below(random_, 9) - 4) & kPsnMask));
  if (below(random_, 2)) store32(bth + 4, to.qp);
  const Memory& region = any_region(to);
  if (below(random_, 2)) store64(bth + 12, any_address(region));
  if (below(random_, 2)) store32(bth + 20, region.key);
  if (below(random_, 2)) store32(bth + 24, below(random_, 8) ? below(random_, 20000) : UINT32_MAX);
  if (below(random_, 4) == 0) bth[12] = static_cast<std::uint8_t>(random_());  // AETH syndrome
}

void Forger::mend(Frame& frame) {
  if (frame.size() < kLeastBytes || below(random_, 16) == 0) return;
  const auto ip_bytes = static_cast<std::uint16_t>(frame.size() - kEthernetBytes);
  if (below(random_, 16) != 0) {
    store16(frame.data() + kEthernetBytes + 2, ip_bytes);
    store16(frame.data() + kEthernetBytes + 24, static_cast<std::uint16_t>(ip_bytes - 20));
  }
  if (const auto icrc = icrc_of_frame(frame.data(), frame.size()))
    std::memcpy(frame.data() + frame.size() - kIcrcBytes, &*icrc, kIcrcBytes);
}

}  // namespace softroce::fuzz
