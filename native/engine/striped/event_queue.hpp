// SPDX-License-Identifier: GPL-2.0-or-later
// What an endpoint reports: events to its session, completions, and all of it to the log.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <utility>

#include "../verbs/completion.hpp"
#include "../verbs/qp_event.hpp"
#include "event.hpp"

namespace softroce {

// What a NACK states of a message: how many packets are missing, among which.
struct MissingPackets {
  std::uint32_t first = 0, last = 0, packets = 0;

  void add(std::uint32_t base, std::uint64_t bits) {
    if (bits == 0) return;
    if (packets == 0) first = base + static_cast<std::uint32_t>(std::countr_zero(bits));
    last = base + 63 - static_cast<std::uint32_t>(std::countl_zero(bits));
    packets += static_cast<std::uint32_t>(std::popcount(bits));
  }
};

class EventQueue {
 public:
  EventQueue(CompletionQueue& completions, std::uint32_t data_qp, std::uint32_t recovery_qp)
      : completions_(completions), data_qp_(data_qp), recovery_qp_(recovery_qp) {}

  void emit(Event event);

  // `body`: what the kind of event has besides, as bytes of numbers in the host's order.
  template <typename Message>
  void emit_about(EventKind kind, const Message& message, Time now,
                  std::span<const std::byte> body = {}) {
    Event event{.kind = kind,
                .peer = message.peer,
                .message = message.handle,
                .at = now,
                .key = message.key,
                .id = message.id,
                .length = message.length,
                .count = message.count};
    event.body.resize(body.size());
    if (!body.empty()) std::memcpy(event.body.data(), body.data(), body.size());
    emit(std::move(event));
  }

  // The session lags behind: no more events of packets, which have bodies or no effect.
  bool full() const { return events_.size() >= kMostEvents; }
  std::deque<Event>& events() { return events_; }
  const std::deque<Event>& events() const { return events_; }

  void complete(const WorkCompletion& completion);
  // One record for each range of consecutive packets. `cause`: of a session's decision
  // (decision.hpp).
  void note_retransmit(const SendMessage& message, std::span<const std::uint32_t> indices,
                       RetransmitReason why, const Gid& to, Time now, std::uint8_t cause = 0);
  template <typename Message>
  void note_nack(QpEventKind kind, const Message& message, const MissingPackets& missing,
                 const Gid& to, Time now) {
    if (event_sink_ == nullptr || missing.packets == 0) [[likely]]
      return;
    event_sink_->note({.kind = kind,
                       .qp = recovery_qp_,
                       .at = now,
                       .psn = missing.first,
                       .last_psn = missing.last,
                       .peer = message.peer,
                       .packets = missing.packets,
                       .peer_address = static_cast<std::uint32_t>(to.low),
                       .key = message.key});
  }
  struct Parity {  // of the last `block` packets of a message
    std::uint32_t block = 0, rows = 0;
    ParityReason why{};
    double loss = 0;  // measured
  };
  void note_parity(const SendMessage& message, const Parity& parity, const Gid& to, Time now);
  void note_restored(const ReceiveMessage& message, std::uint32_t index, const Gid& from, Time now);
  void note_control(PeerIndex peer, std::uint32_t bytes, Time now);

  void set_qps(std::uint32_t data_qp, std::uint32_t recovery_qp) {
    data_qp_ = data_qp;
    recovery_qp_ = recovery_qp;
  }
  void set_sink(QpEventSink* sink) { event_sink_ = sink; }  // null: no log

 private:
  void note_losses(const Event& event);

  static constexpr std::size_t kMostEvents = 1 << 12;

  CompletionQueue& completions_;
  QpEventSink* event_sink_ = nullptr;
  std::uint32_t data_qp_;
  std::uint32_t recovery_qp_;
  std::deque<Event> events_;
};

}  // namespace softroce
