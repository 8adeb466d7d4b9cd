// SPDX-License-Identifier: GPL-2.0-or-later
// Mean completion times of a message by SDR-RDMA's model (arXiv 2505.05366v2), as far
// as `sdr_auto` needs them. softroce_lab/transports/model has all of it, with its distributions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "../engine/striped/coding.hpp"

namespace softroce::sdr_model {

inline constexpr double kLeastLoss = 1e-8, kMostLoss = 0.3;  // of chunks

struct Scenario {
  std::int64_t message_bytes = 0, chunk_bytes = 0;
  std::int64_t data_chunks = 32, parity_chunks = 8;  // [S] k and m
  std::int64_t chunk_packets = 1;
  double loss = 0;  // probability that a chunk is lost
  double rtt_ns = 0, bandwidth_bps = 0;
  double beta = 1;

  std::int64_t chunks() const { return (message_bytes + chunk_bytes - 1) / chunk_bytes; }
  // [S] Chunks of parity of the whole message: ceil(M / R), R = k / m.
  std::int64_t parity() const { return (chunks() * parity_chunks + data_chunks - 1) / data_chunks; }
  double inject_ns() const {  // of a chunk on the link
    return static_cast<double>(chunk_bytes) * 8e9 / bandwidth_bps;
  }
};

// [S] P_chunk = 1 - (1 - p)^N.
inline double chunk_loss(double packet_loss, double packets) {
  return packet_loss < 1 ? -std::expm1(packets * std::log1p(-packet_loss)) : 1.0;
}

// ---------------------------------------------------------------- erasure coding

// ln P(none of so many events happens).
inline double log_none(std::int64_t count, double probability) {
  if (count == 0) return 0;
  return probability < 1 ? static_cast<double>(count) * std::log1p(-probability) : -INFINITY;
}

// [S] P(an MDS code cannot restore its data): more than m of k + m chunks are lost, each of them
// independently.
inline double undecodable(std::int64_t k, std::int64_t m, double loss) {
  if (loss == 0) return 0;
  const auto n = static_cast<double>(k + m);
  auto lost = static_cast<double>(m + 1);
  double term = std::exp(std::lgamma(n + 1) - std::lgamma(lost + 1) - std::lgamma(n - lost + 1) +
                         lost * std::log(loss) + (n - lost) * std::log1p(-loss));
  double sum = 0;
  for (; lost <= n; ++lost) {
    sum += term;
    term *= (n - lost) / (lost + 1) * loss / (1 - loss);
  }
  return std::min(sum, 1.0);
}

// [S] P(any submessage cannot be restored). [D] With the last one, of k' chunks, come ceil(k' m /
// k) of parity.
inline double fallback(const Scenario& message) {
  const std::int64_t k = message.data_chunks, m = message.parity_chunks;
  const std::int64_t rest = message.chunks() % k;
  const double last = rest != 0 ? undecodable(rest, (rest * m + k - 1) / k, message.loss) : 0;
  return -std::expm1(log_none(message.chunks() / k, undecodable(k, m, message.loss)) +
                     log_none(1, last));
}

// [D] Of two outcomes: decoded, or what was missing arrives in one round after the NACK, which is
// later by (beta + 1) RTT.
inline double coded_mean_ns(const Scenario& message) {
  const auto sent = static_cast<double>(message.chunks() + message.parity());
  return sent * message.inject_ns() + message.rtt_ns +
         fallback(message) * (message.beta + 1) * message.rtt_ns;
}

// ---------------------------------------------------------------- selective repeat

// Times within a period O at which P(T > x) is computed, if it has more steps than these: beyond so
// many chunks a sum over as many equal parts of O stands for it.
inline constexpr std::int64_t kCells = 256;
inline constexpr double kNegligible = 1e-12;  // probability

// Where in a period the distribution may have steps, 0 and O included. A step is where a chunk's
// number of transmissions grows: for chunk M - d when y + d T_inj is a multiple of O.
inline std::vector<double> steps(std::int64_t chunks, double inject_ns, double period_ns) {
  std::vector<double> edges{0, period_ns};
  if (chunks > kCells) {
    for (std::int64_t cell = 1; cell < kCells; ++cell)
      edges.push_back(period_ns * static_cast<double>(cell) / kCells);
  } else {
    for (std::int64_t d = 1; d < chunks; ++d)
      edges.push_back(period_ns - std::fmod(static_cast<double>(d) * inject_ns, period_ns));
  }
  std::ranges::sort(edges);
  return edges;
}

// Selective repeat with an RTO of one RTT, "SR NACK". [S] Chunk i of M is complete
// X_i = i T_inj + (RTO + T_inj) (Y_i - 1) after the beginning, Y_i is how often it is sent,
// T = max X_i + RTT. [D] A chunk's packets are kept when they arrive, so that
// P(Y_i > n) = 1 - (1 - p^n)^N, with N packets in a chunk and a loss of p.
//
// With O = RTO + T_inj and x >= M T_inj, chunk i has been sent floor((x - i T_inj) / O) + 1 times
// by x. So ln P(max X_i <= x) is the sum over n of N ln(1 - p^n) times the number of chunks that
// were sent n times, a difference of two floors. The mean is M T_inj + RTT and the integral of P(T
// > x).
inline double repeated_mean_ns(const Scenario& message) {
  const auto chunks = static_cast<double>(message.chunks());
  const auto packets = static_cast<double>(message.chunk_packets);
  const double inject_ns = message.inject_ns(), begin_ns = chunks * inject_ns;
  if (message.loss == 0) return begin_ns + message.rtt_ns;
  const double loss = -std::expm1(std::log1p(-message.loss) / packets);  // of a packet
  const double period_ns = message.rtt_ns + inject_ns;
  // Chunks that were sent more often than this are not missing.
  const double most = std::min(std::ceil(std::log(kNegligible / chunks) / std::log(loss)),
                               std::ceil(begin_ns / period_ns) + 1);
  const std::vector<double> edges = steps(message.chunks(), inject_ns, period_ns);
  std::vector<double> arrived{-INFINITY};  // ln(1 - p^n)
  double mean_ns = begin_ns + message.rtt_ns, above = 1;
  for (double period = 0; above > kNegligible; ++period) {
    while (static_cast<double>(arrived.size()) <= period + 1 + most)
      arrived.push_back(std::log1p(-std::pow(loss, arrived.size())));
    for (std::size_t cell = 1; cell < edges.size(); ++cell) {
      const double x_ns = begin_ns + period * period_ns + (edges[cell - 1] + edges[cell]) / 2;
      double log_complete = 0, sent = chunks;  // chunks that were sent at least n times
      for (auto n = static_cast<std::size_t>(period) + 1; n < arrived.size() && sent > 0; ++n) {
        const double over_ns = x_ns - static_cast<double>(n) * period_ns;
        const double again = std::clamp(std::floor(over_ns / inject_ns), 0.0, chunks);
        log_complete += (sent - again) * arrived[n];
        sent = again;
      }
      above = -std::expm1(packets * log_complete);
      mean_ns += above * (edges[cell] - edges[cell - 1]);
    }
  }
  return mean_ns;
}

// ---------------------------------------------------------------- before the loss is certain

inline constexpr double kJump = 100, kJumpChance = 1.0 / 64;

// [D] The mean time with each of these codes, and at the end that of selective repeat. Losses over
// a WAN vary a thousandfold over days: with probability `kJumpChance` the loss is `kJump` times as
// high.
inline std::vector<double> expected_ns(Scenario message, std::span<const CodeShape> codes) {
  const double later = std::clamp(message.loss * kJump, kLeastLoss, kMostLoss);
  const double loss = std::min(message.loss, kMostLoss);
  std::vector<double> means_ns(codes.size() + 1);
  for (const auto& [chance, each] : {std::pair{1 - kJumpChance, loss}, {kJumpChance, later}}) {
    message.loss = each;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      message.data_chunks = codes[i].data_chunks;
      message.parity_chunks = codes[i].parity_chunks;
      means_ns[i] += chance * coded_mean_ns(message);
    }
    means_ns.back() += chance * repeated_mean_ns(message);
  }
  return means_ns;
}

}  // namespace softroce::sdr_model
