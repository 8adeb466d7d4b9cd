// SPDX-License-Identifier: GPL-2.0-or-later
// When a message may be named as an earlier one was: not while packets of that one may be on their
// way, for they would be taken for its own. A packet's longest lifetime in the fabric is a setting
// (`MessageConfig::packet_lifetime`); TCP waits as long for its sequence numbers (RFC 9293, 3.4.2
// and 3.6.1). All of it is this project's definition.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>

#include "../units.hpp"
#include "uc_framing.hpp"

namespace softroce {

// At a receiver of the framing uc_immediate: uses of (slot, generation), which repeat after
// `names` ids. Ids get their slots in order. A sender uses a slot again when what used it is over
// there, so the first packet of the slot's next use proves that all packets of this one have left.
class SlotUses {
 public:
  explicit SlotUses(std::uint32_t first_id, std::uint32_t slots) : slots_(slots), next_(first_id) {}

  // When the next id may get its slot; 0: at once.
  Time ready_at(Time now, Time lifetime) {
    if (quiet_at_.size() < names()) return 0;
    Time& at = quiet_at_.front();
    if (at == kNever) at = now + lifetime;  // the slot was not used since
    return at;
  }

  void given() {
    quiet_at_.push_back(kNever);
    if (quiet_at_.size() > names()) quiet_at_.pop_front();
    ++next_;
  }

  // A packet of this id has come: those of earlier uses of the slot left before.
  void begun(std::uint32_t id, Time now, Time lifetime) {
    for (std::size_t behind = next_ - id + slots_; behind <= quiet_at_.size(); behind += slots_) {
      Time& at = quiet_at_[quiet_at_.size() - behind];
      if (at != kNever) break;
      at = now + lifetime;
    }
  }

 private:
  std::size_t names() const { return std::size_t{slots_} * uc_framing::kGenerations; }

  std::uint32_t slots_;
  std::uint32_t next_;         // id
  std::deque<Time> quiet_at_;  // of the ids before it: when no packet of theirs is on its way
};

// At a sender of the framing ud: ids count up and wrap. A receiver takes the id of a slot that is
// less than 2^31 ids ahead for the newer one, so ids of packets on their way, and of messages that
// are not over, have to lie closer together. They are kept within three eighths of all ids, behind
// which a message takes at most `message_slots` further ones.
class IdEighths {
 public:
  // When a message with this id may be sent; 0: at once, kNever: not before others are over.
  Time ready_at(std::uint32_t id) const {
    Time at = 0;
    for (const std::uint32_t before : {3U, 4U}) {
      const Eighth& eighth = eighths_[(id / kIds - before) % kEighths];
      at = std::max(at, eighth.outstanding != 0 ? kNever : eighth.quiet_at);
    }
    return at;
  }

  void posted(std::uint32_t id) { ++eighths_[id / kIds].outstanding; }

  void over(std::uint32_t id, Time now, Time lifetime) {
    Eighth& eighth = eighths_[id / kIds];
    --eighth.outstanding;
    eighth.quiet_at = now + lifetime;
  }

 private:
  static constexpr std::uint32_t kIds = 1U << 29, kEighths = 8;

  struct Eighth {
    std::uint32_t outstanding = 0;
    Time quiet_at = 0;
  };
  std::array<Eighth, kEighths> eighths_{};
};

}  // namespace softroce
