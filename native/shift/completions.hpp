// SPDX-License-Identifier: GPL-2.0-or-later
// One completion queue of the application whose queue pairs have backups: what completes on both
// NICs, and what no NIC completes, in the order of each queue pair.
//
// While all of its queue pairs are on the default NIC and nothing waits here, a poll takes no lock:
// it notes that it is going on, and `attach` waits for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "surroundings.hpp"

namespace softroce::shift {

class Backup;
class ShiftQp;

// Request ids of the lab's own WRITEs of no bytes.
constexpr std::uint64_t kProbeId = 0x5348494654000001, kFenceId = 0x5348494654000002;

class Completions {
 public:
  // `capacity`: of the queue at the backup NIC. `ring` tells the application's completion channel;
  // empty: it has none.
  Completions(Backup& backup, std::shared_ptr<CompletionQueue> near, std::size_t capacity,
              std::function<void()> ring);
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  const std::shared_ptr<CompletionQueue>& near() const { return near_; }
  // While this is true, the queue at the default NIC is polled in the quickest way that the
  // surroundings know. If it is false, `poll_both` has the completions.
  class PlainPoll {
   public:
    explicit PlainPoll(Completions& queue) : queue_(queue) {
      ++queue_.polling_;
      plain_ = !queue_.attached_;
    }
    ~PlainPoll() { --queue_.polling_; }
    PlainPoll(const PlainPoll&) = delete;
    PlainPoll& operator=(const PlainPoll&) = delete;
    explicit operator bool() const { return plain_; }

   private:
    Completions& queue_;
    bool plain_;
  };
  std::vector<WorkCompletion> poll_both(std::size_t most);
  void arm(bool solicited_only);      // as the application's request for an event
  void forget(std::uint32_t qp_num);  // what waits of a queue pair that begins anew

  // ---- everything below is called under the backup's lock

  // The queue at the backup NIC, made when it is first needed.
  const std::shared_ptr<CompletionQueue>& far();
  // From now on polls look at both NICs; those that are going on are over.
  void attach();
  // Takes what is in both queues. The older path's completions come first.
  void collect();
  void add(const WorkCompletion& completion);  // behind those before it
  // Whether a queue pair is moving, or away from the default NIC.
  void set_busy(const ShiftQp& qp, bool busy);
  void forget(const ShiftQp& qp) { busy_.erase(&qp); }

 private:
  void take(const WorkCompletion& completion, bool from_far);
  void detach_if_idle() {
    if (busy_.empty() && pending_.empty()) attached_ = false;
  }
  void ring_if_armed();

  Backup& backup_;
  const std::shared_ptr<CompletionQueue> near_;
  std::shared_ptr<CompletionQueue> far_;
  const std::size_t capacity_;
  const std::function<void()> ring_;
  std::atomic<bool> attached_{false};
  std::atomic<unsigned> polling_{0};
  bool armed_ = false;
  std::set<const ShiftQp*> busy_;
  std::deque<WorkCompletion> pending_;
};

}  // namespace softroce::shift
