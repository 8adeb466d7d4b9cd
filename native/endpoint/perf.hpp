// SPDX-License-Identifier: GPL-2.0-or-later
// The loops of perftest, as applications of the engine: streams (`*_bw`) and ping-pongs (`*_lat`).
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

enum class PerfVerb : std::uint8_t { send, write, read, atomic };

struct PerfQp {
  std::uint32_t number = 0;
  std::uint64_t remote_address = 0;  // WRITE, READ and atomics
  std::uint32_t rkey = 0;
  AddressVector address{};  // UD
  std::uint32_t remote_qp = 0, remote_qkey = 0;
};

struct PerfConfig {
  static constexpr std::uint64_t kUntilStopped = UINT64_MAX;

  PerfVerb verb = PerfVerb::write;
  bool posts = true;   // else it only receives
  bool begins = true;  // of a ping-pong
  bool spins = true;
  std::uint32_t bytes = 65536;
  std::uint32_t slots = 1;           // places of a message in the buffers, used in turn
  std::uint32_t depth = 128;         // requests under way, per QP
  std::uint32_t signal_every = 100;  // CQ moderation
  std::uint64_t iterations = 1000;   // per QP; 0: as many as `duration` allows
  Time duration = 0;
  Time patience = 10'000 * kMillisecond;
  std::uint32_t receives = 0;  // posted at a time, per QP
  std::uint32_t receive_bytes = 0;
  std::uint64_t expected = 0;  // messages to receive before the end, of all QPs together
  std::uint64_t send_address = 0, receive_address = 0;
  std::uint32_t lkey = 0;
  std::vector<PerfQp> qps{};
};

enum class PerfEnd : std::uint8_t { running, done, stopped, failed, refused, stalled };

struct PerfResult {
  PerfEnd end = PerfEnd::running;
  WcStatus status = WcStatus::success;  // failed: of the completion
  int error = 0;                        // refused: errno of the post
  std::uint64_t posted = 0, completed = 0, received = 0;
  Time began_at = 0, ended_at = 0;  // first post, last completion
  Time received_first_at = 0, received_last_at = 0;
  // With a number of iterations: when each was posted, and when it completed.
  std::vector<std::int64_t> posted_ns{}, completed_ns{};
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
  bool wait_posts(std::chrono::nanoseconds longest);  // whether its own requests have ended
  PerfResult result() const;                          // final once it is over

 protected:
  struct Progress {
    std::uint64_t posted = 0, completed = 0;
  };

  virtual bool work(Rnic& rnic, Time now) = 0;  // false: nothing could be done
  virtual bool posts_ended() const = 0;
  virtual void message_received(Time /*now*/) {}

  bool is_stopping() const { return stopping_.load(std::memory_order_relaxed); }
  std::size_t qps() const { return config_.qps.size(); }
  bool is_over(Time now) const { return config_.duration != 0 && now - began_ >= config_.duration; }
  bool post(Rnic& rnic, std::size_t index, bool signaled, Time now);

  PerfConfig config_;
  std::vector<Progress> progress_;  // by QP
  std::uint64_t posted_ = 0, completed_ = 0, received_ = 0;
  Time began_ = -1;
  PerfResult result_;

 private:
  void take(Rnic& rnic, const WorkCompletion& completion, Time now);
  void post_receive(Rnic& rnic, std::size_t index, Time now);
  void refuse(int error, Time now);
  void tell_posts_ended();
  void finish(PerfEnd end, Time now);

  std::shared_ptr<CompletionQueue> queue_;
  std::vector<SendRequest> requests_;  // by QP
  Time moved_at_ = 0;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable news_;
  bool posts_published_ = false;
  PerfResult published_;
};

// As many requests under way as the depth allows, and receives.
std::shared_ptr<Perf> make_perf_stream(const PerfConfig& config,
                                       std::shared_ptr<CompletionQueue> queue);
// One message at a time: there and back, or a READ or atomic and its response.
std::shared_ptr<Perf> make_perf_ping_pong(const PerfConfig& config,
                                          std::shared_ptr<CompletionQueue> queue);

}  // namespace softroce
