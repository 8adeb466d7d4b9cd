// SPDX-License-Identifier: GPL-2.0-or-later
// The opcodes of the BTH (IBA 9.2.1, tables 38 and 39): service and operation, and what follows
// from them: extension headers, in their order on the wire, and the packet's place in its message.
#pragma once

#include <array>
#include <cstdint>

namespace softroce {

// The upper three bits.
enum class Service : std::uint8_t { rc = 0, uc = 1, rd = 2, ud = 3, cnp = 4, xrc = 5 };

// The lower five bits.
enum class Operation : std::uint8_t {
  send_first = 0,
  send_middle = 1,
  send_last = 2,
  send_last_immediate = 3,
  send_only = 4,
  send_only_immediate = 5,
  write_first = 6,
  write_middle = 7,
  write_last = 8,
  write_last_immediate = 9,
  write_only = 10,
  write_only_immediate = 11,
  read_request = 12,
  read_response_first = 13,
  read_response_middle = 14,
  read_response_last = 15,
  read_response_only = 16,
  acknowledge = 17,
  atomic_acknowledge = 18,
  compare_swap = 19,
  fetch_add = 20,
  send_last_invalidate = 22,
  send_only_invalidate = 23,
};

constexpr std::uint8_t opcode_of(Service service, Operation operation) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(service) << 5 |
                                   static_cast<unsigned>(operation));
}
constexpr Service service_of(std::uint8_t opcode) { return static_cast<Service>(opcode >> 5); }
constexpr Operation operation_of(std::uint8_t opcode) {
  return static_cast<Operation>(opcode & 0x1F);
}

inline constexpr std::uint8_t kCnpOpcode = 0x81;  // congestion notification, annex A17.9.3
inline constexpr std::uint32_t kCnpReservedBytes = 16;

// Extension headers, in the order in which they follow the BTH (IBA 9.3).
enum Headers : std::uint8_t {
  kDeth = 1,
  kReth = 2,
  kAtomicEth = 4,
  kAeth = 8,
  kAtomicAckEth = 16,
  kImmediate = 32,
  kIeth = 64,
};
inline constexpr std::uint32_t kDethSize = 8, kRethSize = 16, kAtomicEthSize = 28, kAethSize = 4,
                               kAtomicAckEthSize = 8, kImmediateSize = 4, kIethSize = 4;

enum class Family : std::uint8_t { none, send, write, read, read_response, acknowledge, atomic };

struct OpcodeTraits {
  Family family = Family::none;  // none: there is no such opcode
  std::uint8_t headers = 0;
  bool begins = false;  // a message or a response
  bool ends = false;
  bool carries_payload = false;

  constexpr bool known() const { return family != Family::none; }
  constexpr std::uint32_t header_bytes() const {
    std::uint32_t bytes = 0;
    if (headers & kDeth) bytes += kDethSize;
    if (headers & kReth) bytes += kRethSize;
    if (headers & kAtomicEth) bytes += kAtomicEthSize;
    if (headers & kAeth) bytes += kAethSize;
    if (headers & kAtomicAckEth) bytes += kAtomicAckEthSize;
    if (headers & kImmediate) bytes += kImmediateSize;
    if (headers & kIeth) bytes += kIethSize;
    return bytes;
  }
};

namespace detail {

// Of an operation on a connected service; UC has a part of them.
constexpr OpcodeTraits connected_traits(Operation operation) {
  using enum Operation;
  switch (operation) {
    case send_first:
      return {Family::send, 0, true, false, true};
    case send_middle:
      return {Family::send, 0, false, false, true};
    case send_last:
      return {Family::send, 0, false, true, true};
    case send_last_immediate:
      return {Family::send, kImmediate, false, true, true};
    case send_only:
      return {Family::send, 0, true, true, true};
    case send_only_immediate:
      return {Family::send, kImmediate, true, true, true};
    case send_last_invalidate:
      return {Family::send, kIeth, false, true, true};
    case send_only_invalidate:
      return {Family::send, kIeth, true, true, true};
    case write_first:
      return {Family::write, kReth, true, false, true};
    case write_middle:
      return {Family::write, 0, false, false, true};
    case write_last:
      return {Family::write, 0, false, true, true};
    case write_last_immediate:
      return {Family::write, kImmediate, false, true, true};
    case write_only:
      return {Family::write, kReth, true, true, true};
    case write_only_immediate:
      return {Family::write, kReth | kImmediate, true, true, true};
    case read_request:
      return {Family::read, kReth, true, true, false};
    case read_response_first:
      return {Family::read_response, kAeth, true, false, true};
    case read_response_middle:
      return {Family::read_response, 0, false, false, true};
    case read_response_last:
      return {Family::read_response, kAeth, false, true, true};
    case read_response_only:
      return {Family::read_response, kAeth, true, true, true};
    case acknowledge:
      return {Family::acknowledge, kAeth, true, true, false};
    case atomic_acknowledge:
      return {Family::acknowledge, kAeth | kAtomicAckEth, true, true, false};
    case compare_swap:
    case fetch_add:
      return {Family::atomic, kAtomicEth, true, true, false};
  }
  return {};
}

constexpr OpcodeTraits traits_of(std::uint8_t opcode) {
  const Operation operation = operation_of(opcode);
  OpcodeTraits traits = connected_traits(operation);
  switch (service_of(opcode)) {
    case Service::rc:
      return traits;
    case Service::uc:
      return operation < Operation::read_request ? traits : OpcodeTraits{};
    case Service::ud:
      if (operation != Operation::send_only && operation != Operation::send_only_immediate)
        return {};
      traits.headers |= kDeth;
      return traits;
    default:
      return {};
  }
}

constexpr auto make_traits() {
  std::array<OpcodeTraits, 256> table{};
  for (unsigned opcode = 0; opcode < table.size(); ++opcode)
    table[opcode] = traits_of(static_cast<std::uint8_t>(opcode));
  return table;
}
inline constexpr auto kTraits = make_traits();

}  // namespace detail

constexpr const OpcodeTraits& traits_of(std::uint8_t opcode) { return detail::kTraits[opcode]; }

}  // namespace softroce
