// SPDX-License-Identifier: GPL-2.0-or-later
// The sender's part of recovery by path numbers: probes behind the last packet, so that a lost one
// is a gap like any other, and the losses that NACKs show.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "../mutant.hpp"
#include "sender.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kPacketsOfAPath = 8;  // of a message, so that probes stay few
constexpr Time kSilenceOfRtt = 2;  // a sender that may not send probes after this part of SRTT

Time probes_due(const Peer& peer) {
  return peer.data_at + std::max(peer.rtt.srtt, kMicrosecond) / kSilenceOfRtt;
}

// All numbers before `settled` have arrived or are lost (RFC 1982).
bool is_before(std::uint32_t number, std::uint32_t settled) {
  return ((settled - number - 1) & LAB_NUMBER_MASK) >> (LAB_NUMBER_BITS - 1) == 0;
}

}  // namespace

// A message of n packets takes n / 8 paths, rounded up, other ones than that before it.
std::uint8_t Sender::first_path(Peer& peer, SendMessage& message) {
  if (!state_.numbers_paths()) return peer.schedule.next();
  if (message.ways.empty()) {
    const std::uint32_t most = (message.count - 1) / kPacketsOfAPath + 1;
    message.ways.resize(std::min(most, peer.schedule.paths()));
    for (std::uint8_t& way : message.ways) way = peer.schedule.next();
  }
  const std::uint8_t path = message.ways[message.turn];
  message.turn = message.turn + 1 < message.ways.size() ? message.turn + 1 : 0;
  return path;
}

// ---------------------------------------------------------------- probes

void Sender::probe_when_idle(Peer& peer, Time now) {
  if (peer.unprobed == 0 || !state_.numbers_paths() || peer.in_probe_ring) return;
  if (peer.sends.empty() && peer.retransmissions.empty()) return queue_probes(peer);
  if (flow_.may_send(peer, now) || peer.probe_at != kNever) return;
  arm_probes(peer, now);
}

// After a silence: it may soon send on, and then needs none.
void Sender::arm_probes(Peer& peer, Time now) {
  peer.probe_at = std::max(probes_due(peer), now);
  state_.timers.arm(peer.probe_at, TimerKind::probe, peer.index);
}

void Sender::probe_fired(Peer& peer, Time armed_for, Time now) {
  if (peer.probe_at != armed_for) return;
  peer.probe_at = kNever;
  if (peer.unprobed == 0 || peer.in_probe_ring || flow_.may_send(peer, now)) return;
  now >= probes_due(peer) ? queue_probes(peer) : arm_probes(peer, now);
}

void Sender::queue_probes(Peer& peer) {
  peer.in_probe_ring = true;
  peer.probe_burst++;
  peer.probes_left = peer.unprobed;
  peer.unprobed = 0;
  probe_ring_.push_back(peer.index);
}

bool Sender::poll_probe(Packet& packet, Time now) {
  if (probe_ring_.empty()) return false;
  Peer& peer = state_.peers[probe_ring_.front()];
  const auto path = static_cast<std::uint8_t>(std::countr_zero(peer.probes_left));
  const auto left = static_cast<std::uint32_t>(std::popcount(peer.probes_left));
  if (peer.probes_of_burst == 0) peer.probes_of_burst = left;
  packet.lab = {.kind = LAB_KIND_PROBE,
                .path = path,
                .message = peer.probe_sequence++,
                .message_id = peer.probe_burst,
                .index = peer.probes_of_burst - left,
                .count = peer.probes_of_burst,
                .number = peer.sent_on[path] & LAB_NUMBER_MASK};
  relaxed_store(peer.sent_on[path], peer.sent_on[path] + 1);
  peer.probes_left &= peer.probes_left - 1;
  if (peer.probes_left == 0) {
    peer.probes_of_burst = 0;
    peer.in_probe_ring = false;
    probe_ring_.pop_front();
  }
  state_.address(peer, true, now, packet);
  state_.counters.add(Counter::tx_probe);
  return true;
}

void Sender::move_path(Peer& peer, std::uint8_t path) {
  peer.ports.move(path);
  peer.progress[path].waits_since = kNever;
  peer.progress[path].moved_at = peer.sent_on[path] & LAB_NUMBER_MASK;
  state_.counters.add(Counter::tx_path_moved);
}

// A path is silent if nothing of it has arrived for longer than a round trip takes, although a
// packet that was sent a round trip behind it has arrived on another path. Behind the probe on its
// new port everything that was lost is a gap.
void Sender::move_silent_paths(Peer& peer, Time now) {
  std::uint32_t silent = 0;
  for (std::uint8_t path = 0; path < peer.schedule.paths(); ++path) {
    const PathProgress& progress = peer.progress[path];
    if (progress.waits_since == kNever || now - progress.waits_since < peer.rtt.rto()) continue;
    if (peer.echoed_ns * kNanosecond - progress.waits_since < peer.rtt.srtt) continue;
    move_path(peer, path);
    silent |= 1U << path;
  }
  if (silent == 0) return;
  const std::uint32_t others = peer.unprobed & ~silent;
  peer.unprobed = silent;
  if (peer.in_probe_ring) {
    peer.unprobed |= others;
    return;
  }
  queue_probes(peer);
  peer.unprobed = others;
}

// ---------------------------------------------------------------- losses

void Sender::handle_nack(Peer& peer, const Packet& packet, Time now) {
  if (!state_.config.path_probes || !read_nack(packet.payload, packet.payload_bytes, nack_))
    return state_.counters.add(Counter::rx_bad_control);
  if (state_.events.full()) return state_.counters.add(Counter::rx_event_overflow);
  state_.counters.add(Counter::rx_nack);
  for (std::size_t first = 0, end = 0; first < nack_.words.size(); first = end) {
    while (end < nack_.words.size() && nack_.words[end].id == nack_.words[first].id) ++end;
    find_lost(peer, {nack_.words.data() + first, end - first}, now);
  }
  find_lost_whole(peer, now);
}

// Of the send that uses this id's slot; null: none does.
SendMessage* Sender::find_by_id(Peer& peer, std::uint32_t id) {
  const Handle handle = peer.send_slots[state_.slot_of(id)];
  return handle == kNoHandle ? nullptr : messages_.find(handle);
}

void Sender::find_lost(Peer& peer, std::span<const NackWord> words, Time now) {
  const std::uint32_t id = words.front().id;
  SendMessage* message = find_by_id(peer, id);
  if (message == nullptr || message->id != id) return;
  const bool begun = words.front().base != 0 || words.front().bits != 0;
  if (message->paused && !begun) return;  // no receive was posted for it
  lost_.clear();
  for (const NackWord& word : words) {
    const std::uint32_t width = 64 - static_cast<std::uint32_t>(std::countl_zero(word.bits));
    if (word.base > message->count || width > message->count - word.base)
      return state_.counters.add(Counter::rx_bad_control);
    if (word.bits == 0) {
      note_lost(peer, *message, word.base, message->next, now);
      continue;
    }
    for (std::uint64_t bits = word.bits; bits != 0; bits &= bits - 1) {
      const std::uint32_t index = word.base + static_cast<std::uint32_t>(std::countr_zero(bits));
      note_lost(peer, *message, index, std::min(index + 1, message->next), now);
    }
  }
  report_lost(*message, now);
}

// Of messages of which nothing has arrived. Ids are left out while their slots are in use, so there
// may be more of them than slots.
void Sender::find_lost_whole(Peer& peer, Time now) {
  const std::uint32_t given = peer.next_id - nack_.end;
  if (static_cast<std::int32_t>(given) <= 0) return;
  for (std::uint32_t n = 0; n < std::min(given, state_.config.message_slots); ++n) {
    SendMessage* message = find_by_id(peer, nack_.end + n);
    if (message == nullptr || message->next == 0 || message->paused) continue;
    if (static_cast<std::int32_t>(message->id - nack_.end) < 0) continue;
    lost_.clear();
    note_lost(peer, *message, 0, message->next, now);
    report_lost(*message, now);
  }
}

// Packets [begin, end) are missing there. Those are lost whose last transmission is settled, and,
// by a loss check, those sent longer ago than a round trip takes on a path that stands still: on
// one that moves, the next packet will show it.
void Sender::note_lost(const Peer& peer, SendMessage& message, std::uint32_t begin,
                       std::uint32_t end, Time now) {
  const Time srtt = peer.rtt.srtt != 0 ? peer.rtt.srtt : state_.config.initial_rtt;
  const std::int64_t overdue_ns = (now - srtt - 4 * peer.rtt.rttvar) / kNanosecond;
  const LossReason by_number = nack_.has(kNackProbe) ? LossReason::probe : LossReason::gap;
  for (std::uint32_t index = begin; index < end; ++index) {
    if (message.retransmit.test(index)) continue;
    Sent& sent = message.sent[index];
    const bool settled =
        sent.path() < kMaxPaths && is_before(sent.number(), nack_.settled[sent.path()]);
    const bool stands = !state_.numbers_paths() || sent.path() >= kMaxPaths ||
                        peer.progress[sent.path()].at <= overdue_ns * kNanosecond;
    const bool overdue = nack_.has(kNackTimer) && sent.at_ns() <= overdue_ns && stands;
    if (!overdue && (!settled || sent.is_reported())) continue;
    sent.set_reported();
    const LossReason reason = settled ? by_number : LossReason::timer;
    const bool left = is_before(sent.number(), peer.progress[sent.path() % kMaxPaths].moved_at);
    lost_.push_back({index, sent.attempts(), left ? kAnyPath : sent.path(), reason});
  }
}

void Sender::report_lost(const SendMessage& message, Time now) {
  if (mutated(Mutant::loss_forgotten) && !lost_.empty()) lost_.erase(lost_.begin());
  if (lost_.empty()) return;
  state_.events.emit_about(EventKind::loss, message, now, std::as_bytes(std::span(lost_)));
}

}  // namespace softroce
