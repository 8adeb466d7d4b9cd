// SPDX-License-Identifier: GPL-2.0-or-later
// What is counted, since the stage began. Every field is a 64-bit number. "roce" counts are of UDP
// datagrams to port 4791.
//
// Of each directed link, always: arrived + duplicated = released + dropped_limit + gone +
// lost_port_down + tx_failed + held + waiting_packets.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace softroce::wire {

// How often each duration occurred, to within a sixteenth: 16 buckets an octave, as HdrHistogram
// has them. softroce_lab/fabric/daemons/wire_layout.py reads it.
struct Histogram {
  static constexpr int kOctaveBits = 4;
  static constexpr std::uint64_t kMost = (1ULL << 40) - 1;  // ns: 18 minutes

  // Below 32 a bucket holds one number.
  static constexpr std::uint32_t bucket_of(std::uint64_t value) {
    value = std::min(value, kMost);
    const int shift = std::max(0, 63 - std::countl_zero(value | 1) - kOctaveBits);
    return static_cast<std::uint32_t>((shift << kOctaveBits) + (value >> shift));
  }
  static constexpr std::uint32_t kBuckets = 592;

  void add(std::uint64_t value) { ++counts[bucket_of(value)]; }

  std::array<std::uint64_t, kBuckets> counts{};
};
static_assert(Histogram::bucket_of(Histogram::kMost) == Histogram::kBuckets - 1);

struct LinkFigures {
  std::uint64_t arrived, arrived_roce;
  std::uint64_t duplicated, duplicated_roce;  // second copies made
  std::uint64_t copies_missed;                // not made, for no frame was free
  std::uint64_t released, released_roce;
  std::uint64_t released_bytes;  // of the released ones, Ethernet headers included
  std::uint64_t dropped_limit, dropped_limit_roce;
  std::uint64_t gone, gone_roce;  // a rule took them, once they had crossed their uplink
  std::uint64_t lost_port_down, lost_port_down_roce;  // the port was down, or is no more
  std::uint64_t tx_failed, tx_failed_roce;  // the kernel took no more: the emulator's loss
  std::uint64_t marked;                     // CE
  std::uint64_t trimmed;
  std::uint64_t reordered;  // chosen ones that really left out of turn
  std::uint64_t overtaken;  // released after one that was sent later (RFC 4737)
  std::uint64_t held;       // on the wire just now
  std::uint64_t waiting_packets, waiting_bytes;            // in the queue just now
  std::uint64_t most_waiting_packets, most_waiting_bytes;  // since the shape was set
  std::uint64_t first_ns, last_ns;  // CLOCK_MONOTONIC of the first and the last release
  std::uint64_t first_bytes;        // of the first release
  std::uint64_t late_most_ns;
  Histogram late;       // ns between the moment that was due and the release
  Histogram residence;  // ns between arrival and release
};

struct PortFigures {
  std::uint64_t received, transmitted;
  std::uint64_t unknown;  // frames for a port that was never opened, or without a header
  std::uint64_t lost_port_down;
  std::uint64_t tx_failed;
  std::uint64_t rx_ring_full, rx_fill_ring_empty, rx_dropped;  // XDP_STATISTICS
  std::uint64_t is_gone;                                       // the interface is no more
};

struct StageFigures {
  std::uint64_t cpu_ns, wall_ns;  // of the thread that moves frames, since it began
  std::uint64_t fifo;             // whether it runs under SCHED_FIFO
  std::uint64_t fifo_errno;       // else why not
  std::uint64_t frames, free_frames, reserved_frames;
  std::uint64_t held;  // frames on links or in queues
  std::uint64_t ports;
  std::uint64_t fair_turns;  // without SCHED_FIFO, for the sake of others
};

}  // namespace softroce::wire
