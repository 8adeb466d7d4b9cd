// SPDX-License-Identifier: GPL-2.0-or-later
// The session of an endpoint: acknowledgement, keepalive, RNR, refusal, giving up, bounds of
// attempts. How a loss is found is left to the transports. All of it is this project's definition
// (docs/protocols.md, section 1).
//
// The engine queues what happens, and `turn` handles it event by event, so that no hook runs inside
// of the engine's own work on a message: but for those of a transport that reacts to every packet.
// Times are whole nanoseconds.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "../engine/striped/message_engine.hpp"
#include "backoff.hpp"
#include "control.hpp"

namespace softroce {

// A transport's option. Throws std::invalid_argument: it is missing, or of another type.
template <typename T>
T option_of(const MessageConfig& config, std::string_view name) {
  const auto found = config.options.find(name);
  if (found == config.options.end() || !std::holds_alternative<T>(found->second))
    throw std::invalid_argument("no option " + std::string(name) + " of that type");
  return std::get<T>(found->second);
}

class Session : public MessageSession {
 public:
  explicit Session(MessageEngine& engine);

  bool turn(Time now) override;
  void flushed(const SendMessage& message) final;
  void flushed(const ReceiveMessage& message) final;
  Figures figures() const override { return {{"keepalives", keepalives_}}; }
  void record_decisions() final { records_ = true; }
  std::vector<Decision> take_decisions() final { return std::exchange(decisions_, {}); }

 protected:
  // What is kept of a send beside the engine's message, until it is acknowledged or has failed.
  struct Send {
    Handle handle = kNoHandle;  // none: it is over
    std::uint64_t number = 0;   // counts posts
    std::uint32_t rnr_naks = 0;
    bool begun = false;          // something of it has arrived: an RNR is older
    Nanoseconds retry_ns = 0;    // paused until then, because the receiver was not ready
    bool out = false;            // each packet has been sent,
    Nanoseconds out_ns = 0;      // and since then nothing of it waits to be sent
    std::uint32_t reported = 0;  // packets that had arrived at the peer when last looked at
    std::uint32_t timeouts_without_progress = 0;  // timeouts, or keepalives, in a row
  };
  struct Receive {
    Handle handle = kNoHandle;
    std::uint64_t number = 0;
    std::uint32_t received = 0;                   // packets, duplicates too, when last looked at
    std::uint32_t timeouts_without_progress = 0;  // loss checks in a row
    std::uint32_t fed_back = 0;  // packets that had arrived when feedback was sent last
  };

  static constexpr Nanoseconds kNeverNs = INT64_MAX;

  // ---- hooks. A message that is gone in the engine has none.
  virtual void send_posted(SendMessage&) {}
  // Nothing of it waits to be sent any more. `Send::out` tells whether that was so before.
  virtual void sent(SendMessage&) {}
  virtual void check_send(SendMessage& message) = 0;  // its timer
  virtual void receive_posted(ReceiveMessage&) {}
  virtual void first_packet(ReceiveMessage&) {}
  virtual void last_packet(ReceiveMessage&) {}  // and others are missing
  virtual void check_receive(ReceiveMessage& message) = 0;
  virtual void status_requested(ReceiveMessage& message, std::uint32_t id) = 0;
  virtual void control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) = 0;
  virtual void gap(ReceiveMessage&, std::span<const std::uint32_t>) {}
  virtual void lost(SendMessage&, std::span<const LostPacket>) {}
  virtual void parity_released(SendMessage&, std::uint32_t /*submessage*/) {}
  virtual void chunk_arrived(ReceiveMessage&, std::uint32_t /*submessage*/) {}
  virtual void turn_ended() {}
  virtual void over(Handle) {}  // a message ends, or has ended

  // ---- a turn, event by event
  void begin_turn(Time now);
  bool handle_next();                            // false: the turn is over
  const Event& event() const { return event_; }  // that is being handled
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
  std::uint32_t chunk_bytes() const { return engine_.chunk_bytes(); }  // of data, in a packet
  const Peer& peer(PeerIndex index) const { return engine_.peers()[index]; }
  Send& of(const SendMessage& message) { return sends_[index_of(message.handle)]; }
  Receive& of(const ReceiveMessage& message) { return receives_[index_of(message.handle)]; }
  static std::uint32_t index_of(Handle handle) { return static_cast<std::uint32_t>(handle); }
  SendMessage* find_send(PeerIndex peer, std::uint32_t id);  // null: it is over, or never was
  bool is_newest(const SendMessage& message) const;          // no send was posted to its peer since

  struct Rtt {
    Nanoseconds srtt_ns, rttvar_ns;
  };
  Rtt rtt(PeerIndex peer) const;                      // measured here, of data to the peer
  Rtt reported_rtt(PeerIndex peer) const;             // as the sender of data measures it
  Nanoseconds clamp(Nanoseconds interval_ns) const {  // between T_min and T_max
    return std::min(std::max(interval_ns, timing().t_min_ns), timing().t_max_ns);
  }
  // The interval after so many rounds in a row that brought nothing.
  Nanoseconds backed_off_ns(Nanoseconds interval_ns, std::uint32_t rounds) const {
    return backed_off(interval_ns, std::int64_t{rounds} - timing().eager_rounds, timing().t_max_ns);
  }
  template <typename T>
  T option(std::string_view name) const {
    return option_of<T>(config(), name);
  }

  // ---- acts. They are recorded with the event that they follow.
  void set_timer(SendMessage& message, Nanoseconds at_ns);
  void set_timer(ReceiveMessage& message, Nanoseconds at_ns);
  // Retransmits packets that were sent, unless one was sent as often as may be: then the send fails
  // at both ends. False: nothing is sent.
  bool retransmit(SendMessage& message, std::span<const std::uint32_t> packets,
                  std::uint32_t attempts, bool urgent = false, std::uint32_t copies = 1);
  // The same for one packet, as part of the engine's work.
  bool retransmit(SendMessage& message, std::uint32_t packet, RetransmitReason why);
  void finish_send(const SendMessage& message);  // all of it has arrived
  void give_up_send(SendMessage& message, WcStatus status);
  void pause(SendMessage& message, bool paused);
  void send_control(PeerIndex peer, std::vector<std::uint8_t> body);
  void send_missing(PeerIndex peer, const Missing& missing);
  void send_nack(PeerIndex peer) { engine_.nack(peer); }
  void probe_receiver(const SendMessage& message);  // a paused send asks whether to go on
  void refuse_unknown(PeerIndex peer, const MessageName& name);  // it is none of those sent here
  void move_path(PeerIndex peer, std::uint8_t path);
  void use_paths(PeerIndex peer, const std::array<std::uint16_t, kMaxPaths>& weights);
  void bad_control();                                         // counted
  void decide(DecisionKind kind, std::uint32_t packets = 0);  // recorded, if that is asked for
  void about(const MessageKey& key) { about_ = key; }         // what is decided next is about it
  virtual std::uint8_t cause() const;                         // of a retransmission

  // ---- acknowledgements
  virtual void acknowledge(PeerIndex peer, std::uint32_t id);
  std::uint32_t acks_without_effect(PeerIndex peer, std::uint32_t id);
  bool queue_ack(PeerIndex peer, std::uint32_t id);  // true: a batch is full
  bool has_acks(PeerIndex peer) { return !work_of(peer).acks.empty(); }
  void flush_acks(PeerIndex peer);

 private:
  struct Outcome {  // what became of a message that came
    std::uint32_t id = 0;
    bool known = false;
    WcStatus status{};
    std::int32_t acknowledgements = -1;  // a round trip and more apart, behind the first,
    Nanoseconds counted_ns = 0;          // and when one was counted last
  };
  struct Refused {
    std::uint32_t id;
    MessageKey key;
    WcStatus status;
  };
  struct Work {  // what is outstanding with a peer. All of it is bounded.
    explicit Work(std::uint32_t slots) : outcomes(slots) {}

    std::uint32_t sends = 0, receives = 0;
    bool has_sent = false;
    std::uint32_t newest_id = 0;    // that was given to a send
    std::vector<Refused> refusals;  // sends that failed here, until the receiver acknowledges that
    SlotTable<Outcome> outcomes;    // a sender uses a slot again when it knows what became of it
    std::vector<MessageName> rnr_sent;              // until a receive is posted for them
    std::vector<std::uint32_t> refused;             // by senders, who may repeat it
    std::vector<std::uint32_t> acks, acked_before;  // the batch before is sent again with the next
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
  void on_timer(const Event& event);
  void on_peer_timer(PeerIndex peer);
  void check_keepalive(PeerIndex peer);
  void give_up_peer(PeerIndex peer);
  Nanoseconds last_received_ns(PeerIndex peer);

  void on_ack(PeerIndex peer, std::span<const std::uint8_t> body);
  void on_keepalive(PeerIndex peer, std::span<const std::uint8_t> body);
  void on_rnr(PeerIndex peer, const Naming& rnr);
  void on_refused(PeerIndex peer, const Naming& refused);
  void on_refused_by_sender(PeerIndex peer, const Naming& refused, WcStatus status);
  bool is_out(const SendMessage& message);
  void send_rnr(PeerIndex peer, const MessageName& name);
  void send_refused(PeerIndex peer, const Refused& refused, bool by_receiver);
  void send_keepalive(PeerIndex peer, std::span<const MessageName> names);
  void fail_send(SendMessage& message, WcStatus status);
  bool may_retransmit(SendMessage& message, std::uint32_t attempts);
  void fail_receive(Handle handle, PeerIndex peer, WcStatus status);
  void forget(const SendMessage& message);
  void forget_receive(Handle handle, PeerIndex peer);
  std::uint32_t copies_of_ack(PeerIndex peer);

  Work& work_of(PeerIndex peer);
  const Outcome* outcome(PeerIndex peer, std::uint32_t id);  // null: it is not over
  void end(PeerIndex peer, std::uint32_t id, WcStatus status);
  ReceiveMessage* receive_of(PeerIndex peer, const MessageName& name);

  void decide_retransmit(std::uint32_t packets);

  MessageEngine& engine_;
  Nanoseconds now_ns_ = 0;
  Time now_ = 0;
  std::size_t left_ = 0;    // events of this turn
  Event event_;             // the one being handled
  MessageKey about_{};      // the message that it is about; zeros: several
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
