// SPDX-License-Identifier: GPL-2.0-or-later
#include "reader.hpp"

#include <algorithm>

namespace softroce::capture {
namespace {

constexpr std::uint32_t kMicroseconds = 0xA1B2C3D4, kNanoseconds = 0xA1B23C4D;
constexpr std::uint32_t kLinkTypeMask = 0xFFFF;  // above it: length of the frame check sequence
constexpr std::size_t kRecordBytes = 16;
constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

bool is_magic(std::uint32_t word) { return word == kMicroseconds || word == kNanoseconds; }

constexpr const char* kNoCapture = "is neither a pcap nor a pcapng file";
constexpr const char* kNoHeader = "ends before the header of a capture";
constexpr const char* kNoSection = "is a pcapng file of unknown version or byte order";

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
  record.ticks = order_.u32(bytes.data()) * kNsPerSecond + fraction * (nanoseconds_ ? 1 : 1000);
  record.captured = captured;
  record.length = order_.u32(bytes.data() + 12);
  record.frame = bytes.data() + kRecordBytes;
  record.offset = offset + kRecordBytes;
  contents.count_packet();
  contents.add_packet(record);
  return kRecordBytes + captured;
}

void Reader::feed(Bytes bytes) {
  if (stopped_) return;
  const auto skipped = std::min<std::uint64_t>(skip_, bytes.size());
  skip_ -= skipped;
  offset_ += skipped;
  bytes = bytes.subspan(skipped);
  if (rest_.empty()) {
    const std::size_t taken = take(bytes);
    rest_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(taken), bytes.end());
  } else {
    rest_.insert(rest_.end(), bytes.begin(), bytes.end());
    const std::size_t taken = take(rest_);
    rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(taken));
  }
}

// Takes whole records; returns their bytes.
std::size_t Reader::take(Bytes bytes) {
  std::size_t taken = 0;
  while (!stopped_) {
    const std::uint64_t step = take_one(bytes.subspan(taken));
    if (step == kStop) stopped_ = true;
    if (step == kStop || step == kNeedsMore) break;
    const auto here = std::min<std::uint64_t>(step, bytes.size() - taken);
    taken += here;
    offset_ += here;
    skip_ = step - here;
  }
  return stopped_ ? bytes.size() : taken;
}

std::uint64_t Reader::take_one(Bytes bytes) {
  if (auto* pcap = std::get_if<Pcap>(&format_)) return pcap->take(bytes, offset_, contents_);
  if (auto* pcapng = std::get_if<Pcapng>(&format_)) return pcapng->take(bytes, offset_, contents_);
  if (bytes.size() < Pcap::kHeaderBytes) return kNeedsMore;
  if (load<std::uint32_t>(bytes.data()) == Pcapng::kSectionHeader) {
    format_ = Pcapng();
    return take_one(bytes);
  }
  const auto pcap = Pcap::open(bytes.data(), contents_);
  if (!pcap) {
    refusal_ = kNoCapture;
    return kStop;
  }
  format_ = *pcap;
  return Pcap::kHeaderBytes;
}

void Reader::finish() {
  if (std::holds_alternative<std::monostate>(format_) && !stopped_) refusal_ = kNoHeader;
  const Note& bad_section = contents_.notes()[NoteKind::bad_section];
  if (bad_section.count != 0 && bad_section.offset == 0) refusal_ = kNoSection;
  if (!rest_.empty() || skip_ != 0) contents_.note(NoteKind::truncated, offset_);
}

}  // namespace softroce::capture
