// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../capture/pcapng_writer.hpp"
#include "lab_records.h"
#include "output.hpp"
#include "rule_texts.hpp"
#include "tap_map.hpp"

namespace softroce::monitor {

// What one capture takes of one directed link.
struct Interface {
  std::uint32_t link;
  std::string name;
  std::uint64_t taken = 0;          // packets that are in the capture
  std::uint64_t missed = 0;         // that found no room in it
  std::uint64_t missed_before = 0;  // that the link had missed when the capture began
};

// One capture: packets of some directed links, written as pcapng.
class Sink {
 public:
  // `snap_bytes` of each packet, 0: all. It is over after `most_packets`, unless that is 0.
  // Throws std::system_error.
  Sink(Descriptor file, std::vector<Interface> interfaces, std::uint32_t snap_bytes,
       std::uint64_t most_packets, const TapMap& taps);

  const std::vector<Interface>& interfaces() const { return interfaces_; }
  std::uint32_t snap_bytes() const { return snap_bytes_; }

  void take(std::uint32_t interface, const lab_capture& head, const std::byte* data,
            RuleTexts& rules);
  // Writes what can be written now.
  void flush(const TapMap& taps) noexcept;
  // Takes no more packets, and writes their number to the file.
  void finish(const TapMap& taps);

  // Whether it took as many packets as it was to, or its file takes no more.
  bool is_over() const { return error_ != 0 || (most_packets_ != 0 && packets_ >= most_packets_); }
  // Whether something waits for a reader.
  bool is_waiting() const { return error_ == 0 && !output_.is_empty(); }
  // Why its file takes no more; 0: it does.
  int error() const { return error_; }
  std::uint64_t missed(const Interface& of, const TapMap& taps) const;

 private:
  void append_statistics(pcapng::Buffer& to, const TapMap& taps) const;
  void fail(const TapMap& taps) noexcept;

  Output output_;
  std::vector<Interface> interfaces_;
  std::uint32_t snap_bytes_;
  std::uint64_t most_packets_;
  std::uint64_t packets_ = 0;
  std::uint64_t wall_offset_ns_;  // CLOCK_REALTIME less CLOCK_MONOTONIC
  std::uint64_t begin_ns_;        // CLOCK_REALTIME
  bool finished_ = false;
  int error_ = 0;
};

}  // namespace softroce::monitor
