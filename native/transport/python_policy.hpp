// SPDX-License-Identifier: GPL-2.0-or-later
// A user's policy (softroce_lab/transports/policy.py). The session is native; each event that the
// policy has a hook for becomes a HookCall, and what the hook returns is applied here.
//
// On a clock moved by hand the driver takes a turn call by call: what a hook returns is applied
// before the next event is handled. In an engine with a thread of its own the turn does not wait:
// hooks run in the policy's thread meanwhile, and what they return about a message that is over
// does nothing.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "sack_session.hpp"

namespace softroce {

// Without "on_", as the hooks of MessagePolicy. The last one is of the runner alone: the message
// is over.
enum class Hook : std::uint8_t {
  send_posted,
  sent,
  feedback,
  send_timer,
  parity,
  receive_posted,
  first_packet,
  last_packet,
  gap,
  chunk,
  trimmed,
  receive_timer,
  over,
};
inline constexpr const char* kHookNames[] = {
    "on_send_posted", "on_sent",           "on_feedback",     "on_send_timer",
    "on_parity",      "on_receive_posted", "on_first_packet", "on_last_packet",
    "on_gap",         "on_chunk",          "on_trimmed",      "on_receive_timer"};

// A hook that is to run, and what it sees of its message.
struct HookCall {
  Hook hook{};
  Handle handle = kNoHandle;
  PeerIndex peer = 0;
  std::uint32_t id = 0;
  std::uint32_t count = 0;
  MessageKey key{};
  Time at = 0;  // when it happened
  std::uint32_t timeouts_without_progress = 0;
  // Of a send.
  bool out = false;
  std::uint32_t rnr_naks = 0;
  Nanoseconds retry_ns = 0;
  std::optional<PacketSet> known_missing;  // none: as in the call before
  // Of a receive.
  bool begun = false;  // `id` is known
  std::uint32_t received = 0;
  std::uint32_t fed_back = 0;

  std::vector<std::uint32_t> packets;  // of a gap, or the trimmed one
  bool last_hop = false;               // of a trimmed packet
  std::uint32_t submessage = 0;        // of parity, or of a chunk
  std::uint8_t cause = 0;              // of a retransmission upon it (decision.hpp)
};

class PythonPolicy final : public SackSession {
 public:
  using SackSession::SackSession;

  // Before anything is posted. `hooks`: those that the policy has, by bits; `chunk_packets`: for
  // which a bit of its feedback stands, 0: for one packet, by SACKs.
  void attach(std::uint32_t hooks, std::uint32_t chunk_packets);
  void run_beside() { beside_ = true; }  // the policy has a thread of its own
  bool waits_for_answers() const override { return !beside_; }
  bool takes_trimmed() const override { return wants(Hook::trimmed); }

  // ---- a clock moved by hand
  // The next hook to run in this turn, behind messages that are over. Empty: the turn has ended.
  std::vector<HookCall> next_calls(bool begins, Time now);

  // ---- a thread of its own
  bool turn(Time now) override { return calls_.size() < kMostCalls && Session::turn(now); }
  std::deque<HookCall>& calls() { return calls_; }

  // ---- what hooks return. `cause`, `key`: of the call, for the record of decisions.
  void retransmit_sent(std::uint8_t cause, Handle handle, std::vector<std::uint32_t> packets,
                       bool urgent, std::uint32_t copies, Time now);
  void send_feedback(Handle handle, Time now);
  void request_status(Handle handle, Time now);
  void use_paths(const MessageKey& key, PeerIndex peer,
                 const std::array<std::uint16_t, kMaxPaths>& weights, Time now);
  void note_coded(const MessageKey& key, Handle handle, Time now);  // it encodes, or restores

 private:
  void send_posted(SendMessage& message) override;
  void sent(SendMessage& message) override;
  void feedback_known(SendMessage& message) override;
  void feedback_arrived(SendMessage& message) override { call(Hook::feedback, message); }
  void send_timer(SendMessage& message) override { call(Hook::send_timer, message); }
  void parity_released(SendMessage& message, std::uint32_t submessage) override;
  void receive_posted(ReceiveMessage& message) override;
  void first_packet(ReceiveMessage& message) override;
  void last_packet(ReceiveMessage& message) override { call(Hook::last_packet, message); }
  void gap_seen(ReceiveMessage& message, std::span<const std::uint32_t> packets) override;
  void chunk_arrived(ReceiveMessage& message, std::uint32_t submessage) override;
  void trimmed(ReceiveMessage& message, const PayloadLoss& loss) override;
  void receive_timer(ReceiveMessage& message) override { call(Hook::receive_timer, message); }
  void over(Handle handle) override;
  std::uint8_t cause() const override { return cause_; }

  bool wants(Hook hook) const { return (hooks_ >> static_cast<int>(hook) & 1) != 0; }
  template <typename Message>
  HookCall* call(Hook hook, Message& message);
  void describe(const SendMessage& message, HookCall& call);
  void describe(const ReceiveMessage& message, HookCall& call);

  static constexpr std::size_t kMostCalls = 1 << 12;

  std::uint32_t hooks_ = 0;
  bool beside_ = false;
  std::deque<HookCall> calls_;
  std::unordered_set<Handle> shown_;  // messages that the policy has seen,
  std::deque<bool> feedback_is_new_;  // by the handle's index: it has not seen the newest
  std::deque<bool> begun_;            // by the handle's index
  std::uint8_t cause_ = 0;            // of the call that is being answered
};

}  // namespace softroce
