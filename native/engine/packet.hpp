// SPDX-License-Identifier: GPL-2.0-or-later
// A packet as the engine sees it: headers decoded, payload by reference.
#pragma once

#include <cstdint>

#include "../../xdp/lab_wire.h"
#include "gid.hpp"

namespace softroce {

// `struct lab_hdr` in host order; xdp/lab_wire.h documents the fields.
struct LabHeader {
  std::uint8_t kind = LAB_KIND_DATA;
  std::uint8_t path = 0;
  std::uint8_t attempt = 0;
  bool trimmed = false;  // a queue on the way cut the payload off
  std::uint16_t operation = 0;
  std::uint16_t step = 0;
  std::uint32_t message = 0;
  std::uint32_t message_id = 0;
  std::uint32_t index = 0;
  std::uint32_t count = 1;
  std::uint32_t length = 0;
  std::uint32_t stamp_ns = 0;
  std::uint32_t srtt_ns = 0;
  std::uint32_t rttvar_ns = 0;
};

inline constexpr std::uint16_t kDefaultPkey = 0xFFFF;  // IBA 10.9.1.2

struct Packet {
  std::uint64_t destination_mac = 0;  // 48 bits; set by the sender only
  Gid source;                         // of one family with the destination
  Gid destination;
  std::uint16_t source_port = 0;
  bool congestion_experienced = false;  // IP ECN field 11

  std::uint8_t opcode = LAB_BTH_OPCODE_UD_SEND_ONLY;
  bool solicited = false;
  std::uint16_t pkey = kDefaultPkey;
  std::uint32_t destination_qp = 0;
  std::uint32_t psn = 0;

  std::uint32_t qkey = 0;  // DETH, IBA 9.3.3
  std::uint32_t source_qp = 0;

  bool has_lab_header = false;  // else the payload may begin with an undecoded one
  LabHeader lab;

  const std::uint8_t* payload = nullptr;  // may be absent: the simulated fabric moves no bytes
  std::uint32_t payload_bytes = 0;
};

}  // namespace softroce
