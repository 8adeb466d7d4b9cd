// SPDX-License-Identifier: GPL-2.0-or-later
// The framing of striped messages over UD: one SEND-only packet each, described by `lab_hdr`.
#pragma once

#include "../codec/codec.hpp"

namespace softroce::ud_framing {

// Reads the lab header if the packet does not carry it decoded (the simulated fabric's do). False:
// the header is not valid, or its path does not agree with the source port.
inline bool open(Packet& packet) {
  if (!packet.has_lab_header && !decode_lab_header(packet)) return false;
  return packet.source_port == LAB_UDP_SPORT_BASE + packet.lab.path;
}

inline void close(Packet& packet) {
  packet.has_lab_header = true;
  packet.opcode = LAB_BTH_OPCODE_UD_SEND_ONLY;
  packet.source_port = static_cast<std::uint16_t>(LAB_UDP_SPORT_BASE + packet.lab.path);
}

}  // namespace softroce::ud_framing
