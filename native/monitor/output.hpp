// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <span>

#include "../capture/pcapng_writer.hpp"
#include "descriptor.hpp"

namespace softroce::monitor {

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

}  // namespace softroce::monitor
