// SPDX-License-Identifier: GPL-2.0-or-later
// One capture, and what it needs: where it goes, and the texts of rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "../capture/pcapng_writer.hpp"
#include "../system/mapped_map.hpp"
#include "lab_maps.h"
#include "lab_records.h"

namespace softroce::monitor {

// The pinned map of struct lab_tap: what is captured on each directed link.
class TapMap : public MappedMap<lab_tap> {
 public:
  explicit TapMap(const std::string& pin) : MappedMap(pin) {
    for (std::uint32_t link = 0; link < count(); ++link) set_snap(link, 0);  // a predecessor's
  }
  void set_snap(std::uint32_t link, std::uint32_t snap_bytes) {
    __atomic_store_n(&(*this)[link].snap, snap_bytes, __ATOMIC_RELAXED);
  }
  std::uint64_t missed(std::uint32_t link) const {
    return __atomic_load_n(&(*this)[link].missed, __ATOMIC_RELAXED);
  }
};

// Texts of rules by their ids, from an append-only file: an id is never reused as long as the lab
// exists (softroce_lab/fabric/faults.py). It is read again when an id is unknown, for faults change
// while captures run.
class RuleTexts {
 public:
  explicit RuleTexts(std::string path) : path_(std::move(path)) {}

  // `bad`: of what a gemodel does in its bad state.
  std::string of(std::uint32_t rule_id, bool bad);

 private:
  struct Texts {
    std::uint32_t last;  // id, of those with these texts
    std::string text, bad;
  };

  const Texts* find(std::uint32_t rule_id) const;
  void read_on();
  void learn(const std::string& line);

  std::string path_;
  std::uintmax_t read_ = 0;               // bytes of the file
  std::map<std::uint32_t, Texts> known_;  // by the first id
};

// Where a capture goes: a file, or a pipe whose reader may be slow, and is never waited for.
class Output {
 public:
  // What may wait for the reader of a pipe.
  static constexpr std::size_t kMostPending = 4 << 20;

  // What a pipe is made to hold, for it is filled once in some milliseconds. The most that Linux
  // gives users by default (pipe(7), /proc/sys/fs/pipe-max-size).
  static constexpr int kPipeBytes = 1 << 20;

  // Throws std::system_error if `fd` cannot be written to.
  explicit Output(Descriptor fd);

  // Blocks that are appended to it go out with the next flush.
  pcapng::Buffer& pending() { return pending_; }
  bool is_empty() const { return pending_.empty(); }
  bool has_room() const { return is_file_ || pending_.size() < kMostPending; }
  // Writes what can be written now. 0, or the errno of what ends this output.
  int flush() noexcept;
  // After a flush that failed: the blocks that do not stay, of those that were pending. The others
  // were written whole, and leave `room_bytes` of what the file system gave for `end_with`.
  std::span<const std::byte> cut(std::size_t room_bytes) noexcept;
  // Puts `last` behind the blocks that stay, and nothing behind it.
  void end_with(const pcapng::Buffer& last) noexcept;

 private:
  Descriptor fd_;
  bool is_file_;
  std::size_t written_ = 0;  // of pending_; a pipe may have taken a part of the first block
  std::size_t staying_ = 0;  // after a cut
  pcapng::Buffer pending_;   // begins with a block
};

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
  void give_up(const TapMap& taps) noexcept;

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
