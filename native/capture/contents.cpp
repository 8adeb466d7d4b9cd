// SPDX-License-Identifier: GPL-2.0-or-later
#include "contents.hpp"

#include <algorithm>

namespace softroce::capture {
namespace {

using Wide = __int128;

constexpr std::uint8_t kNanoseconds = 9;
constexpr Wide kPerSecond = 1'000'000'000;

Wide decimal(Wide ticks, unsigned digits) {
  for (; digits < kNanoseconds; ++digits) ticks *= 10;
  for (; digits > kNanoseconds && ticks != 0; --digits) ticks /= 10;
  return ticks;
}

Wide binary(Wide ticks, unsigned bits) { return ticks * kPerSecond >> bits; }

}  // namespace

std::optional<std::uint64_t> nanoseconds(std::uint64_t ticks, std::uint8_t resolution,
                                         std::int64_t offset_s) {
  if (resolution == kNanoseconds && offset_s == 0) return ticks;
  const unsigned exponent = resolution & 0x7F;  // of 2 if the highest bit is set, else of 10
  const Wide sum = (resolution & 0x80 ? binary(ticks, exponent) : decimal(ticks, exponent)) +
                   offset_s * kPerSecond;
  if (sum < 0 || sum > Wide{UINT64_MAX}) return std::nullopt;
  return static_cast<std::uint64_t>(sum);
}

std::int32_t Contents::add_comment(std::string_view text) {
  const auto next = static_cast<std::int32_t>(comments_.size());
  const auto [found, is_new] = comment_index_.try_emplace(std::string(text), next);
  if (is_new) comments_.emplace_back(text);
  return found->second;
}

void Contents::stamp(const Record& record, PacketRow& row) {
  if (!record.ticks) return note(NoteKind::no_time, record.offset);
  Interface& interface = interfaces_[record.interface];
  const auto time = nanoseconds(*record.ticks, interface.resolution, interface.offset_s);
  if (!time) return note(NoteKind::bad_time, record.offset);
  if (*time < interface.last_ns) note(NoteKind::backwards, record.offset);
  interface.last_ns = row.time_ns = *time;
  row.has |= kHasStamp;
}

void Contents::add_packet(const Record& record) {
  PacketRow& row = rows_.add();
  row.offset = record.offset;
  row.number = packets_;
  row.interface = record.interface;
  row.captured = record.captured;
  row.length = std::max(record.length, record.captured);
  row.comment = record.comment;
  if (record.length < record.captured) note(NoteKind::longer, record.offset);
  stamp(record, row);
  read_frame(record.frame, interfaces_[record.interface].link_type, row, notes_);
}

}  // namespace softroce::capture
