// SPDX-License-Identifier: GPL-2.0-or-later
// The message engine: striped messages over one data QP and one recovery QP for all peers. It cuts
// messages into packets, places arriving packets in memory, and sends receiver reports. A session
// (message_session.hpp) receives events from the engine and decides what to retransmit, and when.
//
// The engine does no I/O. Packets and time come in by `handle_*`, packets leave by `poll_packet`,
// and `next_timeout` is the time of the next `handle_timeout` call.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "control_queue.hpp"
#include "engine_state.hpp"
#include "flow_control.hpp"
#include "receiver.hpp"
#include "reporter.hpp"
#include "sender.hpp"

namespace softroce {

class MessageEngine final {
 public:
  MessageEngine(const MessageConfig& config, MemoryTable& memory, CompletionQueue& completions,
                Counters& counters, std::uint32_t data_qp, std::uint32_t recovery_qp);

  // ---- control plane; throws EAFNOSUPPORT, EISCONN (std::system_error)
  PeerIndex connect(const PeerAddress& address) {
    return state_.peers.connect(address, state_.config, state_.framing, state_.path_picker);
  }

  // Before the first peer is there.
  void set_qps(std::uint32_t data_qp, std::uint32_t recovery_qp) {
    state_.data_qp = data_qp;
    state_.recovery_qp = recovery_qp;
    state_.events.set_qps(data_qp, recovery_qp);
  }
  std::uint32_t data_qp() const { return state_.data_qp; }
  std::uint32_t recovery_qp() const { return state_.recovery_qp; }
  // Ends all that is outstanding with the peer, which is gone, and takes nothing from it any more.
  void disconnect(PeerIndex peer, Time now);

  // ---- work requests
  using WorkRequest = MessageRequest;
  // False: the peer is unknown, its queue is full (message_slots), or the key is in use. A send
  // uses its key until it ends, a receive until its message begins.
  bool post_send(const WorkRequest& request, Time now) { return sender_.post(request, now); }
  bool post_receive(const WorkRequest& request, Time now) { return receiver_.post(request, now); }
  // Ends every work request of one peer, or of all peers.
  void flush(std::optional<PeerIndex> peer, Time now,
             WcStatus status = WcStatus::wr_flush_err);

  // ---- operations of queue pairs
  // Whom they belong to, from now on.
  void set_owner(MessageOwner* owner) { state_.owner = owner; }
  // Ends messages of a queue pair, or one that it sends, here and in this status at its peer. Not
  // from within a call of the owner.
  void withdraw(std::uint32_t qp, std::optional<MessageKey> key, WcStatus status, Time now);
  void refuse(PeerIndex peer, std::uint32_t id, const MessageKey& key, WcStatus status, Time now) {
    receiver_.refuse_operation(peer, id, key, status, now);
  }
  void overwritten(const std::uint8_t* at, std::uint64_t bytes) {
    receiver_.overwritten(at, bytes);
  }
  // As MessageOwner's; nothing: there are no operations.
  std::optional<std::uint8_t> why_unready(const MessageKey& key) const {
    if (state_.owner == nullptr) return std::nullopt;
    return state_.owner->why_unready(key);
  }
  void rnr_nak_came(const SendMessage& message) { state_.owner->rnr_nak_came(message); }
  void operation_given_up(const MessageKey& key, std::uint32_t id, WcStatus status) {
    if (state_.owner != nullptr) state_.owner->given_up(key, id, status);
  }

  // ---- packets in and out
  void handle_packet(Packet& packet, Time now);
  bool has_channel(std::uint32_t qp) const {  // whether the QP is a channel of uc_immediate
    return state_.framing != Framing::ud &&
           qp - uc_framing::kFirstQp < state_.peers.size() * uc_framing::kChannels;
  }
  void handle_channel_packet(Packet& packet, Time now) {  // for a channel
    receiver_.handle_channel_packet(packet, now);
  }
  bool handle_cnp(const Packet& packet, Time now) {  // false: no flow matches
    return flow_.handle_cnp(packet, now);
  }
  bool poll_packet(Packet& packet, Time now);
  // As `poll_packet`, without data packets.
  bool poll_feedback(Packet& packet, Time now);
  bool has_feedback() const {
    return reporter_.has_packet() || control_.has_packet() || receiver_.losses().has_packet();
  }
  bool is_omniscient() const { return state_.session != nullptr && state_.session->omniscient(); }
  void handle_loss(const Packet& packet, Time now);  // of data, to an omniscient session
  void handle_timeout(Time now);
  Time next_timeout() const { return state_.timers.next(); }
  bool has_packet() const { return sender_.has_packet() || has_feedback(); }
  void prefetch_next() const { sender_.prefetch_next(); }
  Stops& stops() { return state_.stops; }
  void set_receive_credit(std::uint32_t free_frames) { reporter_.set_credit(free_frames); }

  // ---- recovery
  // Whether the session handles the events. False: whoever drives the endpoint does.
  bool handles_events() const {
    return state_.session != nullptr && !state_.session->waits_for_answers();
  }
  // At the end of a turn: the session handles the events. False: there were none, or the session
  // does not handle them.
  bool end_turn(Time now) { return handles_events() && state_.session->turn(now); }
  // Whether the newest event is a loss, or the end of a timer, which may mean a loss.
  bool knows_loss() const {
    const auto& events = state_.events.events();
    return !events.empty() &&
           (events.back().kind == EventKind::loss || events.back().kind == EventKind::timer) &&
           handles_events();
  }
  // When the oldest loss that the session has not handled became known; a timer counts as one.
  // kNever: there is none.
  Time loss_known_at() const {
    for (const Event& event : state_.events.events())
      if (event.kind == EventKind::loss || event.kind == EventKind::timer) return event.at;
    return kNever;
  }
  MessageSession* session() { return state_.session.get(); }  // null: there is none
  // Whether something waits for whoever drives the endpoint: completions, or, if no session handles
  // the events, events.
  bool has_news() const {
    return handles_events() ? completions_.size() != 0 : !state_.events.events().empty();
  }

  // ---- events, and actions of a session. An action that names a stale handle has no effect.
  std::deque<Event>& events() { return state_.events.events(); }
  SendMessage* find_send(Handle send) {  // null: the message is over
    return send == kNoHandle ? nullptr : sender_.find(send);
  }
  SendMessage* find_send(PeerIndex peer, std::uint32_t id) { return sender_.find(peer, id); }
  ReceiveMessage* find_receive(Handle receive) { return receiver_.find(receive); }
  ReceiveMessage* find_begun(PeerIndex peer, std::uint32_t id) {
    return receiver_.find_begun(peer, id);
  }
  ReceiveMessage* find_posted(PeerIndex peer, const MessageKey& key) {
    return receiver_.find_posted(peer, key);
  }
  bool is_complete(PeerIndex peer, std::uint32_t id) { return receiver_.is_complete(peer, id); }
  void count_bad_control() { state_.counters.add(Counter::rx_bad_control); }
  // `cause`: why the session decided so (decision.hpp).
  void retransmit(Handle send, std::span<const std::uint32_t> indices, bool urgent,
                  std::uint32_t copies, Time now, std::uint8_t cause = 0);
  void pause(Handle send, bool paused);
  void control(PeerIndex peer, std::vector<std::uint8_t> body);
  void set_timer(Handle message, Time at);
  void set_peer_timer(PeerIndex peer, Time at);
  void complete_send(Handle send, WcStatus status, Time now);
  void fail_receive(Handle receive, WcStatus status, Time now);
  void detect_gaps(Handle receive, Time window, Time now);
  // Sends a NACK with all that is missing, with the flag `timer`.
  void nack(PeerIndex peer);
  void move_path(PeerIndex peer, std::uint32_t path, Time now);
  void release_parity(Handle send, std::uint32_t submessage, Time now) {
    sender_.release_parity(send, submessage, now);
  }
  void restored(Handle receive, std::uint32_t submessage, Time now) {
    receiver_.restored(receive, submessage, now);
  }
  // Sets the erasure codes of messages to a peer that are posted from now on. `codes[b]` is for
  // messages whose length has b bits: an index into `config().code.shapes`, or beyond it for none.
  void set_codes(PeerIndex peer, const std::array<std::uint8_t, 33>& codes) {
    if (peer >= state_.peers.size()) return state_.counters.add(Counter::stale_action);
    state_.peers[peer].codes = codes;
  }
  void set_path_weights(PeerIndex peer, const std::array<std::uint16_t, kMaxPaths>& weights);

  // ---- actions of a session that reacts to every packet
  // `body`: at most ControlQueue::kMostSmallBody bytes.
  // `marked`: it goes with the BECN bit, which tells that the packet which it acknowledges had a
  // congestion mark (IBA 9.2).
  void send_feedback(PeerIndex peer, std::uint8_t path, bool marked,
                     std::span<const std::uint8_t> body) {
    control_.push_small(peer, path, marked, body);
  }
  // Is told what the session learns of a packet's path: path_picker.hpp.
  PathPicker& path_picker(PeerIndex peer) { return *state_.peers[peer].picker; }
  bool heeds_marks() const { return softroce::heeds_marks(state_.path_picker); }
  void retransmit(SendMessage& message, std::uint32_t packet, RetransmitReason why, Time now) {
    sender_.retransmit(message, packet, why, now);
  }
  void forget_retransmit(SendMessage& message, std::uint32_t packet) {
    sender_.forget_retransmit(message, packet);
  }
  // Packets [0, limit) may be sent for the first time.
  void allow(SendMessage& message, std::uint32_t limit) { sender_.allow(message, limit); }
  // Whether packets to the peer must not be sent for the first time. Retransmissions still leave.
  void hold(PeerIndex peer, bool held) { sender_.hold(state_.peers[peer], held); }
  // MessageSession::connection_timer_ended is called at that time. A peer has one such timer.
  void set_connection_timer(PeerIndex peer, Time at);
  // The peer echoes the timestamp of a packet that has just arrived there, which gives an RTT
  // sample. Everything sent up to then is no longer in flight. False: no packet had that timestamp.
  bool echoed(PeerIndex peer, std::uint32_t stamp_ns, Time now) {
    return flow_.echoed(state_.peers[peer], stamp_ns, now);
  }
  // The packet with this timestamp was trimmed. It alone is no longer in flight, and the congestion
  // control is told. False: no packet had that timestamp.
  bool trimmed(PeerIndex peer, std::uint32_t stamp_ns, Time now) {
    return flow_.trimmed(state_.peers[peer], stamp_ns, now);
  }
  // What was sent up to this time is no longer in flight.
  void write_off(PeerIndex peer, Time sent_up_to);

  const PeerTable& peers() const { return state_.peers; }  // for the engine's thread
  // Null: unknown.
  const Peer* find_peer(const Gid& gid, std::uint32_t data_qp) const {
    return state_.peers.find(gid, data_qp);
  }

  // ---- snapshots, from any thread
  auto& sends() { return sender_.messages(); }
  auto& receives() { return receiver_.messages(); }
  using PeerState = softroce::PeerState;
  // Throws std::out_of_range.
  PeerState peer_state(PeerIndex index) { return state_.peers.state(index); }
  // The engine's thread only; throws std::out_of_range.
  CongestionControl::Figures congestion_figures(PeerIndex index, Time now) {
    return state_.peers.at(index).congestion->figures(now);
  }
  // For tests of the wrap at 2^32: the next send to the peer gets this id. Throws
  // std::out_of_range.
  void set_next_id(PeerIndex index, std::uint32_t id) { state_.peers.at(index).next_id = id; }
  // Data packets ever sent to the peer on each path, modulo 2^32; throws std::out_of_range.
  std::array<std::uint32_t, kMaxPaths> sent_on_paths(PeerIndex index) {
    return state_.peers.sent_on_paths(index);
  }
  std::uint32_t chunk_bytes() const { return state_.chunk_bytes; }
  std::uint32_t control_bytes() const { return state_.control_bytes(); }
  const MessageConfig& config() const { return state_.config; }
  void set_on_restored(std::function<void(const Gid&, std::uint32_t, std::uint32_t, Time)> hook) {
    state_.on_restored = std::move(hook);
  }
  void set_event_sink(QpEventSink* sink) { state_.events.set_sink(sink); }

 private:
  void handle_report(Peer& peer, const Packet& packet, Time now);
  void handle_control(Peer& peer, const Packet& packet, Time now);
  void fire(const Timer& timer, Time now);
  void fire_timer(Handle message, Time armed_for, Time now);

  EngineState state_;
  CompletionQueue& completions_;
  FlowControl flow_{state_};
  Sender sender_{state_, flow_};
  Reporter reporter_{state_};
  ControlQueue control_{state_, reporter_};
  Receiver receiver_{state_, reporter_, control_};
};

}  // namespace softroce
