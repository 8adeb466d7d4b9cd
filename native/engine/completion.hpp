// SPDX-License-Identifier: GPL-2.0-or-later
// Completion queues.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "units.hpp"

namespace softroce {

enum class WcStatus : std::uint8_t {  // values of enum ibv_wc_status
  success = 0,
  loc_len_err = 1,
  loc_qp_op_err = 2,
  loc_prot_err = 4,
  wr_flush_err = 5,
  rem_inv_req_err = 9,
  retry_exc_err = 12,
  rnr_retry_exc_err = 13,
  rem_abort_err = 16,
};

enum class WcOpcode : std::uint8_t { send = 0, recv = 128 };  // values of enum ibv_wc_opcode

// What a workload calls a message: message `message` of step `step` of operation `operation`.
struct MessageKey {
  std::uint16_t operation = 0;
  std::uint16_t step = 0;
  std::uint32_t message = 0;
  bool operator==(const MessageKey&) const = default;
};

struct WorkCompletion {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::success;
  WcOpcode opcode = WcOpcode::send;
  std::uint32_t byte_len = 0;
  std::uint32_t qp_num = 0;
  std::uint32_t src_qp = 0;  // UD receive
  // Of striped messages only, beyond what verbs have:
  std::uint32_t peer = 0;
  MessageKey key{};
  std::uint32_t packets = 0;
  std::uint32_t resent = 0;      // sender: packets sent again
  std::uint32_t duplicates = 0;  // receiver: packets that were there already
  Time posted_at = 0;
  Time first_at = 0;  // first packet sent or received
  Time completed_at = 0;
};

// Filled by the engine, polled from any thread. Never overruns: what it holds is bounded by the
// work requests outstanding. Its owners share it by `shared_from_this` alone: what comes from
// Python would else hold the Python object, which holds the RNIC, which holds the queue.
class CompletionQueue : public std::enable_shared_from_this<CompletionQueue> {
 public:
  // `pushed` counts what the RNIC's queues have been given; the engine's thread only.
  explicit CompletionQueue(std::size_t& pushed) : pushed_(pushed) {}

  void push(const WorkCompletion& completion) {
    const std::lock_guard lock(mutex_);
    entries_.push_back(completion);
    ++pushed_;
  }

  std::vector<WorkCompletion> poll(std::size_t most) {
    const std::lock_guard lock(mutex_);
    const std::size_t n = entries_.size() < most ? entries_.size() : most;
    const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(n);
    std::vector<WorkCompletion> polled(entries_.begin(), end);
    entries_.erase(entries_.begin(), end);
    return polled;
  }

 private:
  std::mutex mutex_;
  std::deque<WorkCompletion> entries_;
  std::size_t& pushed_;
};

}  // namespace softroce
