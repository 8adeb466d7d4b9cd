// SPDX-License-Identifier: GPL-2.0-or-later
// The sender's part of recovery by path numbers: probes behind the last packet, so that a lost one
// is a gap like any other, and the losses that NACKs show.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "../mutant.hpp"
#include "sender.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kPacketsOfAPath = 8;      // of a message that may take one path
constexpr std::uint32_t kPacketsToHeedMarks = 4;  // of a message, for each path
constexpr double kBurstPackets = 1.5;             // with larger ones, probes leave in two copies
constexpr Time kSilenceOfRtt = 2;  // a sender that may not send probes after this part of SRTT
constexpr std::uint32_t kWorthAProbe = 8;  // packets; of fewer a sender that may not send waits
constexpr Time kTrialOfRtt = 64;           // from one trial of a port that fell silent to the next
constexpr std::uint32_t kDeadAfter = 3;    // losses of a port in a row
constexpr std::uint32_t kPacketsToCompare = 32;  // of each path, in the mean
constexpr std::uint32_t kLeastShareOfPath = 90;  // percent of the mean
constexpr std::uint16_t kMostRepeats =
    4;  // of a probe; after that only the transport's timers are left

// What was sent on the path until now went over another source port.
void begin_on_port(Peer& peer, std::uint8_t path) {
  peer.progress[path].waits_since = kNever;
  peer.loads.arrived(path);
  peer.progress[path].moved_at = peer.sent_on[path] & LAB_NUMBER_MASK;
  peer.controls.begin(path);
  peer.shares_from = peer.sent_on;
}

// RFC 1982: which of two ids is older.
bool is_older(std::uint32_t id, std::uint32_t than) {
  return static_cast<std::int32_t>(id - than) < 0;
}

}  // namespace

// With numbers on paths, a short message takes one path if packets are lost: it is too short for
// parity, and the next packet on the path reveals a loss. Only a long one heeds marks.
std::uint8_t Sender::first_path(Peer& peer, SendMessage& message, Time now) {
  if (!state_.numbers_paths()) return peer.picker->pick(now);
  if (message.next == 0 && message.count <= kPacketsOfAPath && flow_.loss_to(peer).loss() > 0)
    message.first_path = peer.schedule.next();
  if (message.first_path != kAnyPath) return message.first_path;
  const bool heeds_marks = message.count >= kPacketsToHeedMarks * peer.schedule.paths();
  return peer.picker->pick(heeds_marks ? now : kNever);
}

// ---------------------------------------------------------------- probes

void Sender::probe_when_idle(Peer& peer, Time now) {
  if (peer.unprobed == 0 || !state_.numbers_paths() || peer.probed != 0) return;
  if (!state_.has(kProbes)) return;
  if (peer.parity_waiting != 0) return;  // the probe follows it
  if (peer.sends.empty() && peer.retransmissions.empty()) return queue_probe(peer, peer.unprobed);
  if (flow_.may_send(peer, now) || peer.probe_at != kNever) return;
  arm_probes(peer, now);
}

// A sender that may not send is silent for half a round trip before it probes. If it sent few
// packets it waits until nothing can be on its way: the next packets may show what is lost.
Time Sender::probes_due(const Peer& peer) const {
  const Time srtt = std::max(peer.rtt.srtt, kMicrosecond);
  const bool many = peer.unprobed_packets >= kWorthAProbe;
  return peer.data_at + (many ? srtt / kSilenceOfRtt : srtt + 4 * peer.rtt.rttvar);
}

void Sender::arm_probes(Peer& peer, Time now) {
  peer.probe_at = std::max(probes_due(peer), now);
  state_.timers.arm(peer.probe_at, TimerKind::probe, peer.index);
}

void Sender::probe_fired(Peer& peer, Time armed_for, Time now) {
  if (peer.probe_at != armed_for) return;
  peer.probe_at = kNever;
  if (peer.unprobed == 0 || peer.probed != 0 || flow_.may_send(peer, now)) return;
  now >= probes_due(peer) ? queue_probe(peer, peer.unprobed) : arm_probes(peer, now);
}

// What the peer reports is lost: the probe tells it on which paths.
void Sender::probe_missing_controls(Peer& peer) {
  if (!peer.controls.misses_many() || peer.unprobed == 0 || peer.probed != 0) return;
  if (state_.has(kProbes)) queue_probe(peer, peer.unprobed);
}

void Sender::queue_probe(Peer& peer, std::uint32_t paths) {
  if (peer.probed == 0) probe_ring_.push_back(peer.index);
  peer.probed |= paths;
  peer.unprobed &= ~paths;
  if (peer.unprobed == 0) peer.unprobed_packets = 0;
}

// That of the newest data, so that nothing before it can come later. A copy or a repeated probe
// takes another path: the one with the fewest losses in a row, and the fewest packets on their way.
std::uint8_t Sender::path_of_probe(Peer& peer, bool is_copy) const {
  const bool is_first = peer.probe_repeats == 0 && !is_copy;
  if (is_first && (peer.probed >> peer.last_path & 1) != 0) return peer.last_path;
  std::uint8_t best = peer.schedule.next_other(peer.last_path);
  const auto cost = [&](std::uint8_t path) {
    return std::pair(peer.loads.lost_in_row(path), peer.loads.of(path));
  };
  for (std::uint32_t n = 1; n < peer.schedule.paths(); ++n) {
    const std::uint8_t path = peer.schedule.next();
    if (path != peer.last_path && cost(path) < cost(best)) best = path;
  }
  return best;
}

bool Sender::poll_probe(Packet& packet, Time now) {
  if (probe_ring_.empty()) return false;
  Peer& peer = state_.peers[probe_ring_.front()];
  probe_ring_.pop_front();
  const bool is_copy = std::exchange(peer.copies_probe, false);
  const std::uint8_t path = path_of_probe(peer, is_copy);
  probe_.newest_control_ns = peer.newest_control.stamp_ns;
  probe_.controls = peer.controls.counts();
  probe_.next_id = peer.next_id;
  peer.controls.told();
  probe_.paths.clear();
  for (std::uint8_t other = 0; other < kMaxPaths; ++other)
    if (other != path && (peer.probed >> other & 1) != 0)
      probe_.paths.push_back({other, peer.sent_on[other] & LAB_NUMBER_MASK});
  write_probe(probe_, probe_body_);
  if (peer.probe_repeats == 0 && !is_copy) peer.first_probe = peer.probe_sequence;
  packet.lab = {.kind = LAB_KIND_PROBE,
                .path = path,
                .attempt = peer.probe_repeats,
                .message = peer.probe_sequence++,
                .message_id = oldest_unacknowledged(peer),
                .length = static_cast<std::uint32_t>(probe_body_.size()),
                .number = peer.sent_on[path] & LAB_NUMBER_MASK};
  packet.payload = probe_body_.data();
  packet.payload_bytes = packet.lab.length;
  relaxed_store(peer.sent_on[path], peer.sent_on[path] + 1);
  peer.unanswered |= peer.probed;
  peer.probed = 0;
  // A burst that takes the last packets often takes the probe on their path, too.
  const bool bursts = flow_.loss_to(peer).burst_packets() > kBurstPackets;
  peer.copies_probe = bursts && !is_copy && peer.probe_repeats == 0 && peer.schedule.paths() > 1;
  if (peer.copies_probe) queue_probe(peer, peer.unanswered);
  arm_repeat(peer, now);
  state_.address(peer, true, now, packet);
  state_.counters.add(Counter::tx_probe);
  return true;
}

// ---- a probe that nothing answers

void Sender::arm_repeat(Peer& peer, Time now) {
  if (peer.probe_repeats >= kMostRepeats || !state_.has(kProbeRepeats)) return;
  // Of a peer that is new, what all peers together show.
  const RttEstimate& rtt = peer.rtt.srtt != 0 ? peer.rtt : flow_.rtt_of_all();
  // RTTVAR begins at half an RTT: one that is repeated too early costs little.
  const Time measured = std::min(rtt.rto(), rtt.srtt * 5 / 4);
  const Time wait = std::max(measured, state_.config.initial_rtt * 5 / 4);
  peer.repeat_at = now + (wait << peer.probe_repeats);
  state_.timers.arm(peer.repeat_at, TimerKind::probe_repeat, peer.index);
}

// The id of the oldest send that is not over; the next id if there is none. A slot that stays in
// use is left out of the ids that follow, so that its id may be older than those of one turn.
std::uint32_t Sender::oldest_unacknowledged(Peer& peer) {
  std::uint32_t oldest = peer.next_id;
  std::uint32_t left = peer.sends_outstanding;
  for (std::uint32_t n = 1; left != 0 && n <= state_.config.message_slots; ++n) {
    const SendMessage* message = find_in_slot(peer, peer.next_id - n);
    if (message == nullptr) continue;
    if (is_older(message->id, oldest)) oldest = message->id;
    --left;
  }
  return oldest;
}

// Whether the peer has to answer the newest probe yet.
bool Sender::waits_for_answer(Peer& peer) {
  if (peer.sends_outstanding == 0) peer.unanswered = 0;
  return peer.unanswered != 0 && peer.unprobed == 0 && peer.probed == 0;
}

void Sender::repeat_fired(Peer& peer, Time armed_for, Time now) {
  if (peer.repeat_at != armed_for) return;
  peer.repeat_at = kNever;
  if (!waits_for_answer(peer)) return;
  const Time due = peer.data_at + peer.rtt.srtt;  // which may have grown meanwhile
  if (now < due) {
    peer.repeat_at = due;
    return state_.timers.arm(due, TimerKind::probe_repeat, peer.index);
  }
  ++peer.probe_repeats;
  queue_probe(peer, peer.unanswered);
}

// A path that loses more than others. If nothing arrived between its losses, its port is dead, and
// not grey: it may carry again.
void Sender::move_path(Peer& peer, std::uint8_t path, Time now) {
  if (peer.loads.lost_in_row(path) >= kDeadAfter) expect_again(peer, path, now);
  change_port(peer, path);
}

// The path is about to leave its port, and tries it again later if it is its first.
void Sender::expect_again(Peer& peer, std::uint8_t path, Time now) {
  if (!peer.ports.tries_first(path)) peer.fell_silent |= peer.ports.is_first(path) << path;
  if (peer.trial_at == kNever && state_.has(kPortTrials)) peer.trial_at = next_trial(peer, now);
}

// Not by SRTT: it grows with queues, and a port that carries again would wait for them.
Time Sender::next_trial(const Peer& peer, Time now) const {
  return now + kTrialOfRtt * (peer.rtt.srtt != 0 ? peer.rtt.least : state_.config.initial_rtt);
}

void Sender::change_port(Peer& peer, std::uint8_t path) {
  peer.ports.move(path);
  begin_on_port(peer, path);
  state_.counters.add(Counter::tx_path_moved);
}

// A path is silent if nothing of it has arrived for longer than a round trip takes, although a
// packet that was sent a round trip behind it has arrived on another path. A probe on another path
// names what it has lost.
void Sender::move_silent_paths(Peer& peer, Time now) {
  std::uint32_t silent = 0;
  for (std::uint8_t path = 0; path < peer.schedule.paths(); ++path) {
    const PathProgress& progress = peer.progress[path];
    if (progress.waits_since == kNever || now - progress.waits_since < peer.rtt.rto()) continue;
    if (peer.echoed_ns * kNanosecond - progress.waits_since < peer.rtt.srtt) continue;
    expect_again(peer, path, now);
    change_port(peer, path);
    silent |= 1U << path;
  }
  if (silent != 0) queue_probe(peer, silent);
}

// Packets take the emptiest path, so a path that shares a link with other flows carries fewer. Of
// the paths to the peer, the one that carried least takes another port if it carried much less than
// the mean. A path on which nothing arrives is silent, not slow. After a path fell silent, what was
// lost there counts as on its way, so the paths are not compared any more.
void Sender::move_slow_path(Peer& peer, Time now) {
  if (!state_.has(kSlowPorts) || !state_.has(kPathChoice) || peer.fell_silent != 0) return;
  const std::uint32_t paths = peer.schedule.paths();
  std::array<std::uint32_t, kMaxPaths> carried{};
  for (std::uint32_t path = 0; path < paths; ++path)
    carried[path] = peer.sent_on[path] - peer.shares_from[path];
  const std::uint32_t all = std::accumulate(carried.begin(), carried.end(), 0U);
  if (all < kPacketsToCompare * paths) return;
  peer.shares_from = peer.sent_on;
  const auto least = std::min_element(carried.begin(), carried.begin() + paths);
  const auto slowest = static_cast<std::uint8_t>(least - carried.begin());
  const bool is_silent = now - peer.progress[slowest].at > peer.rtt.srtt;
  if (*least * paths * 100 < kLeastShareOfPath * all && !is_silent) change_port(peer, slowest);
}

// Control packets on these paths do not arrive. What data was lost there, too, its numbers show.
void Sender::leave_dead_ports(Peer& peer, std::uint32_t dead, Time now) {
  for (std::uint8_t path = 0; path < peer.schedule.paths(); ++path) {
    if ((dead >> path & 1) == 0) continue;
    expect_again(peer, path, now);
    change_port(peer, path);
  }
  try_first_port(peer, now);
}

// One path at a time: if the port is still dead, the path falls silent and goes back to the other.
void Sender::try_first_port(Peer& peer, Time now) {
  if (now < peer.trial_at) return;
  peer.trial_at = next_trial(peer, now);
  for (std::uint8_t n = 0; n < peer.schedule.paths(); ++n) {
    const auto path = static_cast<std::uint8_t>((peer.last_path + n) % peer.schedule.paths());
    if ((peer.fell_silent >> path & 1) == 0 || peer.ports.is_first(path)) continue;
    peer.ports.try_first(path);
    begin_on_port(peer, path);
    return;
  }
  peer.trial_at = kNever;  // all are back
}

// ---------------------------------------------------------------- losses

void Sender::handle_nack(Peer& peer, const Packet& packet, Time now) {
  if (!state_.config.path_probes || !read_nack(packet.payload, packet.payload_bytes, nack_))
    return state_.counters.add(Counter::rx_bad_control);
  if (state_.events.full()) return state_.counters.add(Counter::rx_event_overflow);
  state_.counters.add(Counter::rx_nack);
  // What the NACK names may be on its way, or be restored: then its acknowledgement may be lost.
  if (answers_probe(peer, nack_)) arm_repeat(peer, now);
  for (std::size_t first = 0, end = 0; first < nack_.words.size(); first = end) {
    while (end < nack_.words.size() && nack_.words[end].id == nack_.words[first].id) ++end;
    find_lost(peer, {nack_.words.data() + first, end - first}, now);
  }
  find_lost_whole(peer, now);
  if (peer.loads.none())
    peer.flight.forgive();  // all has arrived or is lost, though nothing behind it was echoed
  else if (nack_.trimmed.empty())
    return;
  make_ready(peer);
}

// All probes since the newest data ask the same; one before that did not ask after all of the data.
bool Sender::answers_probe(const Peer& peer, const Nack& nack) {
  const auto behind = static_cast<std::int16_t>(nack.probe - peer.first_probe);
  return nack.has(kNackProbe) && behind >= 0;
}

// Of the send that uses this id's slot; null: none does.
SendMessage* Sender::find_in_slot(Peer& peer, std::uint32_t id) {
  const Handle handle = peer.send_slots[state_.slot_of(id)];
  return handle == kNoHandle ? nullptr : messages_.find(handle);
}

SendMessage* Sender::find(PeerIndex index, std::uint32_t id) {
  Peer& peer = state_.peers[index];
  SendMessage* message = find_in_slot(peer, id);
  if (message != nullptr && message->id == id) return message;
  if (!peer.channels) return nullptr;
  const auto waiting = peer.channels->waiting.find(id);  // to be cleared
  return waiting != peer.channels->waiting.end() ? messages_.find(waiting->second) : nullptr;
}

void Sender::find_lost(Peer& peer, std::span<const NackWord> words, Time now) {
  const std::uint32_t id = words.front().id;
  SendMessage* message = find_in_slot(peer, id);
  if (message == nullptr || message->id != id) return;
  const bool begun = words.front().base != 0 || words.front().bits != 0;
  if (message->paused && !begun) return;  // no receive was posted for it
  lost_.clear();
  MissingPackets missing;
  for (const NackWord& word : words) {
    const std::uint32_t width = 64 - static_cast<std::uint32_t>(std::countl_zero(word.bits));
    if (word.base > message->count || width > message->count - word.base)
      return state_.counters.add(Counter::rx_bad_control);
    missing.add(word.base, word.bits);
    if (word.bits == 0) {
      note_lost(peer, *message, word.base, message->next, now);
      continue;
    }
    for (std::uint64_t bits = word.bits; bits != 0; bits &= bits - 1) {
      const std::uint32_t index = word.base + static_cast<std::uint32_t>(std::countr_zero(bits));
      note_lost(peer, *message, index, std::min(index + 1, message->next), now);
    }
  }
  state_.events.note_nack(QpEventKind::message_nack_received, *message, missing, peer.address.gid,
                          now);
  report_lost(*message, now);
}

// Of messages of which nothing has arrived. Ids are left out while their slots are in use, so there
// may be more of them than slots.
void Sender::find_lost_whole(Peer& peer, Time now) {
  const std::uint32_t given = peer.next_id - nack_.end;
  if (static_cast<std::int32_t>(given) <= 0) return;
  for (std::uint32_t n = 0; n < std::min(given, state_.config.message_slots); ++n) {
    SendMessage* message = find_in_slot(peer, nack_.end + n);
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
void Sender::note_lost(Peer& peer, SendMessage& message, std::uint32_t begin, std::uint32_t end,
                       Time now) {
  const Time srtt = srtt_to(peer);
  const std::int64_t overdue_ns = (now - srtt - 4 * peer.rtt.rttvar) / kNanosecond;
  const LossReason by_number = nack_.has(kNackProbe) ? LossReason::probe : LossReason::gap;
  for (std::uint32_t index = begin; index < end; ++index) {
    if (message.retransmit.test(index)) continue;
    Sent& sent = message.sent[index];
    const PathNumber last{sent.path(), sent.number()};
    const bool trimmed = nack_.has_trimmed(last);
    const bool settled = trimmed || (last.path < kMaxPaths &&
                                     is_before_number(last.number, nack_.settled[last.path]));
    const bool stands = !state_.numbers_paths() || sent.path() >= kMaxPaths ||
                        peer.progress[sent.path()].at <= overdue_ns * kNanosecond;
    const bool overdue = nack_.has(kNackTimer) && sent.at_ns() <= overdue_ns && stands;
    if (!overdue && (!settled || sent.is_reported())) continue;
    if (!sent.is_reported() && sent.path() < kMaxPaths) peer.loads.left(sent.path(), 1);
    if (!sent.is_reported() && trimmed) {
      FlowControl::note_trimmed(peer, sent.at_ns(), now);
      sent.set_reached();
    }
    sent.set_reported();
    const LossReason reason = trimmed   ? LossReason::trimmed
                              : settled ? by_number
                                        : LossReason::timer;
    const std::uint8_t path = sent.path() % kMaxPaths;
    const bool left = is_before_number(sent.number(), peer.progress[path].moved_at);
    if (!left && !trimmed) peer.loads.lost(path);
    lost_.push_back({index, sent.tries(), left ? kAnyPath : sent.path(), reason});
  }
}

void Sender::report_lost(const SendMessage& message, Time now) {
  if (mutated(Mutant::loss_forgotten) && !lost_.empty()) lost_.erase(lost_.begin());
  if (lost_.empty()) return;
  state_.events.emit_about(EventKind::loss, message, now, std::as_bytes(std::span(lost_)));
}

}  // namespace softroce
