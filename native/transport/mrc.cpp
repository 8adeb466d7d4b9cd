// SPDX-License-Identifier: GPL-2.0-or-later
// `mrc`: the loss recovery of Multipath Reliable Connection (MRC) 1.0 of the Open Compute Project.
// This project has not read MRC's specification. [S] marks what other sources say of it: the papers
// arXiv 2605.04333 and 2606.18170, the headers of libmrc, public codecs and emulators, and a public
// implementation for the simulator ns-3 (the ns-3 port).
//
// From the sources [S]:
//
// - No packet leaves whose PSN exceeds the cumulative acknowledgement by more than the maximum PSN
//   range (MPR). The MPR is a multiple of 128 packets, typically 4,096.
// - The receiver sends a SACK when the unanswered bytes reach a threshold of 4,096 or 16,384 bytes.
//   A packet counts as at least 1,024 bytes.
// - The receiver sends a SACK at once for a packet that requests one (header bit BTH.a), for a
//   packet with a congestion mark, and for a retransmission. It acknowledges duplicates, too.
// - The NACK of a trimmed packet (a switch cut it to its headers) causes a retransmission. A hole
//   in the SACKs also causes one.
// - Each packet has its own timer, which starts at each transmission. The timeout is
//   1.024 us * 2^exponent, with an exponent of at most 24. The first transmission and at most 7
//   retries have this timeout. It doubles with each further retry.
// - A retransmission for another reason than the timer resets the timeout.
// - Retransmissions leave before new data. The oldest missing packet leaves first. Each
//   retransmission takes a fresh entropy value (EV), and counts for the congestion window.
// - The sender chooses an EV by the states of the EVs. The path picker `ev-states` has the rules.
//   A path of the lab stands for an EV.
//
// This project's rules:
//
// - A missing PSN is lost if the highest acknowledged PSN exceeds it by at least
//   max(3, congestion window in packets). The specification leaves this open, and the rule is that
//   of the ns-3 port. A packet is retransmitted once for this reason [S: ns-3 port]. The rule
//   judges only packets that were sent once: a retransmission left later than the packets behind
//   it.
// - The exponent is the least one for which the timeout is at least four SRTTs to the peer. The
//   SRTT is over all paths. Before an RTT is measured, the base RTT replaces the SRTT.
// - Doubled timeouts vary, as in all sessions (backoff.hpp). They are at most
//   max(T_max, 16 * timeout).
// - The session limits the transmissions of a packet (the knob `retry_count`). MRC fails a
//   connection whose retries exceed a limit. Here a packet that arrives trimmed starts the count
//   again: its peer and its path are alive.
// - The lab's headers have no BTH.a. Instead, the receiver answers the last packet of a message at
//   once. It answers other packets at most a quarter of a base RTT after the first unanswered one.
// - In the count of unanswered bytes, a short last packet of a message counts as a full packet.
// - The receiver sends NACKs only for trimmed packets, because it has room for all packets of a
//   posted message. It does not change the MPR.
// - The oldest missing packet of a message is retransmitted first. Between messages, the message
//   that lost a packet first is first.
// - No probes of bad paths are sent. The path picker tries bad paths with data packets.
// - Congestion control is the lab's.
#include <algorithm>
#include <bit>

#include "../engine/mutant.hpp"
#include "connection_session.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

constexpr std::size_t kMprUnit = 128;  // packets

class Mrc final : public ConnectionSession {
 public:
  explicit Mrc(MessageEngine& engine)
      : ConnectionSession(engine, kMprUnit * number_of<std::size_t>(engine.config(), "mpr"),
                          coalescing_by_bytes(engine)),
        least_distance_(number_of<Psn>(config(), "distance")),
        window_share_(option<double>("distance_windows")),
        exponent_(option<std::int64_t>("timeout_exponent")),
        linear_(option<std::int64_t>("linear_timeouts")) {}

 private:
  static constexpr Nanoseconds kTimeoutUnit = 1024;
  static constexpr Nanoseconds kTimeoutRtts = 4;
  static constexpr Nanoseconds kMostDoubled = 16;  // a doubled timeout, in timeouts

  Psn distance_of(const Connection& connection) const;
  void retransmit_oldest_first(Connection& connection, Psn psn, RetransmitReason why);

  // ---- hooks
  bool answers_trimming() const override { return true; }
  bool answers_at_once(const Packet& packet) const override;
  Nanoseconds rto_ns(PeerIndex index) const override;
  Nanoseconds wait_ns(const Record& record, Nanoseconds rto_ns, std::uint32_t) const override;
  void acknowledged(Connection& connection, const Acknowledgement& ack) override;
  void payload_cut(Connection& connection, Psn psn, bool at_last_hop) override;
  void timed_out(Connection& connection, Psn psn) override;

  const Psn least_distance_;
  const double window_share_;
  const std::int64_t exponent_, linear_;
};

// ---------------------------------------------------------------- SACKs and retransmissions

bool Mrc::answers_at_once(const Packet& packet) const {
  const LabHeader& lab = packet.lab;
  return lab.attempt > 0 || lab.index + 1 == lab.count || packet.congestion_experienced();
}

void Mrc::retransmit_oldest_first(Connection& connection, Psn psn, RetransmitReason why) {
  retransmit(connection, psn, why);
  const Record& record = connection.at(psn);
  SendMessage* message = engine().find_send(record.message);
  if (message != nullptr)
    message->retransmit_cursor = std::min(message->retransmit_cursor, record.packet);
}

void Mrc::payload_cut(Connection& connection, Psn psn, bool) {
  connection.at(psn).timeouts = 0;
  retransmit_oldest_first(connection, psn, RetransmitReason::trimmed);
}

ConnectionSession::Psn Mrc::distance_of(const Connection& connection) const {
  const std::uint32_t window = peer(connection.peer).congestion->window_packets();
  return std::max(least_distance_, static_cast<Psn>(window_share_ * window));
}

void Mrc::acknowledged(Connection& connection, const Acknowledgement&) {
  const Psn distance = distance_of(connection);
  for (Psn psn = connection.base; psn + distance < connection.acknowledged_end; ++psn) {
    const Record& record = connection.at(psn);
    if (!record.is_out() || record.transmissions > 1) continue;
    retransmit_oldest_first(connection, psn, RetransmitReason::nak);
  }
  if (!connection.records.empty()) expect_timeout(connection, connection.base);
}

// ---------------------------------------------------------------- timers

Nanoseconds Mrc::rto_ns(PeerIndex index) const {
  if (exponent_ != 0) return timeout_or(index, kTimeoutUnit << exponent_);
  const Nanoseconds least_ns = kTimeoutRtts * rtt(index).srtt_ns;
  const auto units = static_cast<std::uint64_t>((least_ns + kTimeoutUnit - 1) / kTimeoutUnit);
  return timeout_or(index, kTimeoutUnit * static_cast<Nanoseconds>(std::bit_ceil(units)));
}

Nanoseconds Mrc::wait_ns(const Record& record, Nanoseconds rto_ns, std::uint32_t) const {
  return backed_off(rto_ns, record.timeouts - linear_,
                    std::max(timing().t_max_ns, kMostDoubled * rto_ns));
}

void Mrc::timed_out(Connection& connection, Psn psn) {
  Record& record = connection.at(psn);
  ++record.timeouts;
  if (mutated(Mutant::mrc_base_left_out) && psn == connection.base)
    record.sent_ns = now_ns();
  else
    retransmit_oldest_first(connection, psn, RetransmitReason::timeout);
}

}  // namespace

Transport mrc_transport() {
  return {
      .name = "mrc",
      .make = make<Mrc>,
      .framings = {"ud"},
      .options = {{.name = "mpr",
                   .usual = std::int64_t{32},
                   .help = "the maximum PSN range, in units of 128 packets to a peer from the "
                           "oldest unacknowledged one on",
                   .least = 1,
                   .most = 255},
                  path_picker_option("ev-states"),
                  acknowledged_bytes_option(),
                  coalescing_time_option(),
                  {.name = "distance",
                   .usual = std::int64_t{3},
                   .help = "a missing packet is lost if the highest acknowledged one exceeds it by "
                           "that many packets",
                   .least = 0,
                   .most = 32'640},
                  {.name = "distance_windows",
                   .usual = 1.0,
                   .help = "the least number of such packets, in windows of the congestion control",
                   .least = 0,
                   .most = 16},
                  {.name = "timeout_exponent",
                   .usual = std::int64_t{0},
                   .help = "the retransmission timeout is 1.024 us * 2^exponent; 0: the least one "
                           "of at least four RTTs",
                   .least = 0,
                   .most = 24},
                  {.name = "linear_timeouts",
                   .usual = std::int64_t{7},
                   .help = "retries of a packet whose timeout does not double yet",
                   .least = 0,
                   .most = 7}},
      .has_rto = true};
}

}  // namespace softroce
