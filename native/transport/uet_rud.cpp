// SPDX-License-Identifier: GPL-2.0-or-later
// `uet_rud`: reliable unordered delivery (RUD) of Ultra Ethernet's packet delivery sublayer.
// uet_session.hpp names the sources, and has the rules for acknowledgements, trimming and timers.
//
// From the sources:
//
// - Selective repeat. A NACK of a trimmed packet or the packet's timer causes a retransmission.
//   A hole in the acknowledgements causes none [spec 3.5.11.14; provider].
// - Packets may take any path. The default path picker is REPS [htsim: main_uec.cpp offers
//   several].
//
// SLEEK infers losses from packets that arrived out of order [htsim: runSleek, sendProbe]. The
// option `sleek` switches SLEEK on. It is off by default, as in [htsim]. The *base* is the oldest
// PSN that is not acknowledged.
//
// - The sender begins a recovery when at least max(min(1.5 * cwnd, maxwnd), 5) packets beyond the
//   base have arrived. The recovery's end is the next PSN that was unused when the recovery began.
//   The recovery is over when the base reaches this end.
// - At each acknowledgement in a recovery, the sender retransmits the missing packets from the base
//   to the recovery's end, but at most cwnd PSNs beyond the base. A PSN is retransmitted only once,
//   even if a later recovery contains it again.
// - A probe leaves three base RTTs after the last acknowledgement. If no packet waits for its first
//   transmission, the probe leaves after a base RTT plus the target delay. Without an
//   acknowledgement, the next probe leaves five base RTTs later.
// - A recovery also begins if the acknowledgement of a probe arrives less than a base RTT plus the
//   target delay after the probe left. In this recovery each PSN may be retransmitted once more.
// - The target delay is a base RTT. With trimming it is three quarters of a base RTT [htsim:
//   initNsccParams].
//
// This project's rules:
//
// - cwnd is the window of the lab's congestion control, in packets. maxwnd is the constant window
//   (MessageConfig::window_packets), but at most half of the PSN window. The second limit is needed
//   because a hole stops the sender when the PSN window is full.
// - The probe is the first missing packet. [htsim] sends a header without data. The lab has no
//   header that requests an acknowledgement.
// - Packet timers run in a recovery, too. In [htsim] a timeout in a recovery leaves the packet to
//   the recovery.
#include <algorithm>
#include <vector>

#include "uet_session.hpp"

namespace softroce {
namespace {

class UetRud final : public UetSession {
 public:
  explicit UetRud(MessageEngine& engine)
      : UetSession(engine),
        has_sleek_(option<bool>("sleek")),
        cwnds_(option<double>("sleek_cwnds")),
        least_(number_of<Psn>(config(), "sleek_packets")),
        most_(std::min<Psn>(config().window_packets, number_of<Psn>(config(), "psn_window") / 2)),
        probe_rtts_(option<std::int64_t>("probe_rtts")),
        repeat_rtts_(option<std::int64_t>("probe_repeat_rtts")),
        target_ns_(has_trimming() ? base_rtt_ns() / 4 * 3 : base_rtt_ns()) {}

 private:
  static constexpr Psn kNone = UINT64_MAX;

  struct Sleek {  // of a connection
    bool is_recovering = false;
    Psn recovery_end = 0;
    Psn resent_end = 0;  // a recovery has retransmitted all missing PSNs below
    Nanoseconds probe_due_ns = kNeverNs;
    Psn probe = kNone;               // the probe without an acknowledgement, if any
    Nanoseconds probe_sent_ns = -1;  // -1: the probe has not left
  };

  Sleek& sleek_of(const Connection& connection) {
    if (connection.peer >= sleeks_.size()) sleeks_.resize(connection.peer + 1);
    return sleeks_[connection.peer];
  }
  Psn cwnd(const Connection& connection) const {
    return peer(connection.peer).congestion->window_packets();
  }
  static Psn out_of_order(Connection& connection);
  void recover(Connection& connection, Sleek& sleek);
  void note_probe(const Connection& connection, Sleek& sleek, const Acknowledgement& ack);
  void send_probe(Connection& connection, Sleek& sleek);

  // ---- hooks
  void packet_left(Connection& connection, Psn psn) override;
  void acknowledged(Connection& connection, const Acknowledgement& ack) override;
  void time_passed(Connection& connection) override;

  const bool has_sleek_;
  const double cwnds_;
  const Psn least_, most_;
  const Nanoseconds probe_rtts_, repeat_rtts_, target_ns_;
  std::vector<Sleek> sleeks_;  // by peer
};

// ---------------------------------------------------------------- SLEEK

void UetRud::acknowledged(Connection& connection, const Acknowledgement& ack) {
  if (!has_sleek_) return;
  Sleek& sleek = sleek_of(connection);
  const bool has_backlog = !peer(connection.peer).sends.empty();
  sleek.probe_due_ns = connection.records.empty() && !has_backlog ? kNeverNs
                       : has_backlog ? now_ns() + probe_rtts_ * base_rtt_ns()
                                     : now_ns() + base_rtt_ns() + target_ns_;
  wake_at(connection, sleek.probe_due_ns);
  note_probe(connection, sleek, ack);
  recover(connection, sleek);
}

auto UetRud::out_of_order(Connection& connection) -> Psn {
  Psn packets = 0;
  for (Psn psn = connection.base; psn < connection.acknowledged_end; ++psn)
    packets += connection.at(psn).is_done;
  return packets;
}

void UetRud::recover(Connection& connection, Sleek& sleek) {
  if (connection.base >= sleek.recovery_end) sleek.is_recovering = false;
  if (!sleek.is_recovering) {
    const auto wide = static_cast<Psn>(cwnds_ * static_cast<double>(cwnd(connection)));
    if (out_of_order(connection) < std::max(std::min(wide, most_), least_)) return;
    sleek.is_recovering = true;
    sleek.recovery_end = connection.end();
  }
  const Psn end = std::min(sleek.recovery_end, connection.base + cwnd(connection));
  for (Psn psn = std::max(connection.base, sleek.resent_end); psn < end; ++psn) {
    if (!connection.at(psn).is_out()) continue;
    retransmit_early(connection, psn, RetransmitReason::nak);
    sleek.resent_end = psn + 1;
  }
}

void UetRud::note_probe(const Connection& connection, Sleek& sleek, const Acknowledgement& ack) {
  if (sleek.probe == kNone || ack.sent_ns != sleek.probe_sent_ns) return;
  sleek.probe = kNone;
  if (now_ns() - ack.sent_ns >= base_rtt_ns() + target_ns_) return;
  sleek.is_recovering = true;
  sleek.recovery_end = connection.end();
  sleek.resent_end = connection.base;
}

void UetRud::send_probe(Connection& connection, Sleek& sleek) {
  sleek.probe_due_ns = now_ns() + repeat_rtts_ * base_rtt_ns();
  for (Psn psn = connection.base; psn < connection.end(); ++psn) {
    if (!connection.at(psn).is_out()) continue;
    sleek.probe = psn;
    sleek.probe_sent_ns = -1;
    return retransmit_early(connection, psn, RetransmitReason::timeout);
  }
}

// ---------------------------------------------------------------- transmissions and time

void UetRud::packet_left(Connection& connection, Psn psn) {
  expect_timeout(connection, psn);
  if (!has_sleek_) return;
  Sleek& sleek = sleek_of(connection);
  if (psn == sleek.probe && sleek.probe_sent_ns < 0) sleek.probe_sent_ns = now_ns();
}

void UetRud::time_passed(Connection& connection) {
  if (has_sleek_) {
    Sleek& sleek = sleek_of(connection);
    if (sleek.probe_due_ns <= now_ns()) send_probe(connection, sleek);
    wake_at(connection, sleek.probe_due_ns);
  }
  ConnectionSession::time_passed(connection);
}

}  // namespace

Transport uet_rud_transport() {
  std::vector<Option> options = UetSession::options("reps");
  options.insert(options.end(),
                 {{.name = "sleek",
                   .usual = false,
                   .help = "whether SLEEK infers losses from packets that arrived out of order"},
                  {.name = "sleek_cwnds",
                   .usual = 1.5,
                   .help = "sleek: packets out of order that begin a recovery, in windows",
                   .least = 0,
                   .most = 16},
                  {.name = "sleek_packets",
                   .usual = std::int64_t{5},
                   .help = "sleek: the least number of packets out of order that begins a recovery",
                   .least = 1,
                   .most = 4096},
                  {.name = "probe_rtts",
                   .usual = std::int64_t{3},
                   .help = "sleek: until a probe, in base RTTs, while packets wait to be sent",
                   .least = 1,
                   .most = 100},
                  {.name = "probe_repeat_rtts",
                   .usual = std::int64_t{5},
                   .help = "sleek: until a probe without an answer is repeated, in base RTTs",
                   .least = 1,
                   .most = 100}});
  return {.name = "uet_rud",
          .make = make<UetRud>,
          .framings = {"ud"},
          .options = std::move(options),
          .has_rto = true};
}

}  // namespace softroce
