// SPDX-License-Identifier: GPL-2.0-or-later
// `oracle`: a bound for retransmission after loss, only on the virtual clock. All of it is this
// project's definition (docs/explanation/transports.md).
//
// A lost packet goes on as a ghost of no bytes through the queues ahead of it, whatever lost it
// (sim/ghosts.cpp). When the ghost arrives, the receiver notifies the sender, which retransmits at
// once. Notices occupy no link and cannot be lost. So no timer detects losses, and a packet that
// has arrived is never retransmitted. Windows and congestion control are those of all transports.
// Packets take all paths.
//
// - After kImmediateRepeats losses in a row, a packet waits for a sixteenth of the time since its
//   first loss before each transmission. An outage of a second costs a hundred transmissions, not
//   100,000.
// - A packet that is lost for longer than `patience_` ends its message at both ends with
//   IBV_WC_RETRY_EXC_ERR.
// - A packet without a posted receive is refused. When the receive is posted, the refused packets
//   are retransmitted. The wait has no limit (rnr_retry 7, IBA 9.7.5.2.8). A receiver may forget
//   refused messages if there are thousands, so the sender asks at intervals of T_max.
#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "session.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

// Feedback about one packet: a Notice, the message's id, the packet's index, its timestamp.
enum class Notice : std::uint8_t {
  arrived = 64,
  lost = 65,
  refused = 66,  // no receive is posted
};
constexpr std::size_t kFeedbackBytes = 13;

class Oracle final : public Session {
 public:
  explicit Oracle(MessageEngine& engine)
      : Session(engine), patience_(kWaits * std::max(config().initial_rtt, kLongestWait)) {
    if (timing().rnr_retry < 7)
      throw std::invalid_argument("oracle waits for a receive without limit: rnr_retry is 7");
  }

  bool reacts() const override { return true; }
  bool omniscient() const override { return true; }
  void posted(SendMessage& message) override;
  void packet_arrived(ReceiveMessage& message, const Packet& packet, Time) override {
    send_notice(Notice::arrived, message.peer, packet.lab);
  }
  void packet_refused(PeerIndex peer, const LabHeader& lab) override {
    send_notice(Notice::refused, peer, lab);
  }
  void packet_lost(PeerIndex peer, const LabHeader& lab) override {
    send_notice(Notice::lost, peer, lab);
  }
  bool feedback_arrived(PeerIndex peer, const Packet& feedback, Time now) override;
  void timer_ended(SendMessage& message, Time now) override;

 private:
  // patience_ is 40 times 40 ms, or 40 base RTTs if these take longer: other transports try as
  // long.
  static constexpr Time kLongestWait = 40 * kMillisecond;
  static constexpr Time kWaits = 40;
  static constexpr std::uint32_t kImmediateRepeats = 16;  // of a packet, before it waits
  static constexpr Time kWaitDivisor = 16;                // of the time since its first loss

  struct Loss {
    Time since = 0;
    std::uint32_t count = 0;
  };
  struct Waiting {
    Time until;
    std::uint32_t packet;
    bool operator>(const Waiting& other) const { return until > other.until; }
  };
  struct Flow {
    Bitmap arrived;
    std::uint32_t arrivals = 0;
    bool is_refused = false;             // until the receive is posted
    bool receive_is_posted = false;      // after a refusal
    std::vector<std::uint32_t> refused;  // packets
    std::unordered_map<std::uint32_t, Loss> lost;
    std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting;
  };

  Flow& flow_of(const SendMessage& message) { return flows_[index_of(message.handle)]; }
  void send_notice(Notice notice, PeerIndex peer, const LabHeader& lab) {
    SmallBody body(static_cast<BodyType>(notice));
    body.put(lab.message_id).put(lab.index).put(lab.stamp_ns);
    engine().send_feedback(peer, lab.path, false, body.bytes());
  }
  void retransmit(SendMessage& message, std::uint32_t packet) {
    engine().retransmit(message, packet, RetransmitReason::informed, now());
  }
  void arrived(SendMessage& message, std::uint32_t packet);
  void packet_lost(SendMessage& message, std::uint32_t packet);
  void packet_refused(SendMessage& message, std::uint32_t packet);
  void ask(SendMessage& message);  // whether the receive is posted

  // ---- hooks of the session
  void acknowledge(PeerIndex, std::uint32_t) override {}  // each packet was acknowledged already
  void check_send(SendMessage&) override {}
  void check_receive(ReceiveMessage&) override {}
  void status_requested(ReceiveMessage& message, std::uint32_t id) override {
    send_missing(message.peer, {.name = {id, message.key}, .set = {}});  // a receive is posted
  }
  void control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) override;

  const Time patience_;
  std::deque<Flow> flows_;  // by the handle's index
};

void Oracle::posted(SendMessage& message) {
  const std::uint32_t index = index_of(message.handle);
  if (index >= flows_.size()) flows_.resize(index + 1);
  Bitmap arrived = std::move(flows_[index].arrived);
  arrived.reset(message.count);
  flows_[index] = {};
  flows_[index].arrived = std::move(arrived);
}

bool Oracle::feedback_arrived(PeerIndex peer, const Packet& feedback, Time now) {
  set_now(now);
  const std::span body(feedback.payload, feedback.payload_bytes);
  if (body.size() != kFeedbackBytes) return false;
  BodyReader reader(body.subspan(1));
  const auto id = reader.take<std::uint32_t>(), packet = reader.take<std::uint32_t>();
  if (!engine().echoed(peer, reader.take<std::uint32_t>(), now)) return false;
  SendMessage* message = find_send(peer, id);
  if (message == nullptr) return true;  // the message is over
  if (packet >= message->next) return false;
  about(message->key);
  switch (static_cast<Notice>(body[0])) {
    case Notice::arrived:
      return arrived(*message, packet), true;
    case Notice::lost:
      return packet_lost(*message, packet), true;
    case Notice::refused:
      return packet_refused(*message, packet), true;
  }
  return false;
}

void Oracle::arrived(SendMessage& message, std::uint32_t packet) {
  Flow& flow = flow_of(message);
  if (!flow.arrived.set(packet)) return;
  if (!flow.lost.empty()) flow.lost.erase(packet);
  if (++flow.arrivals == message.count) finish_send(message);
}

void Oracle::packet_lost(SendMessage& message, std::uint32_t packet) {
  Flow& flow = flow_of(message);
  if (flow.arrived.test(packet)) return;
  Loss& loss = flow.lost.try_emplace(packet, Loss{.since = now()}).first->second;
  if (flow.is_refused) return flow.refused.push_back(packet);
  if (++loss.count <= kImmediateRepeats) return retransmit(message, packet);
  const Time elapsed = now() - loss.since;
  if (elapsed > patience_) return give_up_send(message, WcStatus::retry_exc_err);
  const Time until = now() + elapsed / kWaitDivisor;
  flow.waiting.push({until, packet});
  engine().set_timer(message.handle, flow.waiting.top().until);
}

void Oracle::timer_ended(SendMessage& message, Time now) {
  set_now(now);
  auto& waiting = flow_of(message).waiting;
  for (; !waiting.empty() && waiting.top().until <= now; waiting.pop())
    retransmit(message, waiting.top().packet);
  if (message.paused) return ask(message);
  if (!waiting.empty()) engine().set_timer(message.handle, waiting.top().until);
}

void Oracle::ask(SendMessage& message) {
  probe_receiver(message);
  set_timer(message, now_ns() + timing().t_max_ns);
}

// The notice that the receive is posted may overtake refusals. A packet that is refused after that
// notice was sent before it, and is retransmitted like a lost one.
void Oracle::packet_refused(SendMessage& message, std::uint32_t packet) {
  Flow& flow = flow_of(message);
  if (flow.receive_is_posted) return packet_lost(message, packet);
  flow.is_refused = true;
  flow.refused.push_back(packet);
  if (message.paused) return;
  pause(message, true);
  set_timer(message, now_ns() + timing().t_max_ns);
}

// The receive is posted.
void Oracle::control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) {
  if (static_cast<BodyType>(body[0]) != BodyType::sack) return bad_control();
  std::optional<Missing> missing;
  SendMessage* message = find_reported(peer, body, missing);
  if (message == nullptr) return;
  Flow& flow = flow_of(*message);
  flow.is_refused = false;
  flow.receive_is_posted = true;
  for (const std::uint32_t packet : flow.refused) retransmit(*message, packet);
  flow.refused.clear();
  pause(*message, false);
  if (!flow.waiting.empty()) engine().set_timer(message->handle, flow.waiting.top().until);
}

}  // namespace

Transport oracle_transport() {
  return {.name = "oracle",
          .make = make<Oracle>,
          .framings = {"ud"},
          .schedule = "least-left",
          .congestion_control = "grants",  // as whom it bounds
          .omniscient = true};
}

}  // namespace softroce
