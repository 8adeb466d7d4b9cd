// SPDX-License-Identifier: GPL-2.0-or-later
// What the wire stage reads in a frame, and what it writes there: the CE mark, and the cut of a
// trimmed packet.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softroce::wire {

// Whether the sender can do with ECN (RFC 3168): the field is not zero.
bool ecn_capable(const std::uint8_t* frame, std::size_t bytes);
// Sets CE; the frame is ecn_capable.
void mark_ce(std::uint8_t* frame);

// What trimming leaves of a frame: its headers up to the lab header, or up to the operation behind
// that, and an ICRC. 0: it is none of our data packets, or trimmed already.
std::size_t trimmed_bytes(const std::uint8_t* frame, std::size_t bytes);
// Cuts a frame of `bytes` for which `trimmed_bytes` is not 0: new lengths, checksum, DSCP and ICRC.
// The ICRC of a packet that was corrupted before stays wrong. `last_hop`: the link of the queue
// that cuts leads to the destination.
void trim(std::uint8_t* frame, std::size_t bytes, bool last_hop);

}  // namespace softroce::wire
