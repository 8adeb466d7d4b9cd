// SPDX-License-Identifier: GPL-2.0-or-later
#include "python_policy.hpp"

#include <utility>

#include "transports.hpp"

namespace softroce {
namespace {

bool& flag_of(std::deque<bool>& flags, Handle handle) {
  const auto index = static_cast<std::uint32_t>(handle);
  if (index >= flags.size()) flags.resize(index + 1);
  return flags[index];
}

}  // namespace

void PythonPolicy::attach(std::uint32_t hooks, std::uint32_t chunk_packets) {
  hooks_ = hooks;
  set_chunk_packets(chunk_packets);
}

std::vector<HookCall> PythonPolicy::next_calls(bool begins, Time now) {
  if (begins) begin_turn(now);
  while ((calls_.empty() || calls_.back().hook == Hook::over) && handle_next()) {
  }
  std::vector<HookCall> calls(std::make_move_iterator(calls_.begin()),
                              std::make_move_iterator(calls_.end()));
  calls_.clear();
  return calls;
}

// ---------------------------------------------------------------- events to hooks

template <typename Message>
HookCall* PythonPolicy::call(Hook hook, Message& message) {
  if (!wants(hook)) return nullptr;
  HookCall& made = calls_.emplace_back();
  made.hook = hook;
  made.handle = message.handle;
  made.peer = message.peer;
  made.id = message.id;
  made.count = message.count;
  made.key = message.key;
  made.at = event().at;
  made.cause = Session::cause();
  describe(message, made);
  shown_.insert(message.handle);
  return &made;
}

void PythonPolicy::describe(const SendMessage& message, HookCall& call) {
  const Send& send = of(message);
  call.timeouts_without_progress = send.timeouts_without_progress;
  call.out = send.out || call.hook == Hook::sent;
  call.rnr_naks = send.rnr_naks;
  call.retry_ns = send.retry_ns;
  if (std::exchange(flag_of(feedback_is_new_, message.handle), false))
    call.known_missing = known_missing(message);
}

void PythonPolicy::describe(const ReceiveMessage& message, HookCall& call) {
  const Receive& receive = of(message);
  call.timeouts_without_progress = receive.timeouts_without_progress;
  call.begun = flag_of(begun_, message.handle);
  call.received = receive.received;
  call.fed_back = receive.fed_back;
}

void PythonPolicy::send_posted(SendMessage& message) {
  SackSession::send_posted(message);
  flag_of(feedback_is_new_, message.handle) = false;
  call(Hook::send_posted, message);
}

void PythonPolicy::sent(SendMessage& message) { call(Hook::sent, message); }

void PythonPolicy::feedback_known(SendMessage& message) {
  flag_of(feedback_is_new_, message.handle) = true;
}

void PythonPolicy::parity_released(SendMessage& message, std::uint32_t submessage) {
  if (HookCall* made = call(Hook::parity, message)) made->submessage = submessage;
}

void PythonPolicy::receive_posted(ReceiveMessage& message) {
  flag_of(begun_, message.handle) = false;
  call(Hook::receive_posted, message);
}

void PythonPolicy::first_packet(ReceiveMessage& message) {
  flag_of(begun_, message.handle) = true;
  call(Hook::first_packet, message);
}

void PythonPolicy::gap_seen(ReceiveMessage& message, std::span<const std::uint32_t> packets) {
  if (HookCall* made = call(Hook::gap, message))
    made->packets.assign(packets.begin(), packets.end());
}

void PythonPolicy::chunk_arrived(ReceiveMessage& message, std::uint32_t submessage) {
  if (HookCall* made = call(Hook::chunk, message)) made->submessage = submessage;
}

void PythonPolicy::trimmed(ReceiveMessage& message, const PayloadLoss& loss) {
  if (HookCall* made = call(Hook::trimmed, message)) {
    made->packets = {loss.index};
    made->last_hop = loss.last_hop != 0;
  }
}

void PythonPolicy::over(Handle handle) {
  if (shown_.erase(handle) != 0) calls_.push_back({.hook = Hook::over, .handle = handle});
}

// ---------------------------------------------------------------- what hooks return

void PythonPolicy::retransmit_sent(std::uint8_t cause, Handle handle,
                                   std::vector<std::uint32_t> packets, bool urgent,
                                   std::uint32_t copies, Time now) {
  if (!shown_.contains(handle)) return;
  SendMessage* message = engine().find_send(handle);
  if (message == nullptr) return;
  set_now(now);
  about(message->key);
  cause_ = cause;
  SackSession::retransmit_sent(*message, std::move(packets), urgent, copies);
}

void PythonPolicy::send_feedback(Handle handle, Time now) {
  if (!shown_.contains(handle) || !flag_of(begun_, handle)) return;
  set_now(now);
  if (ReceiveMessage* message = engine().find_receive(handle)) SackSession::send_feedback(*message);
}

void PythonPolicy::request_status(Handle handle, Time now) {
  if (!shown_.contains(handle)) return;
  set_now(now);
  if (const SendMessage* message = engine().find_send(handle)) probe_receiver(*message);
}

void PythonPolicy::use_paths(const MessageKey& key, PeerIndex peer,
                             const std::array<std::uint16_t, kMaxPaths>& weights, Time now) {
  set_now(now);
  about(key);
  Session::use_paths(peer, weights);
}

void PythonPolicy::note_coded(const MessageKey& key, Handle handle, Time now) {
  set_now(now);
  about(key);
  decide(handle & kReceiveTag ? DecisionKind::restore : DecisionKind::encode);
}

std::unique_ptr<MessageSession> make_python_policy(MessageEngine& engine) {
  return std::make_unique<PythonPolicy>(engine);
}

}  // namespace softroce
