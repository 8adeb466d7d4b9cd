// SPDX-License-Identifier: GPL-2.0-or-later
// Blocks of pcapng (draft-ietf-opsawg-pcapng), in the machine's byte order; times in nanoseconds
// since 1970.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace softroce::pcapng {

using Buffer = std::vector<std::byte>;

void append_section(Buffer& to);
// An Ethernet interface; `snap_bytes` 0: whole packets.
void append_interface(Buffer& to, std::string_view name, std::uint32_t snap_bytes);

struct PacketHead {
  std::uint32_t interface;
  std::uint64_t time_ns;
  std::uint32_t captured;
  std::uint32_t length;
};

// `data` holds `head.captured` bytes; an empty comment is none.
void append_packet(Buffer& to, const PacketHead& head, const std::byte* data,
                   std::string_view comment);

struct Statistics {
  std::uint32_t interface;
  std::uint64_t begin_ns, end_ns;
  std::uint64_t received, dropped;  // packets; the first counts the second, too
};

void append_statistics(Buffer& to, const Statistics& statistics);

// How many bytes of `blocks`, at most `most`, are whole blocks.
std::size_t whole_blocks(std::span<const std::byte> blocks, std::size_t most);

// The interface of each packet in `blocks`.
std::vector<std::uint32_t> interfaces_of(std::span<const std::byte> blocks);

}  // namespace softroce::pcapng
