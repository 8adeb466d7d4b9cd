// SPDX-License-Identifier: GPL-2.0-or-later
#include "loss_detector.hpp"

#include <algorithm>

#include "../mutant.hpp"

namespace softroce {

namespace {

// Whether id `a` is older than `b`: serial numbers, RFC 1982.
bool older(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) < 0; }

constexpr std::uint32_t kMostRepeated = 16;  // acknowledgements, for one repeated probe

// Divisors of a round trip, for the wait after a probe (LossDetector::wait_for).
constexpr Time kSlackDivisor = 4;
constexpr Time kMarkedSlackDivisor = 2;  // longer, because queues change
constexpr Time kUnknownWaitDivisor = 2;
constexpr Time kRecentDivisor = 2;

}  // namespace

Arrivals& LossDetector::arrivals_of(Peer& peer) {
  if (peer.arrivals == nullptr) [[unlikely]] {
    peer.arrivals = std::make_unique<Arrivals>();
    peer.arrivals->paths.assign(kMaxPaths, PathSequence(newest_window_));
    peer.arrivals->between_paths = newest_between_;
    peer.arrivals->end = peer.arrivals->losses_end = peer.arrivals->probed_end =
        state_.config.first_message_id;
  }
  return *peer.arrivals;
}

std::uint32_t LossDetector::most_ahead() const {
  return std::min(4 * state_.config.window_packets, std::uint32_t{1} << (LAB_NUMBER_BITS - 2));
}

// Of a NACK with a small MTU half of the room is for words.
std::size_t LossDetector::most_trimmed() const {
  const std::size_t room = state_.control_bytes() - Nack::kFixedBytes;
  return std::min<std::size_t>(Nack::kMostTrimmed, room / 2 / Nack::kTrimmedBytes);
}

void LossDetector::arrived(Peer& peer, const Packet& packet, Time now) {
  const bool shows_loss = note_number(peer, packet, now);
  std::vector<PathNumber>& trimmed = arrivals_of(peer).trimmed;
  if (packet.lab.trimmed && trimmed.size() < most_trimmed())
    trimmed.push_back({packet.lab.path, packet.lab.number});
  if (shows_loss || packet.lab.trimmed) note_loss(peer, 0, 1);
}

// Returns whether the packet shows a loss of others at once.
bool LossDetector::note_number(Peer& peer, const Packet& packet, Time now) {
  const LabHeader& lab = packet.lab;
  Arrivals& arrivals = arrivals_of(peer);
  const Time srtt = state_.srtt_from(peer);
  if (arrivals.least_rtt == 0 || srtt < arrivals.least_rtt) arrivals.least_rtt = srtt;
  PathSequence& sequence = arrivals.paths[lab.path];
  const std::uint32_t before = sequence.lost().packets;
  PathSequence::Arrival arrival;
  if (lab.trimmed) {
    arrival = sequence.trimmed(lab.number, most_ahead(), now, arrivals.least_rtt, srtt);
  } else {
    arrivals.delays[lab.path] = {lab.stamp_ns, stamp_of(now) - lab.stamp_ns, true,
                                 packet.congestion_experienced()};
    arrival = sequence.arrived(lab.number, most_ahead(), now, arrivals.least_rtt, srtt);
  }
  lost_packets_ += sequence.lost().packets - before;
  return shows_loss(peer, arrivals, sequence, arrival, now);
}

// Whether the arrival shows a loss at once. Also sets the timer for a gap, and counts numbers that
// arrived late or were refused.
bool LossDetector::shows_loss(Peer& peer, Arrivals& arrivals, PathSequence& sequence,
                              PathSequence::Arrival arrival, Time now) {
  using Arrival = PathSequence::Arrival;
  switch (arrival) {
    case Arrival::next:
    case Arrival::reordered:
      break;
    case Arrival::loss:
      return true;
    case Arrival::gap:
      arm_gap_timer(peer, arrivals, now);
      break;
    case Arrival::spurious:
      newest_window_ = sequence.window();
      state_.counters.add(Counter::rx_late_number);
      break;
    case Arrival::late_named:
      arrivals.between_paths.grow(now, state_.srtt_from(peer));
      newest_between_ = arrivals.between_paths;
      state_.counters.add(Counter::rx_late_number);
      break;
    case Arrival::refused:
      state_.counters.add(Counter::rx_number_jump);
      break;
  }
  return false;
}

// A probe that arrived on `path` carries the next number of the path `other`. Packets with smaller
// numbers were sent before the probe, but a slower path may deliver them after it. So they count as
// lost only after a wait. The wait has a margin, which grows when a packet arrives after its wait.
// While no packet is lost, the wait is SRTT: a shorter one would gain nothing.
void LossDetector::note_probed(Peer& peer, const PathNumber& other, std::uint8_t path, Time now) {
  Arrivals& arrivals = arrivals_of(peer);
  const Time srtt = state_.srtt_from(peer);
  const Time margin = arrivals.between_paths.length(arrivals.least_rtt, srtt);
  const Time least = lost_packets_ == 0 ? srtt : std::min(wait_for(peer, other.path, path), srtt);
  PathSequence& sequence = arrivals.paths[other.path];
  const std::uint32_t before = sequence.lost().packets;
  const auto arrival = sequence.named(other.number, most_ahead(), now, least + margin);
  lost_packets_ += sequence.lost().packets - before;
  shows_loss(peer, arrivals, sequence, arrival, now);
}

// How long packets on the path `other` may arrive after a probe on `path`. Packets of a path arrive
// in order, so a missing one takes about as long as the newest that arrived on `other`. The
// difference of its delay and the probe's is known if both were sent at about the same time.
// Otherwise the wait is the usual reordering extent, or a part of the least RTT.
Time LossDetector::wait_for(const Peer& peer, std::uint8_t other, std::uint8_t path) const {
  const Arrivals& arrivals = *peer.arrivals;
  const PathDelay &there = arrivals.delays[other], &here = arrivals.delays[path];
  const Time usual = peer.reordering_extent.usual();
  const Time before = Time{stamp_distance(here.stamp_ns, there.stamp_ns)} * kNanosecond;
  if (!there.known || before > state_.srtt_from(peer) / kRecentDivisor)
    return std::max(usual, arrivals.least_rtt / kUnknownWaitDivisor);
  const Time later = Time{stamp_distance(there.delay_ns, here.delay_ns)} * kNanosecond;
  const Time divisor = there.marked || here.marked ? kMarkedSlackDivisor : kSlackDivisor;
  return std::max(later, Time{0}) + std::max(usual, arrivals.least_rtt) / divisor;
}

std::uint32_t LossDetector::handle_probe(Peer& peer, const Packet& packet, Time now) {
  const LabHeader& lab = packet.lab;
  if (!read_probe(packet.payload, packet.payload_bytes, probe_)) {
    state_.counters.add(Counter::rx_bad_header);
    return 0;
  }
  state_.counters.add(Counter::rx_probe);
  relaxed_store(peer.last_received_at, now);
  Arrivals& arrivals = arrivals_of(peer);
  const auto probe = static_cast<std::uint16_t>(lab.message);
  if (static_cast<std::int16_t>(probe - arrivals.newest_probe) > 0) arrivals.newest_probe = probe;
  if (older(arrivals.probed_end, probe_.next_id)) arrivals.probed_end = probe_.next_id;
  const bool reveals_loss = note_number(peer, packet, now) && !has_all_probed(arrivals);
  for (const PathNumber& each : probe_.paths) note_probed(peer, each, lab.path, now);
  const bool is_repeated = lab.attempt != 0;
  const bool acknowledged = is_repeated && repeat_acknowledgements(peer, lab.message_id, now);
  const bool is_answered = acknowledged && arrivals.unfinished.empty();
  // If the probe reveals a loss, no later packet may do so: the NACK leaves twice. Earlier losses
  // were in a NACK already, which may be lost: they are sent again. A repeated probe needs an
  // answer.
  if (reveals_loss)
    note_loss(peer, kNackProbe, 2);
  else if (has_open_losses(arrivals) || (is_repeated && !is_answered))
    note_loss(peer, kNackProbe, 1);
  const std::int64_t age_ns = stamp_distance(stamp_of(now), probe_.newest_control_ns);
  // A timestamp from the future is one that is too old: the clock has wrapped.
  const Time newest_at = age_ns < 0 ? 0 : now - age_ns * kNanosecond;
  return peer.controls.shown(probe_.controls, newest_at, state_.srtt_from(peer));
}

// Whether all messages that the sender had posted by its newest probe are complete. Then nothing
// that the probe reveals is missing: parity restored it, or it was parity.
bool LossDetector::has_all_probed(const Arrivals& arrivals) {
  return arrivals.unfinished.empty() && !older(arrivals.end, arrivals.probed_end);
}

// Whether a packet that was found lost may still be missing: an unfinished message is older than
// the newest message at the last loss. A message whose packets were all lost becomes unfinished
// when the next message begins (note_begun).
bool LossDetector::has_open_losses(const Arrivals& arrivals) {
  return !arrivals.unfinished.empty() && older(arrivals.unfinished.front(), arrivals.losses_end);
}

// A repeated probe says that the sender has no acknowledgement of message `oldest` and later ones.
// Lets the session repeat the acknowledgements of the complete messages among them. Returns whether
// there are such messages.
bool LossDetector::repeat_acknowledgements(Peer& peer, std::uint32_t oldest, Time now) {
  const Arrivals& arrivals = *peer.arrivals;
  bool any = false;
  std::uint32_t id = oldest;
  for (std::uint32_t n = 0; n < kMostRepeated && older(id, arrivals.end); ++n, ++id) {
    const ReceiveSlot& slot = peer.receive_slots[state_.slot_of(id)];
    if (slot.state != ReceiveSlot::State::complete || slot.id != id) continue;
    if (state_.events.full()) {
      state_.counters.add(Counter::rx_event_overflow);
      break;
    }
    state_.events.emit({.kind = EventKind::late_packet, .peer = peer.index, .at = now, .id = id});
    any = true;
  }
  return any;
}

void LossDetector::note_loss(Peer& peer, std::uint8_t flags, std::uint8_t copies) {
  Arrivals& arrivals = arrivals_of(peer);
  arrivals.losses_end = arrivals.end;
  arrivals.nack_flags |= flags;
  arrivals.nack_copies = std::max(arrivals.nack_copies, copies);
  if (arrivals.nack_queued) return;
  arrivals.nack_queued = true;
  nacks_.push_back(peer.index);
}

void LossDetector::arm_gap_timer(Peer& peer, Arrivals& arrivals, Time now) {
  Time due = kNever;
  for (const PathSequence& each : arrivals.paths)
    due = std::min(due, each.due(arrivals.least_rtt, state_.srtt_from(peer)));
  if (due == kNever || due >= arrivals.gap_at) return;
  arrivals.gap_at = std::max(due, now);
  state_.timers.arm(arrivals.gap_at, TimerKind::path_gap, peer.index);
}

void LossDetector::gap_fired(Peer& peer, Time armed_for, Time now) {
  Arrivals& arrivals = arrivals_of(peer);
  if (arrivals.gap_at != armed_for) return;
  arrivals.gap_at = kNever;
  PathSequence::GivenUp lost;
  for (PathSequence& each : arrivals.paths) {
    const std::uint32_t before = each.lost().packets;
    each.give_up_due(now, arrivals.least_rtt, state_.srtt_from(peer), lost);
    lost_packets_ += each.lost().packets - before;
  }
  if (lost.by_probe) arrivals.between_paths.note_recovery();
  if (lost.by_probe && !has_all_probed(arrivals))
    note_loss(peer, kNackProbe, 2);
  else if (lost.by_packet)
    note_loss(peer, 0, 1);
  arm_gap_timer(peer, arrivals, now);
}

// ---------------------------------------------------------------- messages

// A sender takes ids in ascending order. So earlier ids that have not begun may be messages whose
// packets were all lost: they are listed as unfinished. But a sender skips an id whose slot is in
// use. The receiver cannot see that, so:
// - of each slot only the oldest id is listed;
// - an id that was skipped is listed in vain, until a later message begins in its slot;
// - an id that was not listed, or was erased too early, is listed when its message begins.
void LossDetector::note_begun(Peer& peer, std::uint32_t id) {
  Arrivals& arrivals = arrivals_of(peer);
  auto& unfinished = arrivals.unfinished;
  const auto uses_slot_of = [this](std::uint32_t other) {
    return
        [this, other](std::uint32_t each) { return state_.slot_of(each) == state_.slot_of(other); };
  };
  std::erase_if(unfinished, uses_slot_of(id));
  if (older(id, arrivals.end)) {
    unfinished.insert(std::ranges::lower_bound(unfinished, id, older), id);
    return;
  }
  if (id - arrivals.end >= state_.config.message_slots)
    arrivals.end = id - state_.config.message_slots + 1;
  for (; arrivals.end != id; ++arrivals.end)
    if (std::ranges::none_of(unfinished, uses_slot_of(arrivals.end)))
      unfinished.push_back(arrivals.end);
  unfinished.push_back(id);
  ++arrivals.end;
}

void LossDetector::note_over(Peer& peer, std::uint32_t id) {
  note_begun(peer, id);
  std::erase(arrivals_of(peer).unfinished, id);
}

// ---------------------------------------------------------------- NACKs

bool LossDetector::poll_nack(Packet& packet, Time now) {
  if (nacks_.empty()) return false;
  Peer& peer = state_.peers[nacks_.front()];
  Arrivals& arrivals = *peer.arrivals;
  fill_nack(peer, arrivals, now);
  if (arrivals.nack_copies > 1) {
    --arrivals.nack_copies;
  } else {
    nacks_.pop_front();
    arrivals.nack_queued = false;
    arrivals.nack_flags = arrivals.nack_copies = 0;
  }
  packet.lab = {.kind = LAB_KIND_CONTROL,
                .path = peer.control_path(),
                .message = Nack::kFirstSequence + peer.nack_sequence++,
                .message_id = LAB_CONTROL_NACK,
                .length = static_cast<std::uint32_t>(body_.size())};
  reporter_.append_report(peer, body_, state_.control_bytes(), now);
  if (!arrivals.nack_queued) arrivals.trimmed.clear();
  packet.payload = body_.data();
  packet.payload_bytes = static_cast<std::uint32_t>(body_.size());
  state_.address(peer, true, now, packet);
  state_.counters.add(Counter::tx_control);
  state_.counters.add(Counter::tx_nack);
  state_.events.note_control(peer.index, packet.lab.length, now);
  return true;
}

// Fills the NACK as far as one packet has room. Messages that have begun come first, because
// receives wait for them. The list starts with the message for which the NACK before had no room.
void LossDetector::fill_nack(Peer& peer, Arrivals& arrivals, Time now) {
  nack_.flags = arrivals.nack_flags;
  nack_.trimmed = arrivals.trimmed;
  nack_.probe = arrivals.newest_probe;
  nack_.end = arrivals.end;
  for (std::uint32_t p = 0; p < kMaxPaths; ++p) nack_.settled[p] = arrivals.paths[p].settled();
  nack_.words.clear();
  const std::size_t room = (state_.control_bytes() - nack_.bytes_before_words()) / Nack::kWordBytes;
  const auto& ids = arrivals.unfinished;
  const auto start = std::ranges::lower_bound(ids, arrivals.nack_from, older) - ids.begin();
  bool fits = true;
  for (const bool has_begun : {true, false}) {
    for (std::size_t i = 0; fits && i < ids.size(); ++i) {
      const std::uint32_t id = ids[(static_cast<std::size_t>(start) + i) % ids.size()];
      const ReceiveMessage* message = open_message(peer, id);
      if ((message != nullptr) != has_begun) continue;
      fits = nack_.words.size() + 1 < room;
      if (!fits) {
        arrivals.nack_from = id;
        continue;
      }
      const std::size_t before = nack_.words.size();
      put_message(id, message, room);
      if (message != nullptr) note_nack(peer, *message, before, now);
    }
  }
  write_nack(nack_, body_);
}

// Writes to the event log what the NACK says of the message: its words from `begin` on.
void LossDetector::note_nack(const Peer& peer, const ReceiveMessage& message, std::size_t begin,
                             Time now) {
  MissingPackets missing;
  for (std::size_t i = begin; i < nack_.words.size(); ++i)
    missing.add(nack_.words[i].base, nack_.words[i].bits);
  state_.events.note_nack(QpEventKind::message_nack_sent, message, missing, peer.address.gid, now);
}

const ReceiveMessage* LossDetector::open_message(Peer& peer, std::uint32_t id) {
  const ReceiveSlot& slot = peer.receive_slots[state_.slot_of(id)];
  const bool open = slot.state == ReceiveSlot::State::open && slot.id == id;
  const ReceiveMessage* message = open ? messages_.find(slot.message) : nullptr;
  return message != nullptr && message->open ? message : nullptr;
}

void LossDetector::put_message(std::uint32_t id, const ReceiveMessage* message, std::size_t room) {
  if (message == nullptr) return nack_.words.push_back({id, 0, 0});
  const std::uint32_t behind = message->highest + 1;
  for (std::uint32_t first = message->bitmap.next_clear(0) / 64 * 64; first < behind; first += 64) {
    if (nack_.words.size() + 1 >= room) return;
    std::uint64_t missing = ~message->bitmap.word(first / 64);
    if (behind - first < 64) missing &= (std::uint64_t{1} << (behind - first)) - 1;
    missing <<= mutated(Mutant::holes_shifted);
    if (missing != 0) nack_.words.push_back({id, first, missing});
  }
  if (behind < message->count) nack_.words.push_back({id, behind, 0});
}

}  // namespace softroce
