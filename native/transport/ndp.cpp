// SPDX-License-Identifier: GPL-2.0-or-later
// `ndp`: Handley et al., "Re-architecting Datacenter Networks and Stacks for Low Latency and High
// Performance", SIGCOMM 2017. The rules follow the simulator htsim (github.com/Broadcom/csg-htsim,
// ndp.cpp).
//
// From htsim:
//
// - A sender may send a first window of packets (NdpSrc::startflow). After that, one packet may
//   leave for each pull that the receiver sends (pull_packets).
// - The receiver answers each packet, and owes a pull for it (NdpSink::send_ack, send_nack). This
//   includes a trimmed packet, which a switch cut to its headers.
// - The receiver sends pulls to all senders in turn. The interval between pulls is the time that a
//   data packet takes on the receiver's link (NdpPullPacer, FairPullQueue).
// - A pull carries the number of pulls sent so far to this sender. So the next pull makes up for a
//   lost one (pull_packets).
// - The retransmission of a trimmed packet waits for a pull (processNack). The waiting packet with
//   the lowest number leaves first. A new packet leaves if none waits (send_packet).
// - A pull that finds nothing to send is kept for later packets (pull_packets).
// - A packet has a timer until it is answered. When the timer ends, the packet leaves without a
//   pull (retransmit_packet). The timeout is SRTT + 4 RTTVAR, and at least 5 ms. Before an RTT is
//   measured, it is 20 ms.
//
// This project's rules:
//
// - A connection to a peer is what a flow is in htsim: all its messages share the window and the
//   pulls.
// - The first window is the constant window (MessageConfig::window_packets). In htsim it is 15
//   packets.
// - Unused pulls are never more than the first window.
// - If nothing was in flight on a connection for a whole timeout, the sender may send a first
//   window again. The pulls may have been lost with the last packets. htsim never replaces such
//   pulls, and a flow of htsim ends with its pulls.
// - A trimmed packet that waits for a pull keeps its timer, because the pull may be lost. In htsim
//   it has no timer. A packet that left because its timer ended has none in htsim, either.
// - The timeout backs off after timeouts in a row without progress, as the session's timers do. In
//   htsim the least timeout is drawn between 3.75 and 6.25 ms.
// - A pull is a control message of its own, on the path of the newest packet. In htsim an answer
//   may also be a pull.
// - Packets take all paths in turn. htsim also avoids paths with many trimmed packets, and lets a
//   full switch return headers to the sender. Both are left out.
// - Congestion control is the lab's, in addition to pulls.
#include <algorithm>
#include <deque>
#include <limits>
#include <set>

#include "../engine/codec/codec.hpp"
#include "../engine/mutant.hpp"
#include "connection_session.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

class Ndp final : public ConnectionSession {
 public:
  explicit Ndp(MessageEngine& engine)
      : ConnectionSession(engine, std::numeric_limits<std::size_t>::max(), {}),
        first_window_(number_of<std::uint32_t>(config(), "first_window")),
        least_rto_ns_(option<std::int64_t>("least_timeout")),
        initial_rto_ns_(option<std::int64_t>("initial_timeout")),
        pull_interval_(pull_interval(config(), option<double>("pull_rate"))) {
    if (first_window_ == 0) first_window_ = config().window_packets;
  }

 private:
  struct State {  // of a connection
    // At the sender.
    bool holds_new = false;
    std::uint32_t credits = 0;  // packets that may leave
    std::uint32_t pulls = 0;    // the highest number of a pull that arrived
    std::set<Psn> trimmed;      // packets that wait for pulls
    Nanoseconds busy_ns = 0;    // when a packet was last sent, or answered
    // At the receiver.
    std::uint32_t owed = 0;        // pulls that are not sent yet
    std::uint32_t sent_pulls = 0;  // the number of the last pull
    std::uint8_t path = 0;         // of the newest packet
  };

  static Time pull_interval(const MessageConfig& config, double rate) {
    const std::size_t ip = config.gid.is_ipv4() ? Ipv4::kBytes : Ipv6::kBytes;
    const std::size_t bytes =
        kEthernetBytes + ip + kUdpBytes + kBthBytes + kDethBytes + config.path_mtu + kIcrcBytes;
    const double seconds =
        8.0 * static_cast<double>(bytes) / (rate * static_cast<double>(config.line_rate_bps));
    return static_cast<Time>(seconds * static_cast<double>(1000 * kMillisecond));
  }

  State& state_of(PeerIndex peer) {
    for (auto next = states_.size(); next <= peer; ++next)
      states_.emplace_back().credits = first_window_;
    return states_[peer];
  }
  void use_credits(Connection& connection, State& state);
  void hold_new(Connection& connection, State& state);
  void send_pulls();

  // ---- hooks
  bool answers_trimming() const override { return true; }
  Nanoseconds rto_ns(PeerIndex index) const override;
  void packet_left(Connection& connection, Psn psn) override;
  void acknowledged(Connection& connection, const Acknowledgement& ack) override;
  void payload_cut(Connection& connection, Psn psn, bool at_last_hop) override;
  bool pulled(PeerIndex peer, std::uint32_t pulls) override;
  void timed_out(Connection& connection, Psn psn) override;
  void answered(PeerIndex peer, std::uint8_t path) override;
  void timer_ended(Connection& connection) override;

  std::uint32_t first_window_;
  const Nanoseconds least_rto_ns_, initial_rto_ns_;
  const Time pull_interval_;
  std::deque<State> states_;       // by peer
  std::deque<PeerIndex> to_pull_;  // peers to which pulls are owed, in turn
  Time next_pull_ = 0;             // when the next pull may leave
};

// ---------------------------------------------------------------- the receiver's pulls

void Ndp::answered(PeerIndex peer, std::uint8_t path) {
  State& state = state_of(peer);
  state.path = path;
  if (to_pull_.empty()) next_pull_ = std::max(next_pull_, now());
  if (state.owed++ == 0) to_pull_.push_back(peer);
  send_pulls();
}

void Ndp::send_pulls() {
  while (!to_pull_.empty() && next_pull_ <= now()) {
    const PeerIndex peer = to_pull_.front();
    State& state = state_of(peer);
    to_pull_.pop_front();
    if (--state.owed != 0) to_pull_.push_back(peer);
    next_pull_ += pull_interval_;
    ++state.sent_pulls;
    if (!mutated(Mutant::ndp_pull_forgotten))
      engine().send_feedback(peer, state.path, false, write_pull(state.sent_pulls).bytes());
  }
  if (!to_pull_.empty())
    wake_at(connection_of(to_pull_.front()), (next_pull_ + kNanosecond - 1) / kNanosecond);
}

// ---------------------------------------------------------------- the sender's credits

bool Ndp::pulled(PeerIndex peer, std::uint32_t pulls) {
  State& state = state_of(peer);
  const auto more = static_cast<std::int32_t>(pulls - state.pulls);
  if (more <= 0) return true;  // overtaken
  state.pulls = pulls;
  state.busy_ns = now_ns();
  const std::uint64_t credits = std::uint64_t{state.credits} + static_cast<std::uint32_t>(more);
  state.credits = static_cast<std::uint32_t>(std::min<std::uint64_t>(credits, first_window_));
  use_credits(connection_of(peer), state);
  return true;
}

void Ndp::payload_cut(Connection& connection, Psn psn, bool) {
  State& state = state_of(connection.peer);
  state.trimmed.insert(psn);
  use_credits(connection, state);
}

// Lets trimmed packets leave, then new ones.
void Ndp::use_credits(Connection& connection, State& state) {
  while (state.credits != 0 && !state.trimmed.empty()) {
    const Psn psn = *state.trimmed.begin();
    state.trimmed.erase(state.trimmed.begin());
    if (psn < connection.base || !connection.at(psn).is_out()) continue;
    retransmit(connection, psn, RetransmitReason::trimmed);
    state.credits -= connection.at(psn).is_queued;
  }
  hold_new(connection, state);
}

// New packets wait while there are no credits.
void Ndp::hold_new(Connection& connection, State& state) {
  if (state.holds_new == (state.credits == 0)) return;
  state.holds_new = state.credits == 0;
  engine().hold(connection.peer, state.holds_new);
}

void Ndp::packet_left(Connection& connection, Psn psn) {
  State& state = state_of(connection.peer);
  state.busy_ns = now_ns();
  expect_timeout(connection, psn);
  state.credits -= connection.at(psn).transmissions == 1;
  hold_new(connection, state);
}

void Ndp::acknowledged(Connection& connection, const Acknowledgement& ack) {
  State& state = state_of(connection.peer);
  state.busy_ns = now_ns();
  // A cancelled retransmission gives its credit back.
  state.credits = std::min(state.credits + ack.cancelled, first_window_);
  use_credits(connection, state);
  if (!connection.records.empty()) expect_timeout(connection, connection.base);
}

// ---------------------------------------------------------------- time

Nanoseconds Ndp::rto_ns(PeerIndex index) const {
  const RttEstimate& measured = peer(index).rtt;
  const Nanoseconds measured_ns =
      measured.rto(timing().clock_granularity_ns * kNanosecond) / kNanosecond;
  return timeout_or(index,
                    measured.srtt == 0 ? initial_rto_ns_ : std::max(measured_ns, least_rto_ns_));
}

void Ndp::timer_ended(Connection& connection) {
  send_pulls();
  State& state = state_of(connection.peer);
  if (!connection.records.empty() || state.credits >= first_window_) return;
  const Nanoseconds full_ns = state.busy_ns + rto_ns(connection.peer);
  if (now_ns() < full_ns) return wake_at(connection, full_ns);
  state.credits = first_window_;
  hold_new(connection, state);
}

void Ndp::timed_out(Connection& connection, Psn psn) {
  state_of(connection.peer).trimmed.erase(psn);
  retransmit(connection, psn, RetransmitReason::timeout);
}

}  // namespace

Transport ndp_transport() {
  return {.name = "ndp",
          .make = make<Ndp>,
          .framings = {"ud"},
          .options = {{.name = "first_window",
                       .usual = std::int64_t{0},
                       .help = "packets that leave without a pull; 0: a bandwidth-delay product",
                       .least = 0,
                       .most = 1e6},
                      {.name = "pull_rate",
                       .usual = 1.0,
                       .help = "the rate of what a receiver pulls, in rates of its link",
                       .least = 0.01,
                       .most = 2},
                      {.name = "least_timeout",
                       .usual = std::int64_t{5'000'000},
                       .help = "the least retransmission timeout; it is SRTT + 4 RTTVAR otherwise",
                       .unit = "time",
                       .least = 1000,
                       .most = 1e10},
                      {.name = "initial_timeout",
                       .usual = std::int64_t{20'000'000},
                       .help = "the retransmission timeout before an RTT is measured",
                       .unit = "time",
                       .least = 1000,
                       .most = 1e10},
                      path_picker_option(kPickTurns)},
          .has_rto = true};
}

}  // namespace softroce
