// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcap.hpp"

#include <algorithm>

namespace softroce::capture {
namespace {

constexpr std::uint32_t kMicroseconds = 0xA1B2C3D4, kNanoseconds = 0xA1B23C4D;
constexpr std::uint32_t kLinkTypeMask = 0xFFFF;  // above it: length of the frame check sequence
constexpr std::size_t kRecordBytes = 16;
constexpr std::uint64_t kPerSecond = 1'000'000'000;

bool is_magic(std::uint32_t word) { return word == kMicroseconds || word == kNanoseconds; }

}  // namespace

std::optional<Pcap> Pcap::open(const std::uint8_t* header, Contents& contents) {
  Order order;
  if (!is_magic(order.u32(header))) order.swapped = true;
  const std::uint32_t magic = order.u32(header);
  if (!is_magic(magic)) return std::nullopt;
  Interface interface;
  interface.link_type = order.u32(header + 20) & kLinkTypeMask;
  interface.snap_length = order.u32(header + 16);
  interface.resolution = 9;
  contents.add_interface(std::move(interface));
  return Pcap(order, magic == kNanoseconds);
}

std::uint64_t Pcap::take(Bytes bytes, std::uint64_t offset, Contents& contents) const {
  if (bytes.size() < kRecordBytes) return kNeedsMore;
  const std::uint32_t captured = order_.u32(bytes.data() + 8);
  if (captured > std::max(kMostFrameBytes, contents.interfaces()[0].snap_length) ||
      captured > kMostBlockBytes) {
    contents.note(NoteKind::nonsense, offset);
    return kStop;
  }
  if (bytes.size() < kRecordBytes + captured) return kNeedsMore;
  const std::uint64_t fraction = order_.u32(bytes.data() + 4);
  Record record;
  record.ticks = order_.u32(bytes.data()) * kPerSecond + fraction * (nanoseconds_ ? 1 : 1000);
  record.captured = captured;
  record.length = order_.u32(bytes.data() + 12);
  record.frame = bytes.data() + kRecordBytes;
  record.offset = offset + kRecordBytes;
  contents.count_packet();
  contents.add_packet(record);
  return kRecordBytes + captured;
}

}  // namespace softroce::capture
