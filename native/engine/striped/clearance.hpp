// SPDX-License-Identifier: GPL-2.0-or-later
// Clear to send: a receiver of the framing uc_immediate sends it when receives are posted, and
// repeats it until their messages begin. It is a control message that the engine itself reads
// (`message_id` LAB_CONTROL_CLEAR of our header). All of it is this project's definition.
//
//   0 type  1 generations  2 paths  4 first_qp  8 root_key  12 slot_bytes u64
//   20 n x { id, operation u16, step u16, message, length }                        all big-endian
#pragma once

#include <cstdint>
#include <vector>

#include "../codec/bytes.hpp"
#include "../verbs/completion.hpp"
#include "uc_framing.hpp"

namespace softroce {

struct Cleared {  // a posted receive
  std::uint32_t id = 0;
  MessageKey key;
  std::uint32_t length = 0;
};

struct Clearance {
  static constexpr std::uint8_t kType = 9;
  static constexpr std::size_t kFixedBytes = 20, kEntryBytes = 16;

  uc_framing::Target target;
  std::uint64_t slot_bytes = 0;
  std::vector<Cleared> receives;
};

inline std::vector<std::uint8_t> write_clearance(const Clearance& clearance) {
  std::vector<std::uint8_t> body(Clearance::kFixedBytes +
                                 clearance.receives.size() * Clearance::kEntryBytes);
  std::uint8_t* at = body.data();
  at[0] = Clearance::kType;
  at[1] = uc_framing::kGenerations;
  store16(at + 2, kMaxPaths);
  store32(at + 4, clearance.target.first_qp);
  store32(at + 8, clearance.target.root_key);
  store64(at + 12, clearance.slot_bytes);
  at += Clearance::kFixedBytes;
  for (const Cleared& each : clearance.receives) {
    store32(at, each.id);
    store16(at + 4, each.key.operation);
    store16(at + 6, each.key.step);
    store32(at + 8, each.key.message);
    store32(at + 12, each.length);
    at += Clearance::kEntryBytes;
  }
  return body;
}

// False: it is none, or of one who counts generations, paths or slots in another way.
inline bool read_clearance(const std::uint8_t* at, std::size_t bytes, std::uint64_t slot_bytes,
                           Clearance& clearance) {
  if (bytes < Clearance::kFixedBytes || (bytes - Clearance::kFixedBytes) % Clearance::kEntryBytes)
    return false;
  if (at[0] != Clearance::kType || at[1] != uc_framing::kGenerations || load16(at + 2) != kMaxPaths)
    return false;
  clearance.target = {load32(at + 4), load32(at + 8)};
  clearance.slot_bytes = load64(at + 12);
  if (clearance.target.first_qp > kPsnMask - uc_framing::kChannels ||
      clearance.slot_bytes != slot_bytes)
    return false;
  const std::uint8_t* end = at + bytes;
  for (at += Clearance::kFixedBytes; at != end; at += Clearance::kEntryBytes)
    clearance.receives.push_back(
        {load32(at), {load16(at + 4), load16(at + 6), load32(at + 8)}, load32(at + 12)});
  return true;
}

}  // namespace softroce
