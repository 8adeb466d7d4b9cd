// SPDX-License-Identifier: GPL-2.0-or-later
// Completion queues: the only place that reports the end of work requests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "../units.hpp"

namespace softroce {

enum class WcStatus : std::uint8_t {  // values of enum ibv_wc_status
  success = 0,
  loc_len_err = 1,
  loc_qp_op_err = 2,
  loc_prot_err = 4,
  wr_flush_err = 5,
  mw_bind_err = 6,
  bad_resp_err = 7,
  loc_access_err = 8,
  rem_inv_req_err = 9,
  rem_access_err = 10,
  rem_op_err = 11,
  retry_exc_err = 12,
  rnr_retry_exc_err = 13,
  rem_abort_err = 16,
};

enum class WcOpcode : std::uint8_t {  // values of enum ibv_wc_opcode
  send = 0,
  rdma_write = 1,
  rdma_read = 2,
  compare_swap = 3,
  fetch_add = 4,
  bind_window = 5,
  local_invalidate = 6,
  recv = 128,
  recv_rdma_with_immediate = 129,
};

enum WcFlags : std::uint8_t {  // values of enum ibv_wc_flags
  kWithGrh = 1,
  kWithImmediate = 2,
  kWithInvalidate = 8,
};

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
  std::uint8_t flags = 0;
  std::uint32_t byte_len = 0;
  std::uint32_t immediate = 0;  // or the key that was invalidated
  std::uint32_t qp_num = 0;
  std::uint32_t src_qp = 0;  // UD receive
  bool over_ipv4 = false;    // UD receive: an IPv4 header is in its first 40 octets, IBA A17.4.5.1
  bool solicited = false;    // wakes waiters for solicited completions, too
  // Beyond what verbs have; peer, key and duplicates are of striped messages only:
  std::uint32_t peer = 0;
  MessageKey key{};
  std::uint32_t packets = 0;
  std::uint32_t retransmitted = 0;  // sender: packets sent again
  std::uint32_t duplicates = 0;     // receiver: packets that were there already
  Time posted_at = 0;               // queue pairs: of sends only
  Time first_at = 0;                // first packet sent or received
  Time completed_at = 0;
};

// Filled by the engine, polled from any thread. Its owners share it by `shared_from_this` alone:
// what comes from Python would else hold the Python object, which holds the RNIC, which holds the
// queue.
class CompletionQueue : public std::enable_shared_from_this<CompletionQueue> {
 public:
  static constexpr std::size_t kUnbounded = SIZE_MAX;  // bounded by the work requests outstanding

  // `pushed` counts what the RNIC's queues have been given; the engine's thread only.
  explicit CompletionQueue(std::size_t& pushed, std::size_t capacity = kUnbounded)
      : pushed_(pushed), capacity_(capacity) {}

  enum class Push : std::uint8_t {
    taken,
    overran,  // there is no room: the queue is in error from now on (IBA 11.6.3.1)
    refused,  // it has been in error before
  };
  Push push(const WorkCompletion& completion) {
    const std::lock_guard lock(mutex_);
    if (overrun_) return Push::refused;
    overrun_ = entries_.size() >= capacity_;
    if (overrun_) return Push::overran;
    entries_.push_back(completion);
    ++pushed_;
    if (armed_ && wakes(completion)) ring(completion.completed_at);
    return Push::taken;
  }

  std::vector<WorkCompletion> poll(std::size_t most) {
    const std::lock_guard lock(mutex_);
    const std::size_t n = std::min(entries_.size(), most);
    const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(n);
    std::vector<WorkCompletion> polled(entries_.begin(), end);
    entries_.erase(entries_.begin(), end);
    return polled;
  }

  // The same without a copy: `take` each. Returns how many there were.
  template <typename F>
  std::size_t drain(std::size_t most, F&& take) {
    const std::lock_guard lock(mutex_);
    const std::size_t n = std::min(entries_.size(), most);
    for (std::size_t i = 0; i < n; ++i) {
      take(entries_.front());
      entries_.pop_front();
    }
    return n;
  }

  // Without what this queue pair completed.
  void forget(std::uint32_t qp_num) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [=](const auto& entry) { return entry.qp_num == qp_num; });
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }
  bool overrun() const {
    const std::lock_guard lock(mutex_);
    return overrun_;
  }

  // False, if more completions are there than that.
  bool resize(std::size_t capacity) {
    const std::lock_guard lock(mutex_);
    if (entries_.size() > capacity) return false;
    capacity_ = capacity;
    return true;
  }

  // ---- completion events, IBA 11.4.2.2: one for the next completion after `arm`

  void on_event(std::function<void()> notify) {
    const std::lock_guard lock(mutex_);
    notify_ = std::move(notify);
  }
  void arm(bool solicited_only) {
    const std::lock_guard lock(mutex_);
    // The wider request stands: a second one cannot narrow it.
    solicited_only_ = armed_ ? solicited_only_ && solicited_only : solicited_only;
    armed_ = true;
  }
  // An event waits until `count` completions are there or `period` has passed (ibv_modify_cq).
  void moderate(std::uint32_t count, Time period) {
    const std::lock_guard lock(mutex_);
    moderation_count_ = count;
    moderation_period_ = period;
    if (event_due_ != kNever) fire();  // what the old rule held back
  }
  // When an event that was held back is due; the engine's thread only, as the next one.
  Time event_due() const {
    const std::lock_guard lock(mutex_);
    return event_due_;
  }
  void handle_timeout(Time now) {
    const std::lock_guard lock(mutex_);
    if (now >= event_due_) fire();
  }

 private:
  bool wakes(const WorkCompletion& completion) const {
    return !solicited_only_ || completion.solicited || completion.status != WcStatus::success;
  }
  void ring(Time now) {
    ++waiting_;
    if (moderation_count_ <= 1 || waiting_ >= moderation_count_ || moderation_period_ == 0)
      return fire();
    event_due_ = std::min(event_due_, now + moderation_period_);
  }
  void fire() {
    armed_ = false;
    waiting_ = 0;
    event_due_ = kNever;
    if (notify_) notify_();
  }

  mutable std::mutex mutex_;
  std::deque<WorkCompletion> entries_;
  std::size_t& pushed_;
  std::size_t capacity_;
  bool overrun_ = false;
  bool armed_ = false, solicited_only_ = false;
  std::uint32_t moderation_count_ = 0, waiting_ = 0;
  Time moderation_period_ = 0, event_due_ = kNever;
  std::function<void()> notify_;
};

}  // namespace softroce
