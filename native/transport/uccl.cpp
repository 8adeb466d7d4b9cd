// SPDX-License-Identifier: GPL-2.0-or-later
// `uccl`: the recovery rule of UCCL-Tran over unreliable queue pairs. [S] is its source code
// (github.com/uccl-project/uccl, collective/rdma: transport.cc, pcb.h, transport_config.h).
//
// All messages to a peer share one connection and its PSNs. The *base* is the oldest unacknowledged
// PSN.
//
// From the source [S]:
//
// - The bitmap of a SACK has 128 bits, so at most 128 PSNs are in use (kSackBitmapSize).
// - An acknowledgement that does not advance the base is a duplicate. The sender retransmits at the
//   32nd duplicate in a row (ROCE_DUP_ACK_THRES), and at each further one.
// - The sender retransmits all missing packets below the highest one that has arrived. If no packet
//   beyond the base has arrived, it retransmits the packet at the base.
// - A connection has one timer. The timer starts when a packet leaves, unless it is running. It
//   starts again when the base advances, and at a retransmission. When it ends, the sender
//   retransmits by the rule above.
// - The timeout is 500 us (kRTOUSec). The sender checks its timers once per millisecond
//   (kSlowTimerIntervalUs).
// - The receiver ignores trimmed packets, which a switch cut to their headers.
//
// This project's rules:
//
// - A chunk of UCCL, 32 KiB, is a packet here.
// - At a duplicate beyond the 32nd, the sender retransmits only packets that it last sent at least
//   an SRTT ago (option `spaced`). In the source it retransmits all missing packets each time. But
//   a flow of the source has at most two chunks in flight (kMaxUnAckedBytesPerFlow).
// - The receiver answers each packet, duplicates included. In the source it answers together the
//   chunks that one poll found, at most four, and does not answer duplicates.
// - The sender combines what all acknowledgements reported. In the source only the bitmap of the
//   newest acknowledgement counts.
// - An acknowledgement that a newer one overtook counts as a duplicate.
// - The timeout is at least two SRTTs. It backs off after timeouts in a row without progress, as
//   the session's timers do. In the source it is constant.
// - The session limits the transmissions of a packet (the knob `retry_count`). The source logs
//   when 50 timeouts in a row have passed (kRTOAbortThreshold).
// - Paths take turns, and a retransmission takes another path. In the source, paths are drawn by
//   their RTT, and a retransmission stays on its path.
// - Congestion control is the lab's.
#include <algorithm>
#include <vector>

#include "../engine/mutant.hpp"
#include "connection_session.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

class Uccl final : public ConnectionSession {
 public:
  explicit Uccl(MessageEngine& engine)
      : ConnectionSession(engine, number_of<std::size_t>(engine.config(), "psn_window"), {}),
        threshold_(option<std::int64_t>("duplicates")),
        is_spaced_(option<bool>("spaced")),
        least_rto_ns_(option<std::int64_t>("rto")),
        tick_ns_(option<std::int64_t>("timer_tick")) {}

 private:
  static constexpr Nanoseconds kRtoRtts = 2;

  struct State {  // of a connection
    Psn base = 0;
    std::int64_t duplicates = 0;  // in a row
    Nanoseconds due_ns = kNeverNs;
  };

  State& state_of(const Connection& connection) {
    if (connection.peer >= states_.size()) states_.resize(connection.peer + 1);
    return states_[connection.peer];
  }
  void start_timer(Connection& connection, State& state);
  void resend(Connection& connection, State& state, Nanoseconds least_age_ns, RetransmitReason why);

  // ---- hooks
  Nanoseconds rto_ns(PeerIndex index) const override;
  void packet_left(Connection& connection, Psn psn) override;
  void acknowledged(Connection& connection, const Acknowledgement& ack) override;
  void time_passed(Connection& connection) override;

  const std::int64_t threshold_;
  const bool is_spaced_;
  const Nanoseconds least_rto_ns_, tick_ns_;
  std::vector<State> states_;  // by peer
};

// ---------------------------------------------------------------- the timer

Nanoseconds Uccl::rto_ns(PeerIndex index) const {
  return timeout_or(index, std::max(least_rto_ns_, kRtoRtts * rtt(index).srtt_ns));
}

void Uccl::start_timer(Connection& connection, State& state) {
  if (mutated(Mutant::uccl_timer_not_armed)) return;
  const Nanoseconds base_ns = rto_ns(connection.peer);
  state.due_ns = now_ns() + backed_off_ns(base_ns, connection.timeouts_without_progress);
  if (tick_ns_ != 0) state.due_ns = (state.due_ns + tick_ns_ - 1) / tick_ns_ * tick_ns_;
  wake_at(connection, state.due_ns);
}

void Uccl::packet_left(Connection& connection, Psn) {
  State& state = state_of(connection);
  if (state.due_ns == kNeverNs || state.due_ns <= now_ns()) return start_timer(connection, state);
  wake_at(connection, state.due_ns);
}

void Uccl::time_passed(Connection& connection) {
  State& state = state_of(connection);
  if (state.due_ns > now_ns()) return wake_at(connection, state.due_ns);
  engine().write_off(connection.peer, now() - rto_ns(connection.peer) * kNanosecond);
  ++connection.timeouts_without_progress;
  resend(connection, state, 0, RetransmitReason::timeout);
}

// ---------------------------------------------------------------- feedback

void Uccl::acknowledged(Connection& connection, const Acknowledgement&) {
  State& state = state_of(connection);
  if (connection.base != state.base) {
    state = {.base = connection.base};
    if (!connection.records.empty()) start_timer(connection, state);
    return;
  }
  if (connection.records.empty() || ++state.duplicates < threshold_) return;
  const bool is_further = state.duplicates > threshold_;
  const Nanoseconds age_ns = is_further && is_spaced_ ? rtt(connection.peer).srtt_ns : 0;
  resend(connection, state, age_ns, RetransmitReason::nak);
}

void Uccl::resend(Connection& connection, State& state, Nanoseconds least_age_ns,
                  RetransmitReason why) {
  const Psn first = connection.base + mutated(Mutant::uccl_oldest_left_out);
  const Psn end = connection.has_gap() ? connection.acknowledged_end : connection.base + 1;
  for (Psn psn = first; psn < end; ++psn) {
    const Record& record = connection.at(psn);
    if (record.is_out() && record.sent_ns + least_age_ns <= now_ns())
      retransmit(connection, psn, why);
  }
  start_timer(connection, state);
}

}  // namespace

Transport uccl_transport() {
  return {.name = "uccl",
          .make = make<Uccl>,
          .framings = {"ud"},
          .options = {{.name = "duplicates",
                       .usual = std::int64_t{32},
                       .help = "duplicate acknowledgements in a row at which packets are resent",
                       .least = 1,
                       .most = 65'536},
                      {.name = "spaced",
                       .usual = true,
                       .help = "whether further duplicates resend a packet only if its last "
                               "transmission is an SRTT ago"},
                      {.name = "psn_window",
                       .usual = std::int64_t{128},
                       .help = "packets to a peer from the oldest unacknowledged one on",
                       .least = 1,
                       .most = 4096},
                      path_picker_option(kPickTurns),
                      {.name = "rto",
                       .usual = std::int64_t{500'000},
                       .help = "the retransmission timeout, if two SRTTs are shorter",
                       .unit = "time",
                       .least = 1000,
                       .most = 1e10},
                      {.name = "timer_tick",
                       .usual = std::int64_t{1'000'000},
                       .help = "how often timers are looked at; 0: always",
                       .unit = "time",
                       .least = 0,
                       .most = 1e9}},
          .has_rto = true};
}

}  // namespace softroce
