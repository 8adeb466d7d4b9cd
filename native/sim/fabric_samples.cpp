// SPDX-License-Identifier: GPL-2.0-or-later
// What waits at links and what hosts have in flight, looked at from time to time. Looking changes
// nothing: a run comes out the same with and without.
#include <algorithm>

#include "../engine/verbs/rc_qp.hpp"
#include "fabric.hpp"

namespace softroce::sim {
namespace {

struct Outstanding {  // packets of a host that are not settled, and how many there may be
  std::uint64_t packets = 0, window = 0;
};

// Of all peers, and queue pairs of RC, that have any.
Outstanding outstanding(Rnic& rnic) {
  Outstanding found;
  const PeerTable& peers = rnic.messages().peers();
  for (std::size_t each = 0; each < peers.size(); ++each) {
    const Peer& peer = peers[static_cast<PeerIndex>(each)];
    const std::uint64_t packets = peer.flight.in_flight();
    if (packets == 0) continue;
    found.packets += packets;
    found.window += FlowControl::window(peer);
  }
  rnic.for_each_qp([&found](const QueuePair& qp) {
    const auto* const rc = dynamic_cast<const RcQp*>(&qp);
    if (rc == nullptr || rc->outstanding() == 0) return;
    found.packets += rc->outstanding();
    found.window += rc->window();
  });
  return found;
}

std::uint32_t narrow(std::uint64_t value) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, UINT32_MAX));
}

}  // namespace

void Fabric::record_samples() {
  samples_ = std::make_unique<Samples>(links_.size() + 2 * ports_.size());
  sample_at_ = samples_->next();
}

// A row: bytes in the queue of each link, then packets and window of each port.
void Fabric::sample() {
  const auto row = samples_->add(now_);
  for (std::size_t each = 0; each < links_.size(); ++each)
    row[each] = narrow(links_[each].waiting_bytes(now_));
  for (std::size_t each = 0; each < ports_.size(); ++each) {
    const Outstanding found = outstanding(ports_[each].rnic());
    row[links_.size() + 2 * each] = narrow(found.packets);
    row[links_.size() + 2 * each + 1] = narrow(found.window);
  }
  sample_at_ = samples_->next();
}

}  // namespace softroce::sim
