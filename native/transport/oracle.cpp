// SPDX-License-Identifier: GPL-2.0-or-later
#include "oracle.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <queue>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "bodies.hpp"
#include "outstanding.hpp"
#include "refusal.hpp"

namespace softroce {
namespace {

// Beside REFUSE (bodies.hpp). All but READY are about one packet: id, packet, its stamp.
enum class Word : std::uint8_t {
  arrived = 64,
  lost = 65,
  refused = 66,  // no receive is posted
  ready = 67,    // id: a receive is, for what was refused
};
constexpr std::size_t kOfPacket = 13, kOfMessage = 5;

class Oracle final : public PacketTransport {
 public:
  Oracle(const TransportConfig& config, TransportHost& host)
      : host_(host),
        patience_(config.retry_limit * std::max(config.base_rtt, kLongestWait)),
        sends_(host, config.message_slots) {}

  bool omniscient() const override { return true; }
  void send_posted(SendMessage& message) override;
  void packet_sent(SendMessage&, std::uint32_t, Time) override {}
  void receive_posted(ReceiveMessage& message, Time now) override;
  void packet_arrived(ReceiveMessage& message, const LabHeader& lab, Time) override {
    tell(Word::arrived, message.peer, lab);
  }
  void packet_refused(PeerIndex peer, const LabHeader& lab, Refusal why) override;
  void packet_lost(PeerIndex peer, const LabHeader& lab) override { tell(Word::lost, peer, lab); }
  bool control_arrived(PeerIndex peer, std::span<const std::uint8_t> body, Time now) override;
  void woken(Handle subject, Time asked_for, Time now) override;

 private:
  static constexpr Time kLongestWait = 40 * kMillisecond;
  static constexpr std::uint32_t kEager = 16;  // losses of a packet in a row
  static constexpr Time kShare = 16;           // of the time since the first of them
  static constexpr std::size_t kMostUnready = 1 << 20;

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

  Flow& flow_of(const SendMessage& message) {
    return flows_[static_cast<std::uint32_t>(message.handle)];
  }
  void tell(Word word, PeerIndex peer, const LabHeader& lab) {
    SmallBody body(static_cast<BodyType>(word));
    body.put(lab.message_id).put(lab.index).put(lab.stamp_ns);
    host_.send_control(peer, lab.path, body.bytes());
  }
  void refuse(PeerIndex peer, const Naming& naming, std::uint8_t path) {
    host_.send_control(peer, path, write(BodyType::refuse, naming).bytes());
  }
  bool of_packet(PeerIndex peer, std::span<const std::uint8_t> body, Time now);
  bool arrived(SendMessage& message, std::uint32_t packet, Time now);
  void lost(SendMessage& message, std::uint32_t packet, Time now);
  void refused(SendMessage& message, std::uint32_t packet, Time now);
  void ready(SendMessage& message, Time now);
  bool ended(PeerIndex peer, const Naming& naming, Time now);
  void give_up(SendMessage& message, Time now);

  TransportHost& host_;
  const Time patience_;
  OutstandingSends sends_;
  std::deque<Flow> flows_;  // by the handle's index
  // Of messages that were refused without a receive, until it is posted: their ids.
  std::unordered_map<PeerKey, std::uint32_t, PeerKeyHash> unready_;
};

void Oracle::send_posted(SendMessage& message) {
  const auto index = static_cast<std::uint32_t>(message.handle);
  if (index >= flows_.size()) flows_.resize(index + 1);
  Bitmap arrived = std::move(flows_[index].arrived);
  arrived.reset(message.count);
  flows_[index] = {};
  flows_[index].arrived = std::move(arrived);
  sends_.add(message);
  host_.allow(message, message.count);
}

// ---------------------------------------------------------------- receiver

void Oracle::receive_posted(ReceiveMessage& message, Time) {
  const PeerKey key{message.peer, message.key};
  if (const auto found = unready_.find(key); found != unready_.end()) {
    SmallBody body(static_cast<BodyType>(Word::ready));
    host_.send_control(message.peer, kAnyPath, body.put(found->second).bytes());
    unready_.erase(found);
  }
}

void Oracle::packet_refused(PeerIndex peer, const LabHeader& lab, Refusal why) {
  const Naming naming = refused_message(lab, why);
  if (why == Refusal::complete) return;  // a copy: the sender knows
  if (why != Refusal::no_receive) return refuse(peer, naming, lab.path);
  if (unready_.size() >= kMostUnready) return tell(Word::lost, peer, lab);
  unready_[{peer, naming.key}] = naming.id;
  tell(Word::refused, peer, lab);
}

// ---------------------------------------------------------------- feedback

bool Oracle::control_arrived(PeerIndex peer, std::span<const std::uint8_t> body, Time now) {
  if (body.empty()) return false;
  if (static_cast<BodyType>(body[0]) == BodyType::refuse) {
    const auto naming = read_naming(body);
    return naming && ended(peer, *naming, now);
  }
  if (static_cast<Word>(body[0]) != Word::ready) return of_packet(peer, body, now);
  if (body.size() != kOfMessage) return false;
  const auto id = BodyReader(body.subspan(1)).take<std::uint32_t>();
  if (SendMessage* message = sends_.find(peer, id)) ready(*message, now);
  return true;
}

bool Oracle::of_packet(PeerIndex peer, std::span<const std::uint8_t> body, Time now) {
  if (body.size() != kOfPacket) return false;
  BodyReader reader(body.subspan(1));
  const auto id = reader.take<std::uint32_t>(), packet = reader.take<std::uint32_t>();
  if (!host_.echoed(peer, reader.take<std::uint32_t>(), now)) return false;
  SendMessage* message = sends_.find(peer, id);
  if (message == nullptr) return true;  // over
  if (packet >= message->next) return false;
  switch (static_cast<Word>(body[0])) {
    case Word::arrived:
      return arrived(*message, packet, now);
    case Word::lost:
      return lost(*message, packet, now), true;
    case Word::refused:
      return refused(*message, packet, now), true;
    case Word::ready:
      break;
  }
  return false;
}

bool Oracle::arrived(SendMessage& message, std::uint32_t packet, Time now) {
  Flow& flow = flow_of(message);
  if (!flow.arrived.set(packet)) return true;
  if (!flow.lost.empty()) flow.lost.erase(packet);
  if (++flow.arrivals == message.count) host_.end(message, WcStatus::success, now);
  return true;
}

void Oracle::lost(SendMessage& message, std::uint32_t packet, Time now) {
  Flow& flow = flow_of(message);
  if (flow.arrived.test(packet)) return;
  Loss& loss = flow.lost.try_emplace(packet, Loss{.since = now}).first->second;
  if (flow.is_refused) return flow.refused.push_back(packet);
  if (++loss.times <= kEager)
    return host_.retransmit(message, packet, RetransmitReason::informed, now);
  const Time taken = now - loss.since;
  if (taken > patience_) return give_up(message, now);
  const Time until = now + taken / kShare;
  flow.waiting.push({until, packet});
  host_.wake_at(until, message.handle);
}

// Feedback may be overtaken: what is refused behind READY was sent before it.
void Oracle::refused(SendMessage& message, std::uint32_t packet, Time now) {
  Flow& flow = flow_of(message);
  if (flow.is_ready) return lost(message, packet, now);
  flow.is_refused = true;
  flow.refused.push_back(packet);
  host_.pause(message, true);
}

void Oracle::ready(SendMessage& message, Time now) {
  Flow& flow = flow_of(message);
  flow.is_refused = false;
  flow.is_ready = true;
  for (const std::uint32_t packet : flow.refused)
    host_.retransmit(message, packet, RetransmitReason::informed, now);
  flow.refused.clear();
  host_.pause(message, false);
}

void Oracle::woken(Handle subject, Time, Time now) {
  SendMessage* message = host_.find_send(subject);
  if (message == nullptr) return;
  auto& waiting = flow_of(*message).waiting;
  for (; !waiting.empty() && waiting.top().until <= now; waiting.pop())
    host_.retransmit(*message, waiting.top().packet, RetransmitReason::informed, now);
}

// ---------------------------------------------------------------- messages that cannot succeed

bool Oracle::ended(PeerIndex peer, const Naming& naming, Time now) {
  const auto status = static_cast<WcStatus>(naming.status);
  if (status != WcStatus::rem_inv_req_err && status != WcStatus::retry_exc_err) return false;
  if (naming.flag) {  // by the receiver
    SendMessage* message = sends_.find(peer, naming.id);
    if (message != nullptr && message->key == naming.key) host_.end(*message, status, now);
    return true;
  }
  unready_.erase(PeerKey{peer, naming.key});
  host_.sender_gave_up(peer, naming.id, naming.key, status, now);
  return true;
}

void Oracle::give_up(SendMessage& message, Time now) {
  const Naming naming{.id = message.id,
                      .key = message.key,
                      .status = static_cast<std::uint8_t>(WcStatus::retry_exc_err)};
  refuse(message.peer, naming, kAnyPath);
  host_.end(message, WcStatus::retry_exc_err, now);
}

}  // namespace

std::unique_ptr<PacketTransport> make_oracle(const TransportConfig& config, TransportHost& host) {
  if (config.rnr_retry < 7)
    throw std::invalid_argument("oracle waits for a receive without limit: rnr_retry is 7");
  return std::make_unique<Oracle>(config, host);
}

}  // namespace softroce
