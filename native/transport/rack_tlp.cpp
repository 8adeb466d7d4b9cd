// SPDX-License-Identifier: GPL-2.0-or-later
// `rack_tlp`: RACK-TLP, RFC 8985, over striped messages whose packets take all paths.
//
// [S], from RFC 8985:
//
// - 6.2, step 2: The sender keeps the delivered packet that was transmitted last. A packet that was
//   transmitted more than once is ignored if an earlier transmission of it may have arrived.
// - 6.2, step 3: Packet P shows reordering if P was transmitted once, and another packet that was
//   transmitted once, and after P, was delivered before P.
// - 6.2, step 4: The reordering window is min(reo_wnd_mult * min_RTT / 4, SRTT). It is 0 if no
//   reordering has been seen and one of these holds: recovery is in progress, or three packets
//   after the oldest one in flight were delivered. Each round trip with a D-SACK adds 1 to
//   reo_wnd_mult. After 16 recoveries without a D-SACK reo_wnd_mult is 1 again.
// - 6.2, step 5: A packet is lost if a packet that was transmitted later is delivered, and RACK.rtt
//   + reordering window have passed since its transmission. A timer ends at that time.
// - 6.3: When the RTO ends, the oldest packet in flight is lost. All packets whose RACK.rtt +
//   reordering window have passed are lost, too.
// - 7.2, 7.3: When the PTO ends, after 2 SRTT without a delivery or a new packet, the sender sends
// a
//   probe: a new packet or, if there is none, the packet that was transmitted last. At most one
//   probe is outstanding, and none is sent in recovery. A PTO is no longer than the RTO. Receivers
//   here acknowledge at once, so TLP.max_ack_delay is 0.
//
// [S], from RFC 6298: RTO = SRTT + max(G, 4 RTTVAR); a delivery restarts the timer (5.3). G is the
// granularity of the clock. The RTO has no other lower bound.
//
// [D], this project's:
//
// - A peer takes the place of the connection: all messages to it share RACK's state and one timer.
//   The order of transmissions takes the place of sequence numbers.
// - The feedback is that of `srnic`: a PACKET_ACK or PACKET_SACK for each packet. It echoes the
//   timestamp of the packet that arrived. If the feedback reports a packet for the first time, and
//   the timestamp is older than the packet's last transmission, then an earlier transmission has
//   arrived, and the last one was spurious (RFC 3522). This takes the place of the D-SACK. A
//   spurious probe does not count.
// - The timer for a loss ends at the deadline of the oldest packet. RFC 8985 waits for the last.
// - The option `window_factor` is the least reo_wnd_mult.
// - Before the RTT has been measured, the RTO is RTO_high. Back-off is that of the session.
// - When a PTO or an RTO ends, packets that were sent so long ago no longer count as in flight.
#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "../engine/mutant.hpp"
#include "packet_session.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

class RackTlp final : public PacketSession {
 public:
  explicit RackTlp(MessageEngine& engine)
      : PacketSession(engine), least_factor_(option<std::int64_t>("window_factor")) {}

  void posted(SendMessage& message) override;
  void packet_sent(SendMessage& message, std::uint32_t packet, Time now) override;

 private:
  static constexpr std::size_t kDupThresh = 3;
  static constexpr int kPersist = 16;  // recoveries until reo_wnd_mult is 1 again
  static constexpr std::int64_t kPtoSrtt = 2;

  struct Transmission {
    std::uint64_t number;  // counts all transmissions to the peer, from 1 on
    Handle message;
    std::uint32_t packet;
    Nanoseconds sent_ns;
  };
  struct Rack {  // the state of a peer
    // In the order of transmission. `oldest` removes transmissions from the front until the first
    // one is in flight.
    std::deque<Transmission> transmissions;
    std::uint64_t transmitted = 0;       // number of the newest transmission
    std::size_t in_flight = 0;           // packets that are neither delivered nor lost
    std::uint32_t losses = 0;            // lost packets not delivered yet; not 0: recovery
    std::uint64_t newest_delivered = 0;  // RACK.xmit_ts: number of the delivered transmission
    Nanoseconds rtt_ns = 0;              // RACK.rtt: RTT of `newest_delivered`
    std::uint64_t newest_sent_once = 0;  // RACK.fack: newest delivered of packets sent once
    bool has_reordering = false;         // RACK.reordering_seen
    std::int64_t window_factor = 0;      // RACK.reo_wnd_mult
    std::uint64_t spurious_round = 0;    // RACK.dsack_round: a number; 0: none
    int recoveries_left = 0;             // RACK.reo_wnd_persist
    std::uint64_t probe = 0;             // TLP.end_seq: number before the probe; 0: none is out
    bool is_blocked = false;             // the bound of attempts forbids to retransmit for now
    Nanoseconds progress_ns = 0;         // when the RTO's timer started
    Nanoseconds sent_ns = 0;             // when the newest packet was sent
    std::uint32_t timeouts_without_progress = 0;
    Handle timer = kNoHandle;  // the message whose timer is that of the peer
  };
  struct Flow {  // the state of a message
    PeerIndex peer = 0;
    std::uint32_t cumulative = 0;  // packets [0, cumulative) have arrived
    std::size_t in_flight = 0;     // this message's part of Rack::in_flight
    std::uint32_t losses = 0;      // this message's part of Rack::losses
    Bitmap delivered, in_flight_packets, lost;
    std::vector<std::uint64_t> number;   // by packet: its last transmission
    std::optional<std::uint32_t> probe;  // the packet that was last sent as a probe
  };
  struct Delivery {       // what one feedback reports for the first time
    Nanoseconds sent_ns;  // when the packet that it acknowledges was sent
    bool any = false, is_spurious = false;
  };

  Flow& flow_of(Handle message) { return flows_[index_of(message)]; }
  Rack& rack_of(PeerIndex peer) {
    while (peer >= racks_.size()) racks_.emplace_back().window_factor = least_factor_;
    return racks_[peer];
  }
  void forget(Flow& flow);
  const Transmission* oldest(Rack& rack);
  bool is_in_flight(const Transmission& transmission);
  void end_flight(Rack& rack, Flow& flow, std::uint32_t packet);
  void deliver(SendMessage& message, Flow& flow, std::uint32_t packet, Delivery& delivery);
  void adapt_window(Rack& rack, bool is_spurious, bool was_in_recovery);
  Nanoseconds window_ns(PeerIndex peer, const Rack& rack) const;
  Nanoseconds rto_ns(PeerIndex peer) const;
  bool may_probe(PeerIndex peer, const Rack& rack) const;
  Nanoseconds due_ns(PeerIndex peer, Rack& rack);
  void detect(PeerIndex peer, Rack& rack, RetransmitReason why);
  bool lose(Rack& rack, RetransmitReason why);
  void send_probe(PeerIndex peer, Rack& rack);
  void time_out(PeerIndex peer, Rack& rack);
  void arm(PeerIndex peer, Rack& rack);
  void resume(SendMessage& message, RetransmitReason why);

  // ---- hooks of the session
  Feedback out_of_order(const ReceiveMessage& message, std::uint32_t packet) const override {
    return sack_of(message, packet);
  }
  void feedback_known(SendMessage& message, const Feedback& feedback) override;
  void receiver_ready(SendMessage& message) override {
    const PeerIndex peer = message.peer;
    resume(message, RetransmitReason::rnr_nak);
    arm(peer, rack_of(peer));
  }
  void check_send(SendMessage& message) override;
  void over(Handle message) override {
    if ((message & kReceiveTag) == 0 && index_of(message) < flows_.size()) forget(flow_of(message));
  }

  const std::int64_t least_factor_;
  std::deque<Flow> flows_;  // by the handle's index
  std::deque<Rack> racks_;  // by peer
};

// ---------------------------------------------------------------- what is in flight

void RackTlp::posted(SendMessage& message) {
  const std::uint32_t index = index_of(message.handle);
  if (index >= flows_.size()) flows_.resize(index + 1);
  Flow& flow = flows_[index];
  forget(flow);
  flow.peer = message.peer;
  flow.cumulative = 0;
  for (Bitmap* bitmap : {&flow.delivered, &flow.in_flight_packets, &flow.lost})
    bitmap->reset(message.count);
  flow.number.assign(message.count, 0);
  flow.probe.reset();
}

// The message ends. `oldest` removes its transmissions later.
void RackTlp::forget(Flow& flow) {
  Rack& rack = rack_of(flow.peer);
  rack.in_flight -= flow.in_flight;
  rack.losses -= flow.losses;
  flow.in_flight = flow.losses = 0;
}

void RackTlp::packet_sent(SendMessage& message, std::uint32_t packet, Time now) {
  set_now(now);
  Rack& rack = rack_of(message.peer);
  Flow& flow = flow_of(message.handle);
  if (oldest(rack) == nullptr) rack.progress_ns = now_ns();
  rack.sent_ns = now_ns();
  rack.transmissions.push_back({++rack.transmitted, message.handle, packet, now_ns()});
  flow.number[packet] = rack.transmitted;
  if (flow.in_flight_packets.set(packet)) ++rack.in_flight, ++flow.in_flight;
  arm(message.peer, rack);
}

// Whether this is the last transmission of a packet that is in flight.
bool RackTlp::is_in_flight(const Transmission& transmission) {
  const auto [number, handle, packet, sent_ns] = transmission;
  const SendMessage* message = engine().find_send(handle);
  if (message == nullptr) return false;
  Flow& flow = flow_of(handle);
  if (flow.number[packet] != number || !flow.in_flight_packets.test(packet)) return false;
  // The receiver has refused the packets that were sent before the pause.
  if (message->paused) end_flight(rack_of(message->peer), flow, packet);
  return !message->paused;
}

// The oldest transmission in flight; null if there is none.
const RackTlp::Transmission* RackTlp::oldest(Rack& rack) {
  auto& list = rack.transmissions;
  while (!list.empty() && !is_in_flight(list.front())) list.pop_front();
  return list.empty() ? nullptr : &list.front();
}

void RackTlp::end_flight(Rack& rack, Flow& flow, std::uint32_t packet) {
  if (flow.in_flight_packets.clear(packet)) --rack.in_flight, --flow.in_flight;
}

// ---------------------------------------------------------------- feedback: RFC 8985, 6.2

void RackTlp::feedback_known(SendMessage& message, const Feedback& feedback) {
  const PeerIndex peer = message.peer;
  Rack& rack = rack_of(peer);
  Flow& flow = flow_of(message.handle);
  Delivery delivery{.sent_ns = now_ns() - stamp_distance(stamp_of(now()), feedback.echo_stamp_ns)};
  const bool was_in_recovery = rack.losses != 0;
  for (; flow.cumulative < feedback.cumulative; ++flow.cumulative)
    deliver(message, flow, flow.cumulative, delivery);
  if (feedback.type == BodyType::packet_nack) deliver(message, flow, feedback.packet, delivery);
  const bool has_bits = feedback.type == BodyType::packet_sack;
  for (std::uint64_t bits = has_bits ? feedback.bits : 0; bits != 0; bits &= bits - 1)
    deliver(message, flow, feedback.packet + static_cast<std::uint32_t>(__builtin_ctzll(bits)),
            delivery);
  rack.is_blocked = false;  // the peer answers, so retransmissions may be allowed again
  if (delivery.any) {
    rack.progress_ns = now_ns();
    rack.timeouts_without_progress = 0;
    adapt_window(rack, delivery.is_spurious, was_in_recovery);
  }
  if (flow.cumulative == message.count)
    finish_send(message);
  else if (message.paused)
    resume(message, RetransmitReason::nak);
  detect(peer, rack, RetransmitReason::nak);
  arm(peer, rack);
}

// Steps 1 to 3, for a packet that feedback reports.
void RackTlp::deliver(SendMessage& message, Flow& flow, std::uint32_t packet, Delivery& delivery) {
  if (!flow.delivered.set(packet)) return;
  Rack& rack = rack_of(message.peer);
  delivery.any = true;
  end_flight(rack, flow, packet);
  if (flow.lost.clear(packet)) --rack.losses, --flow.losses;
  if (message.retransmit_pending != 0) engine().forget_retransmit(message, packet);
  const Sent& last = message.sent[packet];
  const std::uint64_t number = flow.number[packet];
  if (last.attempts() == 1) {
    if (number < rack.newest_sent_once) rack.has_reordering = true;
    rack.newest_sent_once = std::max(rack.newest_sent_once, number);
  } else if (delivery.sent_ns < last.at_ns()) {  // an earlier transmission arrived
    delivery.is_spurious |= flow.probe != packet;
    return;
  }
  if (number <= rack.newest_delivered) return;
  rack.newest_delivered = number;
  rack.rtt_ns = now_ns() - last.at_ns();
}

// Step 4. Also ends the probe that was answered.
void RackTlp::adapt_window(Rack& rack, bool is_spurious, bool was_in_recovery) {
  const Transmission* first = oldest(rack);
  const std::uint64_t acknowledged = first != nullptr ? first->number - 1 : rack.transmitted;
  if (acknowledged >= rack.spurious_round) rack.spurious_round = 0;
  if (rack.probe != 0 && std::max(acknowledged, rack.newest_delivered) > rack.probe) rack.probe = 0;
  if (first == nullptr) rack.probe = 0;
  if (is_spurious && rack.spurious_round == 0) {
    rack.spurious_round = rack.transmitted;
    ++rack.window_factor;
    rack.recoveries_left = kPersist;
  } else if (was_in_recovery && rack.losses == 0 && --rack.recoveries_left <= 0) {
    rack.window_factor = least_factor_;
  }
}

// The reordering window.
Nanoseconds RackTlp::window_ns(PeerIndex index, const Rack& rack) const {
  // Of the transmissions since the oldest one in flight, those that are not in flight.
  const std::size_t delivered = rack.transmissions.size() - rack.in_flight;
  if (!rack.has_reordering && (rack.losses != 0 || delivered >= kDupThresh)) return 0;
  const RttEstimate& rtt = peer(index).rtt;
  if (rtt.srtt == 0) return 0;
  return std::min(rack.window_factor * (rtt.least / kNanosecond) / 4, rtt.srtt / kNanosecond);
}

// Step 5.
void RackTlp::detect(PeerIndex peer, Rack& rack, RetransmitReason why) {
  const Nanoseconds wait_ns = rack.rtt_ns + window_ns(peer, rack);
  for (const Transmission* first = oldest(rack);
       first != nullptr && first->number < rack.newest_delivered &&
       first->sent_ns + wait_ns <= now_ns();
       first = oldest(rack))
    if (!lose(rack, why)) return;
}

// Takes the oldest packet in flight for lost, and retransmits it. Returns false if the packet stays
// in flight, because its retransmission is forbidden for now.
bool RackTlp::lose(Rack& rack, RetransmitReason why) {
  const Transmission first = rack.transmissions.front();
  SendMessage& message = *engine().find_send(first.message);
  about(message.key);
  Flow& flow = flow_of(first.message);
  if (!mutated(Mutant::rack_loss_forgotten) && !retransmit(message, first.packet, why)) {
    rack.is_blocked = engine().find_send(first.message) != nullptr;  // else the message failed
    return !rack.is_blocked;
  }
  end_flight(rack, flow, first.packet);
  if (flow.lost.set(first.packet)) ++rack.losses, ++flow.losses;
  return true;
}

// ---------------------------------------------------------------- timers: 6.3, 7.2, 7.3

Nanoseconds RackTlp::rto_ns(PeerIndex index) const {
  const RttEstimate& measured = peer(index).rtt;
  const Time rto = measured.rto(timing().clock_granularity_ns * kNanosecond);
  return timeout_or(index, (measured.srtt != 0 ? rto : rto_high()) / kNanosecond);
}

bool RackTlp::may_probe(PeerIndex index, const Rack& rack) const {
  return rack.losses == 0 && rack.probe == 0 && rack.timeouts_without_progress == 0 &&
         peer(index).rtt.srtt != 0;
}

// When the peer's timer ends: for a loss, a probe or the RTO. A packet must be in flight, and first
// in the list (`oldest`).
Nanoseconds RackTlp::due_ns(PeerIndex index, Rack& rack) {
  const Transmission& first = rack.transmissions.front();
  if (first.number < rack.newest_delivered && !rack.is_blocked)
    return first.sent_ns + rack.rtt_ns + window_ns(index, rack);
  const Nanoseconds rto_due_ns =
      rack.progress_ns + backed_off_ns(rto_ns(index), rack.timeouts_without_progress);
  if (!may_probe(index, rack)) return rto_due_ns;
  const Nanoseconds pto_ns = kPtoSrtt * (peer(index).rtt.srtt / kNanosecond);
  return std::min(std::max(rack.progress_ns, rack.sent_ns) + pto_ns, rto_due_ns);
}

// Sets the peer's timer. The timer is that of a message: of the oldest packet in flight when it was
// set. A timer that would end too early stays, and is set again when it ends.
void RackTlp::arm(PeerIndex peer, Rack& rack) {
  const Transmission* first = oldest(rack);
  if (first == nullptr || mutated(Mutant::rack_timer_not_armed)) return;
  const Nanoseconds at_ns = due_ns(peer, rack);
  const SendMessage* owner = engine().find_send(rack.timer);
  if (owner != nullptr && !owner->paused && owner->timer_at <= at_ns * kNanosecond) return;
  rack.timer = first->message;
  set_timer(*engine().find_send(first->message), at_ns);
}

void RackTlp::check_send(SendMessage& message) {
  const PeerIndex peer = message.peer;
  if (message.paused) {  // the receiver was not ready
    probe_receiver(message);
    set_timer(message, now_ns() + timing().t_max_ns);
  }
  Rack& rack = rack_of(peer);
  const Transmission* first = oldest(rack);
  if (first == nullptr) return;
  if (due_ns(peer, rack) <= now_ns()) {
    if (first->number < rack.newest_delivered && !rack.is_blocked)
      detect(peer, rack, RetransmitReason::timeout);
    else if (may_probe(peer, rack))
      send_probe(peer, rack);
    else
      time_out(peer, rack);
  }
  arm(peer, rack);
}

void RackTlp::send_probe(PeerIndex index, Rack& rack) {
  rack.probe = rack.transmitted;
  rack.progress_ns = now_ns();  // the RTO starts again after a probe
  engine().write_off(index, now() - kPtoSrtt * peer(index).rtt.srtt);
  if (!peer(index).sends.empty()) return;  // there is a new packet: the engine sends it now
  auto& list = rack.transmissions;
  while (!is_in_flight(list.back())) list.pop_back();
  const Transmission last = list.back();
  SendMessage& message = *engine().find_send(last.message);
  about(message.key);
  flow_of(last.message).probe = last.packet;
  rack.is_blocked = !retransmit(message, last.packet, RetransmitReason::timeout) &&
                    engine().find_send(last.message) != nullptr;
}

void RackTlp::time_out(PeerIndex peer, Rack& rack) {
  ++rack.timeouts_without_progress;
  rack.progress_ns = now_ns();
  rack.probe = 0;
  rack.is_blocked = false;
  engine().write_off(peer, now() - rto_ns(peer) * kNanosecond);
  const Nanoseconds wait_ns = rack.rtt_ns + window_ns(peer, rack);
  bool is_first = true;
  for (const Transmission* first = oldest(rack);
       first != nullptr && (is_first || first->sent_ns + wait_ns <= now_ns());
       first = oldest(rack)) {
    if (!lose(rack, RetransmitReason::timeout)) return;
    is_first = false;
  }
}

// Ends the pause of a message, and retransmits all packets that were sent and not delivered: the
// receiver has refused them.
void RackTlp::resume(SendMessage& message, RetransmitReason why) {
  const Flow& flow = flow_of(message.handle);
  pause(message, false);
  const std::uint32_t sent = message.next;
  const Handle handle = message.handle;
  for (std::uint32_t packet = flow.cumulative; packet < sent; ++packet)
    if (!flow.delivered.test(packet) && !retransmit(message, packet, why) &&
        engine().find_send(handle) == nullptr)
      return;
}

}  // namespace

Transport rack_tlp_transport() {
  return {.name = "rack_tlp",
          .make = make<RackTlp>,
          .framings = {"ud"},
          .options = {{.name = "window_factor",
                       .usual = std::int64_t{1},
                       .help = "the least reordering window, in quarters of the least RTT",
                       .least = 1,
                       .most = 16},
                      path_picker_option(kPickTurns)},
          .has_rto = true,
          .schedule = "least-left"};
}

}  // namespace softroce
