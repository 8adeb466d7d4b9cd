// SPDX-License-Identifier: GPL-2.0-or-later
// What benchmarks of the engine run in it: a stream of requests, and a ping-pong of SENDs.
//
// Every wait is bounded: a peer that is gone ends a run by the error of a completion, or because
// nothing moved for `patience`.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "application.hpp"

namespace softroce {

enum class PerfVerb : std::uint8_t { send, write };

struct PerfConfig {
  PerfVerb verb = PerfVerb::write;
  bool posts = true;   // else it only receives, until it is stopped
  bool begins = true;  // of a ping-pong
  bool spins = true;
  std::uint32_t bytes = 65536;
  std::uint32_t slots = 1;           // places of a message in the buffers, used in turn
  std::uint32_t depth = 128;         // requests under way
  std::uint32_t signal_every = 100;  // CQ moderation
  std::uint64_t iterations = 1000;   // of a ping-pong
  Time duration = 0;                 // of a stream
  Time patience = 10'000 * kMillisecond;
  std::uint32_t receives = 0;  // posted at a time
  std::uint32_t receive_bytes = 0;
  std::uint64_t send_address = 0, receive_address = 0;
  std::uint32_t lkey = 0;
  std::uint32_t qp = 0;
  std::uint64_t remote_address = 0;  // of WRITEs
  std::uint32_t rkey = 0;
};

enum class PerfEnd : std::uint8_t { running, done, stopped, failed, refused, stalled };

struct PerfResult {
  PerfEnd end = PerfEnd::running;
  WcStatus status = WcStatus::success;  // failed: of the completion
  int error = 0;                        // refused: errno of the post
  std::uint64_t posted = 0, completed = 0, received = 0;
  Time began_at = 0, ended_at = 0;        // first post, last completion
  std::vector<std::int64_t> posted_ns{};  // of a ping-pong: when each was posted
};

class Perf : public Application {
 public:
  Perf(const PerfConfig& config, std::shared_ptr<CompletionQueue> queue);

  // Posts the first receives: before the peer begins.
  void prepare(Rnic& rnic, Time now);
  bool turn(Rnic& rnic, Time now) final;
  bool spins() const override { return config_.spins; }

  // ---- from any thread
  void stop() { stopping_.store(true, std::memory_order_relaxed); }  // end all waits
  bool wait(std::chrono::nanoseconds longest);                       // false: it is not over yet
  PerfResult result() const;                                         // final once it is over

 protected:
  virtual bool work(Rnic& rnic, Time now) = 0;  // false: nothing could be done
  virtual bool posts_ended() const = 0;
  virtual void message_received(Time /*now*/) {}

  bool is_over(Time now) const { return now - began_ >= config_.duration; }
  bool post(Rnic& rnic, bool signaled, Time now);

  PerfConfig config_;
  std::uint64_t posted_ = 0, completed_ = 0, received_ = 0;
  Time began_ = -1;
  PerfResult result_;

 private:
  void take(Rnic& rnic, const WorkCompletion& completion, Time now);
  void post_receive(Rnic& rnic, Time now);
  void refuse(int error, Time now);
  void finish(PerfEnd end, Time now);

  std::shared_ptr<CompletionQueue> queue_;
  SendRequest request_;
  Time moved_at_ = 0;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable news_;
  PerfResult published_;
};

// As many requests under way as the depth allows, for a duration; or receives alone.
std::shared_ptr<Perf> make_perf_stream(const PerfConfig& config,
                                       std::shared_ptr<CompletionQueue> queue);
// SENDs, there and back one at a time.
std::shared_ptr<Perf> make_perf_ping_pong(const PerfConfig& config,
                                          std::shared_ptr<CompletionQueue> queue);

}  // namespace softroce
