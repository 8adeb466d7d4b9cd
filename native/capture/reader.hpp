// SPDX-License-Identifier: GPL-2.0-or-later
// Reads a capture that is fed to it piece by piece. Whatever it is fed, it stops where it must,
// skips what it can, and reports that in notes; it holds the rows and at most one block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "../engine/codec/bytes.hpp"
#include "contents.hpp"

namespace softroce::capture {

using Bytes = std::span<const std::uint8_t>;

// What a format's `take` returns: bytes to go past, which may be more than it was given, or one of
// these.
inline constexpr std::uint64_t kNeedsMore = 0;
inline constexpr std::uint64_t kStop = UINT64_MAX;  // nothing behind this can be read

// Longer ones are not held in memory.
inline constexpr std::uint32_t kMostBlockBytes = 16 << 20;
inline constexpr std::uint32_t kMostFrameBytes = 256 << 10;  // as Wireshark has it

// The byte order of whoever wrote the file.
struct Order {
  bool swapped = false;
  std::uint16_t u16(const std::uint8_t* at) const {
    return swapped ? load16(at) : load<std::uint16_t>(at);
  }
  std::uint32_t u32(const std::uint8_t* at) const {
    return swapped ? load32(at) : load<std::uint32_t>(at);
  }
  std::uint64_t u64(const std::uint8_t* at) const {
    return swapped ? load64(at) : load<std::uint64_t>(at);
  }
};

// The file format of libpcap (draft-ietf-opsawg-pcap).
class Pcap {
 public:
  static constexpr std::size_t kHeaderBytes = 24;

  // `header` has that many bytes. Nothing: it is none.
  static std::optional<Pcap> open(const std::uint8_t* header, Contents& contents);

  // The record at the head of `bytes`, which are the file's from `offset` on.
  std::uint64_t take(Bytes bytes, std::uint64_t offset, Contents& contents) const;

 private:
  Pcap(Order order, bool nanoseconds) : order_(order), nanoseconds_(nanoseconds) {}

  Order order_;
  bool nanoseconds_;
};

// The file format pcapng (draft-ietf-opsawg-pcapng).
class Pcapng {
 public:
  static constexpr std::uint32_t kSectionHeader = 0x0A0D0D0A;  // the same in both byte orders

  // The block at the head of `bytes`, which are the file's from `offset` on.
  std::uint64_t take(Bytes bytes, std::uint64_t offset, Contents& contents);

 private:
  struct Block {
    const std::uint8_t* body;
    std::uint32_t bytes;
    std::uint64_t offset;  // of the body in the file
  };

  std::uint64_t take_block(Bytes bytes, std::uint64_t offset, Contents& contents);
  bool open_section(const std::uint8_t* block);
  bool read(std::uint32_t type, const Block& block, Contents& contents);
  bool read_interface(const Block& block, Contents& contents) const;
  bool read_statistics(const Block& block, Contents& contents) const;
  bool read_enhanced(const Block& block, std::uint32_t interface, Contents& contents) const;
  bool read_simple(const Block& block, Contents& contents) const;
  void add_comments(Bytes options, Record& record, Contents& contents) const;
  Interface* find(std::uint32_t interface, Contents& contents) const;
  template <typename F>
  void each_option(Bytes options, F&& option) const;

  Order order_;
  std::size_t first_interface_ = 0;  // of the section, in Contents
};

class Reader {
 public:
  void feed(Bytes bytes);
  // The file has no more.
  void finish();

  // Why the file is no capture at all, if it is none.
  const char* refusal() const { return refusal_; }
  // Nothing of what is still fed will be read.
  bool stopped() const { return stopped_; }
  Contents& contents() { return contents_; }

 private:
  std::size_t take(Bytes bytes);
  std::uint64_t take_one(Bytes bytes);

  std::variant<std::monostate, Pcap, Pcapng> format_;
  Contents contents_;
  const char* refusal_ = nullptr;
  bool stopped_ = false;
  std::uint64_t offset_ = 0;        // in the file, of the first byte that was not taken
  std::uint64_t skip_ = 0;          // bytes of the file to go past
  std::vector<std::uint8_t> rest_;  // fed and not taken: the beginning of a record
};

}  // namespace softroce::capture
