// SPDX-License-Identifier: GPL-2.0-or-later
#include "event_queue.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

namespace softroce {
namespace {

std::uint32_t packets_in(const Event& event) {
  if (event.kind == EventKind::trimmed) return 1;
  if (event.kind != EventKind::gap) return event.count;
  return static_cast<std::uint32_t>(event.body.size() / kIndexBytes);
}

}  // namespace

// The session gets all losses of a send that a NACK shows in one event. The log gets a line for
// each reason.
void EventQueue::note_losses(const Event& event) {
  std::array<std::uint32_t, kLossReasons> counts{};
  for (std::size_t at = 0; at < event.body.size(); at += sizeof(LostPacket)) {
    LostPacket lost;
    std::memcpy(&lost, event.body.data() + at, sizeof lost);
    ++counts[static_cast<std::size_t>(lost.reason)];
  }
  for (std::size_t reason = 0; reason < counts.size(); ++reason) {
    if (counts[reason] == 0) continue;
    event_sink_->note({.kind = QpEventKind::message,
                       .code = static_cast<std::uint8_t>(event.kind),
                       .from = static_cast<std::uint8_t>(reason),
                       .qp = data_qp_,
                       .at = event.at,
                       .bytes = event.length,
                       .peer = event.peer,
                       .packets = counts[reason],
                       .key = event.key});
  }
}

void EventQueue::emit(Event event) {
  if (event_sink_ != nullptr && event.kind == EventKind::loss) [[unlikely]]
    note_losses(event);
  else if (event_sink_ != nullptr) [[unlikely]]
    event_sink_->note({.kind = QpEventKind::message,
                       .code = static_cast<std::uint8_t>(event.kind),
                       .qp = event.kind == EventKind::control ? recovery_qp_ : data_qp_,
                       .at = event.at,
                       .bytes = event.kind == EventKind::control ? event.body.size() : event.length,
                       .peer = event.peer,
                       .packets = packets_in(event),
                       .key = event.key});
  events_.push_back(std::move(event));
}

void EventQueue::complete(const WorkCompletion& completion) {
  if (event_sink_ != nullptr) [[unlikely]]
    event_sink_->note({.kind = QpEventKind::completion,
                       .code = static_cast<std::uint8_t>(completion.status),
                       .from = static_cast<std::uint8_t>(completion.opcode),
                       .qp = data_qp_,
                       .at = completion.completed_at,
                       .wr_id = completion.wr_id,
                       .bytes = completion.byte_len,
                       .peer = completion.peer,
                       .packets = completion.packets,
                       .key = completion.key});
  completions_.push(completion);
}

void EventQueue::note_retransmit(const SendMessage& message, std::span<const std::uint32_t> indices,
                                 RetransmitReason why, const Gid& to, Time now,
                                 std::uint8_t cause) {
  if (event_sink_ == nullptr || indices.empty()) [[likely]]
    return;
  std::vector<std::uint32_t> sorted(indices.begin(), indices.end());
  std::ranges::sort(sorted);
  for (auto first = sorted.cbegin(); first != sorted.cend();) {
    auto end = first + 1;
    while (end != sorted.cend() && *end == *(end - 1) + 1) ++end;
    event_sink_->note({.kind = QpEventKind::message_retransmit,
                       .code = static_cast<std::uint8_t>(why),
                       .from = cause,
                       .qp = recovery_qp_,
                       .at = now,
                       .psn = *first,
                       .last_psn = *(end - 1),
                       .peer = message.peer,
                       .packets = static_cast<std::uint32_t>(end - first),
                       .peer_address = static_cast<std::uint32_t>(to.low),
                       .key = message.key});
    first = end;
  }
}

void EventQueue::note_parity(const SendMessage& message, const Parity& parity, const Gid& to,
                             Time now) {
  if (event_sink_ == nullptr) [[likely]]
    return;
  event_sink_->note({.kind = QpEventKind::message_parity,
                     .code = static_cast<std::uint8_t>(parity.why),
                     .qp = data_qp_,
                     .at = now,
                     .psn = message.count - parity.block,
                     .last_psn = message.count - 1,
                     .peer = message.peer,
                     .packets = parity.rows,
                     .peer_address = static_cast<std::uint32_t>(to.low),
                     .loss_ppm = static_cast<std::uint32_t>(parity.loss * 1e6),
                     .key = message.key});
}

void EventQueue::note_restored(const ReceiveMessage& message, std::uint32_t index, const Gid& from,
                               Time now) {
  if (event_sink_ == nullptr) [[likely]]
    return;
  event_sink_->note({.kind = QpEventKind::message_restored,
                     .qp = data_qp_,
                     .at = now,
                     .psn = index,
                     .last_psn = index,
                     .peer = message.peer,
                     .packets = 1,
                     .peer_address = static_cast<std::uint32_t>(from.low),
                     .key = message.key});
}

void EventQueue::note_control(PeerIndex peer, std::uint32_t bytes, Time now) {
  if (event_sink_ == nullptr) [[likely]]
    return;
  event_sink_->note({.kind = QpEventKind::control_sent,
                     .qp = recovery_qp_,
                     .at = now,
                     .bytes = bytes,
                     .peer = peer});
}

}  // namespace softroce
