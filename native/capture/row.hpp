// SPDX-License-Identifier: GPL-2.0-or-later
// A frame of a capture as a row: the layout of PACKET in softroce_lab/telemetry/packets.py, which
// defines the fields.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace softroce::capture {

enum class Kind : std::uint8_t { roce, other, cut, malformed };

// Has; its values 1 to 64 are `enum Headers` of engine/codec/opcode.hpp.
inline constexpr std::uint32_t kHasLab = 128, kHasWhole = 256, kHasIcrcChecked = 512,
                               kHasIcrcGood = 1024, kHasVlan = 2048, kHasIpv6 = 4096,
                               kHasTrimmed = 8192, kHasPayloadHash = 16384, kHasStamp = 32768;

enum BthFlags : std::uint8_t { kSolicited = 1, kMigReq = 2, kAckReq = 4, kFecn = 8, kBecn = 16 };

inline constexpr std::int32_t kNoComment = -1;

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using GidBytes = std::array<std::uint8_t, 16>;

// clang-format off
#define SOFTROCE_PACKET_ROW(X)                                                                    \
  X(u64, time_ns) X(u64, offset)                                                                  \
  X(u32, number) X(u32, interface) X(u32, captured) X(u32, length) X(i32, comment) X(u32, has)    \
  X(Kind, kind) X(u8, refusal) X(u8, traffic_class) X(u8, hop_limit)                              \
  X(u16, source_port) X(u16, pkey) X(GidBytes, source) X(GidBytes, destination)                   \
  X(u8, opcode) X(u8, bth_flags) X(u8, pad) X(u8, syndrome)                                       \
  X(u32, destination_qp) X(u32, psn) X(u32, qkey) X(u32, source_qp) X(u32, rkey)                  \
  X(u64, remote_address) X(u64, swap_or_add) X(u64, compare) X(u64, original)                     \
  X(u64, payload_hash)                                                                            \
  X(u32, dma_length) X(u32, msn) X(u32, immediate) X(u32, payload_bytes) X(u32, payload_at)       \
  X(u8, lab_kind) X(u8, lab_path) X(u16, lab_attempt)                                             \
  X(u16, lab_operation) X(u16, lab_step)                                                          \
  X(u32, lab_message) X(u32, lab_message_id) X(u32, lab_index) X(u32, lab_count)                  \
  X(u32, lab_length) X(u32, lab_stamp_ns) X(u32, lab_number) X(u32, lab_epoch)                    \
  X(u32, lab_srtt_ns) X(u32, lab_rttvar_ns) X(u32, icrc)
// clang-format on

struct PacketRow {
#define SOFTROCE_MEMBER(type, name) type name;
  SOFTROCE_PACKET_ROW(SOFTROCE_MEMBER)
#undef SOFTROCE_MEMBER
};
static_assert(sizeof(PacketRow) == 216, "no padding: numpy's dtype has none");

}  // namespace softroce::capture
