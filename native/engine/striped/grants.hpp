// SPDX-License-Identifier: GPL-2.0-or-later
// Congestion control `grants`: the receiver decides how many packets each sender may have in
// flight. The queue of the last link holds only packets for this receiver, and only the receiver
// knows all senders that fill this queue.
//
// This project's definition [D]. In Homa (Montazeri et al., SIGCOMM 2018) the receiver grants to
// the few messages with the fewest bytes left, and to more than one, so that the link stays busy
// if a sender is busy elsewhere. In Homa a grant is an offset in a message, sent in a packet of its
// own. Here a grant is a window in the receiver's reports.
//
// A sender is active while one of its messages has begun to arrive and is not complete. Packets of
// such messages that have not arrived are "to come". The first rule that applies gives the grant:
//
// 1. No other sender is active, and no packet of this sender was marked since the last report: the
//    constant window.
// 2. This sender is not active, or is one of the first kGranted active senders: a share, three
//    quarters of a bandwidth-delay product. Senders are ordered by the class of the number of
//    packets to come (LeftClass), and within a class by when they entered it. A sender from which
//    nothing has arrived for kSilenceOfRtt initial RTTs takes no place from others: it may be busy
//    elsewhere, or gone.
// 3. The sender waits: kTrickled packets, so that it continues without a pause when it becomes one
//    of the first. Fewer if many wait, because the packets of all of them are in the last queue.
//
// If a trimmed packet arrived within the last kTrimmedOfRtt initial RTTs, the last queue is too
// short for the shares of all senders that begin at the same time. Then rule 3 applies also to a
// sender that is not active.
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
        silence_(kSilenceOfRtt * config.initial_rtt),
        trims_(kTrimmedOfRtt * config.initial_rtt) {}

  bool works() const { return works_; }  // whether the congestion control is `grants`

  // Adds `packets`, which may be negative, to the packets that are to come from the peer.
  void expect(Peer& peer, std::int64_t packets) {
    if (!works_ || packets == 0) return;
    const std::uint32_t before = peer.incoming;
    peer.incoming = static_cast<std::uint32_t>(before + packets);
    const std::uint8_t now = LeftClass::of(peer.incoming);
    if (before != 0 && peer.incoming != 0 && now == peer.incoming_class) return;
    if (before != 0) active_[peer.incoming_class].remove(peer);
    if (peer.incoming != 0) active_[now].add(peer);
    peer.incoming_class = now;
    active_count_ += (peer.incoming != 0) - (before != 0);
  }

  void note_trimmed(Time now) { trimmed_at_ = now; }

  // The grant. `marked`: packets from the peer bore congestion marks since the last report.
  std::uint32_t window_for(const Peer& peer, bool marked, Time now) const {
    if (!works_) return UINT32_MAX;
    const bool is_active = peer.incoming != 0;
    const bool others_are_active = active_count_ > (is_active ? 1U : 0U);
    if (!others_are_active && !marked) return window_;
    const bool trims = trimmed_at_ >= 0 && now - trimmed_at_ <= trims_;
    const bool is_first = is_active ? is_granted(peer, now) : !trims;
    return is_first ? share_ : std::min(share_, waiting_window());
  }

 private:
  static constexpr std::uint32_t kGranted = 2;
  static constexpr Time kSilenceOfRtt = 4, kTrimmedOfRtt = 32;
  // Rule 3 divides kMostTrickled packets, or kTrickledShares shares if that is more, by the number
  // of active senders.
  static constexpr std::uint32_t kMostTrickled = 128, kTrickledShares = 4;
  // A sender that waits gets at least this many: with two packets, one lost packet halves the rate.
  static constexpr std::uint32_t kLeastTrickled = 3;

  std::uint32_t waiting_window() const {
    const std::uint32_t all = std::max(kMostTrickled, kTrickledShares * share_);
    return std::clamp(all / std::max(active_count_, 1U), kLeastTrickled, kTrickled);
  }

  // Whether the peer is one of the first kGranted active senders.
  bool is_granted(const Peer& peer, Time now) const {
    std::uint32_t preceding = 0;  // silent senders do not count
    for (const auto& senders : active_)
      for (const Peer* sender = senders.first(); sender != nullptr; sender = sender->behind) {
        if (sender == &peer) return true;
        if (now - sender->newest_data.at <= silence_ && ++preceding == kGranted) return false;
      }
    return false;
  }

  const bool works_;
  const std::uint32_t window_, share_;
  const Time silence_, trims_;
  Time trimmed_at_ = -1;  // -1: no packet was trimmed
  std::uint32_t active_count_ = 0;
  std::array<LinkedList<Peer>, LeftClass::kClasses> active_;  // in the order of rule 2
};

}  // namespace softroce
