// SPDX-License-Identifier: GPL-2.0-or-later
// `falcon`: the packet delivery of Falcon. [spec] is "Falcon Transport Protocol", revision 0.9, of
// the Open Compute Project. [model] is Google's reference model
// (github.com/falcon-transport/isekai), in which the third generation of Falcon has RACK and TLP.
//
// From the sources:
//
// - The data window is 128 packets [spec, 9]. First transmissions beyond the window wait.
// - A packet keeps its PSN when it is retransmitted [spec, 9.1.5].
// - Feedback is an EACK if the receiver's bitmap is not zero, otherwise a base ACK [spec, 9.1.6].
// - An early retransmission happens before the packet's retransmission timer ends [spec, 9.1.4]. A
//   packet has at most 16 of them [model: early_retx_threshold].
// - The receiver answers when it has 10 unanswered packets, or 8 us after the first unanswered one
//   [spec, 9.1.6; model: ack_coalescing_thresholds]. A duplicate counts as a packet.
//
// `detection: ooo-distance`, the first generation:
//
// - At an EACK a missing PSN is lost if the highest received PSN exceeds it by more than 3 [spec,
//   9.1.4, EACK algorithm]. The model also retransmits if the difference is exactly 3.
// - Recency check: a packet that was sent less than a round trip ago is not lost yet [spec, 9.1.4].
//   The round trip is that of the packet that the EACK answers [model].
//
// `detection: rack`, the third generation [model, rack_retransmission_policy.cc]:
//
// - Feedback echoes T1, the send time of the packet that it answers. If T1 is newer than every T1
//   before: xmit_ts = T1, and the RACK timeout = (now - T1) + max(RTT / 4, minimum). The minimum
//   is 0.
// - At each EACK and at the end of a timer, the sender searches the missing PSNs in order. It
//   retransmits a packet that was sent no later than xmit_ts and at least a RACK timeout ago. The
//   search stops at the first packet that was sent no later than xmit_ts, but not a RACK timeout
//   ago.
// - The search ends 128 PSNs beyond the base of the newest EACK, because the bitmap ends there.
// - After a base ACK whose base is beyond that of the newest EACK, there is no search until the
//   next EACK.
// - There is no search while the RACK timeout is longer than the retransmission timeout.
//
// The tail loss probe [model, tlp_retransmission_policy.cc], with either detection:
//
// - The probe timeout is max(2 RTT + the receiver's coalescing time, twice the target delay). It
//   starts again at each transmission and at each feedback.
// - The probe retransmits the first missing PSN (`probe: first`), or the last missing PSN within
//   128 PSNs beyond the base of the newest EACK (`probe: last`). If that PSN has had 16 early
//   retransmissions, no probe is sent.
//
// The retransmission timer:
//
// - Each packet has its own timer, which starts at each transmission [spec, 9.1.1 and 9.1.5].
// - The timeout is max(2 RTT, 250 us) [model, swift.cc: retransmit_timeout_scalar,
//   min_retransmit_timeout]. Before an RTT is measured, it is 1 ms [model:
//   initial_retransmit_timeout].
//
// This project's rules:
//
// - A message's packets are push data on one unordered connection, so there is no request window.
// - The RTT is the SRTT to the peer, over all paths. Before the first sample it is the base RTT, so
//   the first retransmission timeout is max(2 base RTTs, 1 ms).
// - The target delay is the base RTT. In the model's Swift it is 25 us.
// - The timeout backs off after timeouts in a row without progress, as the session's timers do.
// - The receiver has room for all packets of a posted message, so it sends no notice that a PSN is
//   out of its window.
// - The headers lack the AR bit, by which a sender asks for an answer at once. Instead, the
//   receiver answers a complete message at once.
// - Packets take all paths in turn, not weighted by windows. A retransmission takes another path.
//   In the model it stays on its flow.
// - Congestion control is the lab's, not that of the sources.
#include <algorithm>
#include <vector>

#include "../engine/mutant.hpp"
#include "connection_session.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

class Falcon final : public ConnectionSession {
 public:
  explicit Falcon(MessageEngine& engine)
      : ConnectionSession(
            engine, number_of<std::size_t>(engine.config(), "psn_window"),
            {.packets = number_of<std::uint32_t>(engine.config(), "coalesced_packets"),
             .time_ns = number_of<Nanoseconds>(engine.config(), "coalescing_time")}),
        is_rack_(option<std::string>("detection") == "rack"),
        has_probes_(option<bool>("probes")),
        probes_first_(option<std::string>("probe") == "first"),
        distance_(number_of<Psn>(config(), "distance")),
        most_early_(option<std::int64_t>("most_early")),
        rack_window_(option<double>("rack_window")),
        least_rack_window_ns_(option<std::int64_t>("least_rack_window")),
        probe_rtts_(option<double>("probe_rtts")),
        least_pto_ns_(option<std::int64_t>("least_probe_timeout")),
        least_rto_ns_(option<std::int64_t>("least_timeout")),
        initial_rto_ns_(option<std::int64_t>("initial_timeout")),
        coalescing_ns_(option<std::int64_t>("coalesced_packets") > 1
                           ? option<std::int64_t>("coalescing_time")
                           : 0) {
    if (least_pto_ns_ == 0) least_pto_ns_ = 2 * config().initial_rtt / kNanosecond;
  }

 private:
  static constexpr Psn kBitmap = 128;  // PSNs that an EACK covers
  static constexpr Nanoseconds kRtoRtts = 2;

  struct State {                      // of a connection
    Nanoseconds xmit_ns = INT64_MIN;  // RACK: the newest T1
    Nanoseconds rack_ns = kNeverNs;   // RACK: the timeout
    Psn eack_base = 0;                // the base at the newest EACK
    bool scans = false;               // RACK looks for losses
    Nanoseconds probe_due_ns = kNeverNs;
  };

  State& state_of(const Connection& connection) {
    if (connection.peer >= states_.size()) states_.resize(connection.peer + 1);
    return states_[connection.peer];
  }
  Nanoseconds pto_ns(PeerIndex index) const;
  void start_probe_timer(Connection& connection, State& state);
  void note_echo(PeerIndex peer, State& state, Nanoseconds sent_ns);
  void detect_by_distance(Connection& connection, Nanoseconds rtt_ns);
  void detect_by_rack(Connection& connection, State& state, RetransmitReason why);
  void send_probe(Connection& connection, const State& state);

  // ---- hooks
  Nanoseconds rto_ns(PeerIndex index) const override;
  void packet_left(Connection& connection, Psn psn) override;
  void acknowledged(Connection& connection, const Acknowledgement& ack) override;
  void time_passed(Connection& connection) override;

  const bool is_rack_, has_probes_, probes_first_;
  const Psn distance_;
  const std::int64_t most_early_;
  const double rack_window_;
  const Nanoseconds least_rack_window_ns_;
  const double probe_rtts_;
  Nanoseconds least_pto_ns_;
  const Nanoseconds least_rto_ns_, initial_rto_ns_, coalescing_ns_;
  std::vector<State> states_;  // by peer
};

// ---------------------------------------------------------------- timeouts

Nanoseconds Falcon::rto_ns(PeerIndex index) const {
  const Nanoseconds least_ns = peer(index).rtt.srtt == 0 ? initial_rto_ns_ : least_rto_ns_;
  return timeout_or(index, std::max(kRtoRtts * rtt(index).srtt_ns, least_ns));
}

Nanoseconds Falcon::pto_ns(PeerIndex index) const {
  const double rtts_ns = probe_rtts_ * static_cast<double>(rtt(index).srtt_ns);
  return std::max(static_cast<Nanoseconds>(rtts_ns) + coalescing_ns_, least_pto_ns_);
}

void Falcon::start_probe_timer(Connection& connection, State& state) {
  if (!has_probes_) return;
  state.probe_due_ns = now_ns() + pto_ns(connection.peer);
  wake_at(connection, state.probe_due_ns);
}

void Falcon::packet_left(Connection& connection, Psn psn) {
  start_probe_timer(connection, state_of(connection));
  expect_timeout(connection, psn);
}

// ---------------------------------------------------------------- feedback

void Falcon::acknowledged(Connection& connection, const Acknowledgement& ack) {
  State& state = state_of(connection);
  if (is_rack_) note_echo(connection.peer, state, ack.sent_ns);
  const bool is_eack = connection.has_gap();
  if (is_eack) state.eack_base = connection.base;
  if (!is_rack_) {
    if (is_eack) detect_by_distance(connection, now_ns() - ack.sent_ns);
  } else if (is_eack) {
    state.scans = true;
    detect_by_rack(connection, state, RetransmitReason::nak);
  } else if (connection.base > state.eack_base) {
    state.scans = false;
  }
  if (connection.records.empty()) return;
  start_probe_timer(connection, state);
  expect_timeout(connection, connection.base);
}

void Falcon::detect_by_distance(Connection& connection, Nanoseconds rtt_ns) {
  const Psn highest = connection.acknowledged_end - 1;
  for (Psn psn = connection.base; psn + distance_ < highest; ++psn) {
    const Record& record = connection.at(psn);
    if (record.is_out() && record.early < most_early_ && record.sent_ns + rtt_ns <= now_ns())
      retransmit_early(connection, psn, RetransmitReason::nak);
  }
}

void Falcon::note_echo(PeerIndex peer, State& state, Nanoseconds sent_ns) {
  if (sent_ns <= state.xmit_ns) return;
  state.xmit_ns = sent_ns;
  const auto window_ns =
      static_cast<Nanoseconds>(rack_window_ * static_cast<double>(rtt(peer).srtt_ns));
  state.rack_ns = now_ns() - sent_ns + std::max(window_ns, least_rack_window_ns_);
}

void Falcon::detect_by_rack(Connection& connection, State& state, RetransmitReason why) {
  if (!state.scans || state.rack_ns > rto_ns(connection.peer)) return;
  const Psn end = std::min(connection.end(), state.eack_base + kBitmap);
  for (Psn psn = connection.base; psn < end; ++psn) {
    const Record& record = connection.at(psn);
    if (!record.is_out() || record.early >= most_early_) continue;
    if (record.sent_ns > state.xmit_ns) {
      if (record.transmissions == 1) return;  // all PSNs behind it were sent later, too
      continue;
    }
    if (record.sent_ns + state.rack_ns > now_ns())
      return wake_at(connection, record.sent_ns + state.rack_ns);
    retransmit_early(connection, psn, why);
  }
}

// ---------------------------------------------------------------- time

void Falcon::time_passed(Connection& connection) {
  State& state = state_of(connection);
  if (is_rack_) detect_by_rack(connection, state, RetransmitReason::timeout);
  if (state.probe_due_ns <= now_ns()) {
    state.probe_due_ns = kNeverNs;
    send_probe(connection, state);
  }
  wake_at(connection, state.probe_due_ns);
  ConnectionSession::time_passed(connection);
}

void Falcon::send_probe(Connection& connection, const State& state) {
  engine().write_off(connection.peer, now() - pto_ns(connection.peer) * kNanosecond);
  const Psn end =
      probes_first_ ? connection.end() : std::min(connection.end(), state.eack_base + kBitmap);
  for (Psn n = connection.base; n < end; ++n) {
    const Psn psn = probes_first_ ? n : end - 1 - (n - connection.base);
    const Record& record = connection.at(psn);
    if (!record.is_out()) continue;
    if (record.early < most_early_) retransmit_early(connection, psn, RetransmitReason::timeout);
    return;
  }
}

}  // namespace

Transport falcon_transport() {
  return {
      .name = "falcon",
      .make = make<Falcon>,
      .framings = {"ud"},
      .options = {{.name = "detection",
                   .usual = std::string("rack"),
                   .help = "how losses are detected before a timeout: by RACK, or by the "
                           "out-of-order distance of the first generation",
                   .choices = {"rack", "ooo-distance"}},
                  {.name = "probes", .usual = true, .help = "whether tail loss probes are sent"},
                  {.name = "probe",
                   .usual = std::string("first"),
                   .help = "which missing packet is the probe",
                   .choices = {"first", "last"}},
                  {.name = "psn_window",
                   .usual = std::int64_t{128},
                   .help = "packets to a peer from the oldest unacknowledged one on",
                   .least = 1,
                   .most = 4096},
                  {.name = "coalesced_packets",
                   .usual = std::int64_t{10},
                   .help = "packets that the receiver answers at once; 1: each",
                   .least = 1,
                   .most = 1024},
                  {.name = "coalescing_time",
                   .usual = std::int64_t{8000},
                   .help = "until the receiver answers fewer packets",
                   .unit = "time",
                   .least = 0,
                   .most = 1e9},
                  path_picker_option(kPickTurns),
                  {.name = "most_early",
                   .usual = std::int64_t{16},
                   .help = "retransmissions of a packet before its timeout",
                   .least = 0,
                   .most = 65535},
                  {.name = "distance",
                   .usual = std::int64_t{3},
                   .help = "ooo-distance: a missing packet further below the highest received "
                           "one is lost",
                   .least = 0,
                   .most = 4096},
                  {.name = "rack_window",
                   .usual = 0.25,
                   .help = "rack: the reordering window, in RTTs",
                   .least = 0,
                   .most = 16},
                  {.name = "least_rack_window",
                   .usual = std::int64_t{0},
                   .help = "rack: the least reordering window",
                   .unit = "time",
                   .least = 0,
                   .most = 1e10},
                  {.name = "probe_rtts",
                   .usual = 2.0,
                   .help = "the timeout of a probe, in RTTs",
                   .least = 0.1,
                   .most = 100},
                  {.name = "least_probe_timeout",
                   .usual = std::int64_t{0},
                   .help = "the least timeout of a probe; 0: two base RTTs",
                   .unit = "time",
                   .least = 0,
                   .most = 1e10},
                  {.name = "least_timeout",
                   .usual = std::int64_t{250'000},
                   .help = "the least retransmission timeout; it is 2 RTTs otherwise",
                   .unit = "time",
                   .least = 1000,
                   .most = 1e10},
                  {.name = "initial_timeout",
                   .usual = std::int64_t{1'000'000},
                   .help = "the least retransmission timeout before an RTT is measured",
                   .unit = "time",
                   .least = 1000,
                   .most = 1e10}},
      .has_rto = true};
}

}  // namespace softroce
