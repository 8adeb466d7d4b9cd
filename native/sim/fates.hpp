// SPDX-License-Identifier: GPL-2.0-or-later
// Fates of packets by their names [D]: recorded in one run, replayed in another. What a rule did to
// a packet on its n-th link is done again to the packet of that name on its n-th link, whenever it
// comes there and whichever link that is; no rule draws for any other packet. So one loss can be
// undone and all others stay what they were.
//
// A transmission with the lab's header has a name of its own: it has the number of the attempt. Of
// other packets the n-th of a sender that look the same have the name n. A second copy that a link
// made has the name of the first one and of the link's place. Names are digests of 64 bits.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "../../xdp/lab_fault.h"

namespace softroce::sim {

struct Fate {
  std::uint32_t effects = 0;  // bits of lab_effect
  std::uint32_t rule_id[4] = {LAB_FATE_PASSED, LAB_FATE_PASSED, LAB_FATE_PASSED, LAB_FATE_PASSED};
};

class Fates {
 public:
  // The name of a packet that leaves its host now.
  std::uint64_t name(const lab_packet& packet) {
    const std::uint64_t digest = lab_identity_digest(&packet.id);
    if (lab_kind_is_named(packet.id.kind)) return digest;
    const std::uint64_t queue_pair = std::uint64_t{packet.qpn} << 32 | packet.psn;
    const std::uint64_t alike = lab_absorb(lab_absorb(digest, queue_pair), packet.opcode);
    return lab_absorb(alike, ++seen_[alike]);
  }
  static std::uint64_t of_copy(std::uint64_t name, std::uint32_t hop) {
    return lab_absorb(name, ~std::uint64_t{hop});
  }
  // Of a packet on its `hop`-th link.
  static std::uint64_t key(std::uint64_t name, std::uint32_t hop) { return lab_absorb(name, hop); }

  // From now on these happen, and nothing else that a rule would draw for.
  void replay() { replays_ = true; }
  void add(std::uint64_t key, std::uint32_t rule_id, std::uint32_t effect);
  bool replays() const { return replays_; }
  // Fills in what happens to the packet: nothing, if no fate of it is known.
  void decide(std::uint64_t key, lab_verdict& verdict) const;

  // In the order of Fabric::drops().
  void log(std::uint64_t key) { logged_.push_back(key); }
  const std::vector<std::uint64_t>& logged() const { return logged_; }

 private:
  bool replays_ = false;
  std::unordered_map<std::uint64_t, Fate> of_key_;
  std::unordered_map<std::uint64_t, std::uint32_t> seen_;  // packets that look the same
  std::vector<std::uint64_t> logged_;
};

}  // namespace softroce::sim
