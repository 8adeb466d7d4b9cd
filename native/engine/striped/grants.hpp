// SPDX-License-Identifier: GPL-2.0-or-later
// How many packets each sender may have in flight, as the receiver grants it: congestion control
// `grants`. The queue of the last link is the receiver's own, and it alone knows all who fill it.
//
// This project's definition [D]. Homa (Montazeri et al., SIGCOMM 2018) grants to the
// few messages with the least left, more than one so that the link stays busy if a sender is busy
// elsewhere. Here a grant is a window in the receiver's reports, and not a packet for each packet.
//
// - A sender of which nothing is known to come, and each of the first kGranted senders: three
//   quarters of a bandwidth-delay product. First is who has the least left, by class (LeftClass),
//   and among those who came first.
// - A sender of which nothing has arrived for four round trips keeps nobody waiting: it may be busy
//   elsewhere, or gone.
// - All others: kTrickled packets, so that they go on when their turn comes; fewer where they are
//   many, for all of it lies in the last queue.
// - A sender that is alone, and whose packets bear no congestion marks: all of the window.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "message_config.hpp"
#include "peer.hpp"

namespace softroce {

class Grants {
 public:
  explicit Grants(const MessageConfig& config)
      : works_(config.congestion_control == kGrants),
        window_(config.window_packets),
        share_(granted_share(window_)),
        silence_(kSilenceOfRtt * config.initial_rtt) {}

  bool works() const { return works_; }

  // More packets of a message are to come, or fewer.
  void expect(Peer& peer, std::int64_t packets) {
    if (!works_ || packets == 0) return;
    const std::uint32_t before = peer.incoming;
    peer.incoming = static_cast<std::uint32_t>(before + packets);
    const std::uint8_t now = LeftClass::of(peer.incoming);
    if (before != 0 && peer.incoming != 0 && now == peer.incoming_class) return;
    if (before != 0) of_[peer.incoming_class].remove(peer);
    if (peer.incoming != 0) of_[now].add(peer);
    peer.incoming_class = now;
    senders_ += (peer.incoming != 0) - (before != 0);
  }

  // `marked`: packets from it bore congestion marks since the last report.
  std::uint32_t window_for(const Peer& peer, bool marked, Time now) const {
    if (!works_) return UINT32_MAX;
    const bool alone = senders_ == (peer.incoming != 0);
    if (alone && !marked) return window_;
    return peer.incoming == 0 || is_first(peer, now) ? share_ : std::min(share_, trickled());
  }

 private:
  static constexpr std::uint32_t kGranted = 2;
  static constexpr Time kSilenceOfRtt = 4;
  // Of all together, at most: packets, or shares if that is more.
  static constexpr std::uint32_t kMostTrickled = 128, kTrickledShares = 4;
  static constexpr std::uint32_t kLeastTrickled = 3;  // with two, a lost one halves the rate

  std::uint32_t trickled() const {
    const std::uint32_t of_all = std::max(kMostTrickled, kTrickledShares * share_);
    const std::uint32_t of_each = of_all / std::max(senders_, 1U);
    return std::clamp(of_each, kLeastTrickled, kTrickled);
  }

  bool is_first(const Peer& peer, Time now) const {
    std::uint32_t before = 0;
    for (const auto& senders : of_)
      for (const Peer* each = senders.first(); each != nullptr; each = each->behind) {
        if (each == &peer) return true;
        if (now - each->newest_data.at <= silence_ && ++before == kGranted) return false;
      }
    return false;
  }

  const bool works_;
  const std::uint32_t window_, share_;
  const Time silence_;
  std::uint32_t senders_ = 0;  // of which packets are to come
  std::array<LinkedList<Peer>, LeftClass::kClasses> of_;
};

}  // namespace softroce
