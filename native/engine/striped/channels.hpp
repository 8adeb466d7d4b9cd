// SPDX-License-Identifier: GPL-2.0-or-later
// State of a peer that only the framing uc_immediate needs.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "../units.hpp"
#include "clearance.hpp"
#include "message.hpp"
#include "message_names.hpp"
#include "uc_framing.hpp"

namespace softroce {

struct Channels {
  Channels(std::uint32_t peer, std::uint32_t first_id, std::uint32_t slots)
      : own{uc_framing::first_qp_of(peer), kFirstRootKey + peer},
        next_receive_id(first_id),
        uses(first_id, slots),
        names(slots) {}

  // Not a key that a region ever has in practice; who guesses it still has to be the peer.
  static constexpr std::uint32_t kFirstRootKey = 0x53445200;
  static constexpr std::uint32_t kNoCode = ~0U;

  // A packet in flight, and in reports: channel, and of the PSN what tells it from others in
  // flight. The packet's content is not in it.
  static constexpr std::uint32_t kCodePsnBits = 22, kCodePsnMask = (1U << kCodePsnBits) - 1;
  static constexpr std::uint32_t code_of(std::uint32_t channel, std::uint32_t psn) {
    return channel << kCodePsnBits | (psn & kCodePsnMask);
  }
  static constexpr std::uint32_t channel_of(std::uint32_t code) { return code >> kCodePsnBits; }

  // Sending to it.
  std::optional<uc_framing::Target> target;                // known with its first clearance
  std::array<std::uint32_t, uc_framing::kChannels> psn{};  // of the next packet
  std::unordered_map<std::uint32_t, Handle> waiting;       // by id, sends that have not begun
  std::unordered_map<std::uint32_t, Cleared> cleared;      // by id, not begun here

  // Receiving from it. Receives get ids, and slots, in the order in which they were posted.
  uc_framing::Target own;
  std::uint32_t next_receive_id;
  std::deque<Handle> slotless;  // posted; their slots are in use by earlier ones
  SlotUses uses;
  Time slots_at = kNever;           // when the first of these may get its slot
  std::deque<std::uint32_t> quiet;  // ids that were cleared, and of which no packet has come
  Time clear_at = kNever;           // when those are cleared again
  std::uint32_t clearances_without_effect = 0;
  struct Name {
    MessageKey key;
    std::uint32_t length = 0;
  };
  std::vector<Name> names;  // of what each slot was last used for
  std::array<std::uint32_t, kMaxPaths> newest = all_unknown();  // by path, the last to arrive
  std::uint8_t last_path = 0;

  // Data packets carry no timestamps: reports carry the newest of each path.
  // False: it is not the newest of its own path.
  bool note(const Packet& packet) {
    const std::uint32_t channel = packet.destination_qp - own.first_qp;
    const std::uint32_t code = code_of(channel, packet.psn);
    std::uint32_t& newest_here = newest[packet.lab.path];
    const bool comparable = newest_here != kNoCode && channel_of(newest_here) == channel;
    // RFC 1982, by as many bits as there are.
    const bool newer = ((code - newest_here) & kCodePsnMask) - 1 < kCodePsnMask / 2;
    if (comparable && !newer) return false;
    newest_here = code;
    last_path = packet.lab.path;
    return true;
  }

 private:
  static_assert(uc_framing::kChannels <= 1U << (32 - kCodePsnBits));

  static constexpr std::array<std::uint32_t, kMaxPaths> all_unknown() {
    std::array<std::uint32_t, kMaxPaths> codes{};
    codes.fill(kNoCode);
    return codes;
  }
};

}  // namespace softroce
