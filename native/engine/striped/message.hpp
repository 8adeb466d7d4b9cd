// SPDX-License-Identifier: GPL-2.0-or-later
// Striped messages: a buffer cut into packets that may travel and arrive in any order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "../codec/packet.hpp"
#include "../units.hpp"
#include "../verbs/completion.hpp"
#include "../verbs/operation.hpp"
#include "bitmap.hpp"
#include "coding.hpp"
#include "gaps.hpp"
#include "paths.hpp"
#include "pool.hpp"
#include "tail_parity.hpp"

namespace softroce {

using PeerIndex = std::uint32_t;

// Bytes of data that a packet carries besides the lab header under the path MTU.
inline std::uint32_t packet_bytes(std::uint32_t index, std::uint32_t count, std::uint32_t length,
                                  std::uint32_t chunk_bytes) {
  return index + 1 < count ? chunk_bytes : length - (count - 1) * chunk_bytes;
}

inline constexpr std::uint8_t kNotSending = UINT8_MAX;  // no packet waits for the first time

// What became of a packet so far: when it was last sent, in ns, over which path, with which number
// there, and how often, at most 65535 times. All zero: never. Written by the engine's thread alone,
// and read by a policy's thread at the same time.
class Sent {
 public:
  Sent() = default;

  void note(std::int64_t at_ns, std::uint8_t path, std::uint32_t number, std::uint16_t attempts) {
    const std::uint64_t tries = std::min<std::uint64_t>(this->tries() + 1, kMostTries);
    relaxed_store(at_ns_, at_ns);
    relaxed_store(rest_, tries << kTriesAt | std::uint64_t{number} << kNumberAt |
                             std::uint64_t{path} << kPathAt | attempts);
  }
  // A transmission reached the receiver, which could not use it.
  void set_reached() { relaxed_store(rest_, rest_ & ~(kMostTries << kTriesAt)); }
  // The session got the event that the last transmission is lost. It gets one for each
  // transmission.
  void set_reported() { relaxed_store(rest_, rest_ | kReported); }
  bool is_reported() const { return (rest_ & kReported) != 0; }
  Sent snapshot() const {
    Sent copy;
    copy.at_ns_ = relaxed_load(at_ns_);
    copy.rest_ = relaxed_load(rest_);
    return copy;
  }

  std::int64_t at_ns() const { return at_ns_; }
  std::uint8_t path() const { return rest_ >> kPathAt & 0xFF; }
  std::uint32_t number() const { return rest_ >> kNumberAt & LAB_NUMBER_MASK; }
  std::uint16_t attempts() const { return rest_ & 0xFFFF; }
  // Transmissions since it was last known that one had reached the receiver; at most 32767.
  std::uint16_t tries() const { return rest_ >> kTriesAt & kMostTries; }

 private:
  static constexpr int kPathAt = 16, kNumberAt = 24, kTriesAt = kNumberAt + LAB_NUMBER_BITS;
  static constexpr std::uint64_t kReported = std::uint64_t{1} << 63, kMostTries = 0x7FFF;
  static_assert(kTriesAt + 15 == 63);

  std::int64_t at_ns_ = 0;
  std::uint64_t rest_ = 0;
};

// Names a message among those of all peers, one way.
struct PeerKey {
  PeerIndex peer;
  MessageKey key;
  bool operator==(const PeerKey&) const = default;
};
struct PeerKeyHash {
  std::size_t operator()(const PeerKey& k) const {
    const std::uint64_t name =
        std::uint64_t{k.key.operation} << 48 | std::uint64_t{k.key.step} << 32 | k.key.message;
    return std::hash<std::uint64_t>()(name * 0x9E3779B97F4A7C15ULL ^ k.peer);
  }
};

// A send or a receive; the caller has pinned the memory (MemoryTable::pin), unless it is of an
// operation of a queue pair (message_owner.hpp).
struct MessageRequest {
  PeerIndex peer;
  MessageKey key;
  std::uint8_t* base;
  std::uint32_t length;
  std::uint32_t memory_key = 0;
  std::uint64_t wr_id = 0;
  std::uint32_t qp = 0;  // of an operation: the queue pair here; 0: none
  OperationHeader operation{};
  Patience patience{};
  bool holds_last = false;  // of a receive; as of Place
};

// What each packet touches lies together, here and in ReceiveMessage.
struct SendMessage {
  Handle handle = kNoHandle;
  PeerIndex peer = 0;
  std::uint32_t id = 0;  // slot and generation at the peer
  MessageKey key;
  const std::uint8_t* base = nullptr;
  std::uint32_t length = 0;
  std::uint32_t count = 0;
  std::uint32_t next = 0;            // packets [0, next) have been sent at least once
  std::uint32_t limit = UINT32_MAX;  // packets from here on may not be sent yet
  std::uint32_t retransmit_pending = 0;
  std::uint8_t path = kAnyPath;        // that all packets take
  std::uint8_t first_path = kAnyPath;  // that all first transmissions take
  bool paused = false;
  bool cleared = true;  // else it waits for its receive (framing uc_immediate), or for its id
  bool in_retransmit_queue = false;
  bool stopped = false;  // at its limit: of `Stops`
  std::uint32_t retransmitted = 0;
  std::uint32_t retransmit_cursor = 0;
  std::vector<Sent> sent;            // each packet
  Bitmap retransmit;                 // requested by the session, not sent yet
  std::vector<std::uint8_t> copies;  // of these, that follow the first one; empty: none
  CodedSend coded;                   // the parity behind the `count` packets of data
  TailSend tail;

  std::uint32_t total() const { return count + coded.layout.parity_packets(); }
  bool all_sent() const { return next == count && coded.all_sent(); }
  // The packet that may be sent for the first time; kNoPacket: none.
  static constexpr std::uint32_t kNoPacket = UINT32_MAX;
  std::uint32_t next_first() const {
    if (coded.is_due(next, count)) return count + coded.next;
    return next < count && next < limit ? next : kNoPacket;
  }

  // Of SendOrder: the class, and the neighbours in its list.
  std::uint8_t send_class = kNotSending;
  SendMessage *before = nullptr, *behind = nullptr;

  std::uint32_t qp = 0;       // of an operation: its queue pair; 0: none
  std::uint32_t regions = 0;  // of an operation: generation of the memory table for `base`
  OperationHeader operation{};
  Patience patience{};

  std::mutex lock;
  std::uint32_t memory_key = 0;
  std::uint64_t wr_id = 0;
  Time timer_at = kNever;
  Time posted_at = 0;
  Time first_at = 0;
};

struct ReceiveMessage {
  Handle handle = kNoHandle;
  PeerIndex peer = 0;
  std::uint32_t id = 0;
  MessageKey key;
  std::uint8_t* base = nullptr;
  std::uint32_t length = 0;
  std::uint32_t count = 0;
  std::uint32_t received = 0;
  std::uint32_t lacking = 0;  // packets of data
  std::uint32_t highest = 0;  // highest index seen, of the data
  std::uint32_t duplicates = 0;
  bool open = false;      // a packet has arrived: id, length, count and code are known
  std::uint8_t code = 0;  // of the lab's header
  Time last_at = 0;
  Bitmap bitmap;  // of the data, then of the parity
  Gaps gaps;
  CodedReceive coded;
  TailReceive tail;

  std::uint32_t qp = 0, regions = 0;  // as of a SendMessage
  std::uint32_t connection = 0;       // of the operation
  bool holds_last = false;            // as of Place
  bool is_overwritten = false;        // something else was put where it goes
  std::vector<std::uint8_t> held;     // the last packet's payload

  std::uint32_t total() const { return count + coded.layout.parity_packets(); }

  std::mutex lock;
  Time gap_check_at = kNever;  // the timer that is armed for it
  std::uint32_t capacity = 0;  // bytes posted
  std::uint32_t memory_key = 0;
  std::uint64_t wr_id = 0;
  Time timer_at = kNever;
  Time posted_at = 0;
  Time first_at = 0;
};

}  // namespace softroce
