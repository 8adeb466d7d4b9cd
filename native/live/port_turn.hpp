// SPDX-License-Identifier: GPL-2.0-or-later
// What a turn of an RNIC does at its port, whoever turns it: a thread of its own (host.cpp), or the
// program that polls (native/verbs/engine.cpp).
#pragma once

#include <cstdint>

#include "../endpoint/statistics.hpp"
#include "../engine/codec/codec.hpp"
#include "../engine/rnic/rnic.hpp"
#include "xsk_port.hpp"

namespace softroce {

inline constexpr int kReceiveBatches = 4;  // of XskPort::kBatch, before transmission has its turn
inline constexpr std::uint32_t kTransmitBatch = 32;  // what one sendto takes; see XskPort::flush
inline constexpr Time kPublishInterval = 100 * kMillisecond;

inline void take_frame(Rnic& rnic, const std::uint8_t* frame, std::uint32_t bytes, Time at) {
  Packet packet = kBlankPacket;
  if (const auto refusal = decode(frame, bytes, packet))
    rnic.counters().add(*refusal);
  else
    rnic.handle_packet(packet, at);
}

// A port that is down loses what is sent through it. Only what the kernel's ring holds already
// must stay there, one batch at most. False: there was nothing to lose.
inline bool lose_batch(Rnic& rnic, Time at) {
  std::uint32_t lost = 0;
  for (Packet packet; lost < kTransmitBatch && rnic.poll_packet(packet, at); ++lost)
    rnic.packet_done(at);
  rnic.counters().add(Counter::tx_link_down, lost);
  return lost != 0;
}

inline void put_socket_counts(const XskStatistics& socket, PortCounts& counts) {
  counts.rx_dropped = socket.rx_dropped;
  counts.rx_ring_full = socket.rx_ring_full;
  counts.rx_fill_ring_empty = socket.rx_fill_ring_empty;
  counts.tx_invalid = socket.tx_invalid;
  counts.tx_ring_empty = socket.tx_ring_empty;
}

}  // namespace softroce
