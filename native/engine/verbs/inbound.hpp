// SPDX-License-Identifier: GPL-2.0-or-later
// A message on its way in over a connected service: what packets may follow, where they go
// (IBA 9.7.4.1 and 9.8.2.2). What an error means is the service's business.
#pragma once

#include <cstdint>
#include <optional>

#include "../codec/packet.hpp"
#include "../units.hpp"
#include "work_request.hpp"

namespace softroce {

struct Inbound {
  Family family = Family::none;           // send or write; none: no message is under way
  std::uint64_t offset = 0;               // bytes that are there
  std::optional<ReceiveRequest> receive;  // of a SEND
  std::uint64_t remote_address = 0;       // of a WRITE, from its RETH
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;
  Time first_at = 0;

  bool under_way() const { return family != Family::none; }
  void reset() { *this = {}; }

  // Whether the packet may come next, IBA 9.7.4.1.2 (table 46).
  bool expects(const OpcodeTraits& traits) const {
    return traits.begins ? !under_way() : family == traits.family;
  }
};

// Payload that fits the packet's place, IBA 9.7.4.1.6: all but the last are full, a last one has at
// least a byte.
inline bool fits_place(const OpcodeTraits& traits, std::uint32_t bytes, std::uint32_t path_mtu) {
  if (!traits.carries_payload) return bytes == 0;
  if (!traits.ends) return bytes == path_mtu;
  return bytes <= path_mtu && (traits.begins || bytes != 0);
}

}  // namespace softroce
