// SPDX-License-Identifier: GPL-2.0-or-later
// A packet as the engine sees it: headers decoded, payload by reference.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../xdp/lab_wire.h"
#include "gid.hpp"
#include "opcode.hpp"

namespace softroce {

// `struct lab_hdr` in host order; xdp/lab_wire.h documents the fields.
struct LabHeader {
  std::uint8_t kind = LAB_KIND_DATA;
  std::uint8_t path = 0;
  std::uint16_t attempt = 0;
  std::uint8_t epoch = 0;
  bool trimmed = false;  // a queue on the way cut the payload off
  std::uint16_t operation = 0;
  std::uint16_t step = 0;
  std::uint32_t message = 0;
  std::uint32_t message_id = 0;
  std::uint32_t index = 0;
  std::uint32_t count = 1;  // packets of data
  std::uint8_t code = 0;
  std::uint32_t length = 0;
  std::uint32_t stamp_ns = 0;
  std::uint32_t number = 0;  // on its path
  std::uint16_t srtt = 0;
  std::uint16_t rttvar = 0;

  // Of `struct lab_operation`, if the verb is another than LAB_VERB_NONE. The rest of it is in the
  // fields of the packet that RETH and ImmDt have, too.
  std::uint8_t verb = LAB_VERB_NONE;  // with LAB_VERB_SOLICITED or not
  std::uint32_t receive = 0;
  std::uint32_t connection = 0;

  bool of_operation() const { return verb != LAB_VERB_NONE; }
};

inline constexpr std::size_t kMostLabBytes = LAB_HDR_BYTES + LAB_OPERATION_BYTES;

inline constexpr std::uint16_t kDefaultPkey = 0xFFFF;  // IBA 10.9.1.2
inline constexpr std::uint32_t kPsnMask = 0xFFFFFF;
inline constexpr std::uint8_t kHopLimit = 64;
inline constexpr std::uint8_t kBecn = 0x40;  // of resv8a, IBA 9.2

// An extension header counts where the opcode has it (opcode.hpp), and is ignored elsewhere.
struct Packet {
  std::uint64_t destination_mac = 0;  // 48 bits; set by the sender only
  Gid source;                         // of one family with the destination
  Gid destination;
  std::uint16_t source_port = 0;
  std::uint8_t traffic_class = 2;  // DSCP and ECN; ECN-capable (RFC 3168) unless set otherwise
  std::uint8_t hop_limit = kHopLimit;
  std::uint32_t flow_label = 0;     // IPv6
  std::uint16_t ip_identifier = 0;  // IPv4; of no meaning with DF, which is always set (RFC 6864)

  // BTH, IBA 9.2
  std::uint8_t opcode = LAB_BTH_OPCODE_UD_SEND_ONLY;
  bool solicited = false;
  bool migrated = false;      // MigReq
  bool ack_request = false;   // AckReq
  std::uint8_t reserved = 0;  // resv8a: FECN, BECN and six bits; not in the ICRC
  std::uint16_t pkey = kDefaultPkey;
  std::uint32_t destination_qp = 0;
  std::uint32_t psn = 0;

  std::uint32_t qkey = 0;  // DETH, IBA 9.3.3
  std::uint32_t source_qp = 0;

  std::uint64_t remote_address = 0;  // RETH and AtomicETH, IBA 9.3.4 and 9.3.5
  std::uint32_t rkey = 0;
  std::uint32_t dma_length = 0;   // RETH
  std::uint64_t swap_or_add = 0;  // AtomicETH
  std::uint64_t compare = 0;

  std::uint8_t syndrome = 0;  // AETH, IBA 9.3.6
  std::uint32_t msn = 0;
  std::uint64_t original = 0;         // AtomicAckETH, IBA 9.3.7
  std::uint32_t immediate = 0;        // ImmDt, IBA 9.3.8
  std::uint32_t invalidate_rkey = 0;  // IETH, IBA 9.3.9

  bool has_lab_header = false;  // else the payload may begin with an undecoded one
  LabHeader lab;

  bool sent_before = false;  // of RC: this PSN, as its sender knows; not on the wire

  const std::uint8_t* payload = nullptr;  // may be absent: the simulated fabric moves no bytes
  std::uint32_t payload_bytes = 0;

  bool congestion_experienced() const { return (traffic_class & 3) == 3; }
  // Of a trimmed packet.
  bool trimmed_at_last_hop() const { return traffic_class >> 2 == LAB_TRIM_LAST_DSCP; }
  bool congestion_echoed() const { return (reserved & kBecn) != 0; }
  // Routers on its way, if it began as ours do.
  std::uint32_t hops() const { return hop_limit < kHopLimit ? kHopLimit - hop_limit : 0U; }
};

// What a packet begins as, where there is one for each frame: a copy of this is cheaper than `{}`,
// which GCC fills with `rep stos`, or field by field at a second place and waits for those stores.
inline constexpr Packet kBlankPacket;

// The traffic class of a packet that is trimmed: ECN stays. `last_hop`: the link of the queue that
// trims leads to the packet's destination.
constexpr std::uint8_t trimmed_class(std::uint8_t traffic_class, bool last_hop) {
  const int dscp = last_hop ? LAB_TRIM_LAST_DSCP : LAB_TRIM_DSCP;
  return static_cast<std::uint8_t>(dscp << 2 | (traffic_class & 3));
}

// Makes of an addressed packet a congestion notification for this QP (IBA annex A17.9.3): BECN set,
// PSN 0, and a traffic class of its own, as NICs have it.
inline void make_cnp(Packet& packet, std::uint32_t destination_qp) {
  constexpr std::uint8_t kClassSelector6 = 48;
  packet.opcode = kCnpOpcode;
  packet.reserved = kBecn;
  packet.traffic_class = kClassSelector6 << 2 | 2;
  packet.destination_qp = destination_qp;
}

// Of a message that is cut into chunks; one of no bytes is a packet all the same.
constexpr std::uint32_t packets_of(std::uint64_t length, std::uint32_t chunk_bytes) {
  return length == 0 ? 1 : static_cast<std::uint32_t>((length - 1) / chunk_bytes + 1);
}

}  // namespace softroce
