// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <string>

#include "reader.hpp"

namespace softroce::capture {
namespace {

constexpr std::uint32_t kByteOrderMagic = 0x1A2B3C4D;
constexpr std::uint16_t kVersion = 1;
constexpr std::uint32_t kLeastBlockBytes = 12, kLeastSectionBytes = 28;

enum BlockType : std::uint32_t {
  kInterface = 1,
  kObsoletePacket = 2,
  kSimplePacket = 3,
  kNames = 4,
  kStatistics = 5,
  kEnhancedPacket = 6,
  kSecrets = 10,
  kCustom = 0xBAD,
  kCustomToo = 0x40000BAD,
};

enum Option : std::uint16_t {
  kEnd = 0,
  kComment = 1,
  kName = 2,         // of an interface
  kReceived = 4,     // of its statistics
  kDropped = 5,      // of its statistics
  kResolution = 9,   // of an interface
  kTimeOffset = 14,  // of an interface
};

constexpr std::uint64_t padded(std::uint64_t bytes) { return (bytes + 3) & ~std::uint64_t{3}; }

bool is_packet(std::uint32_t type) {
  return type == kEnhancedPacket || type == kSimplePacket || type == kObsoletePacket;
}
bool is_read(std::uint32_t type) {
  return is_packet(type) || type == kInterface || type == kStatistics ||
         type == Pcapng::kSectionHeader;
}
// Well known, and nothing to us.
bool is_silent(std::uint32_t type) {
  return type == kNames || type == kSecrets || type == kCustom || type == kCustomToo;
}

std::string text(Bytes value) { return {value.begin(), value.end()}; }

}  // namespace

std::uint64_t Pcapng::take(Bytes bytes, std::uint64_t offset, Contents& contents) {
  if (bytes.size() < kLeastBlockBytes) return kNeedsMore;
  const bool section = load<std::uint32_t>(bytes.data()) == kSectionHeader;
  if (!section) return take_block(bytes, offset, contents);
  if (bytes.size() < kLeastSectionBytes) return kNeedsMore;
  if (!open_section(bytes.data())) {
    contents.note(NoteKind::bad_section, offset);
    return kStop;
  }
  first_interface_ = contents.interfaces().size();
  return take_block(bytes, offset, contents);
}

bool Pcapng::open_section(const std::uint8_t* block) {
  Order order;
  if (order.u32(block + 8) != kByteOrderMagic) order.swapped = true;
  if (order.u32(block + 8) != kByteOrderMagic || order.u16(block + 12) != kVersion) return false;
  order_ = order;
  return true;
}

std::uint64_t Pcapng::take_block(Bytes bytes, std::uint64_t offset, Contents& contents) {
  const std::uint32_t type = order_.u32(bytes.data());
  const std::uint32_t length = order_.u32(bytes.data() + 4);
  if (length < kLeastBlockBytes || length % 4 != 0) {
    contents.note(NoteKind::nonsense, offset);
    return kStop;
  }
  if (!is_read(type)) {
    if (!is_silent(type)) contents.note(NoteKind::unknown_block, offset);
    return length;
  }
  if (length > kMostBlockBytes) {
    if (is_packet(type)) contents.count_packet();
    contents.note(NoteKind::oversized, offset);
    return length;
  }
  if (bytes.size() < length) return kNeedsMore;
  if (is_packet(type)) contents.count_packet();
  const Block block{bytes.data() + 8, length - kLeastBlockBytes, offset + 8};
  const bool closed = order_.u32(bytes.data() + length - 4) == length;
  if (!closed || !read(type, block, contents)) contents.note(NoteKind::bad_block, offset);
  return length;
}

// False: the block contradicts itself.
bool Pcapng::read(std::uint32_t type, const Block& block, Contents& contents) {
  switch (type) {
    case kInterface:
      return read_interface(block, contents);
    case kStatistics:
      return read_statistics(block, contents);
    case kSimplePacket:
      return read_simple(block, contents);
    case kEnhancedPacket:
      return block.bytes >= 20 && read_enhanced(block, order_.u32(block.body), contents);
    case kObsoletePacket:  // its fields have the same places
      return block.bytes >= 20 && read_enhanced(block, order_.u16(block.body), contents);
    default:
      return true;
  }
}

template <typename F>
void Pcapng::each_option(Bytes options, F&& option) const {
  while (options.size() >= 4) {
    const std::uint16_t code = order_.u16(options.data());
    const std::uint16_t bytes = order_.u16(options.data() + 2);
    if (code == kEnd || options.size() - 4 < bytes) return;
    option(code, options.subspan(4, bytes));
    options = options.subspan(std::min<std::uint64_t>(options.size(), 4 + padded(bytes)));
  }
}

bool Pcapng::read_interface(const Block& block, Contents& contents) const {
  Interface interface;
  if (block.bytes < 8) return false;
  interface.link_type = order_.u16(block.body);
  interface.snap_length = order_.u32(block.body + 4);
  each_option({block.body + 8, block.bytes - 8}, [&](std::uint16_t code, Bytes value) {
    if (code == kName) interface.name = text(value);
    if (code == kResolution && value.size() == 1) interface.resolution = value[0];
    if (code == kTimeOffset && value.size() == 8)
      interface.offset_s = static_cast<std::int64_t>(order_.u64(value.data()));
  });
  contents.add_interface(std::move(interface));
  return true;
}

Interface* Pcapng::find(std::uint32_t interface, Contents& contents) const {
  std::vector<Interface>& all = contents.interfaces();
  return interface < all.size() - first_interface_ ? &all[first_interface_ + interface] : nullptr;
}

bool Pcapng::read_statistics(const Block& block, Contents& contents) const {
  if (block.bytes < 12) return false;
  Interface* interface = find(order_.u32(block.body), contents);
  if (interface == nullptr) return false;
  each_option({block.body + 12, block.bytes - 12}, [&](std::uint16_t code, Bytes value) {
    if (value.size() != 8) return;
    if (code == kReceived) interface->received = order_.u64(value.data());
    if (code == kDropped) interface->dropped = order_.u64(value.data());
  });
  return true;
}

void Pcapng::add_comments(Bytes options, Record& record, Contents& contents) const {
  std::string comment;
  each_option(options, [&](std::uint16_t code, Bytes value) {
    if (code != kComment) return;
    if (!comment.empty()) comment.push_back('\n');
    comment.append(value.begin(), value.end());
  });
  if (!comment.empty()) record.comment = contents.add_comment(comment);
}

bool Pcapng::read_enhanced(const Block& block, std::uint32_t interface, Contents& contents) const {
  Record record;
  record.captured = order_.u32(block.body + 12);
  if (padded(record.captured) > block.bytes - 20) return false;
  if (find(interface, contents) == nullptr) {
    contents.note(NoteKind::no_interface, block.offset);
    return true;
  }
  record.interface = static_cast<std::uint32_t>(first_interface_) + interface;
  record.ticks = std::uint64_t{order_.u32(block.body + 4)} << 32 | order_.u32(block.body + 8);
  record.length = order_.u32(block.body + 16);
  record.frame = block.body + 20;
  record.offset = block.offset + 20;
  const std::uint64_t options = 20 + padded(record.captured);
  add_comments({block.body + options, block.bytes - options}, record, contents);
  contents.add_packet(record);
  return true;
}

// Of the section's first interface, and captured up to its snap length.
bool Pcapng::read_simple(const Block& block, Contents& contents) const {
  if (block.bytes < 4) return false;
  const Interface* interface = find(0, contents);
  if (interface == nullptr) {
    contents.note(NoteKind::no_interface, block.offset);
    return true;
  }
  Record record;
  record.interface = static_cast<std::uint32_t>(first_interface_);
  record.length = order_.u32(block.body);
  record.captured = std::min(record.length, block.bytes - 4);
  if (interface->snap_length != 0)
    record.captured = std::min(record.captured, interface->snap_length);
  record.frame = block.body + 4;
  record.offset = block.offset + 4;
  contents.add_packet(record);
  return true;
}

}  // namespace softroce::capture
