// SPDX-License-Identifier: GPL-2.0-or-later
// The file format of libpcap (draft-ietf-opsawg-pcap).
#pragma once

#include <optional>

#include "format.hpp"

namespace softroce::capture {

class Pcap {
 public:
  static constexpr std::size_t kHeaderBytes = 24;

  // `header` has that many bytes. Nothing: it is none.
  static std::optional<Pcap> open(const std::uint8_t* header, Contents& contents);

  // The record at the head of `bytes`, which are the file's from `offset` on.
  std::uint64_t take(Bytes bytes, std::uint64_t offset, Contents& contents) const;

 private:
  Pcap(Order order, bool nanoseconds) : order_(order), nanoseconds_(nanoseconds) {}

  Order order_;
  bool nanoseconds_;
};

}  // namespace softroce::capture
