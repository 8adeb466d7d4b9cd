// SPDX-License-Identifier: GPL-2.0-or-later
// `rack_tlp`: RACK-TLP, RFC 8985, over striped messages whose packets take all paths.
//
// [S], from RFC 8985:
//
// - 6.2, step 2: The sender keeps the delivered packet that was transmitted last. A packet that was
//   transmitted more than once is passed over if an earlier transmission of it may have arrived.
// - 6.2, step 3: A packet that was transmitted once, and is delivered after one that was
//   transmitted first after it, shows reordering.
// - 6.2, step 4: The reordering window is 0 until there was reordering, in recovery or when three
//   packets were delivered past the oldest one. Otherwise it is reo_wnd_mult * min_RTT / 4, at most
//   SRTT. Each round trip with a D-SACK adds 1 to reo_wnd_mult. It is 1 again after 16 recoveries
//   without a D-SACK.
// - 6.2, step 5: A packet is lost if one that was transmitted later is delivered, and RACK.rtt and
//   the reordering window have passed since its transmission. A timer ends at that time.
// - 6.3: An RTO loses the oldest packet, and those that were transmitted RACK.rtt and the
//   reordering window ago.
// - 7.2, 7.3: After 2 SRTT without a delivery or a new packet a probe leaves: a new packet, else
//   the one that was transmitted last. There is one probe at a time, and none in recovery. A PTO is
//   no longer than the RTO. Receivers here acknowledge at once, so TLP.max_ack_delay is 0.
//
// [S], from RFC 6298: RTO = SRTT + max(G, 4 RTTVAR); a delivery restarts the timer (5.3). G is the
// clock's granularity, and the only floor.
//
// [D], this project's:
//
// - The connection is the peer: all its messages share the state of RACK and the timer. The order
// of
//   transmissions takes the place of sequence numbers.
// - What the receiver of `srnic` sends is the feedback: a PACKET_ACK or PACKET_SACK a packet. It
//   echoes the timestamp of the packet that arrived. If that is older than the last transmission of
//   a packet that it newly reports, the last transmission was spurious (RFC 3522). This is the
//   D-SACK. A probe's does not count.
// - The timer for a loss ends with each packet's own deadline. RFC 8985 waits for the last one.
// - The option `window_factor` is the least reo_wnd_mult.
// - RTO_high stands for the RTO until the RTT has been measured. Back-off is that of the session.
// - When a PTO or an RTO ends, packets that were sent so long ago are no longer in flight.
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

  bool sprays() const override { return true; }
  void posted(SendMessage& message) override;
  void packet_sent(SendMessage& message, std::uint32_t packet, Time now) override;

 private:
  static constexpr std::size_t kDupThresh = 3;
  static constexpr int kPersist = 16;  // recoveries
  static constexpr std::int64_t kPtoSrtt = 2;

  struct Transmission {
    std::uint64_t number;  // counts all transmissions to the peer, from 1 on
    Handle message;
    std::uint32_t packet;
    Nanoseconds sent_ns;
  };
  struct Rack {
    // In the order of transmission. The first one is in flight after `oldest`.
    std::deque<Transmission> transmissions;
    std::uint64_t transmitted = 0;     // how many
    std::size_t in_flight = 0;         // packets that are neither delivered nor lost
    std::uint32_t losses = 0;          // lost packets that are not delivered yet: recovery
    std::uint64_t newest = 0;          // RACK.xmit_ts: the delivered packet transmitted last
    Nanoseconds rtt_ns = 0;            // RACK.rtt: of that one
    std::uint64_t newest_first = 0;    // RACK.fack: the same of packets transmitted once
    bool has_reordering = false;       // RACK.reordering_seen
    std::int64_t window_factor = 0;    // RACK.reo_wnd_mult
    std::uint64_t spurious_round = 0;  // RACK.dsack_round; 0: none
    int recoveries_left = 0;           // RACK.reo_wnd_persist
    std::uint64_t probe = 0;      // TLP.end_seq: transmissions before the probe; 0: none is out
    bool is_blocked = false;      // the bound of attempts forbids a retransmission for now
    Nanoseconds progress_ns = 0;  // when the RTO's timer started
    Nanoseconds sent_ns = 0;      // when the newest packet was sent
    std::uint32_t timeouts_without_progress = 0;
    Handle timer = kNoHandle;  // the message that has the timer
  };
  struct Flow {
    PeerIndex peer = 0;
    std::uint32_t cumulative = 0;       // packets [0, cumulative) have arrived
    std::size_t in_flight = 0;          // of Rack::in_flight
    std::uint32_t losses = 0;           // of Rack::losses
    Bitmap delivered, out, lost;        // `out`: in flight
    std::vector<std::uint64_t> number;  // of each packet's last transmission
    std::optional<std::uint32_t> probe;
  };
  struct Delivery {  // what a feedback newly reports
    Nanoseconds sent_ns;
    bool any = false, is_spurious = false;
  };

  Flow& flow_of(Handle message) { return flows_[index_of(message)]; }
  Rack& rack_of(PeerIndex peer) {
    while (peer >= racks_.size()) racks_.emplace_back().window_factor = least_factor_;
    return racks_[peer];
  }
  void forget(Flow& flow);
  const Transmission* oldest(Rack& rack);
  bool is_in_flight(const Transmission& each);
  void leave(Rack& rack, Flow& flow, std::uint32_t packet);
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
  for (Bitmap* each : {&flow.delivered, &flow.out, &flow.lost}) each->reset(message.count);
  flow.number.assign(message.count, 0);
  flow.probe.reset();
}

// The message ends. Its transmissions leave the list when they are the oldest.
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
  if (flow.out.set(packet)) ++rack.in_flight, ++flow.in_flight;
  arm(message.peer, rack);
}

bool RackTlp::is_in_flight(const Transmission& each) {
  const SendMessage* message = engine().find_send(each.message);
  if (message == nullptr) return false;
  Flow& flow = flow_of(each.message);
  if (flow.number[each.packet] != each.number || !flow.out.test(each.packet)) return false;
  // The receiver has refused what was sent before the pause.
  if (message->paused) leave(rack_of(message->peer), flow, each.packet);
  return !message->paused;
}

const RackTlp::Transmission* RackTlp::oldest(Rack& rack) {
  auto& list = rack.transmissions;
  while (!list.empty() && !is_in_flight(list.front())) list.pop_front();
  return list.empty() ? nullptr : &list.front();
}

void RackTlp::leave(Rack& rack, Flow& flow, std::uint32_t packet) {
  if (flow.out.clear(packet)) --rack.in_flight, --flow.in_flight;
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
  rack.is_blocked = false;  // the peer answers
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

// Steps 1 to 3.
void RackTlp::deliver(SendMessage& message, Flow& flow, std::uint32_t packet, Delivery& delivery) {
  if (!flow.delivered.set(packet)) return;
  Rack& rack = rack_of(message.peer);
  delivery.any = true;
  leave(rack, flow, packet);
  if (flow.lost.clear(packet)) --rack.losses, --flow.losses;
  if (message.retransmit_pending != 0) engine().forget_retransmit(message, packet);
  const Sent& last = message.sent[packet];
  const std::uint64_t number = flow.number[packet];
  if (last.attempts() == 1) {
    if (number < rack.newest_first) rack.has_reordering = true;
    rack.newest_first = std::max(rack.newest_first, number);
  } else if (delivery.sent_ns < last.at_ns()) {
    delivery.is_spurious |= flow.probe != packet;
    return;
  }
  if (number <= rack.newest) return;
  rack.newest = number;
  rack.rtt_ns = now_ns() - last.at_ns();
}

// Step 4.
void RackTlp::adapt_window(Rack& rack, bool is_spurious, bool was_in_recovery) {
  const Transmission* first = oldest(rack);
  const std::uint64_t acknowledged = first != nullptr ? first->number - 1 : rack.transmitted;
  if (acknowledged >= rack.spurious_round) rack.spurious_round = 0;
  if (rack.probe != 0 && std::max(acknowledged, rack.newest) > rack.probe) rack.probe = 0;
  if (first == nullptr) rack.probe = 0;
  if (is_spurious && rack.spurious_round == 0) {
    rack.spurious_round = rack.transmitted;
    ++rack.window_factor;
    rack.recoveries_left = kPersist;
  } else if (was_in_recovery && rack.losses == 0 && --rack.recoveries_left <= 0) {
    rack.window_factor = least_factor_;
  }
}

Nanoseconds RackTlp::window_ns(PeerIndex index, const Rack& rack) const {
  const std::size_t beyond = rack.transmissions.size() - rack.in_flight;  // delivered
  if (!rack.has_reordering && (rack.losses != 0 || beyond >= kDupThresh)) return 0;
  const RttEstimate& rtt = peer(index).rtt;
  if (rtt.srtt == 0) return 0;
  return std::min(rack.window_factor * (rtt.least / kNanosecond) / 4, rtt.srtt / kNanosecond);
}

// Step 5.
void RackTlp::detect(PeerIndex peer, Rack& rack, RetransmitReason why) {
  const Nanoseconds wait_ns = rack.rtt_ns + window_ns(peer, rack);
  for (const Transmission* each = oldest(rack);
       each != nullptr && each->number < rack.newest && each->sent_ns + wait_ns <= now_ns();
       each = oldest(rack))
    if (!lose(rack, why)) return;
}

// The oldest packet in flight is lost. False: it stays, and its retransmission is forbidden for
// now.
bool RackTlp::lose(Rack& rack, RetransmitReason why) {
  const Transmission each = rack.transmissions.front();
  SendMessage& message = *engine().find_send(each.message);
  about(message.key);
  Flow& flow = flow_of(each.message);
  if (!mutated(Mutant::rack_loss_forgotten) && !retransmit(message, each.packet, why)) {
    rack.is_blocked = engine().find_send(each.message) != nullptr;
    return !rack.is_blocked;
  }
  leave(rack, flow, each.packet);
  if (flow.lost.set(each.packet)) ++rack.losses, ++flow.losses;
  return true;
}

// ---------------------------------------------------------------- timers: 6.3, 7.2, 7.3

Nanoseconds RackTlp::rto_ns(PeerIndex index) const {
  if (config().timeout != 0) return config().timeout / kNanosecond;
  const RttEstimate& rtt = peer(index).rtt;
  return (rtt.srtt != 0 ? rtt.rto(timing().clock_granularity_ns * kNanosecond) : rto_high()) /
         kNanosecond;
}

bool RackTlp::may_probe(PeerIndex index, const Rack& rack) const {
  return rack.losses == 0 && rack.probe == 0 && rack.timeouts_without_progress == 0 &&
         peer(index).rtt.srtt != 0;
}

// When the one timer ends. Something is in flight.
Nanoseconds RackTlp::due_ns(PeerIndex index, Rack& rack) {
  const Transmission& first = rack.transmissions.front();
  if (first.number < rack.newest && !rack.is_blocked)
    return first.sent_ns + rack.rtt_ns + window_ns(index, rack);
  const Nanoseconds rto_due_ns =
      rack.progress_ns + backed_off_ns(rto_ns(index), rack.timeouts_without_progress);
  if (!may_probe(index, rack)) return rto_due_ns;
  const Nanoseconds pto_ns = kPtoSrtt * (peer(index).rtt.srtt / kNanosecond);
  return std::min(std::max(rack.progress_ns, rack.sent_ns) + pto_ns, rto_due_ns);
}

// The message of the oldest packet in flight has the timer. A timer that ends too early is set
// again when it ends.
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
    if (first->number < rack.newest && !rack.is_blocked)
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
  rack.progress_ns = now_ns();  // of the RTO behind it
  engine().write_off(index, now() - kPtoSrtt * peer(index).rtt.srtt);
  if (!peer(index).sends.empty()) return;  // a new packet, which leaves now
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
  for (const Transmission* each = oldest(rack);
       each != nullptr && (is_first || each->sent_ns + wait_ns <= now_ns()); each = oldest(rack)) {
    if (!lose(rack, RetransmitReason::timeout)) return;
    is_first = false;
  }
}

// The receiver refused all packets that were sent before the pause.
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
                       .help = "the reordering window at first, in quarters of the least RTT",
                       .least = 1,
                       .most = 16}},
          .has_rto = true,
          .schedule = "least-left"};
}

}  // namespace softroce
