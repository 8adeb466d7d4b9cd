// SPDX-License-Identifier: GPL-2.0-or-later
// Parity of a message's last packets, which a sender sends while its host waits for others. All of
// it is this project's definition (docs/explanation/csa-ud.md, "Parity").
//
// The block of a message are its last packets of data, at most 64. A row is a packet of parity of
// the block. Block and rows are a systematic MDS code: if the block has k packets, any k packets of
// block and rows restore it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "../../erasure/erasure_code.hpp"

namespace softroce {

inline constexpr std::uint32_t kMostBlockPackets = 64;
inline constexpr std::uint32_t kMostParity = 4;  // rows of a block

// The share of packets that are lost, and the mean length of bursts. The weight of older packets
// decays exponentially.
class LossEstimate {
 public:
  // Adds a report of `packets` new packets. `lost` and `bursts` count packets and bursts of losses.
  // Both may be negative: packets arrived that an earlier report counted as lost.
  void note(std::uint32_t packets, std::int32_t lost, std::int32_t bursts) {
    packets_ = std::min(packets_ + packets, kMemory);
    const double decay = std::exp(-static_cast<double>(packets) / packets_);
    const double weight = packets == 0 ? 1 / packets_ : (1 - decay) / packets;
    lost_ = std::clamp(lost_ * decay + lost * weight, 0.0, 1.0);
    bursts_ = std::max(bursts_ * decay + bursts * weight, 0.0);
    seen_ += packets;
  }

  std::uint64_t seen() const { return seen_; }  // packets
  double loss() const { return lost_ < kLeastLoss ? 0 : lost_; }
  double burst_packets() const { return bursts_ > 0 ? std::max(lost_ / bursts_, 1.0) : 1; }

 private:
  // 60,000 packets without a loss reduce an estimate of 1 % to less than kLeastLoss.
  static constexpr double kMemory = 8192, kLeastLoss = 1e-5;

  double packets_ = 1024;         // of the mean; it begins as if 1024 packets had arrived
  double lost_ = 0, bursts_ = 0;  // per packet
  std::uint64_t seen_ = 0;
};

// How many rows a block of `block` packets needs. With m rows, the probability that more than m of
// the `block + m` packets are lost must be below 1e-3. Returns the least such m, but at most
// `most`. The model: bursts of `burst_packets` packets are lost independently, each with
// probability `loss`.
inline std::uint32_t parity_rows(std::uint32_t block, double loss, double burst_packets,
                                 std::uint32_t most) {
  constexpr double kMostFailures = 1e-3;
  for (std::uint32_t rows = 0; rows < most; ++rows) {
    const double bursts = std::max((block + rows) / burst_packets, 1.0);
    double exactly_n = std::pow(1 - loss, bursts);  // P(n bursts are lost), n = 0
    double restorable = 0;                          // P(at most `rows` packets are lost)
    for (double n = 0; n * burst_packets <= rows; ++n) {
      restorable += exactly_n;
      exactly_n *= std::max(bursts - n, 0.0) / (n + 1) * loss / (1 - loss);
    }
    if (1 - restorable < kMostFailures) return rows;
  }
  return most;
}

// The transport's options of parity. A transport without these options sends no parity.
struct ParityConfig {
  bool enabled = false;
  std::int32_t fixed_rows = -1;  // of each block; -1: as many as the measured loss needs
  double budget = 0;             // most packets of parity for each packet of data
};

// The parity of a send.
struct TailSend {
  std::uint8_t block = 0;           // packets of data that parity covers
  std::uint8_t rows = 0, sent = 0;  // how many rows there are, and how many were sent
  std::vector<std::uint8_t> bytes;  // of the rows, one after the other
};

// The parity of a receive.
struct TailReceive {
  std::uint8_t block = 0;           // packets of data that parity covers; 0: no row has arrived
  std::uint8_t rows = 0;            // bit r: row r has arrived
  std::vector<std::uint8_t> bytes;  // room for kMostParity rows
};

// Encodes and restores blocks in the memory of their messages. The last packet of a block may be
// shorter than the others. The code pads it with zeros.
class TailCoder {
 public:
  struct Block {
    std::uint8_t* data;
    std::uint32_t packets;
    std::uint32_t row_bytes;   // the length of a row, and of each packet but the last
    std::uint32_t last_bytes;  // the length of the last packet
  };
  // Writes `rows` rows to `parity`.
  void encode(const Block& block, std::uint32_t rows, std::uint8_t* parity);
  // Restores the packets of the block at the indices `missing`. `rows`: the rows in `parity`, as in
  // TailReceive; at least as many as missing packets.
  void restore(const Block& block, const std::vector<std::uint32_t>& missing, std::uint8_t rows,
               std::uint8_t* parity);

 private:
  const ErasureCode& code(std::uint32_t packets, std::uint32_t rows);
  std::vector<std::uint8_t*> chunks_of(const Block& block);

  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<ErasureCode>> codes_;
  std::vector<std::uint8_t> last_;  // a copy of the last packet, padded with zeros
};

}  // namespace softroce
