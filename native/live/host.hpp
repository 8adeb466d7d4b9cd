// SPDX-License-Identifier: GPL-2.0-or-later
// An RNIC on the real clock: the engine in a thread of its own over an AF_XDP port. The thread
// never runs Python; a policy's thread takes events and submits actions through rings.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../endpoint/endpoint.hpp"
#include "../endpoint/recoveries.hpp"
#include "../endpoint/spsc_ring.hpp"
#include "../endpoint/statistics.hpp"
#include "../system/pauses.hpp"
#include "../transport/python_policy.hpp"
#include "port_pace.hpp"
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
  std::string queues_map;     // path of the pinned map; empty: the port takes everything
  std::uint32_t uplink = 0;   // the directed link that begins at the port
  int cpu = -1;               // -1: where the scheduler likes
  std::string statistics;     // path of a file to publish counters in; empty: nowhere
};

class Host final : public Endpoint {
 public:
  explicit Host(const HostConfig& config);
  ~Host() override;

  void start();
  void stop();  // bounded: the thread ends within one turn of its loop
  // Stops it for good, and frees its port for others, whoever still holds on to what it made.
  void close();

  // From now on what is done about losses is recorded; before start(). To be taken after stop().
  void record_recoveries();
  std::vector<Recovery> take_recoveries() { return recoveries_->take(); }
  std::uint64_t recoveries_not_recorded() const {
    return recoveries_ == nullptr ? 0 : recoveries_->not_recorded();
  }

  // How long losses waited, in ns: from when a batch of frames was received that tells of one, or a
  // timer ended, to the retransmission's place in its queue. To be read after stop().
  const std::vector<std::uint32_t>& decision_lateness_ns() const { return decision_lateness_ns_; }

  void submit(Action action) override;
  void call(Action action) override;
  std::vector<HookCall> take_calls(bool begins) override;
  Rnic& rnic() override { return rnic_; }
  void set_event_sink(std::shared_ptr<QpEventSink> sink) override;
  Time now() const override;
  std::int64_t epoch_ns() const override { return config_.epoch_ns; }
  PortCounts port_counts() override;

  int event_fd() const { return event_fd_; }            // readable: hooks are to run
  int completion_fd() const { return completion_fd_; }  // readable: completions were pushed
  std::string failure() const;                          // why the thread ended, if not by stop()
  const LatencyHistogram& timer_lateness() const { return timer_lateness_; }
  const LatencyHistogram& turn_length() const { return turn_length_; }
  const Pauses& pauses() const { return pauses_; }  // after stop
  XskStatistics port_statistics() const { return port_.statistics(); }
  std::uint64_t frames_sent() const { return frames_sent_.load(std::memory_order_relaxed); }
  std::uint64_t frames_received() const { return frames_received_.load(std::memory_order_relaxed); }

 private:
  void live();
  void attempt(const std::function<void()>& what);
  void retire();
  bool turn();
  bool run_actions();
  bool receive(Time now);
  bool transmit(Time now);
  void note_sent_again(const Packet& packet, Time now);
  void fire_timers(Time now);
  bool recover();
  bool hand_over();
  void publish(Time now);
  Time next_due() const;
  void sleep();
  void doze();

  HostConfig config_;
  XskPort port_;
  PortPace pace_;
  Rnic rnic_;
  SpscRing<Action> actions_;
  SpscRing<HookCall> call_ring_;
  std::mutex submitters_;  // the workload's and the policy's threads take turns as the producer
  int action_fd_, event_fd_, completion_fd_;
  PythonPolicy* policy_;  // null: the transport is another one
  std::size_t completions_seen_ = 0;
  std::unique_ptr<StatisticsFile> statistics_;
  std::unique_ptr<Recoveries> recoveries_;  // the engine's thread while it runs; null: not recorded
  std::shared_ptr<RecoverySink> recovery_sink_;
  Time publish_at_ = kNever;
  Time last_receive_ = -kMillisecond * 1000;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> running_{false};
  std::atomic<bool> asleep_{false};
  mutable std::mutex failure_lock_;
  std::string failure_;
  LatencyHistogram timer_lateness_;
  LatencyHistogram turn_length_;
  static constexpr std::size_t kMostLateness = 1 << 20;
  std::vector<std::uint32_t> decision_lateness_ns_;
  Pauses pauses_;  // the engine's thread while it runs
  std::atomic<std::uint64_t> frames_sent_{0};
  std::atomic<std::uint64_t> frames_received_{0};
  std::uint64_t octets_sent_ = 0, octets_received_ = 0;  // the engine's thread only
};

}  // namespace softroce
