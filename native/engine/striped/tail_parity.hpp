// SPDX-License-Identifier: GPL-2.0-or-later
// Parity of a message's last packets, which the sender sends while its host waits for others [D]
// (docs/explanation/csa-ud.md, "Parity"). The last `block` packets of data, and `rows` packets of
// parity behind them, are a systematic MDS code: any `block` of them suffice.
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
inline constexpr std::uint32_t kMostParity = 4;  // packets of a block

// The part of packets that are lost: a mean in which older packets fade.
class LossEstimate {
 public:
  // Of so many packets so many were lost, in so many bursts. Negative: they came after all.
  void note(std::uint32_t packets, std::int32_t lost, std::int32_t bursts) {
    if (packets == 0) return;
    packets_ = std::min(packets_ + packets, kMemory);
    const double keep = std::exp(-static_cast<double>(packets) / packets_);
    const double weight = (1 - keep) / packets;
    lost_ = std::clamp(lost_ * keep + lost * weight, 0.0, 1.0);
    bursts_ = std::max(bursts_ * keep + bursts * weight, 0.0);
    seen_ += packets;
  }

  std::uint64_t seen() const { return seen_; }
  double loss() const { return lost_ < kLeastLoss ? 0 : lost_; }
  double burst_packets() const { return bursts_ > 0 ? std::max(lost_ / bursts_, 1.0) : 1; }

 private:
  // After 60,000 packets without a loss, 1 % has faded to less than kLeastLoss.
  static constexpr double kMemory = 8192, kLeastLoss = 1e-5;

  double packets_ = 1024;  // as if so many had arrived before the first
  double lost_ = 0, bursts_ = 0;
  std::uint64_t seen_ = 0;
};

// The least number of rows with which more packets than rows are lost with a probability below
// 1e-3; `most` if more are needed. Packets are lost independently, `burst_packets` at a time.
inline std::uint32_t parity_rows(std::uint32_t block, double loss, double burst_packets,
                                 std::uint32_t most) {
  constexpr double kMostFailures = 1e-3;
  for (std::uint32_t rows = 0; rows < most; ++rows) {
    const double groups = std::max((block + rows) / burst_packets, 1.0);
    double term = std::pow(1 - loss, groups), below = 0;  // P(no group is lost)
    for (double n = 0; n * burst_packets <= rows; ++n) {
      below += term;
      term *= std::max(groups - n, 0.0) / (n + 1) * loss / (1 - loss);
    }
    if (1 - below < kMostFailures) return rows;
  }
  return most;
}

// How much parity a transport sends, from its options; a transport without them sends none.
struct ParityConfig {
  bool works = false;
  std::int32_t fixed = -1;  // rows of each block; -1: by the measured loss
  double budget = 0;        // packets of parity, of those of data
};

// What a send keeps of its parity.
struct TailSend {
  std::uint8_t block = 0, rows = 0;
  std::uint8_t sent = 0;  // rows
  std::vector<std::uint8_t> bytes;
};

// What a receive keeps of its parity.
struct TailReceive {
  std::uint8_t block = 0;  // 0: no parity has arrived
  std::uint8_t rows = 0;   // that have arrived, by bits
  std::vector<std::uint8_t> bytes;
};

// Encodes and restores blocks where their messages lie. The last packet of a block may be short; it
// is coded as if zeros followed.
class TailCoder {
 public:
  // `bytes`: of a row, which are those of the longest packet. `last_bytes`: of the last packet.
  struct Block {
    std::uint8_t* data;
    std::uint32_t packets, bytes, last_bytes;
  };
  void encode(const Block& block, std::uint32_t rows, std::uint8_t* parity);
  // `missing`: packets of the block, no more than `rows` has bits.
  void restore(const Block& block, const std::vector<std::uint32_t>& missing, std::uint8_t rows,
               std::uint8_t* parity);

 private:
  const ErasureCode& code(std::uint32_t packets, std::uint32_t rows);
  std::vector<std::uint8_t*> chunks_of(const Block& block);

  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<ErasureCode>> codes_;
  std::vector<std::uint8_t> last_;  // a copy of the last packet, with zeros
};

}  // namespace softroce
