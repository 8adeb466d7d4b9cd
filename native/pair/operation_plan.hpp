// SPDX-License-Identifier: GPL-2.0-or-later
// What a seed of the operation trial means: queue pairs, posts, faults of the cable, and at most
// one planned fault. A plan has sizes and offsets; operation_trial.hpp gives it memory and runs it.
//
// A `flow` is the sequence of operations of one queue pair. Connection c has the flows 2c, which
// side 0 posts, and 2c + 1, which side 1 posts. The flow at the other end of a connection is
// `flow ^ 1`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../engine/units.hpp"
#include "../engine/verbs/completion.hpp"
#include "../engine/verbs/work_request.hpp"

namespace softroce {

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(bits() % bound); }
  std::uint32_t between(std::uint32_t low, std::uint32_t high) {
    return low + below(high - low + 1);
  }
  bool chance(std::uint32_t percent) { return below(100) < percent; }
  template <typename T, std::size_t N>
  T one(const T (&choices)[N]) {
    return choices[below(N)];
  }

 private:
  std::uint64_t state_;
};

// What goes wrong on purpose, and which post or queue pair meets it.
enum class FaultKind : std::uint8_t {
  none,
  bad_key,         // no region has the key at the peer
  out_of_bounds,   // the last byte is outside the region
  no_right,        // the region grants no remote access
  not_granted,     // the peer's queue pair does not grant operations of this kind
  short_receive,   // the receive is one byte shorter than the message
  bad_receive,     // the receive names a key that no region has
  bad_source,      // so does a source of a WRITE or SEND
  bad_result,      // so does the place of a result
  bad_invalidate,  // a SEND invalidates a key that no region has
  no_receive,      // nothing is posted for this operation, nor later
  // At a time:
  region_goes,    // the flow's second region is deregistered at the peer
  end_fails,      // the program moves the queue pair to ERR
  end_resets,     // or to RESET
  end_destroyed,  // or destroys it
  cut,            // the cable is cut, in one direction or both
};
inline constexpr int kFaultKinds = static_cast<int>(FaultKind::cut) + 1;
const char* name_of(FaultKind kind);

struct PlannedFault {
  FaultKind kind = FaultKind::none;
  std::uint32_t number = 0;  // of the post; of kinds that come at a time: not used
  std::uint32_t flow = 0;
  Time at = 0;
  std::uint32_t directions = 0;  // cut: bits, by the side that sends
  std::uint32_t right = 0;       // not_granted: of Access
};

struct Piece {  // of an area of memory
  std::uint32_t offset = 0, bytes = 0;
};

struct PlannedPost {
  std::uint32_t number = 0;  // of all posts of the seed, from 0
  std::uint32_t flow = 0;
  Time at = 0;
  bool with_next = false;  // in one call with the flow's next post, if that is due, too
  WrOpcode opcode = WrOpcode::send;
  std::uint32_t flags = 0;               // SendFlags
  std::uint32_t bytes = 0;               // of the message or the result
  std::vector<Piece> sources{};          // in the pattern of the side that posts
  std::vector<std::uint32_t> results{};  // READ, atomic: lengths of its elements
  std::uint32_t offset = 0;              // in the flow's target
  bool dying_key = false;  // WRITE: by the key that the next SEND of the flow invalidates
  std::optional<std::uint32_t> shared_word{};  // atomic: on this word of the peer's side
  std::uint64_t operand = 0;                   // what to add, or to swap in
  bool compares_equal = false;  // compare-swap: compare with what is expected to be there
  std::uint32_t immediate = 0;
};

struct PlannedFlow {
  // Of the queue pair that posts it:
  std::uint32_t max_send = 8;
  std::uint32_t max_reads = 1;
  bool signal_all = false;
  bool shared_receives = false;
  std::uint8_t rnr_retry = 7;
  std::uint8_t rnr_timer = 1;
  std::uint32_t psn = 0;
  std::uint32_t receive_slots = 4;  // buffers of its receives, which are posted again
  Time receive_delay = 0;           // until a buffer is posted again
  // Of the memory that it operates on, at the peer:
  std::uint32_t split = 0;  // offset where the second region begins; 0: there is one
};

struct PlannedCable {
  Time delay = 0, packet_time = 0, jitter = 0;
  std::uint32_t loss = 0, duplicate = 0, corrupt = 0;  // of 100,000
};

struct PlannedPause {  // the queue pair is in SQD, or the cable is down
  Time from = 0, until = 0;
  std::uint32_t flow = 0;        // SQD
  std::uint32_t directions = 0;  // cable
};

struct OperationPlan {
  std::uint32_t path_mtu = 1024;
  std::uint32_t target_bytes = 0;  // of a flow
  bool ipv6 = false;               // addresses
  bool one_queue = false;          // a completion queue a side
  std::uint8_t timeout = 8;
  std::vector<PlannedFlow> flows{};
  std::vector<PlannedPost> posts{};  // by time
  std::array<PlannedCable, 2> cables{};
  std::optional<PlannedPause> cut{}, drained{};
  std::optional<PlannedPause> late{};  // until then a queue pair is in INIT
  bool old_frames = false;             // frames that were sent before come again
  PlannedFault fault{};

  const PlannedPost* find(std::uint32_t number) const;
};

inline constexpr std::uint32_t kWordBytes = 8;
inline constexpr std::uint32_t kWords = 4;        // of a flow, behind its target
inline constexpr std::uint32_t kSharedWords = 2;  // of a side
inline constexpr std::uint32_t kPatternBytes = 1 << 17;
inline constexpr std::uint32_t kLongestInline = 256;
inline constexpr std::uint32_t kMostElements = 4;

// What can be switched off, so that a violation is found with less: the names are "loss",
// "duplicate", "corrupt", "jitter", "cut", "drained", "late", "old_frames" and "fault".
inline constexpr std::array kDisturbances = {"loss",    "duplicate", "corrupt",    "jitter", "cut",
                                             "drained", "late",      "old_frames", "fault"};

// `most_mtu`: of the ports. std::invalid_argument for a disturbance that has no such name.
OperationPlan draw_operations(std::uint64_t seed, std::uint32_t most_mtu);
void leave_out(OperationPlan& plan, const std::vector<std::uint32_t>& posts,
               const std::vector<std::string>& disturbances);

}  // namespace softroce
