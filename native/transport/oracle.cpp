// SPDX-License-Identifier: GPL-2.0-or-later
// `oracle` [D]: a bound for retransmission after loss, on the virtual clock alone. A packet that is
// lost, whatever lost it, goes on as a ghost of no bytes through the queues ahead of it
// (sim/ghosts.cpp). Its receiver answers the ghost as it would the packet, and the sender
// retransmits at once. Feedback occupies nothing and cannot be lost.
//
// So there are no timers, and no retransmission of what has arrived. Windows and congestion control
// are those of all transports; packets take all paths, as csa_ud's do.
//
// - A packet that was lost kEager times in a row waits for a sixteenth of the time since the first
//   loss before each further transmission: an outage of a second costs a hundred, not 100,000.
// - One that is lost for as long as kPatience ends its send in IBV_WC_RETRY_EXC_ERR, and the
//   receive with it.
// - A packet without a posted receive is refused; what was refused is retransmitted when the
//   receive is posted. The wait has no limit (rnr_retry 7, IBA 9.7.5.2.8).
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

// Feedback is about one packet: id, packet, its stamp.
enum class Word : std::uint8_t {
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
  void packet_arrived(ReceiveMessage& message, const LabHeader& lab, Time) override {
    tell(Word::arrived, message.peer, lab);
  }
  void packet_refused(PeerIndex peer, const LabHeader& lab) override {
    tell(Word::refused, peer, lab);
  }
  void packet_lost(PeerIndex peer, const LabHeader& lab) override { tell(Word::lost, peer, lab); }
  bool feedback_arrived(PeerIndex peer, std::span<const std::uint8_t> body, Time now) override;
  void timer_ended(SendMessage& message, Time now) override;

 private:
  // Of a packet: as long as others try, forty times 40 ms, or base RTTs.
  static constexpr Time kLongestWait = 40 * kMillisecond;
  static constexpr Time kWaits = 40;
  static constexpr std::uint32_t kEager = 16;  // losses of a packet in a row
  static constexpr Time kShare = 16;           // of the time since the first of them

  struct Loss {
    Time since = 0;
    std::uint32_t times = 0;
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
    bool is_ready = false;               // it was refused before
    std::vector<std::uint32_t> refused;  // packets
    std::unordered_map<std::uint32_t, Loss> lost;
    std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting;
  };

  Flow& flow_of(const SendMessage& message) { return flows_[index_of(message.handle)]; }
  void tell(Word word, PeerIndex peer, const LabHeader& lab) {
    SmallBody body(static_cast<BodyType>(word));
    body.put(lab.message_id).put(lab.index).put(lab.stamp_ns);
    engine().send_feedback(peer, lab.path, body.bytes());
  }
  void retransmit(SendMessage& message, std::uint32_t packet) {
    engine().retransmit(message, packet, RetransmitReason::informed, now());
  }
  void arrived(SendMessage& message, std::uint32_t packet);
  void packet_lost(SendMessage& message, std::uint32_t packet);
  void packet_refused(SendMessage& message, std::uint32_t packet);

  // ---- what the session asks for
  void acknowledge(PeerIndex, std::uint32_t) override {}  // each packet is
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

bool Oracle::feedback_arrived(PeerIndex peer, std::span<const std::uint8_t> body, Time now) {
  set_now(now);
  if (body.size() != kFeedbackBytes) return false;
  BodyReader reader(body.subspan(1));
  const auto id = reader.take<std::uint32_t>(), packet = reader.take<std::uint32_t>();
  if (!engine().echoed(peer, reader.take<std::uint32_t>(), now)) return false;
  SendMessage* message = find_send(peer, id);
  if (message == nullptr) return true;  // over
  if (packet >= message->next) return false;
  about(message->key);
  switch (static_cast<Word>(body[0])) {
    case Word::arrived:
      return arrived(*message, packet), true;
    case Word::lost:
      return packet_lost(*message, packet), true;
    case Word::refused:
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
  if (++loss.times <= kEager) return retransmit(message, packet);
  const Time taken = now() - loss.since;
  if (taken > patience_) return give_up_send(message, WcStatus::retry_exc_err);
  const Time until = now() + taken / kShare;
  flow.waiting.push({until, packet});
  engine().set_timer(message.handle, flow.waiting.top().until);
}

void Oracle::timer_ended(SendMessage& message, Time now) {
  set_now(now);
  auto& waiting = flow_of(message).waiting;
  for (; !waiting.empty() && waiting.top().until <= now; waiting.pop())
    retransmit(message, waiting.top().packet);
  if (!waiting.empty()) engine().set_timer(message.handle, waiting.top().until);
}

// Feedback may be overtaken: what is refused behind the answer was sent before it.
void Oracle::packet_refused(SendMessage& message, std::uint32_t packet) {
  Flow& flow = flow_of(message);
  if (flow.is_ready) return packet_lost(message, packet);
  flow.is_refused = true;
  flow.refused.push_back(packet);
  if (!message.paused) pause(message, true);
}

// The receive is posted.
void Oracle::control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) {
  const auto missing =
      static_cast<BodyType>(body[0]) == BodyType::sack ? read_missing(body) : std::nullopt;
  if (!missing || missing->set) return bad_control();
  about(missing->name.key);
  SendMessage* message = find_send(peer, missing->name.id);
  if (message == nullptr || message->key != missing->name.key) return;
  Flow& flow = flow_of(*message);
  of(*message).begun = true;
  flow.is_refused = false;
  flow.is_ready = true;
  for (const std::uint32_t packet : flow.refused) retransmit(*message, packet);
  flow.refused.clear();
  pause(*message, false);
}

}  // namespace

Transport oracle_transport() {
  return {.name = "oracle", .make = make<Oracle>, .framings = {"ud"}, .omniscient = true};
}

}  // namespace softroce
