// SPDX-License-Identifier: GPL-2.0-or-later
// What one endpoint knows of another: an address handle, both directions' flow state, no QP.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "congestion.hpp"
#include "message.hpp"
#include "paths.hpp"
#include "units.hpp"

namespace softroce {

struct PeerAddress {
  std::uint32_t ip = 0;
  std::uint64_t mac = 0;  // of the next hop
  std::uint32_t data_qp = 0;
  std::uint32_t recovery_qp = 0;
  std::uint32_t qkey = 0;
};

// Smoothed round-trip time, RFC 6298 section 2 (alpha 1/8, beta 1/4). Zero: no sample yet.
struct RttEstimate {
  Time srtt = 0;
  Time rttvar = 0;

  void sample(Time rtt) {
    if (srtt == 0) {
      relaxed_store(rttvar, rtt / 2);
      relaxed_store(srtt, std::max(rtt, Time{1}));
      return;
    }
    const Time error = srtt > rtt ? srtt - rtt : rtt - srtt;
    relaxed_store(rttvar, rttvar + (error - rttvar) / 4);
    relaxed_store(srtt, srtt + (rtt - srtt) / 8);
  }
};

// When each packet in flight was sent, so that an echoed stamp tells how many are accounted for.
class FlightLog {
 public:
  static constexpr std::uint32_t kMostInFlight = 1 << 14;

  void sent(std::uint32_t stamp) { stamps_[sent_++ % kMostInFlight] = stamp; }
  std::uint64_t in_flight() const { return sent_ - accounted_; }
  std::uint64_t sent_total() const { return sent_; }

  // All packets sent no later than the echoed one have arrived or are lost. Returns how many were
  // newly accounted for.
  std::uint32_t echo(std::uint32_t stamp) {
    const std::uint64_t before = accounted_;
    while (accounted_ < sent_ && stamp_distance(stamp, stamps_[accounted_ % kMostInFlight]) >= 0)
      ++accounted_;
    return static_cast<std::uint32_t>(accounted_ - before);
  }

  void forgive() { accounted_ = sent_; }

 private:
  std::uint64_t sent_ = 0;
  std::uint64_t accounted_ = 0;
  std::vector<std::uint32_t> stamps_ = std::vector<std::uint32_t>(kMostInFlight);
};

struct ReceiveSlot {
  enum class State : std::uint8_t { empty, refused, open, complete };
  State state = State::empty;
  std::uint32_t id = 0;
  Handle message = kNoHandle;
  Time told_at = -kNever;  // when the policy last heard of a packet without effect
};

struct PathCount {
  std::uint32_t packets = 0;
  std::uint64_t bytes = 0;
};

struct Peer {
  Peer(PeerIndex index_, const PeerAddress& address_, std::uint32_t slots, std::uint32_t paths,
       std::unique_ptr<CongestionControl> control)
      : index(index_),
        address(address_),
        schedule(paths),
        congestion(std::move(control)),
        receive_slots(slots) {}

  PeerIndex index;
  PeerAddress address;

  // Sending to it.
  std::uint32_t next_id = 0;
  std::uint32_t sends_outstanding = 0;
  std::deque<Handle> sends;    // first passes, in the order posted
  std::deque<Handle> resends;  // messages with packets to resend
  PathSchedule schedule;
  FlightLog flight;
  std::unique_ptr<CongestionControl> congestion;
  std::uint32_t credit_packets = 0;  // free frames it last reported
  RttEstimate rtt;
  bool in_data_ring = false;
  bool in_resend_ring = false;
  Time persist_at = kNever;  // when packets in flight count as lost, if nothing is heard
  std::uint32_t reported_packets = 0;
  std::uint32_t reported_ce = 0;

  // Receiving from it.
  std::vector<ReceiveSlot> receive_slots;
  std::array<PathCount, kMaxPaths> arrived{};
  std::uint32_t arrived_packets = 0;
  std::uint32_t ce_packets = 0;
  std::uint32_t unreported = 0;
  bool report_queued = false;
  Time report_at = kNever;
  std::uint32_t newest_stamp = 0;
  Time newest_stamp_at = -1;
  std::uint32_t remote_srtt_ns = 0;
  std::uint32_t remote_rttvar_ns = 0;
  std::uint64_t bytes_since_rate = 0;
  Time rate_since = 0;
  double receive_bytes_per_second = 0;  // read by policies only; decides nothing in here

  std::uint32_t control_sequence = 0;
  Time heard_at = -1;  // any valid packet; -1: never
};

}  // namespace softroce
