// SPDX-License-Identifier: GPL-2.0-or-later
#include "packet_set.hpp"

#include <algorithm>
#include <cstring>

#include "../engine/codec/bytes.hpp"

namespace softroce {
namespace {

constexpr std::uint8_t kPlain = 0, kRuns = 1;
constexpr std::size_t kHeadBytes = 9;  // form, base, number of packets
constexpr int kMostShift = 28;         // of a run length

using Bits = std::span<const std::uint8_t>;

std::size_t leb128(std::uint32_t value, std::uint8_t* out) {
  std::size_t bytes = 0;
  for (; value > 0x7F; value >>= 7) out[bytes++] = static_cast<std::uint8_t>(value | 0x80);
  out[bytes++] = static_cast<std::uint8_t>(value);
  return bytes;
}

// Run lengths of as many bits as fit into `room` bytes; returns how many bits that is.
std::size_t write_runs(Bits bits, std::size_t room, std::vector<std::uint8_t>& out) {
  if (!bits.empty() && !bits[0]) out.push_back(0);
  std::size_t covered = 0;
  for (std::size_t end = 0; covered < bits.size(); covered = end) {
    for (end = covered + 1; end < bits.size() && bits[end] == bits[covered];) ++end;
    std::uint8_t code[5];
    const std::size_t bytes = leb128(static_cast<std::uint32_t>(end - covered), code);
    if (out.size() + bytes > room) break;
    out.insert(out.end(), code, code + bytes);
  }
  return covered;
}

bool read_runs(std::span<const std::uint8_t> data, std::vector<std::uint8_t>& bits) {
  std::size_t at = 0;
  std::uint64_t value = 0;
  int shift = 0;
  std::uint8_t missing = 1;
  for (const std::uint8_t byte : data) {
    value |= std::uint64_t{byte & 0x7FU} << shift;
    shift += 7;
    if (byte & 0x80) {
      if (shift > kMostShift) return false;
      continue;
    }
    if (value > bits.size() - at) return false;
    std::fill_n(bits.begin() + static_cast<std::ptrdiff_t>(at), value, missing);
    at += value;
    value = 0;
    shift = 0;
    missing ^= 1;
  }
  return at == bits.size() && shift == 0;
}

}  // namespace

std::uint32_t PacketSet::missing() const {
  return static_cast<std::uint32_t>(std::ranges::count(bits_, 1));
}

void write(const PacketSet& set, std::size_t most_bytes, std::vector<std::uint8_t>& out) {
  const std::size_t room = most_bytes - kHeadBytes;
  const Bits bits(set.bits_.data(), std::min<std::size_t>(set.bits_.size(), PacketSet::kMostBits));
  const std::size_t plain_bits = std::min(bits.size(), room * 8);
  const std::size_t plain_bytes = (plain_bits + 7) / 8;
  std::vector<std::uint8_t> runs;
  const std::size_t run_bits = write_runs(bits, std::min(room, plain_bytes), runs);
  const bool plain = run_bits < plain_bits;
  const std::size_t head = out.size();
  out.resize(head + kHeadBytes);
  out[head] = plain ? kPlain : kRuns;
  store32(&out[head + 1], set.base_);
  store32(&out[head + 5], static_cast<std::uint32_t>(plain ? plain_bits : run_bits));
  if (!plain) {
    out.insert(out.end(), runs.begin(), runs.end());
    return;
  }
  const std::size_t body = out.size();
  out.resize(body + plain_bytes);
  for (std::size_t bit = 0; bit < plain_bits; ++bit)
    out[body + bit / 8] |= static_cast<std::uint8_t>(bits[bit] << (bit % 8));
}

std::optional<PacketSet> read_packet_set(std::span<const std::uint8_t> data) {
  if (data.size() < kHeadBytes) return std::nullopt;
  const std::uint8_t form = data[0];
  const std::uint32_t count = load32(&data[5]);
  const auto body = data.subspan(kHeadBytes);
  if (form != kPlain && form != kRuns) return std::nullopt;
  if (form == kPlain && body.size() != (std::uint64_t{count} + 7) / 8) return std::nullopt;
  if (form == kRuns && count > PacketSet::kMostBits) return std::nullopt;
  PacketSet set(load32(&data[1]), count);
  if (form == kRuns) {
    if (!read_runs(body, set.bits_)) return std::nullopt;
    return set;
  }
  for (std::size_t bit = 0; bit < count; ++bit) set.bits_[bit] = body[bit / 8] >> (bit % 8) & 1;
  return set;
}

}  // namespace softroce
