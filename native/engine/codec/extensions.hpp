// SPDX-License-Identifier: GPL-2.0-or-later
// What lies between the BTH and the payload: the extension headers that an opcode has (IBA 9.3),
// written and read in their order on the wire.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bytes.hpp"
#include "opcode.hpp"
#include "packet.hpp"

namespace softroce {

struct Extensions {
  std::uint8_t headers = 0;  // of opcode.hpp, or kCnpReserved
  std::uint8_t bytes = 0;
  bool known = false;  // else there is no such opcode
  bool carries_payload = false;
};

namespace detail {

inline constexpr std::uint8_t kCnpReserved = 128;  // beside the flags of `enum Headers`

constexpr auto make_extensions() {
  std::array<Extensions, 256> table{};
  for (std::size_t opcode = 0; opcode < table.size(); ++opcode) {
    const OpcodeTraits& traits = kTraits[opcode];
    table[opcode] = {traits.headers, static_cast<std::uint8_t>(traits.header_bytes()),
                     traits.known(), traits.carries_payload};
  }
  table[kCnpOpcode] = {kCnpReserved, kCnpReservedBytes, true, false};
  return table;
}
inline constexpr auto kExtensions = make_extensions();

}  // namespace detail

constexpr const Extensions& extensions_of(std::uint8_t opcode) {
  return detail::kExtensions[opcode];
}

constexpr std::size_t most_extension_bytes() {
  std::size_t most = 0;
  for (const Extensions& each : detail::kExtensions)
    if (each.bytes > most) most = each.bytes;
  return most;
}

// Both return where the payload begins.
inline std::uint8_t* put_extensions(const Packet& packet, std::uint8_t headers, std::uint8_t* at) {
  if (headers & kDeth) {
    store32(at, packet.qkey);
    store32(at + 4, packet.source_qp & kPsnMask);
    at += kDethSize;
  }
  if (headers & kReth) {
    store64(at, packet.remote_address);
    store32(at + 8, packet.rkey);
    store32(at + 12, packet.dma_length);
    at += kRethSize;
  }
  if (headers & kAtomicEth) {
    store64(at, packet.remote_address);
    store32(at + 8, packet.rkey);
    store64(at + 12, packet.swap_or_add);
    store64(at + 20, packet.compare);
    at += kAtomicEthSize;
  }
  if (headers & kAeth) {
    store32(at, std::uint32_t{packet.syndrome} << 24 | (packet.msn & kPsnMask));
    at += kAethSize;
  }
  if (headers & kAtomicAckEth) {
    store64(at, packet.original);
    at += kAtomicAckEthSize;
  }
  if (headers & kImmediate) {
    store32(at, packet.immediate);
    at += kImmediateSize;
  }
  if (headers & kIeth) {
    store32(at, packet.invalidate_rkey);
    at += kIethSize;
  }
  if (headers & detail::kCnpReserved) {
    std::memset(at, 0, kCnpReservedBytes);
    at += kCnpReservedBytes;
  }
  return at;
}

inline const std::uint8_t* read_extensions(const std::uint8_t* at, std::uint8_t headers,
                                           Packet& packet) {
  if (headers & kDeth) {
    packet.qkey = load32(at);
    packet.source_qp = load24(at + 4);
    at += kDethSize;
  }
  if (headers & kReth) {
    packet.remote_address = load64(at);
    packet.rkey = load32(at + 8);
    packet.dma_length = load32(at + 12);
    at += kRethSize;
  }
  if (headers & kAtomicEth) {
    packet.remote_address = load64(at);
    packet.rkey = load32(at + 8);
    packet.swap_or_add = load64(at + 12);
    packet.compare = load64(at + 20);
    at += kAtomicEthSize;
  }
  if (headers & kAeth) {
    packet.syndrome = at[0];
    packet.msn = load24(at);
    at += kAethSize;
  }
  if (headers & kAtomicAckEth) {
    packet.original = load64(at);
    at += kAtomicAckEthSize;
  }
  if (headers & kImmediate) {
    packet.immediate = load32(at);
    at += kImmediateSize;
  }
  if (headers & kIeth) {
    packet.invalidate_rkey = load32(at);
    at += kIethSize;
  }
  if (headers & detail::kCnpReserved) at += kCnpReservedBytes;
  return at;
}

}  // namespace softroce
