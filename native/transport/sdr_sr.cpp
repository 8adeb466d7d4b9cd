// SPDX-License-Identifier: GPL-2.0-or-later
// `sdr_sr`, `sdr_sr_nack`: SDR-RDMA's selective repeat (arXiv 2505.05366), a timer for each chunk
// at the sender.
//
// [S], what the paper states: the receiver's bitmap has a bit for a chunk, N packets, 64 KiB by
// default. The receiver sends (cumulative chunk, fragment of the bitmap). A chunk that is not
// acknowledged RTO = RTT + alpha RTT after it was sent is sent again. The paper evaluates "SR RTO"
// with 3 RTT (`sdr_sr`) and "SR NACK" with 1 RTT (`sdr_sr_nack`).
//
// [D], this project's definition, is the rest: how often the receiver sends SACKs (SackReceiver),
// that no timer is shorter than T_min and each backs off without progress, and that "SR NACK" takes
// a chunk for lost when a later one is there an RTT after it was sent.
#include "sdr_sr.hpp"

#include <algorithm>

#include "../engine/mutant.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kChunkBytes = 64 << 10;  // [S]
constexpr std::int64_t kAlpha = 2;               // [S] of "SR RTO"

// The same packets, begun elsewhere with each retransmission, and in the end at each of them. If
// they went out in the same order each time, a queue shorter than they are would drop the last of
// them each time, and what loses each nth packet of a link the same ones. Turns of the golden ratio
// (Knuth, TAOCP volume 3, 6.4) go everywhere and are synchronised with nothing.
void rotate(std::vector<std::uint32_t>& packets, std::uint32_t retransmissions) {
  const std::uint32_t turn = retransmissions * 0x9E3779B9U;  // 2^32 / 1.618
  const std::uint64_t first = std::uint64_t{turn} * packets.size() >> 32;
  std::rotate(packets.begin(), packets.begin() + static_cast<std::ptrdiff_t>(first), packets.end());
}

// A chunk that is missed before one that is there is sent again after an RTT.
class SdrSrNack final : public SdrSr {
 public:
  using SdrSr::SdrSr;

 private:
  void feedback_arrived(SendMessage& message) override {
    SdrSr::feedback_arrived(message);
    repeat_overtaken(message);
  }
};

}  // namespace

SdrSr::SdrSr(MessageEngine& engine)
    : SackReceiver(engine, std::max(kChunkBytes / engine.chunk_bytes(), 1U)) {}

// ---------------------------------------------------------------- what is missing?

void SdrSr::send_posted(SendMessage& message) {
  SackReceiver::send_posted(message);
  const std::uint32_t index = index_of(message.handle);
  if (index >= chunks_.size()) chunks_.resize(index + 1);
  chunks_[index] = {.missing = std::vector<std::uint8_t>(chunks_of(message), 1)};
  set_timer(message, now_ns() + rto_ns(message));
}

void SdrSr::feedback_arrived(SendMessage& message) {
  const std::optional<PacketSet>& known = known_missing(message);
  if (!known) return;
  Chunks& own = chunks(message);
  for (std::uint32_t chunk = 0; chunk < known->end(); ++chunk) {
    if (!own.missing[chunk] || known->is_missing(chunk)) continue;
    own.missing[chunk] = 0;
    own.timeouts = 0;
  }
}

std::vector<SdrSr::SentChunk> SdrSr::outstanding(const SendMessage& message) {
  std::vector<SentChunk> sent;
  const std::vector<std::uint8_t>& missing = chunks(message).missing;
  for (std::uint32_t chunk = 0; chunk < missing.size(); ++chunk) {
    if (missing[chunk] == mutated(Mutant::repeats_what_is_here)) continue;
    const std::uint32_t first = chunk * chunk_packets();
    const std::uint32_t end = std::min(first + chunk_packets(), message.count);
    if (end > message.next) break;
    Nanoseconds sent_ns = 0;
    for (std::uint32_t packet = first; packet < end; ++packet)
      sent_ns = std::max(sent_ns, message.sent[packet].at_ns());
    sent.push_back({chunk, sent_ns});
  }
  return sent;
}

// ---------------------------------------------------------------- timeouts

// RTT + alpha RTT [S], at least T_min; doubling, to T_max, when it brings nothing.
Nanoseconds SdrSr::rto_ns(const SendMessage& message) {
  const Nanoseconds srtt_ns = rtt(message.peer).srtt_ns;
  const Nanoseconds own_ns = fixed_or(srtt_ns + kAlpha * srtt_ns);
  return backed_off_ns(measured_or(message.peer, own_ns), chunks(message).timeouts);
}

void SdrSr::send_timer(SendMessage& message) {
  const std::vector<SentChunk> missing = outstanding(message);
  if (missing.empty()) {  // the acknowledgement was lost, or all is still queued
    ++chunks(message).timeouts;
    set_timer(message, now_ns() + rto_ns(message));
    return probe_receiver(message);
  }
  const Nanoseconds before_ns = now_ns() - rto_ns(message);
  std::vector<SentChunk> due;
  Nanoseconds first_ns = kNeverNs;  // of those whose time has not come
  for (const SentChunk& each : missing) {
    if (each.sent_ns <= before_ns)
      due.push_back(each);
    else
      first_ns = std::min(first_ns, each.sent_ns);
  }
  std::vector<std::uint32_t> packets;
  if (message.retransmit_pending == 0) packets = packets_of(message, due);
  if (first_ns == kNeverNs) first_ns = now_ns();
  if (!mutated(Mutant::chunk_timer_not_armed))
    set_timer(message, first_ns + rto_ns(message));  // another one, if that was without progress
  retransmit_sent(message, std::move(packets));
}

// Chunks have timers of their own, so timeouts of one round count once.
std::vector<std::uint32_t> SdrSr::packets_of(SendMessage& message, std::span<const SentChunk> due) {
  std::vector<std::uint32_t> packets;
  std::uint32_t attempts = 0;
  for (const SentChunk& each : due) {
    const std::uint32_t first = each.chunk * chunk_packets();
    for (std::uint32_t packet = first; packet < std::min(first + chunk_packets(), message.count);
         ++packet) {
      attempts = std::max<std::uint32_t>(attempts, message.sent[packet].attempts());
      packets.push_back(packet);
    }
  }
  Chunks& own = chunks(message);
  const bool same_round =
      own.timeouts != 0 && now_ns() - own.timeout_ns < rtt(message.peer).srtt_ns;
  if (attempts > 1 && !same_round) {
    ++own.timeouts;
    own.timeout_ns = now_ns();
  }
  if (!packets.empty()) rotate(packets, attempts - 1);
  if (!packets.empty() && mutated(Mutant::chunk_without_its_last_packet)) packets.pop_back();
  return packets;
}

void SdrSr::repeat_overtaken(SendMessage& message) {
  const std::vector<std::uint8_t>& missing = chunks(message).missing;
  const auto last_there = std::ranges::find(missing.rbegin(), missing.rend(), 0).base();
  if (last_there == missing.begin() || message.retransmit_pending != 0) return;
  const auto overtaken = static_cast<std::uint32_t>(last_there - missing.begin() - 1);
  const Nanoseconds before_ns = now_ns() - rtt(message.peer).srtt_ns;
  std::vector<SentChunk> lost = outstanding(message);
  std::erase_if(lost, [&](const SentChunk& each) {
    return each.chunk >= overtaken || each.sent_ns > before_ns;
  });
  retransmit_sent(message, packets_of(message, lost));
}

Transport sdr_sr_transport() {
  return {.name = "sdr_sr",
          .make = make<SdrSr>,
          .framings = {"uc_immediate", "ud"},
          .has_rto = true,
          .sends_sacks = true};
}

Transport sdr_sr_nack_transport() {
  Transport other = sdr_sr_transport();
  other.name = "sdr_sr_nack";
  other.make = make<SdrSrNack>;
  return other;
}

}  // namespace softroce
