// SPDX-License-Identifier: GPL-2.0-or-later
// The number of peers that sent data in this epoch or the one before, without a scan of the others.
// Time is divided into epochs.
#pragma once

#include <cstdint>

#include "../units.hpp"

namespace softroce {

class ActivePeers {
 public:
  static constexpr Time kEpoch = 5 * kMillisecond;

  // Data came from a peer; `last_epoch` is the peer's own, -1 before its first.
  void note(std::int64_t& last_epoch, Time now) {
    advance(now);
    if (last_epoch == epoch_) return;
    if (last_epoch == epoch_ - 1) --before_only_;
    ++now_;
    last_epoch = epoch_;
  }

  std::uint32_t count(Time now) {
    advance(now);
    return now_ + before_only_;
  }

 private:
  void advance(Time now) {
    const std::int64_t epoch = now / kEpoch;
    if (epoch == epoch_) return;
    before_only_ = epoch == epoch_ + 1 ? now_ : 0;
    now_ = 0;
    epoch_ = epoch;
  }

  std::int64_t epoch_ = 0;
  std::uint32_t now_ = 0;          // peers whose last epoch is this one,
  std::uint32_t before_only_ = 0;  // or the one before
};

}  // namespace softroce
