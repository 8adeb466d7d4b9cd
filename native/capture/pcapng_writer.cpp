// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcapng_writer.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace softroce::pcapng {

namespace {

constexpr std::uint32_t kSection = 0x0A0D0D0A, kInterface = 1, kStatistics = 5, kEnhancedPacket = 6;
constexpr std::uint32_t kByteOrder = 0x1A2B3C4D;
constexpr std::uint16_t kEthernet = 1;

constexpr std::uint16_t kEndOfOptions = 0, kComment = 1;
constexpr std::uint16_t kUserApplication = 4;                                    // of a section
constexpr std::uint16_t kIfName = 2, kIfTsResol = 9;                             // of an interface
constexpr std::uint16_t kIsbStart = 2, kIsbEnd = 3, kIsbRecv = 4, kIsbDrop = 5;  // of statistics
constexpr std::uint8_t kNanoseconds = 9;  // if_tsresol: 10**-9 s
constexpr std::size_t kMostOption = 0xFFFF;

template <typename T>
void append(Buffer& to, const T& value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), first, first + sizeof(value));
}

void append_padded(Buffer& to, const void* data, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  to.insert(to.end(), first, first + bytes);
  to.insert(to.end(), -bytes % 4, std::byte{0});
}

void append_option(Buffer& to, std::uint16_t code, const void* value, std::size_t bytes) {
  append(to, code);
  append(to, static_cast<std::uint16_t>(bytes));
  append_padded(to, value, bytes);
}

void append_option(Buffer& to, std::uint16_t code, std::string_view text) {
  append_option(to, code, text.data(), std::min(text.size(), kMostOption));
}

void append_option(Buffer& to, std::uint16_t code, std::uint64_t number) {
  append_option(to, code, &number, sizeof(number));
}

// A timestamp is written as two halves, the higher one first, in either byte order.
std::uint64_t halves(std::uint64_t time_ns) {
  const std::array<std::uint32_t, 2> words{static_cast<std::uint32_t>(time_ns >> 32),
                                           static_cast<std::uint32_t>(time_ns)};
  std::uint64_t together;
  std::memcpy(&together, words.data(), sizeof(together));
  return together;
}

std::uint32_t load(std::span<const std::byte> blocks, std::size_t at) {
  std::uint32_t word;
  std::memcpy(&word, &blocks[at], sizeof(word));
  return word;
}

void end_options(Buffer& to) { append(to, std::uint32_t{kEndOfOptions}); }

// Its length stands at both ends of a block.
class Block {
 public:
  Block(Buffer& to, std::uint32_t kind) : to_(to), begin_(to.size()) {
    append(to_, kind);
    append(to_, std::uint32_t{0});
  }
  ~Block() {
    const auto length = static_cast<std::uint32_t>(to_.size() - begin_ + sizeof(std::uint32_t));
    std::memcpy(&to_[begin_ + sizeof(std::uint32_t)], &length, sizeof(length));
    append(to_, length);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

 private:
  Buffer& to_;
  std::size_t begin_;
};

}  // namespace

void append_section(Buffer& to) {
  const Block block(to, kSection);
  append(to, kByteOrder);
  append(to, std::uint16_t{1});  // version 1.0
  append(to, std::uint16_t{0});
  append(to, ~std::uint64_t{0});  // of any length
  append_option(to, kUserApplication, "softroce_lab");
  end_options(to);
}

void append_interface(Buffer& to, std::string_view name, std::uint32_t snap_bytes) {
  const Block block(to, kInterface);
  append(to, kEthernet);
  append(to, std::uint16_t{0});
  append(to, snap_bytes);
  append_option(to, kIfName, name);
  append_option(to, kIfTsResol, &kNanoseconds, sizeof(kNanoseconds));
  end_options(to);
}

void append_packet(Buffer& to, const PacketHead& head, const std::byte* data,
                   std::string_view comment) {
  const Block block(to, kEnhancedPacket);
  append(to, head.interface);
  append(to, halves(head.time_ns));
  append(to, head.captured);
  append(to, head.length);
  append_padded(to, data, head.captured);
  if (comment.empty()) return;
  append_option(to, kComment, comment);
  end_options(to);
}

void append_statistics(Buffer& to, const Statistics& statistics) {
  const Block block(to, kStatistics);
  append(to, statistics.interface);
  append(to, halves(statistics.end_ns));
  append_option(to, kIsbStart, halves(statistics.begin_ns));
  append_option(to, kIsbEnd, halves(statistics.end_ns));
  append_option(to, kIsbRecv, statistics.received);
  append_option(to, kIsbDrop, statistics.dropped);
  end_options(to);
}

std::size_t whole_blocks(std::span<const std::byte> blocks, std::size_t most) {
  std::size_t whole = 0;
  while (whole < blocks.size()) {
    const auto length = load(blocks, whole + sizeof(std::uint32_t));
    if (whole + length > most) break;
    whole += length;
  }
  return whole;
}

std::vector<std::uint32_t> interfaces_of(std::span<const std::byte> blocks) {
  std::vector<std::uint32_t> found;
  for (std::size_t at = 0; at < blocks.size(); at += load(blocks, at + sizeof(std::uint32_t)))
    if (load(blocks, at) == kEnhancedPacket)
      found.push_back(load(blocks, at + 2 * sizeof(std::uint32_t)));
  return found;
}

}  // namespace softroce::pcapng
