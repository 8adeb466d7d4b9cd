// SPDX-License-Identifier: GPL-2.0-or-later
// How packets say which fragment of which message they carry. The message engine knows fragments
// (`LabHeader`: message, index, count ...), a framing knows how a packet says them:
//
//   ud            one UD SEND-only packet each, all of it said by our header     ud_framing.hpp
//   uc_immediate  one UC WRITE with immediate each, as SDR-RDMA's packets        uc_framing.hpp
//
// Control messages and receiver reports are UD packets with our header in either.
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
