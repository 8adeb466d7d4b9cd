// SPDX-License-Identifier: GPL-2.0-or-later
#include "reader.hpp"

#include <algorithm>

namespace softroce::capture {
namespace {

constexpr const char* kNoCapture = "is neither a pcap nor a pcapng file";
constexpr const char* kNoHeader = "ends before the header of a capture";
constexpr const char* kNoSection = "is a pcapng file of unknown version or byte order";

}  // namespace

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
