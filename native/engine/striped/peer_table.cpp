// SPDX-License-Identifier: GPL-2.0-or-later
#include "peer_table.hpp"

#include <cerrno>
#include <system_error>

#include "../../../xdp/lab_hash.h"

namespace softroce {
namespace {

std::uint64_t mixed(const Gid& gid) { return lab_absorb(lab_mix64(gid.high), gid.low); }

}  // namespace

PeerIndex PeerTable::connect(PeerAddress address, const MessageConfig& config, Framing framing,
                             std::string_view path_picker) {
  const auto index = static_cast<PeerIndex>(peers_.size());
  if (address.source == Gid{}) address.source = config.gid;
  if (address.gid.is_ipv4() != address.source.is_ipv4())
    throw std::system_error(EAFNOSUPPORT, std::generic_category(), "connect");
  if (framing == Framing::uc_immediate && index >= uc_framing::kMostPeers)
    throw std::system_error(ENOMEM, std::generic_category(), "connect: no channels are left");
  for (const std::uint32_t qp : {address.data_qp, address.recovery_qp})
    if (!by_source_.emplace(Source{address.gid, qp}, index).second)
      throw std::system_error(EISCONN, std::generic_category(), "connect");
  const std::lock_guard lock(lock_);
  Peer& peer =
      peers_.emplace_back(index, address, config.message_slots, config.paths, config.window_packets,
                          make_congestion_control(congestion_of(config)));
  by_source_.emplace(Source{address.gid, kAnyQp}, index);
  peer.picker = make_path_picker(path_picker, {peer.schedule, peer.loads, peer.rtt},
                                 lab_absorb(mixed(config.gid), mixed(address.gid)));
  peer.next_id = config.first_message_id;
  peer.credit_packets = config.receive_ring_packets;
  if (framing == Framing::uc_immediate) {
    peer.channels =
        std::make_unique<Channels>(index, config.first_message_id, config.message_slots);
    peer.flight.keep_codes();
  }
  return index;
}

void PeerTable::forget(PeerIndex index) {
  const PeerAddress& address = peers_[index].address;
  for (const std::uint32_t qp : {address.data_qp, address.recovery_qp})
    by_source_.erase(Source{address.gid, qp});
  found_cache_ = {};
}

const Peer* PeerTable::find(const Gid& gid, std::uint32_t qp) const {
  const auto found = by_source_.find(Source{gid, qp});
  return found == by_source_.end() ? nullptr : &peers_[found->second];
}

Peer* PeerTable::find(const Gid& gid) {
  const auto found = by_source_.find(Source{gid, kAnyQp});
  return found == by_source_.end() ? nullptr : &peers_[found->second];
}

PeerState PeerTable::state(PeerIndex index) {
  const std::lock_guard lock(lock_);
  const Peer& peer = peers_.at(index);
  return {.srtt = relaxed_load(peer.rtt.srtt),
          .rttvar = relaxed_load(peer.rtt.rttvar),
          .remote_srtt = Time{relaxed_load(peer.remote_srtt_ns)} * kNanosecond,
          .remote_rttvar = Time{relaxed_load(peer.remote_rttvar_ns)} * kNanosecond,
          .last_received_at = relaxed_load(peer.last_received_at),
          .reported_packets = relaxed_load(peer.reported_packets),
          .echoed_packets = static_cast<std::uint32_t>(peer.flight.echoed()),
          .newest_stamp_ns = relaxed_load(peer.newest.stamp_ns),
          .newest_stamp_at = relaxed_load(peer.newest.at),
          .reordering_extent = peer.reordering_extent.usual(),
          .receive_bytes_per_second = relaxed_load(peer.receive_bytes_per_second)};
}

std::array<std::uint32_t, kMaxPaths> PeerTable::sent_on_paths(PeerIndex index) {
  const std::lock_guard lock(lock_);
  const Peer& peer = peers_.at(index);
  std::array<std::uint32_t, kMaxPaths> sent{};
  for (std::size_t p = 0; p < sent.size(); ++p) sent[p] = relaxed_load(peer.sent_on[p]);
  return sent;
}

}  // namespace softroce
