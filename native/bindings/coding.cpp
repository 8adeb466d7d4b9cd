// SPDX-License-Identifier: GPL-2.0-or-later
// Encoding and decoding of messages where they lie: on the thread of the policy that asks for it,
// not on the engine's. The message's lock keeps the memory from going meanwhile.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "../engine/mutant.hpp"
#include "../erasure/erasure_code.hpp"
#include "bindings.hpp"

namespace softroce {
namespace {

// The rows of a submessage's data, in the message's memory. A short last chunk is copied, and
// padded with zeros.
class DataRows {
 public:
  template <typename Byte>
  DataRows(Byte* base, std::uint32_t length, const CodeLayout& layout,
           const CodeLayout::Submessage& part) {
    for (std::uint32_t i = 0; i < part.data_chunks; ++i) {
      const std::uint64_t at = (part.first_chunk + i) * layout.chunk_bytes();
      rows.push_back(const_cast<std::uint8_t*>(base) + at);
      last_bytes = std::min<std::uint64_t>(part.chunk_bytes, length - at);
    }
    if (last_bytes == part.chunk_bytes) return;
    padded.assign(part.chunk_bytes, 0);
    std::copy_n(rows.back(), last_bytes, padded.data());
    last = rows.back();
    rows.back() = padded.data();
  }

  void keep_last() {  // what was restored of a padded chunk
    if (last != nullptr) std::copy_n(padded.data(), last_bytes, last);
  }

  std::vector<std::uint8_t*> rows;

 private:
  std::vector<std::uint8_t> padded;
  std::uint8_t* last = nullptr;
  std::uint64_t last_bytes = 0;
};

std::vector<std::uint8_t*> parity_rows(std::uint8_t* bytes, const CodeLayout& layout,
                                       const CodeLayout::Submessage& part) {
  const std::uint64_t packet = layout.chunk_bytes() / layout.chunk_packets();
  std::vector<std::uint8_t*> rows;
  for (std::uint32_t i = 0; i < part.parity_chunks; ++i)
    rows.push_back(bytes + (part.first_parity + i * part.chunk_packets) * packet);
  return rows;
}

bool fits(const ErasureCode& code, const CodeLayout::Submessage& part) {
  return code.data_chunks() == part.data_chunks && code.parity_chunks() == part.parity_chunks;
}

// Whether the parity may be sent.
bool encode(SendMessage& message, std::uint32_t number, const ErasureCode& code) {
  CodedSend& coded = message.coded;
  if (!coded.open || number >= coded.layout.submessages()) return false;
  const CodeLayout::Submessage part = coded.layout.submessage(number);
  if (!fits(code, part)) return false;
  if (message.base == nullptr) return true;  // packets without bytes
  if (coded.bytes == nullptr)
    coded.bytes = std::make_unique_for_overwrite<std::uint8_t[]>(coded.layout.parity_bytes());
  const DataRows data(message.base, message.length, coded.layout, part);
  const auto parity = parity_rows(coded.bytes.get(), coded.layout, part);
  code.encode(data.rows.data(), parity.data(), part.chunk_bytes);
  return true;
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

// Whether all data of the submessage is there afterwards.
bool decode(ReceiveMessage& message, std::uint32_t number, const ErasureCode& code) {
  CodedReceive& coded = message.coded;
  if (!coded.open || number >= coded.layout.submessages()) return false;
  const CodeLayout::Submessage part = coded.layout.submessage(number);
  if (!fits(code, part)) return false;
  const Presence present = presence(message, part);
  if (!code.decodable(present)) return false;
  if (message.base == nullptr || coded.bytes == nullptr || mutated(Mutant::decode_skipped))
    return true;  // packets without bytes
  DataRows data(message.base, message.length, coded.layout, part);
  const auto parity = parity_rows(coded.bytes.get(), coded.layout, part);
  code.decode(present, data.rows.data(), parity.data(), part.chunk_bytes);
  if (!present[part.data_chunks - 1]) data.keep_last();
  return true;
}

}  // namespace

void bind_coding(EndpointClass& cls) {
  cls.def(
         "set_codes",
         [](Endpoint& e, PeerIndex peer, const std::vector<std::uint8_t>& by_bits) {
           std::array<std::uint8_t, 33> codes{};
           std::copy_n(by_bits.begin(), std::min(by_bits.size(), codes.size()), codes.begin());
           e.submit([=](Rnic& rnic, Time) { rnic.messages().set_codes(peer, codes); });
         },
         nb::arg("peer"), nb::arg("by_bits"),
         "codes of messages to a peer, by the number of bits in their length: places in `codes` of "
         "the configuration, 255 for none")
      .def(
          "encode",
          [](Endpoint& e, Handle handle, std::uint32_t submessage, const ErasureCode& code) {
            const nb::gil_scoped_release release;
            bool encoded = false;
            e.rnic().messages().sends().snapshot(handle, [&](const SendMessage& message) {
              encoded = encode(const_cast<SendMessage&>(message), submessage, code);
            });
            if (!encoded) return;
            e.submit([=](Rnic& rnic, Time now) {
              rnic.messages().release_parity(handle, submessage, now);
            });
          },
          nb::arg("handle"), nb::arg("submessage"), nb::arg("code"),
          "compute a submessage's parity, then let it be sent; nothing if the message has none")
      .def(
          "restore",
          [](Endpoint& e, Handle handle, std::uint32_t submessage, const ErasureCode& code) {
            const nb::gil_scoped_release release;
            bool restored = false;
            e.rnic().messages().receives().snapshot(handle, [&](const ReceiveMessage& message) {
              restored = decode(const_cast<ReceiveMessage&>(message), submessage, code);
            });
            if (restored)
              e.submit(
                  [=](Rnic& rnic, Time now) { rnic.messages().restored(handle, submessage, now); });
            return restored;
          },
          nb::arg("handle"), nb::arg("submessage"), nb::arg("code"),
          "restore the data that a submessage lacks; False: it cannot be, nothing was written");
}

}  // namespace softroce
