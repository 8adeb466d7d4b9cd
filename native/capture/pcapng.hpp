// SPDX-License-Identifier: GPL-2.0-or-later
// The file format pcapng (draft-ietf-opsawg-pcapng).
#pragma once

#include "format.hpp"

namespace softroce::capture {

class Pcapng {
 public:
  static constexpr std::uint32_t kSectionHeader = 0x0A0D0D0A;  // the same in both byte orders

  // The block at the head of `bytes`, which are the file's from `offset` on.
  std::uint64_t take(Bytes bytes, std::uint64_t offset, Contents& contents);

 private:
  struct Block {
    const std::uint8_t* body;
    std::uint32_t bytes;
    std::uint64_t offset;  // of the body in the file
  };

  std::uint64_t take_block(Bytes bytes, std::uint64_t offset, Contents& contents);
  bool open_section(const std::uint8_t* block);
  bool read(std::uint32_t type, const Block& block, Contents& contents);
  bool read_interface(const Block& block, Contents& contents) const;
  bool read_statistics(const Block& block, Contents& contents) const;
  bool read_enhanced(const Block& block, std::uint32_t interface, Contents& contents) const;
  bool read_simple(const Block& block, Contents& contents) const;
  void add_comments(Bytes options, Record& record, Contents& contents) const;
  Interface* find(std::uint32_t interface, Contents& contents) const;
  template <typename F>
  void each_option(Bytes options, F&& option) const;

  Order order_;
  std::size_t first_interface_ = 0;  // of the section, in Contents
};

}  // namespace softroce::capture
