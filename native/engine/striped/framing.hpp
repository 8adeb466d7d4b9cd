// SPDX-License-Identifier: GPL-2.0-or-later
// How packets name the fragment and the message that they carry. The message engine has fragments
// (`LabHeader`: message, index, count ...), a framing encodes them in packets:
//
//   ud            one UD SEND-only packet each, all fields in the lab header     ud_framing.hpp
//   uc_immediate  one UC WRITE with immediate each, as SDR-RDMA's packets        uc_framing.hpp
//
// Control messages and receiver reports are UD packets with the lab header in either.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace softroce {

enum class Framing : std::uint8_t { ud, uc_immediate };

// Throws std::invalid_argument that lists the known names for an unknown one.
Framing framing_named(std::string_view name);
std::vector<std::string> framing_names();

// Data bytes that a packet carries at a path MTU.
std::uint32_t chunk_bytes_of(Framing framing, std::uint32_t path_mtu);

}  // namespace softroce
