// SPDX-License-Identifier: GPL-2.0-or-later
// `csa_ud`: communication-semantic-aware recovery over unreliable datagrams.
//
// What is public of CSA-UD (arXiv 2606.20582) is its abstract: RDMA over UD, data transmission
// decoupled from recovery, a loss-detection interval that adapts and uses the synchronisation
// semantics of collectives, multipath with bitmap-guided reassembly. Messages, formula and timers
// here are this project's (docs/explanation/csa-ud.md).
//
// The engine numbers the packets of each path, and sends a probe after the last one. So the
// receiver's engine detects a loss when the next packet on the path arrives, or the trimmed packet
// itself. Its NACK tells the sender's engine which packets are lost. This class decides what to
// retransmit. Its timers detect losses only when nothing arrives.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "../engine/mutant.hpp"
#include "path_health.hpp"
#include "session.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

// A packet that was sent this often is retransmitted in two copies. The reason: a round of recovery
// may be three packets, the retransmission and two probes. A fault that drops every third packet
// then drops each retransmission; a second copy breaks the rhythm. If more packets than
// kMostSentTwice are lost, a round is longer, and copies would cost too much.
constexpr std::uint16_t kSendTwiceAfter = 8;
constexpr std::size_t kMostSentTwice = 4;

class CsaUd final : public Session {
 public:
  explicit CsaUd(MessageEngine& engine)
      : Session(engine),
        immediate_acks_(option<bool>("immediate_acks")),
        path_health_(option<bool>("path_health")) {}

  Figures figures() const override;

 private:
  void first_packet(ReceiveMessage& message) override;
  void check_receive(ReceiveMessage& message) override;
  void status_requested(ReceiveMessage& message, std::uint32_t id) override;
  void acknowledge(PeerIndex peer, std::uint32_t id) override;
  void turn_ended() override;
  void lost(SendMessage& message, std::span<const LostPacket> packets) override;
  void control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) override;
  void sent(SendMessage& message) override;
  void check_send(SendMessage& message) override;

  Nanoseconds interval_ns(const ReceiveMessage& message, std::uint32_t missing) const;
  void send_overdue(SendMessage& message);
  void resume(SendMessage& message);
  void leave_grey_paths(const SendMessage& message, std::span<const LostPacket> packets);
  Nanoseconds response_timeout_ns(PeerIndex peer) const;
  Nanoseconds long_round_trip_ns(PeerIndex peer) const;
  bool still_arrives(const SendMessage& message);

  const bool immediate_acks_, path_health_;
  std::vector<PeerIndex> acks_due_;
  std::map<PeerIndex, PathHealth> health_;
  std::int64_t loss_checks_ = 0, sent_twice_ = 0;
  std::array<std::int64_t, kLossReasons> lost_{};  // packets
  std::vector<std::uint32_t> once_, twice_;        // to be retransmitted
};

// ---------------------------------------------------------------- receiver: silence

// The interval from one loss check of a message to the next:
// T = clamp(a SRTT + b RTTVAR + transfer time of the missing packets, T_min, T_max)
// (docs/explanation/csa-ud.md, Loss checks).
Nanoseconds CsaUd::interval_ns(const ReceiveMessage& message, std::uint32_t missing) const {
  const auto [srtt_ns, rttvar_ns] = reported_rtt(message.peer);
  const Nanoseconds wait_ns = timing().srtt_weight * srtt_ns + timing().rttvar_weight * rttvar_ns;
  const double rate = peer(message.peer).receive_bytes_per_second;
  Nanoseconds transfer_ns = missing * srtt_ns / config().window_packets;  // a window a round trip
  if (rate > 0)
    transfer_ns = static_cast<Nanoseconds>(
        static_cast<double>(std::uint64_t{missing} * chunk_bytes()) * 1e9 / rate);
  return clamp(wait_ns + transfer_ns);
}

void CsaUd::first_packet(ReceiveMessage& message) {
  if (message.count > 1) set_timer(message, now_ns() + interval_ns(message, message.count));
}

void CsaUd::check_receive(ReceiveMessage& message) {
  Receive& receive = of(message);
  const std::uint32_t arrived = message.received + message.duplicates;
  receive.timeouts_without_progress =
      arrived > receive.received ? 0 : receive.timeouts_without_progress + 1;
  receive.received = arrived;
  const Nanoseconds wait_ns = interval_ns(message, message.lacking);
  set_timer(message, now_ns() + backed_off_ns(wait_ns, receive.timeouts_without_progress));
  if (now_ns() - message.last_at / kNanosecond < wait_ns / 2) return;  // the message still arrives
  ++loss_checks_;
  send_nack(message.peer);
  // If the send has failed and its REFUSE is lost, this SACK makes the sender repeat the REFUSE.
  if (receive.timeouts_without_progress > timing().eager_rounds && message.open)
    send_missing(message.peer, {.name = {message.id, message.key}, .set = PacketSet()});
}

// The NACK names what is lost. The SACK tells a paused send to continue even if nothing is lost. It
// names no packet: with an empty set, packets have arrived; without a set, none has.
void CsaUd::status_requested(ReceiveMessage& message, std::uint32_t id) {
  Missing sack{.name = {id, message.key}};
  if (message.open) sack.set = PacketSet();
  send_missing(message.peer, sack);
  send_nack(message.peer);
}

// ---------------------------------------------------------------- acknowledgements

// Acknowledges at the end of the turn, together with other messages of the peer; or as all sessions
// do, later, if the option is off, or if acknowledgements of this message had no effect.
void CsaUd::acknowledge(PeerIndex peer, std::uint32_t id) {
  if (!immediate_acks_ || acks_without_effect(peer, id) != 0) return Session::acknowledge(peer, id);
  if (queue_ack(peer, id)) return flush_acks(peer);
  if (std::ranges::find(acks_due_, peer) == acks_due_.end()) acks_due_.push_back(peer);
}

void CsaUd::turn_ended() {
  for (const PeerIndex peer : acks_due_)
    if (has_acks(peer)) flush_acks(peer);
  acks_due_.clear();
}

// ---------------------------------------------------------------- sender

void CsaUd::lost(SendMessage& message, std::span<const LostPacket> packets) {
  if (mutated(Mutant::losses_ignored)) return;
  if (mutated(Mutant::first_lost_forgotten)) packets = packets.subspan(1);
  std::uint32_t attempts = 0;
  const auto was_lost_often = [](const LostPacket& each) {
    return each.attempts >= kSendTwiceAfter;
  };
  const auto lost_often = static_cast<std::size_t>(std::ranges::count_if(packets, was_lost_often));
  const bool sends_twice = lost_often != 0 && lost_often <= kMostSentTwice;
  once_.clear();
  twice_.clear();
  for (const LostPacket& each : packets) {
    ++lost_[static_cast<std::size_t>(each.reason)];
    attempts = std::max<std::uint32_t>(attempts, each.attempts);
    (sends_twice && was_lost_often(each) ? twice_ : once_).push_back(each.index);
  }
  sent_twice_ += static_cast<std::int64_t>(twice_.size());
  leave_grey_paths(message, packets);
  if (message.paused) resume(message);
  if (!twice_.empty() && !retransmit(message, twice_, attempts, false, 2)) return;
  if (!once_.empty()) retransmit(message, once_, attempts);
}

// Continues a paused send: its receive is posted now.
void CsaUd::resume(SendMessage& message) {
  pause(message, false);
  set_timer(message, now_ns() + response_timeout_ns(message.peer));
}

void CsaUd::control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) {
  if (static_cast<BodyType>(body[0]) != BodyType::sack) return bad_control();
  std::optional<Missing> missing;
  SendMessage* message = find_reported(peer, body, missing);
  if (message == nullptr) return;
  const bool was_paused = message->paused;
  if (was_paused) resume(*message);
  if (missing->set) return;  // the NACK that follows names what is missing
  // No packet has arrived. If the send was paused, the receiver dropped all packets that were sent.
  // If not, the NACK that follows may be too full to name this message: every packet that was last
  // sent more than two long round trips ago counts as lost.
  const Nanoseconds sent_before_ns = now_ns() - 2 * long_round_trip_ns(peer);
  std::uint32_t attempts = 0;
  once_.clear();
  for (std::uint32_t packet = 0; packet < message->count; ++packet) {
    const Sent& last = message->sent[packet];
    if (last.attempts() == 0 || (last.at_ns() > sent_before_ns && !was_paused)) continue;
    attempts = std::max<std::uint32_t>(attempts, last.tries());
    once_.push_back(packet);
  }
  if (!once_.empty()) retransmit(*message, once_, attempts);
}

void CsaUd::sent(SendMessage& message) {
  Send& send = of(message);
  const std::uint32_t before = std::exchange(send.reported, peer(message.peer).reported_packets);
  // `out` is false the first time. After a retransmission the back-off ends only if the peer has
  // reported arrivals since the last look: a loss in step with this timer could hit every
  // retransmission if it always ended.
  if (!send.out || send.reported != before) send.timeouts_without_progress = 0;
  send.out_ns = now_ns();
  set_timer(message, now_ns() + backed_off_ns(response_timeout_ns(message.peer),
                                              send.timeouts_without_progress));
}

// How long a sender that has sent everything waits for a response before it sends a KEEPALIVE. With
// a steady RTT, a long round trip alone would end just as the acknowledgement arrives: at least
// 2 SRTT + RTTVAR.
Nanoseconds CsaUd::response_timeout_ns(PeerIndex peer) const {
  const auto [srtt_ns, rttvar_ns] = rtt(peer);
  return clamp(std::max(2 * srtt_ns + rttvar_ns, long_round_trip_ns(peer)));
}

// A round trip rarely takes longer.
Nanoseconds CsaUd::long_round_trip_ns(PeerIndex peer) const {
  const auto [srtt_ns, rttvar_ns] = rtt(peer);
  return srtt_ns + timing().lost_rttvar_weight * rttvar_ns;
}

void CsaUd::check_send(SendMessage& message) {
  Send& send = of(message);
  const Nanoseconds response_timeout = response_timeout_ns(message.peer);
  if (still_arrives(message))  // wait as long again as since it was sent: checks become rarer
    return set_timer(message, now_ns() + std::max(response_timeout, now_ns() - send.out_ns));
  ++send.timeouts_without_progress;
  probe_receiver(message);
  if (mutated(Mutant::asks_once)) return;
  set_timer(message,
            now_ns() + backed_off_ns(2 * response_timeout, send.timeouts_without_progress));
}

// Whether reports show that packets of this message have arrived since the last call. Only the
// newest message of a peer qualifies: reports count packets of all messages.
bool CsaUd::still_arrives(const SendMessage& message) {
  Send& send = of(message);
  if (!send.out || send.rnr_naks != 0 || !is_newest(message)) return false;
  const std::uint32_t reported = peer(message.peer).reported_packets;
  return std::exchange(send.reported, reported) != reported;
}

// ---------------------------------------------------------------- paths

// A grey path loses more packets than the others, but not all: it gets another source port.
void CsaUd::leave_grey_paths(const SendMessage& message, std::span<const LostPacket> packets) {
  if (!path_health_) return;
  const PeerIndex index = message.peer;
  PathHealth& health = health_.try_emplace(index, config().paths).first->second;
  health.note_sent(peer(index).sent_on);
  for (const LostPacket& each : packets)
    if (each.index + config().paths < message.count) health.note_lost(each.path);
  for (const std::uint8_t path : health.leave()) move_path(index, path);
}

Figures CsaUd::figures() const {
  Figures all = Session::figures();
  std::map<std::uint32_t, std::vector<std::int64_t>> left;
  for (const auto& [peer, health] : health_) left[peer] = health.left();
  all.insert(all.end(), {{"loss_checks", loss_checks_},
                         {"lost_by_gap", lost_[0]},
                         {"lost_by_probe", lost_[1]},
                         {"lost_by_timer", lost_[2]},
                         {"lost_by_trimming", lost_[3]},
                         {"sent_twice", sent_twice_},
                         {"paths_left", left}});
  return all;
}

// ---------------------------------------------------------------- registry entry

Option mechanism(Mechanism part, const char* name, const char* help) {
  return {.name = name, .usual = true, .help = help, .part = part};
}

}  // namespace

Transport csa_ud_transport() {
  return {
      .name = "csa_ud",
      .make = make<CsaUd>,
      .options =
          {mechanism(kPathNumbers, "path_numbers",
                     "losses are found by numbers on paths, else by timers"),
           mechanism(kProbes, "probes",
                     "a probe behind the last packet shows what is lost of the tail"),
           mechanism(kProbeRepeats, "probe_repeats", "a probe that nothing answers is repeated"),
           mechanism(kJoinedReports, "joined_reports",
                     "receiver reports go with acknowledgements and NACKs"),
           mechanism(kReorderingWindow, "reordering_window",
                     "the reordering window of a path adapts, else it stays 0"),
           mechanism(kPortTrials, "port_trials",
                     "a path that fell silent tries its first source port again"),
           mechanism(kPathChoice, "path_choice",
                     "a packet takes the path with the fewest packets on their way"),
           mechanism(kSlowPorts, "slow_ports",
                     "a path that carries less than its share takes another source port"),
           {.name = "parity",
            .usual = std::string("auto"),
            .help = "packets of parity behind a message after which the port idles; auto: by the "
                    "measured loss",
            .choices = {"auto", "0", "1", "2", "3", "4"}},
           {.name = "parity_budget",
            .usual = 0.15,
            .help = "the most parity that a host sends, as a share of its packets of data",
            .least = 0,
            .most = 1},
           mechanism(
               kParityIdle, "parity_idle",
               "parity waits until nothing else may leave, unless it is worth the wait of others"),
           mechanism(kParityUnacknowledged, "parity_unacknowledged",
                     "parity leaves only within a round trip after the message's last packet"),
           mechanism(kParityUncongested, "parity_uncongested",
                     "no parity to a peer whose newest report shows congestion marks"),
           mechanism(kParityBursts, "parity_bursts", "more parity if losses come in bursts"),
           {.name = "immediate_acks",
            .usual = true,
            .help = "a complete message is acknowledged at once, else after SRTT / 4 with others"},
           {.name = "path_health",
            .usual = true,
            .help = "a path that loses more than others gets another source port"}},
      .schedule = "least-left",
      .congestion_control = "grants",
      .path_probes = true};
}

}  // namespace softroce
