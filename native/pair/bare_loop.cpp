// SPDX-License-Identifier: GPL-2.0-or-later
#include "bare_loop.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "../engine/codec/crc.hpp"
#include "pair.hpp"

namespace softroce {
namespace {

constexpr std::size_t kHeaderBytes =
    Ipv4::kBytes + kUdpBytes + kBthBytes + kDethBytes + LAB_HDR_BYTES;

std::uint32_t checksum(const std::uint8_t* frame, std::size_t payload) {
  return crc32(frame, kHeaderBytes, frame + kHeaderBytes, payload);
}

}  // namespace

std::uint64_t bare_loop(const std::uint8_t* source, std::uint8_t* target, std::uint64_t bytes,
                        std::uint32_t chunk_bytes) {
  std::vector<std::vector<std::uint8_t>> frames(Pair::kBurst,
                                                std::vector<std::uint8_t>(Pair::kFrameBytes));
  const std::uint64_t burst_bytes = std::uint64_t{Pair::kBurst} * chunk_bytes;
  const auto each_packet = [&](std::uint64_t first, auto&& handle) {
    const std::uint64_t end = std::min(bytes, first + burst_bytes);
    std::size_t frame = 0;
    for (std::uint64_t at = first; at < end; at += chunk_bytes)
      handle(at, std::min<std::uint64_t>(chunk_bytes, end - at), frames[frame++].data());
    return frame;
  };
  std::uint64_t packets = 0;
  for (std::uint64_t first = 0; first < bytes; first += burst_bytes) {
    packets += each_packet(first, [&](std::uint64_t at, std::size_t payload, std::uint8_t* frame) {
      std::memcpy(frame + kHeaderBytes, source + at, payload);
      const std::uint32_t crc = checksum(frame, payload);
      std::memcpy(frame + kHeaderBytes + payload, &crc, sizeof crc);
    });
    each_packet(first, [&](std::uint64_t at, std::size_t payload, const std::uint8_t* frame) {
      const std::uint32_t crc = checksum(frame, payload);
      if (std::memcmp(frame + kHeaderBytes + payload, &crc, sizeof crc) != 0)
        throw std::runtime_error("a CRC of the bare loop is wrong");
      std::memcpy(target + at, frame + kHeaderBytes, payload);
    });
  }
  return packets;
}

}  // namespace softroce
