// SPDX-License-Identifier: GPL-2.0-or-later
// A frame of a capture as a row of the table that checks read (softroce_lab/telemetry/packets.py).
#pragma once

#include <array>
#include <cstdint>

namespace softroce::capture {

enum class Kind : std::uint8_t { roce, other, cut, malformed };

// Has; its values 1 to 64 are `enum Headers` of engine/codec/opcode.hpp.
inline constexpr std::uint32_t kHasLab = 128, kHasWhole = 256, kHasIcrcChecked = 512,
                               kHasIcrcGood = 1024, kHasVlan = 2048, kHasIpv6 = 4096,
                               kHasTrimmed = 8192, kHasPayloadHash = 16384, kHasStamp = 32768,
                               kHasTrimmedLast = 65536, kHasOperation = 131072;

enum BthFlags : std::uint8_t { kSolicited = 1, kMigReq = 2, kAckReq = 4, kFecn = 8, kBecn = 16 };

inline constexpr std::int32_t kNoComment = -1;

using GidBytes = std::array<std::uint8_t, 16>;  // IPv6, or IPv4-mapped

// Headers that a frame has not are zero; `has` shows which ones it has.
struct PacketRow {
  std::uint64_t time_ns;    // since 1970, or whatever the file counts from
  std::uint64_t offset;     // of the frame's first byte in the file
  std::uint32_t number;     // of the frame in the file, from 1, as Wireshark counts
  std::uint32_t interface;  // index of Contents::interfaces()
  std::uint32_t captured;   // bytes in the file
  std::uint32_t length;     // bytes on the wire
  std::int32_t comment;     // index of Contents::comments(), or kNoComment
  std::uint32_t has;        // bits of Has
  Kind kind;
  std::uint8_t refusal;        // of Kind::malformed: index of kRefusals
  std::uint8_t traffic_class;  // DSCP and ECN
  std::uint8_t hop_limit;
  std::uint16_t source_port, pkey;
  GidBytes source, destination;
  std::uint8_t opcode;     // BTH
  std::uint8_t bth_flags;  // BthFlags
  std::uint8_t pad;
  std::uint8_t syndrome;  // AETH
  std::uint32_t destination_qp, psn;
  std::uint32_t qkey, source_qp;  // DETH
  std::uint32_t rkey;             // RETH, AtomicETH, IETH
  std::uint64_t remote_address;   // RETH, AtomicETH
  std::uint64_t swap_or_add, compare;
  std::uint64_t original;      // AtomicAckETH
  std::uint64_t payload_hash;  // of the payload less padding and our headers, if it is whole
  std::uint32_t dma_length, msn, immediate;
  std::uint32_t payload_bytes;      // on the wire, less padding and our headers
  std::uint32_t payload_at;         // where it begins in the frame
  std::uint8_t lab_kind, lab_path;  // this and the next: struct lab_hdr of xdp/lab_wire.h
  std::uint16_t lab_attempt, lab_operation, lab_step;
  std::uint32_t lab_message, lab_message_id, lab_index, lab_count, lab_length, lab_stamp_ns;
  std::uint32_t lab_number;  // on the path
  std::uint16_t lab_code;
  std::uint8_t lab_epoch;
  std::uint8_t lab_verb;  // this and the last ones: struct lab_operation
  std::uint32_t lab_srtt_ns, lab_rttvar_ns;
  std::uint32_t icrc;  // as the frame has it, read as the codec does; 0 unless the frame is whole
  std::uint64_t lab_remote_address;
  std::uint32_t lab_receive, lab_connection, lab_rkey, lab_argument;
};

}  // namespace softroce::capture
