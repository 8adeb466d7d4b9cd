// SPDX-License-Identifier: GPL-2.0-or-later
// The file in which an unmodified program's RNIC writes what it did about losses
// (verbs/loss_log.hpp): one LossRecord after the other.
#pragma once

#include <cstdint>

namespace softroce {

enum class LossKind : std::uint8_t {
  message,     // `code`: WcStatus, or kUnfinished
  retransmit,  // [psn, last_psn] are to be sent again; `code`: RetransmitReason
  timeout,     // `psn`: the oldest that is not acknowledged
  nak_sent,    // `psn`: the one that is missed; `code`: the syndrome
  nak_received,
  left_out,  // `number` records more, for which there was no room
};

// A row of that file. Times are CLOCK_MONOTONIC.
struct LossRecord {
  std::int64_t at_ns = 0;  // of a message: when it completed
  std::int64_t posted_ns = 0;
  std::int64_t sent_ns = 0;  // all packets had left once, and the PSNs are known; 0: not yet
  std::uint64_t bytes = 0;
  std::uint64_t number = 0;  // of a message: how many its queue pair had before
  std::uint64_t remote_high = 0, remote_low = 0;  // GID of the queue pair's peer
  std::uint32_t qp = 0, remote_qp = 0;
  std::uint32_t psn = 0, last_psn = 0;
  LossKind kind{};
  std::uint8_t code = 0;
  std::uint8_t opcode = 0;  // WrOpcode
  std::uint8_t unused[5] = {};
};

}  // namespace softroce
