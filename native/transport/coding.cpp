// SPDX-License-Identifier: GPL-2.0-or-later
#include "coding.hpp"

#include <algorithm>
#include <memory>

#include "../engine/mutant.hpp"

namespace softroce {
namespace {

bool fits(const ErasureCode& code, const CodeLayout::Submessage& part) {
  return code.data_chunks() == part.data_chunks && code.parity_chunks() == part.parity_chunks;
}

Presence presence(const ReceiveMessage& message, const CodeLayout::Submessage& part) {
  const CodeLayout& layout = message.coded.layout;
  const auto all_there = [&](std::uint32_t first, std::uint32_t packets, std::uint32_t end) {
    for (std::uint32_t i = first; i < std::min(first + packets, end); ++i)
      if (!(relaxed_load(message.bitmap.words()[i / 64]) >> (i % 64) & 1)) return false;
    return true;
  };
  Presence present;
  for (std::uint32_t i = 0; i < part.data_chunks; ++i)
    present.push_back(all_there((part.first_chunk + i) * layout.chunk_packets(),
                                layout.chunk_packets(), message.count));
  for (std::uint32_t i = 0; i < part.parity_chunks; ++i)
    present.push_back(all_there(message.count + part.first_parity + i * part.chunk_packets,
                                part.chunk_packets, message.count + layout.parity_packets()));
  return present;
}

}  // namespace

std::optional<Coding> Coding::encode(SendMessage& message, std::uint32_t submessage,
                                     const ErasureCode& code) {
  CodedSend& coded = message.coded;
  if (!coded.open || submessage >= coded.layout.submessages()) return std::nullopt;
  const CodeLayout::Submessage part = coded.layout.submessage(submessage);
  if (!fits(code, part)) return std::nullopt;
  Coding work;
  if (message.base == nullptr) return work;  // packets without bytes
  if (coded.bytes == nullptr)
    coded.bytes = std::make_unique_for_overwrite<std::uint8_t[]>(coded.layout.parity_bytes());
  work.find_data(const_cast<std::uint8_t*>(message.base), message.length, coded.layout, part);
  work.find_parity(coded.bytes.get(), coded.layout, part);
  work.code_ = [&code](const Chunks& data, const Chunks& parity, std::size_t bytes) {
    code.encode(data.data(), parity.data(), bytes);
  };
  return work;
}

std::optional<Coding> Coding::restore(ReceiveMessage& message, std::uint32_t submessage,
                                      const ErasureCode& code) {
  CodedReceive& coded = message.coded;
  if (!coded.open || submessage >= coded.layout.submessages()) return std::nullopt;
  const CodeLayout::Submessage part = coded.layout.submessage(submessage);
  if (!fits(code, part)) return std::nullopt;
  const Presence present = presence(message, part);
  if (!code.decodable(present)) return std::nullopt;
  Coding work;
  if (message.base == nullptr || coded.bytes == nullptr || mutated(Mutant::decode_skipped))
    return work;  // packets without bytes
  work.find_data(message.base, message.length, coded.layout, part);
  work.find_parity(coded.bytes.get(), coded.layout, part);
  if (!work.padded_.empty() && !present[part.data_chunks - 1])
    work.short_chunk_ =
        message.base + (part.first_chunk + part.data_chunks - 1) * coded.layout.chunk_bytes();
  work.code_ = [decoder = code.decoder(present)](const Chunks& data, const Chunks& parity,
                                                 std::size_t bytes) {
    decoder(data.data(), parity.data(), bytes);
  };
  return work;
}

void Coding::find_data(std::uint8_t* base, std::uint32_t length, const CodeLayout& layout,
                       const CodeLayout::Submessage& part) {
  for (std::uint32_t i = 0; i < part.data_chunks; ++i) {
    const std::uint64_t at = (part.first_chunk + i) * layout.chunk_bytes();
    data_.push_back(base + at);
    short_bytes_ = std::min<std::uint64_t>(part.chunk_bytes, length - at);
  }
  bytes_ = part.chunk_bytes;
  if (short_bytes_ == bytes_) return;
  padded_.assign(bytes_, 0);
  std::copy_n(data_.back(), short_bytes_, padded_.data());
  data_.back() = padded_.data();
}

void Coding::find_parity(std::uint8_t* base, const CodeLayout& layout,
                         const CodeLayout::Submessage& part) {
  const std::uint64_t packet = layout.chunk_bytes() / layout.chunk_packets();
  for (std::uint32_t i = 0; i < part.parity_chunks; ++i)
    parity_.push_back(base + (part.first_parity + i * part.chunk_packets) * packet);
}

bool Coding::advance(std::size_t bytes) {
  const std::size_t now = std::min(bytes, bytes_ - at_);
  if (now == 0) return true;
  code_(data_, parity_, now);
  for (std::uint8_t*& chunk : data_) chunk += now;
  for (std::uint8_t*& chunk : parity_) chunk += now;
  at_ += now;
  if (at_ < bytes_) return false;
  if (short_chunk_ != nullptr) std::copy_n(padded_.data(), short_bytes_, short_chunk_);
  return true;
}

}  // namespace softroce
