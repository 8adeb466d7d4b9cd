// SPDX-License-Identifier: GPL-2.0-or-later
// An RNIC on the real clock: the engine in a thread of its own over an AF_XDP port. The thread
// never runs Python; a policy's thread takes events and submits actions through rings.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "endpoint.hpp"
#include "spsc_ring.hpp"
#include "xsk_port.hpp"

namespace softroce {

// How often something took [2^i, 2^(i+1)) nanoseconds.
class LatencyHistogram {
 public:
  void add(std::int64_t ns) {
    const auto bucket = ns <= 1 ? 0 : 63 - __builtin_clzll(static_cast<std::uint64_t>(ns));
    counts_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  }
  std::array<std::uint64_t, 64> counts() const {
    std::array<std::uint64_t, 64> copy;
    for (std::size_t i = 0; i < copy.size(); ++i)
      copy[i] = counts_[i].load(std::memory_order_relaxed);
    return copy;
  }

 private:
  std::array<std::atomic<std::uint64_t>, 64> counts_{};
};

struct HostConfig {
  MessageConfig messages;
  XskConfig port;
  std::uint64_t mac = 0;
  std::int64_t epoch_ns = 0;  // CLOCK_MONOTONIC when the run began
  int cpu = -1;               // -1: where the scheduler likes
};

class Host final : public Endpoint {
 public:
  explicit Host(const HostConfig& config);
  ~Host() override;

  void start();
  void stop();  // bounded: the thread ends within one turn of its loop

  void submit(Action action) override;
  void call(Action action) override;
  std::vector<Event> take_events() override;
  Rnic& rnic() override { return rnic_; }
  Time now() const override;

  int event_fd() const { return event_fd_; }            // readable: events wait
  int completion_fd() const { return completion_fd_; }  // readable: completions were pushed
  std::string failure() const;                          // why the thread ended, if not by stop()
  const LatencyHistogram& timer_lateness() const { return timer_lateness_; }
  const LatencyHistogram& turn_length() const { return turn_length_; }
  XskStatistics port_statistics() const { return port_.statistics(); }
  std::uint64_t frames_sent() const { return frames_sent_.load(std::memory_order_relaxed); }
  std::uint64_t frames_received() const { return frames_received_.load(std::memory_order_relaxed); }

 private:
  void run();
  bool turn();
  bool run_actions(Time now);
  bool receive(Time now);
  bool transmit(Time now);
  bool lose(Time now);
  void fire_timers(Time now);
  bool hand_over_events();
  void sleep();
  void doze();

  HostConfig config_;
  XskPort port_;
  Rnic rnic_;
  SpscRing<Action> actions_;
  SpscRing<Event> event_ring_;
  std::mutex submitters_;  // the workload's and the policy's threads take turns as the producer
  int action_fd_, event_fd_, completion_fd_;
  std::size_t completions_seen_ = 0;
  Time last_receive_ = -kMillisecond * 1000;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> running_{false};
  std::atomic<bool> asleep_{false};
  mutable std::mutex failure_lock_;
  std::string failure_;
  LatencyHistogram timer_lateness_;
  LatencyHistogram turn_length_;
  std::atomic<std::uint64_t> frames_sent_{0};
  std::atomic<std::uint64_t> frames_received_{0};
};

}  // namespace softroce
