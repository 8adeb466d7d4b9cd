// SPDX-License-Identifier: GPL-2.0-or-later
// One captured frame to a row: steps over the link layer and reads the RoCEv2 packet behind it, as
// far as the snap length left it.
#pragma once

#include <array>
#include <cstdint>

#include "notes.hpp"
#include "row.hpp"

namespace softroce::capture {

// Reasons of `Kind::malformed`, by `PacketRow::refusal`.
inline constexpr std::array kRefusals = {
    "lengths that contradict each other",
    "no such opcode or transport version",
    "a payload that the opcode does not have, or that is not whole words",
};

// Fills in the fields of the frame. `row` has the fields of the file: number, captured, length and
// offset among them; `frame` are its `captured` bytes.
void read_frame(const std::uint8_t* frame, std::uint32_t link_type, PacketRow& row, Notes& notes);

}  // namespace softroce::capture
