// SPDX-License-Identifier: GPL-2.0-or-later
// The peers of an endpoint, by index and by where their packets come from.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "../codec/packet.hpp"
#include "framing.hpp"
#include "message_config.hpp"
#include "peer.hpp"

namespace softroce {

struct PeerState {
  Time srtt, rttvar;                // measured from here; 0 unknown
  Time remote_srtt, remote_rttvar;  // from the peer's packets
  Time last_received_at;            // -1: never
  std::uint32_t reported_packets;   // of data, reported as arrived
  std::uint32_t echoed_packets;     // of data, that have arrived or are lost by the same reports
  std::uint32_t newest_stamp_ns;    // of its packets that arrived,
  Time newest_stamp_at;             // and when; -1: none has
  Time reordering_extent;           // usual, of its data packets
  double receive_bytes_per_second;
};

class PeerTable {
 public:
  // Throws EAFNOSUPPORT, EISCONN, ENOMEM (std::system_error).
  PeerIndex connect(PeerAddress address, const MessageConfig& config, Framing framing,
                    std::string_view path_picker);
  // From now on no packet comes from this peer, and another one may be where it was.
  void forget(PeerIndex index);

  std::size_t size() const { return peers_.size(); }
  Peer& operator[](PeerIndex index) { return peers_[index]; }
  const Peer& operator[](PeerIndex index) const { return peers_[index]; }
  Peer& at(PeerIndex index) { return peers_.at(index); }  // throws std::out_of_range

  // Null: unknown peer.
  Peer* find(const Packet& packet) {
    const Source source{packet.source, packet.source_qp};
    Found& cached = found_cache_[SourceHash()(source) >> 61];
    if (source != cached.source) {
      const auto found = by_source_.find(source);
      if (found == by_source_.end()) return nullptr;
      cached = {source, found->second};
    }
    return &peers_[cached.peer];
  }
  // Of one that sent not long ago, what a packet from it will touch.
  void prefetch(const Packet& packet) const {
    const Source source{packet.source, packet.source_qp};
    const Found& cached = found_cache_[SourceHash()(source) >> 61];
    if (source == cached.source) peers_[cached.peer].prefetch_receiving();
  }
  Peer* find(const Gid& gid);  // by the address alone
  const Peer* find(const Gid& gid, std::uint32_t qp) const;

  // From any thread; both throw std::out_of_range.
  PeerState state(PeerIndex index);
  std::array<std::uint32_t, kMaxPaths> sent_on_paths(PeerIndex index);

 private:
  struct Source {
    Gid gid;
    std::uint32_t qp = ~0U;  // no QP's number
    bool operator==(const Source&) const = default;
  };
  struct Found {
    Source source;
    PeerIndex peer = 0;
  };
  struct SourceHash {
    std::size_t operator()(const Source& s) const {
      const std::uint64_t name = s.gid.high * 3 ^ s.gid.low ^ std::uint64_t{s.qp} << 40;
      return std::hash<std::uint64_t>()(name * 0x9E3779B97F4A7C15ULL);
    }
  };

  // Stands for all of a peer's QPs: no packet comes from it.
  static constexpr std::uint32_t kAnyQp = 1 << 24;

  std::array<Found, 8> found_cache_;  // by the first bits of the hash
  std::deque<Peer> peers_;
  std::unordered_map<Source, PeerIndex, SourceHash> by_source_;
  std::mutex lock_;  // against a snapshot while a peer is being added
};

}  // namespace softroce
