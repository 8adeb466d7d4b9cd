// SPDX-License-Identifier: GPL-2.0-or-later
// Reads a capture that is fed to it piece by piece. Whatever it is fed, it stops where it must,
// skips what it can, and reports that in notes; it holds the rows and at most one block.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "pcap.hpp"
#include "pcapng.hpp"

namespace softroce::capture {

class Reader {
 public:
  void feed(Bytes bytes);
  // The file has no more.
  void finish();

  // Why the file is no capture at all, if it is none.
  const char* refusal() const { return refusal_; }
  // Nothing of what is still fed will be read.
  bool stopped() const { return stopped_; }
  Contents& contents() { return contents_; }

 private:
  std::size_t take(Bytes bytes);
  std::uint64_t take_one(Bytes bytes);

  std::variant<std::monostate, Pcap, Pcapng> format_;
  Contents contents_;
  const char* refusal_ = nullptr;
  bool stopped_ = false;
  std::uint64_t offset_ = 0;        // in the file, of the first byte that was not taken
  std::uint64_t skip_ = 0;          // bytes of the file to go past
  std::vector<std::uint8_t> rest_;  // fed and not taken: the beginning of a record
};

}  // namespace softroce::capture
