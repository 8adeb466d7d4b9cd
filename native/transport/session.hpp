// SPDX-License-Identifier: GPL-2.0-or-later
// The session of an endpoint: what all transports of striped messages share. It acknowledges
// messages, sends keepalives, handles RNR NAKs and refusals, bounds the attempts of a packet, and
// gives up. A subclass, the transport, decides which packets are lost. All of it is this project's
// definition (docs/explanation/transports.md).
//
// The engine queues events, and `turn` handles them one after the other. So no hook runs while the
// engine works on a message. The exception are the hooks of MessageSession for every packet
// (`reacts`).
//
// Timers and intervals are whole nanoseconds (`_ns`); `Time` counts picoseconds.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "../engine/striped/message_engine.hpp"
#include "backoff.hpp"
#include "control.hpp"

namespace softroce {

// The value of a transport's option. Throws std::invalid_argument if the option is missing or has
// another type.
template <typename T>
T option_of(const MessageConfig& config, std::string_view name) {
  const auto found = config.options.find(name);
  if (found == config.options.end() || !std::holds_alternative<T>(found->second))
    throw std::invalid_argument("no option " + std::string(name) + " of that type");
  return std::get<T>(found->second);
}

// The value of an option that is a whole number, as another type.
template <typename T>
T number_of(const MessageConfig& config, std::string_view name) {
  return static_cast<T>(option_of<std::int64_t>(config, name));
}

class Session : public MessageSession {
 public:
  explicit Session(MessageEngine& engine);

  bool turn(Time now) override;
  void flushed(const SendMessage& message) final;
  void flushed(const ReceiveMessage& message) final;
  void withdraw(SendMessage& message, WcStatus status, Time now) final;
  void withdraw(ReceiveMessage& message, WcStatus status, Time now) final;
  Figures figures() const override { return {{"keepalives", keepalives_}}; }
  void record_decisions() final { records_ = true; }
  std::vector<Decision> take_decisions() final { return std::exchange(decisions_, {}); }

 protected:
  // The session's state of a send, until the send is acknowledged or has failed. The engine's state
  // is the SendMessage.
  struct Send {
    Handle handle = kNoHandle;  // kNoHandle: the send is over
    std::uint64_t number = 0;   // the order in which sends and receives were posted
    std::uint32_t rnr_naks = 0;
    bool has_receive = false;    // the peer has said so: an RNR NAK that comes now is outdated
    Nanoseconds retry_ns = 0;    // paused until then, because the receiver was not ready
    bool out = false;            // each packet has been sent at least once
    Nanoseconds out_ns = 0;      // when the last packet that waited to be sent left
    std::uint32_t reported = 0;  // the peer's count of arrived packets at the last look
    std::uint32_t timeouts_without_progress = 0;  // timeouts or keepalives in a row
  };
  struct Receive {
    Handle handle = kNoHandle;
    std::uint64_t number = 0;
    std::uint32_t received = 0;  // packets that had arrived at the last check, with duplicates
    std::uint32_t timeouts_without_progress = 0;  // checks in a row
    std::uint32_t fed_back = 0;  // packets that had arrived at the last feedback, with duplicates
  };

  static constexpr Nanoseconds kNeverNs = INT64_MAX;

  // ---- hooks. No hook is called for a message that the engine no longer has.
  virtual void send_posted(SendMessage&) {}
  // No packet of the message waits to be sent any more. `Send::out` is still false the first time.
  virtual void sent(SendMessage&) {}
  virtual void check_send(SendMessage& message) = 0;  // the timer of the send ended
  virtual void receive_posted(ReceiveMessage&) {}
  virtual void first_packet(ReceiveMessage&) {}
  virtual void last_packet(ReceiveMessage&) {}  // the last packet arrived, and others are missing
  virtual void check_receive(ReceiveMessage& message) = 0;  // the timer of the receive ended
  // The sender asks for the status of a message that is not over (KEEPALIVE), or the receive of a
  // message that got an RNR NAK was posted. `id`: the sender's, which the receive may not have yet.
  virtual void status_requested(ReceiveMessage& message, std::uint32_t id) = 0;
  virtual void control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) = 0;
  virtual void gap(ReceiveMessage&, std::span<const std::uint32_t> /*packets*/) {}
  virtual void lost(SendMessage&, std::span<const LostPacket>) {}
  virtual void parity_released(SendMessage&, std::uint32_t /*submessage*/) {}
  virtual void chunk_arrived(ReceiveMessage&, std::uint32_t /*submessage*/) {}
  virtual void trimmed(ReceiveMessage&, const PayloadLoss&) {}  // see takes_trimmed()
  virtual void paused(SendMessage&) {}  // the receiver was not ready, and refused what was sent
  virtual void turn_ended() {}
  // Packets for each bit of its feedback; 0: the feedback is SACKs.
  virtual std::uint32_t chunk_packets() const { return 0; }
  virtual void over(Handle) {}  // the message ends, or has ended

  // ---- a turn, event by event
  void begin_turn(Time now);
  bool handle_next();                            // false: the turn is over
  const Event& event() const { return event_; }  // the one being handled
  void set_now(Time now) {
    now_ = now;
    now_ns_ = now / kNanosecond;
  }

  // ---- state
  MessageEngine& engine() { return engine_; }
  const MessageConfig& config() const { return engine_.config(); }
  const SessionTiming& timing() const { return engine_.config().timing; }
  Nanoseconds now_ns() const { return now_ns_; }
  Time now() const { return now_; }
  std::uint32_t chunk_bytes() const { return engine_.chunk_bytes(); }  // data bytes of a packet
  const Peer& peer(PeerIndex index) const { return engine_.peers()[index]; }
  Send& of(const SendMessage& message) { return sends_[index_of(message.handle)]; }
  Receive& of(const ReceiveMessage& message) { return receives_[index_of(message.handle)]; }
  static std::uint32_t index_of(Handle handle) { return static_cast<std::uint32_t>(handle); }
  // Null: the send is over, was never posted, or its event was not handled yet.
  SendMessage* find_send(PeerIndex peer, std::uint32_t id);
  bool is_newest(const SendMessage& message) const;  // no later send was posted to its peer

  struct Rtt {
    Nanoseconds srtt_ns, rttvar_ns;
  };
  // Both are the initial RTT until there is a sample.
  Rtt rtt(PeerIndex index) const {  // of data sent to the peer, measured here
    const RttEstimate& measured = peer(index).rtt;
    const Nanoseconds srtt_ns = measured.srtt / kNanosecond;
    return srtt_ns != 0 ? Rtt{srtt_ns, measured.rttvar / kNanosecond} : initial_rtt();
  }
  Rtt reported_rtt(PeerIndex index) const {  // of data from the peer, as its packets report it
    const Peer& from = peer(index);
    return from.remote_srtt_ns != 0 ? Rtt{from.remote_srtt_ns, from.remote_rttvar_ns}
                                    : initial_rtt();
  }
  Nanoseconds clamp(Nanoseconds interval_ns) const {  // to T_min..T_max
    return std::min(std::max(interval_ns, timing().t_min_ns), timing().t_max_ns);
  }
  // The interval after `rounds` rounds in a row without progress. The first `eager_rounds` rounds
  // do not lengthen it.
  Nanoseconds backed_off_ns(Nanoseconds interval_ns, std::uint32_t rounds) const {
    return backed_off(interval_ns, std::int64_t{rounds} - timing().eager_rounds, timing().t_max_ns);
  }
  template <typename T>
  T option(std::string_view name) const {
    return option_of<T>(config(), name);
  }

  // ---- actions, recorded with the event that caused them (`record_decisions`)
  void set_timer(SendMessage& message, Nanoseconds at_ns);
  void set_timer(ReceiveMessage& message, Nanoseconds at_ns);
  // Retransmits packets that were sent before. `attempts`: transmissions of the packet that was
  // sent most often. At the bound of attempts the send fails at both ends instead, unless the peer
  // is silent. False: nothing is sent.
  bool retransmit(SendMessage& message, std::span<const std::uint32_t> packets,
                  std::uint32_t attempts, bool urgent = false, std::uint32_t copies = 1);
  // The same for one packet, for hooks that the engine calls within its own work (`reacts`).
  bool retransmit(SendMessage& message, std::uint32_t packet, RetransmitReason why);
  void finish_send(const SendMessage& message);              // all packets have arrived
  void give_up_send(SendMessage& message, WcStatus status);  // fails it at both ends
  void pause(SendMessage& message, bool paused);
  void send_control(PeerIndex peer, std::vector<std::uint8_t> body);
  void send_missing(PeerIndex peer, const Missing& missing);
  void send_nack(PeerIndex peer) { engine_.nack(peer); }
  void probe_receiver(const SendMessage& message);  // a paused send asks whether to go on
  // The send that the receiver's bitmap is about; its receive is posted. Null: the body is invalid,
  // or the send is over. Then it is refused if its receive has begun.
  SendMessage* find_reported(PeerIndex peer, std::span<const std::uint8_t> body,
                             std::optional<Missing>& missing);
  void refuse_unknown(PeerIndex peer, const MessageName& name);  // no such send is outstanding
  void move_path(PeerIndex peer, std::uint8_t path);
  void use_paths(PeerIndex peer, const std::array<std::uint16_t, kMaxPaths>& weights);
  void bad_control();  // counts a malformed or impossible control message
  void decide(DecisionKind kind, std::uint32_t packets = 0);  // records it, if that is switched on
  void about(const MessageKey& key) { about_ = key; }         // the message of the next decisions
  virtual std::uint8_t cause() const;  // why packets are retransmitted: decision.hpp

  // ---- acknowledgements
  virtual void acknowledge(PeerIndex peer, std::uint32_t id);  // the message is complete
  // Acknowledgements of this message that did not reach the sender, less the first `eager_rounds`,
  // which may be lost by chance.
  std::uint32_t acks_without_effect(PeerIndex peer, std::uint32_t id);
  bool queue_ack(PeerIndex peer, std::uint32_t id);  // true: the batch is full
  bool has_acks(PeerIndex peer) { return !work_of(peer).acks.empty(); }
  void flush_acks(PeerIndex peer);

 private:
  struct Outcome {  // how a message from the peer ended
    std::uint32_t id = 0;
    bool known = false;
    WcStatus status{};
    // Acknowledgements after the first, one a round trip at most. -1: none was sent yet.
    std::int32_t acknowledgements = -1;
    Nanoseconds counted_ns = 0;  // when the last of them was counted
  };
  struct Refused {
    std::uint32_t id;
    MessageKey key;
    WcStatus status;
  };
  struct Work {  // what is outstanding with a peer; every list has a bound
    explicit Work(std::uint32_t slots) : outcomes(slots) {}

    std::uint32_t sends = 0, receives = 0;
    bool has_sent = false;
    std::uint32_t newest_id = 0;    // of all sends to the peer
    std::vector<Refused> refusals;  // repeated until the receiver acknowledges them
    // By slot. A sender uses a slot again only when it knows how the message before ended.
    SlotTable<Outcome> outcomes;
    std::vector<MessageName>
        rnr_sent;  // messages refused for want of a receive, until one is posted
    std::vector<std::uint32_t> refused;  // ids that their sender gave up; it may repeat a REFUSE
    std::vector<std::uint32_t> acks;     // ids of the batch that leaves next
    std::vector<std::uint32_t> acked_before;  // the batch before, which is sent again with it
    Nanoseconds ack_ns = kNeverNs;
    Nanoseconds keepalive_ns = kNeverNs;
    Nanoseconds began_ns = 0;
    Nanoseconds keepalive_sent_ns = 0;
    std::int64_t keepalives_unanswered = 0;

    bool busy() const { return sends != 0 || receives != 0 || !refusals.empty(); }
  };

  void handle(const Event& event);
  void handle_control(const Event& event);
  void begin_work(PeerIndex peer);
  void arm_peer(PeerIndex peer);
  Send* live_send(const Event& event);
  Receive* live_receive(const Event& event);
  void on_send_posted(const Event& event);
  void on_receive_posted(const Event& event);
  void on_first_packet(const Event& event);
  void on_receive_complete(const Event& event);
  void on_late_packet(const Event& event);
  void on_too_long(const Event& event);
  void on_operation_refused(const Event& event);
  void on_timer(const Event& event);
  void on_peer_timer(PeerIndex peer);
  void check_keepalive(PeerIndex peer);
  void give_up_peer(PeerIndex peer);
  Nanoseconds last_received_ns(PeerIndex peer);

  void on_ack(PeerIndex peer, std::span<const std::uint8_t> body);
  void on_keepalive(PeerIndex peer, std::span<const std::uint8_t> body);
  void on_rnr(PeerIndex peer, const Naming& rnr);
  void on_unready(SendMessage& message, std::uint8_t why);
  void wait_for_receiver(SendMessage& message, Nanoseconds wait_ns);
  void on_refused(PeerIndex peer, const Naming& refused);
  void on_refused_by_sender(PeerIndex peer, const Naming& refused, WcStatus status);
  bool is_out(const SendMessage& message);
  void send_rnr(PeerIndex peer, const MessageName& name);
  void send_refused(PeerIndex peer, const Refused& refused, bool by_receiver);
  void send_keepalive(PeerIndex peer, std::span<const MessageName> names);
  void fail_send(SendMessage& message, WcStatus status);
  // `sent_ns`: when the packet that was sent that often was last sent.
  bool may_retransmit(SendMessage& message, std::uint32_t attempts, Nanoseconds sent_ns);
  void fail_receive(Handle handle, PeerIndex peer, WcStatus status);
  void forget(const SendMessage& message);
  void forget_receive(Handle handle, PeerIndex peer);
  std::uint32_t copies_of_ack(PeerIndex peer);

  Work& work_of(PeerIndex peer);
  const Outcome* outcome(PeerIndex peer, std::uint32_t id);  // null: the message is not over
  void record_outcome(PeerIndex peer, std::uint32_t id, WcStatus status);
  ReceiveMessage* receive_of(PeerIndex peer, const MessageName& name);

  void decide_retransmit(std::uint32_t packets);
  Rtt initial_rtt() const {
    const Nanoseconds initial_ns = config().initial_rtt / kNanosecond;
    return {initial_ns, initial_ns / 2};
  }

  MessageEngine& engine_;
  Nanoseconds now_ns_ = 0;
  Time now_ = 0;
  std::size_t left_ = 0;    // events of this turn that are still to be handled
  Event event_;             // the one being handled
  MessageKey about_{};      // the message of the next decision; zeros: none, or several
  std::deque<Send> sends_;  // by the handle's index
  std::deque<Receive> receives_;
  std::deque<Work> work_;  // by peer
  std::uint64_t posts_ = 0;
  std::int64_t keepalives_ = 0;
  std::vector<std::uint32_t> ids_;  // of the message being read
  std::vector<MessageName> names_;
  bool records_ = false;
  std::vector<Decision> decisions_;
};

}  // namespace softroce
