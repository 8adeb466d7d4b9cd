// SPDX-License-Identifier: GPL-2.0-or-later
// The NACK: what a receiver has received of a peer's messages, and on each path. It is cumulative,
// so a lost or repeated NACK does no harm. Only the list of trimmed packets is not cumulative.
//
//   offset  field
//        0  type u8
//        1  count of trimmed packets u6, flags u2
//        2  probe u16
//        4  end u32
//        8  settled number u32, for each of 16 paths
//       72  { path u8, number u24 }, for each trimmed packet
//           words { id u32, base u32, bits u64 }
//
// All fields are big-endian.
//
// - trimmed packets: those that arrived since the last NACK.
// - probe: the lower 16 bits of the sequence number of the newest path probe that has arrived. With
//   the flag kNackProbe, this NACK answers that probe.
// - end: messages with this id or a larger one have not begun.
// - words: bit i is set if packet base + i of message id is missing. If no bit is set, no packet
//   from `base` on has arrived. A message below `end` that has not begun has only such a word. A
//   message below `end` without a word is over.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "paths.hpp"
#include "report.hpp"

namespace softroce {

enum NackFlag : std::uint8_t {
  kNackProbe = 1,  // a path probe showed the loss
  kNackTimer = 2,  // a loss check by a timer, or a status that was asked for
};

struct NackWord {
  std::uint32_t id = 0;
  std::uint32_t base = 0;
  std::uint64_t bits = 0;
};

struct Nack {
  static constexpr std::uint8_t kType = 1;
  static constexpr std::uint32_t kFirstSequence = 1U << 31;  // other control messages begin at 0
  static constexpr std::uint32_t kFixedBytes = 8 + 4 * kMaxPaths, kWordBytes = 16;
  static constexpr std::uint32_t kMostTrimmed = 63, kTrimmedBytes = 4;
  static constexpr int kFlagBits = 2;

  std::uint8_t flags = 0;
  std::uint16_t probe = 0;
  std::uint32_t end = 0;
  std::array<std::uint32_t, kMaxPaths> settled{};
  std::vector<PathNumber> trimmed;
  std::vector<NackWord> words;  // the words of a message are adjacent

  bool has(NackFlag flag) const { return (flags & flag) != 0; }
  std::size_t bytes_before_words() const { return kFixedBytes + kTrimmedBytes * trimmed.size(); }
  bool has_trimmed(const PathNumber& packet) const {
    return std::ranges::find(trimmed, packet) != trimmed.end();
  }
};

inline void write_nack(const Nack& nack, std::vector<std::uint8_t>& out) {
  using namespace report_detail;
  out.resize(nack.bytes_before_words() + Nack::kWordBytes * nack.words.size());
  out[0] = Nack::kType;
  out[1] = static_cast<std::uint8_t>(nack.trimmed.size() << Nack::kFlagBits | nack.flags);
  out[2] = static_cast<std::uint8_t>(nack.probe >> 8);
  out[3] = static_cast<std::uint8_t>(nack.probe);
  put32(&out[4], nack.end);
  for (std::uint32_t p = 0; p < kMaxPaths; ++p) put32(&out[8 + 4 * p], nack.settled[p]);
  std::uint32_t at = Nack::kFixedBytes;
  for (const PathNumber& each : nack.trimmed) {
    put32(&out[at], each.word());
    at += Nack::kTrimmedBytes;
  }
  for (const NackWord& each : nack.words) {
    put32(&out[at], each.id);
    put32(&out[at + 4], each.base);
    put64(&out[at + 8], each.bits);
    at += Nack::kWordBytes;
  }
}

// False: `body` is not a valid NACK.
inline bool read_nack(const std::uint8_t* body, std::uint32_t bytes, Nack& nack) {
  using namespace report_detail;
  if (bytes < Nack::kFixedBytes || body[0] != Nack::kType) return false;
  const std::uint32_t trimmed = body[1] >> Nack::kFlagBits;
  const std::uint32_t words_at = Nack::kFixedBytes + Nack::kTrimmedBytes * trimmed;
  if (bytes < words_at || (bytes - words_at) % Nack::kWordBytes != 0) return false;
  nack.flags = body[1] & ((1 << Nack::kFlagBits) - 1);
  nack.probe = static_cast<std::uint16_t>(body[2] << 8 | body[3]);
  nack.end = get32(body + 4);
  for (std::uint32_t p = 0; p < kMaxPaths; ++p)
    nack.settled[p] = get32(body + 8 + 4 * p) & LAB_NUMBER_MASK;
  nack.trimmed.clear();
  for (std::uint32_t at = Nack::kFixedBytes; at < words_at; at += Nack::kTrimmedBytes)
    nack.trimmed.push_back(PathNumber::of_word(get32(body + at)));
  nack.words.clear();
  for (std::uint32_t at = words_at; at < bytes; at += Nack::kWordBytes)
    nack.words.push_back({get32(body + at), get32(body + at + 4), get64(body + at + 8)});
  return true;
}

}  // namespace softroce
