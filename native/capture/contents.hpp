// SPDX-License-Identifier: GPL-2.0-or-later
// What a capture holds: rows, interfaces, comments and notes.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "notes.hpp"
#include "row.hpp"

namespace softroce::capture {

// Grows in place where the system can move pages: half of a vector's peak.
class Rows {
 public:
  Rows() = default;
  Rows(Rows&& other) noexcept
      : rows_(std::exchange(other.rows_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        room_(std::exchange(other.room_, 0)) {}
  Rows& operator=(Rows&&) = delete;
  ~Rows() { std::free(rows_); }

  // Zeroes.
  PacketRow& add() {
    if (size_ == room_) grow();
    return rows_[size_++] = PacketRow{};
  }
  PacketRow* data() { return rows_; }
  const PacketRow& operator[](std::size_t index) const { return rows_[index]; }
  std::size_t size() const { return size_; }

 private:
  void grow() {
    const std::size_t room = room_ + room_ / 2 + 4096;
    void* moved = std::realloc(rows_, room * sizeof(PacketRow));
    if (moved == nullptr) throw std::bad_alloc();
    rows_ = static_cast<PacketRow*>(moved);
    room_ = room;
  }

  PacketRow* rows_ = nullptr;
  std::size_t size_ = 0, room_ = 0;
};

struct Interface {
  std::optional<std::string> name;
  std::uint32_t link_type = 0;
  std::uint32_t snap_length = 0;          // 0: unlimited
  std::optional<std::uint64_t> received;  // by its statistics: by the interface,
  std::optional<std::uint64_t> dropped;   // and not captured for lack of room
  std::uint8_t resolution = 6;            // of its stamps: if_tsresol
  std::int64_t offset_s = 0;              // added to its stamps: if_tsoffset
  std::uint64_t last_ns = 0;              // stamp of its last packet
};

// A packet as a file format describes it.
struct Record {
  std::uint32_t interface = 0;         // index in Contents
  std::optional<std::uint64_t> ticks;  // of the interface's resolution
  std::uint32_t captured = 0;
  std::uint32_t length = 0;
  const std::uint8_t* frame = nullptr;
  std::uint64_t offset = 0;
  std::int32_t comment = kNoComment;
};

class Contents {
 public:
  void add_interface(Interface interface) { interfaces_.push_back(std::move(interface)); }
  std::int32_t add_comment(std::string_view text);
  // Every packet of the file has a number, also one that has no row.
  void count_packet() { ++packets_; }
  void add_packet(const Record& record);
  void note(NoteKind kind, std::uint64_t offset) { notes_.add(kind, packets_, offset); }

  Rows& rows() { return rows_; }
  std::vector<Interface>& interfaces() { return interfaces_; }
  const std::vector<std::string>& comments() const { return comments_; }
  const Notes& notes() const { return notes_; }

 private:
  void stamp(const Record& record, PacketRow& row);

  Rows rows_;
  std::vector<Interface> interfaces_;
  std::vector<std::string> comments_;
  std::unordered_map<std::string, std::int32_t> comment_index_;
  Notes notes_;
  std::uint32_t packets_ = 0;
};

// Nanoseconds of so many ticks; nothing if they do not fit.
std::optional<std::uint64_t> nanoseconds(std::uint64_t ticks, std::uint8_t resolution,
                                         std::int64_t offset_s);

// Reasons of `Kind::malformed`, by `PacketRow::refusal`.
inline constexpr std::array kRefusals = {
    "lengths that contradict each other",
    "no such opcode or transport version",
    "a payload that the opcode does not have, or that is not whole words",
};

// Fills in the fields of the frame. `row` has the fields of the file: number, captured, length and
// offset among them; `frame` are its `captured` bytes.
void read_frame(const std::uint8_t* frame, std::uint32_t link_type, PacketRow& row, Notes& notes);

}  // namespace softroce::capture
