// SPDX-License-Identifier: GPL-2.0-or-later
// Selective repeat of chunks by timers, "SR RTO"; what `sdr_sr_nack`, `sdr_ec` and `sdr_auto` share
// with `sdr_sr` (sdr_sr.cpp).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "sack_session.hpp"

namespace softroce {

class SdrSr : public SackReceiver {
 public:
  explicit SdrSr(MessageEngine& engine);

 protected:
  SdrSr(MessageEngine& engine, std::uint32_t chunk_packets) : SackReceiver(engine, chunk_packets) {}

  struct Chunks {                       // of a send
    std::vector<std::uint8_t> missing;  // one a chunk: it is not known to have arrived
    std::uint32_t timeouts = 0;  // a round trip apart and without progress; a chunk's first is none
    Nanoseconds timeout_ns = 0;  // when the newest of them was
  };
  struct SentChunk {
    std::uint32_t chunk;
    Nanoseconds sent_ns;  // its last packet
  };

  Chunks& chunks(const SendMessage& message) { return chunks_[index_of(message.handle)]; }
  // The chunks that were sent and are missing.
  std::vector<SentChunk> outstanding(const SendMessage& message);
  Nanoseconds rto_ns(const SendMessage& message);
  // All packets of these chunks, to be retransmitted; counts the timeout.
  std::vector<std::uint32_t> packets_of(SendMessage& message, std::span<const SentChunk> due);
  // Retransmits what is missed before a chunk that is there, an RTT after it was sent.
  void repeat_overtaken(SendMessage& message);

  void send_posted(SendMessage& message) override;
  void feedback_arrived(SendMessage& message) override;
  void send_timer(SendMessage& message) override;

 private:
  std::deque<Chunks> chunks_;  // by the handle's index
};

}  // namespace softroce
