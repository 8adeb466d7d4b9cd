// SPDX-License-Identifier: GPL-2.0-or-later
// Encoding and decoding of a submessage where its message lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "../engine/striped/message.hpp"
#include "../erasure/erasure_code.hpp"

namespace softroce {

// One submessage's work. A code works on any range of bytes of all chunks, so the work can be cut
// into slices. The message and the code must outlive it. Packets without bytes need no work.
class Coding {
 public:
  // Its parity. Nothing: the message has no such submessage, or it is of another shape.
  static std::optional<Coding> encode(SendMessage& message, std::uint32_t submessage,
                                      const ErasureCode& code);
  // The data that it lacks. Nothing, too: the code cannot restore it.
  static std::optional<Coding> restore(ReceiveMessage& message, std::uint32_t submessage,
                                       const ErasureCode& code);

  // Works on the next bytes of all chunks. True: nothing is left.
  bool advance(std::size_t bytes);
  void finish() { advance(SIZE_MAX); }

 private:
  using Chunks = std::vector<std::uint8_t*>;

  void find_data(std::uint8_t* base, std::uint32_t length, const CodeLayout& layout,
                 const CodeLayout::Submessage& part);
  void find_parity(std::uint8_t* base, const CodeLayout& layout,
                   const CodeLayout::Submessage& part);

  Chunks data_, parity_;
  std::vector<std::uint8_t> padded_;     // a copy of a short last chunk of data, with zeros
  std::uint8_t* short_chunk_ = nullptr;  // that is written when the copy has been restored
  std::size_t short_bytes_ = 0;
  std::size_t at_ = 0, bytes_ = 0;  // of each chunk: done, and in all
  std::function<void(const Chunks& data, const Chunks& parity, std::size_t bytes)> code_;
};

}  // namespace softroce
