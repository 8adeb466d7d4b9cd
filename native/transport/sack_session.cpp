// SPDX-License-Identifier: GPL-2.0-or-later
#include "sack_session.hpp"

#include <algorithm>
#include <numeric>

#include "../engine/mutant.hpp"

namespace softroce {
namespace {

// The set from the first to the last missing packet.
PacketSet missing_packets(const ReceiveMessage& message) {
  const std::uint32_t first = message.bitmap.next_clear(0);
  if (first >= message.count) return {};
  std::uint32_t last = message.count - 1;
  while (message.bitmap.test(last)) --last;
  PacketSet set(first, last - first + 1);
  for (std::uint32_t packet = first; packet <= last; ++packet)
    if (!message.bitmap.test(packet)) set.set_missing(packet);
  return set;
}

// The set from the first chunk that lacks a packet to the last chunk. It is the inverse of
// SDR-RDMA's bitmap (arXiv 2505.05366).
PacketSet missing_chunks(const ReceiveMessage& message, std::uint32_t chunk_packets) {
  const std::uint32_t chunks = (message.count + chunk_packets - 1) / chunk_packets;
  const auto lacks = [&](std::uint32_t chunk) {
    const std::uint32_t first = chunk * chunk_packets;
    return message.bitmap.next_clear(first) < std::min(first + chunk_packets, message.count);
  };
  std::uint32_t cumulative = 0;
  while (cumulative < chunks && !lacks(cumulative)) ++cumulative;
  if (cumulative == chunks) cumulative = 0;  // all are here: the message is about to complete
  cumulative += mutated(Mutant::cumulative_chunk_too_far) && cumulative + 1 < chunks;
  PacketSet set(cumulative, chunks - cumulative);
  for (std::uint32_t chunk = cumulative; chunk < chunks; ++chunk)
    if (lacks(chunk)) set.set_missing(chunk);
  return set;
}

}  // namespace

// ---------------------------------------------------------------- sender

void SackSession::send_posted(SendMessage& message) {
  const std::uint32_t index = index_of(message.handle);
  if (index >= known_.size()) known_.resize(index + 1);
  known_[index].reset();
}

void SackSession::check_send(SendMessage& message) {
  Send& send = of(message);
  // If packets still wait to be sent, the end of the timer is no sign of a loss.
  const bool counts =
      message.paused || (message.next == message.count && message.retransmit_pending == 0);
  if (message.paused) {  // the receiver had no receive posted
    const Nanoseconds wait_ns = fixed_or(timing().rto_srtt * rtt(message.peer).srtt_ns);
    set_timer(message, now_ns() + backed_off_ns(wait_ns, send.timeouts_without_progress));
    probe_receiver(message);
  } else {
    send_timer(message);
  }
  if (counts) ++send.timeouts_without_progress;
}

void SackSession::control_arrived(PeerIndex peer, std::span<const std::uint8_t> body) {
  const auto type = static_cast<BodyType>(body[0]);
  if (type != BodyType::sack && type != BodyType::chunks) return bad_control();
  std::optional<Missing> feedback;
  SendMessage* message = find_reported(peer, body, feedback);
  if (message == nullptr) return;
  if (!learn(*message, *feedback)) return bad_control();
  if (!message->paused) return feedback_arrived(*message);
  pause(*message, false);
  set_timer(*message, now_ns());
}

// Updates `known_missing`. False: the feedback does not fit this message, or is of another
// transport.
bool SackSession::learn(SendMessage& message, const Missing& feedback) {
  if (feedback.chunk_packets != chunk_packets_) return false;
  if (!feedback.set) return true;
  if (feedback.set->end() > chunks_of(message)) return false;
  std::optional<PacketSet>& known = known_[index_of(message.handle)];
  if (!known || feedback.set->missing() < known->missing())
    of(message).timeouts_without_progress = 0;
  known = feedback.set;
  feedback_known(message);
  return true;
}

std::vector<std::uint32_t> SackSession::missing(const SendMessage& message) {
  std::vector<std::uint32_t> packets;
  const std::optional<PacketSet>& known = known_missing(message);
  if (mutated(Mutant::missing_is_first)) return {0};
  if (!known) {
    packets.resize(message.count);
    std::iota(packets.begin(), packets.end(), 0U);
    return packets;
  }
  const std::uint32_t packets_of_a_bit = std::max(chunk_packets_, 1U);
  for (std::uint32_t packet = 0; packet < message.count; ++packet)
    if (known->is_missing(packet / packets_of_a_bit) != mutated(Mutant::missing_inverted))
      packets.push_back(packet);
  if (packets.empty()) packets.push_back(message.count - 1);
  return packets;
}

void SackSession::retransmit_sent(SendMessage& message, std::vector<std::uint32_t> packets,
                                  bool urgent, std::uint32_t copies) {
  std::erase_if(packets, [&](std::uint32_t packet) { return packet >= message.next; });
  if (packets.empty()) return;
  std::int64_t attempts = 0;
  for (const std::uint32_t packet : packets)
    attempts = std::max<std::int64_t>(attempts, message.sent[packet].attempts());
  // Copies leave the last attempt over, which a silent peer does not get.
  const std::int64_t most = std::max<std::int64_t>(timing().most_attempts - attempts - 1, 1);
  retransmit(message, packets, static_cast<std::uint32_t>(attempts), urgent,
             static_cast<std::uint32_t>(std::min<std::int64_t>(copies, most)));
}

Nanoseconds SackSession::measured_or(PeerIndex index, Nanoseconds rto_ns) const {
  if (timing().rto_rttvar_weight == 0) return rto_ns;
  const RttEstimate& measured = peer(index).rtt;
  const Nanoseconds srtt_ns = measured.srtt / kNanosecond;
  if (srtt_ns == 0) return std::max(rto_ns, timing().t_max_ns);
  return srtt_ns + std::max(timing().rto_rttvar_weight * (measured.rttvar / kNanosecond),
                            timing().clock_granularity_ns);
}

// ---------------------------------------------------------------- receiver

void SackSession::check_receive(ReceiveMessage& message) {
  Receive& receive = of(message);
  const std::uint32_t arrived = message.received + message.duplicates;
  receive.timeouts_without_progress =
      arrived > receive.received ? 0 : receive.timeouts_without_progress + 1;
  receive.received = arrived;
  receive_timer(message);
}

void SackSession::send_feedback(ReceiveMessage& message, std::uint32_t id) {
  Missing feedback{.name = {id, message.key},
                   .chunk_packets = static_cast<std::uint16_t>(chunk_packets_)};
  if (message.open) {
    of(message).fed_back = message.received + message.duplicates;
    feedback.set =
        chunk_packets_ == 0 ? missing_packets(message) : missing_chunks(message, chunk_packets_);
  }
  send_missing(message.peer, feedback);
}

// Packets may have arrived since the engine queued the event.
void SackSession::gap(ReceiveMessage& message, std::span<const std::uint32_t> packets) {
  std::vector<std::uint32_t> missing;
  for (const std::uint32_t packet : packets)
    if (!message.bitmap.test(packet)) missing.push_back(packet);
  if (!missing.empty()) gap_seen(message, missing);
}

// ---------------------------------------------------------------- SACKs at intervals

Nanoseconds SackReceiver::sack_interval_ns(PeerIndex peer) const {
  const Nanoseconds quarter_ns = reported_rtt(peer).srtt_ns / 4;
  return std::min(std::max(quarter_ns, timing().sack_interval_least_ns), timing().t_max_ns);
}

Nanoseconds& SackReceiver::interval_of(const ReceiveMessage& message) {
  const std::uint32_t index = index_of(message.handle);
  if (index >= intervals_.size()) intervals_.resize(index + 1);
  return intervals_[index];
}

void SackReceiver::first_packet(ReceiveMessage& message) {
  const Nanoseconds interval_ns = interval_of(message) = sack_interval_ns(message.peer);
  set_timer(message, now_ns() + interval_ns);
}

// Sends a SACK if packets have arrived since the last one, duplicates included. Otherwise the
// interval doubles; at T_max a SACK is sent at each interval.
void SackReceiver::receive_timer(ReceiveMessage& message) {
  Nanoseconds& interval_ns = interval_of(message);
  const bool came = message.received + message.duplicates > of(message).fed_back;
  interval_ns =
      came ? sack_interval_ns(message.peer) : std::min(2 * interval_ns, timing().t_max_ns);
  if (came || interval_ns == timing().t_max_ns) send_feedback(message);
  set_timer(message, now_ns() + interval_ns);
}

}  // namespace softroce
