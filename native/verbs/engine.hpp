// SPDX-License-Identifier: GPL-2.0-or-later
// The soft RNIC in a program's own process. Who polls a completion queue turns the engine; for
// those that wait without polling a helper thread sleeps on the socket. All of it is under one
// lock.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "../endpoint/statistics.hpp"
#include "../engine/rnic/rnic.hpp"
#include "../live/port_pace.hpp"
#include "../live/xsk_port.hpp"
#include "exit_lock.hpp"
#include "loss_log.hpp"
#include "port_share.hpp"
#include "settings.hpp"

namespace softroce::verbs {

struct Qp;
struct Srq;
struct Context;

class Engine {
 public:
  explicit Engine(const Settings& settings);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Everything below is called by who has this.
  std::unique_lock<std::mutex> hold() { return std::unique_lock(lock_); }
  std::unique_lock<std::mutex> hold_at_exit() { return lock_at_exit(lock_); }
  // But these, by anybody.
  Time since_epoch() const;
  bool orphan() const { return orphan_; }  // a child's copy

  Rnic& rnic() { return rnic_; }
  const Settings& settings() const { return settings_; }
  Time now() { return read_ = since_epoch(); }
  // When the clock was read last: for what does not wait for its time.
  Time last_read() const { return read_; }

  // Opens this process's share of the port and starts the helper, unless that was done. 0, or the
  // errno value of why not: EBUSY if another process has the port for itself.
  int open_port();
  // What is due leaves; the share is given back.
  void close_port();
  bool link_is_up() const;
  // Of this process, since the port is open; empty: nowhere.
  std::string statistics_path() const;

  // Whatever can be done now: receive, timers, send. False: there was nothing to do. Never throws.
  bool turn() { return turn(now()); }
  // The same for a program that looks for completions itself: the helper stays away for a while.
  bool poll();
  // It found one without a turn.
  void polled() { polled_at_.store(now(), std::memory_order_relaxed); }
  // It is about to wait instead: the helper does not stay away any longer.
  void sleeps();
  // There is something to send: it leaves with the program's next poll, or now if it does not poll.
  void posted(Time at);

  // This queue pair is about to go: its counters are kept.
  void forget_qp(std::uint32_t number);
  // Counters and losses so far, for whoever reads them.
  void publish() { publish(now()); }

  // Whom asynchronous events concern, by number.
  std::unordered_map<std::uint32_t, Qp*> qps{};
  std::unordered_map<std::uint32_t, Srq*> srqs{};

  // Contexts that are open, for events.
  std::vector<Context*> contexts{};

  // ---- around fork(2): a child has no engine, and holds nothing of the port
  void before_fork() { lock_.lock(); }
  void after_fork_in_parent() { lock_.unlock(); }
  void after_fork_in_child();

 private:
  static constexpr Time kLongAgo = -kMillisecond;  // before the engine was there

  void number_queue_pairs(std::uint32_t share);
  void open_socket();
  void look_at_link();
  static void* help(void* engine);
  void start_helper();
  void stop_helper();
  void assist();
  std::int64_t turn_for_the_idle();
  void sleep(std::int64_t longest_ns);
  void wake_helper();
  bool polls(Time at) const;
  bool turn(Time at);
  bool attempt_turn(Time at);
  bool receive(Time& at);
  bool receive_own(Time at);
  bool transmit(Time at);
  std::uint32_t send_batch(Time at);
  bool holds_back() const { return pace_ && pace_->holds_back() && rnic_.has_packet(); }
  bool is_own(const Packet& packet) const;
  void keep(const Packet& packet);
  void abandon_port();
  void publish(Time at);
  std::string record_name() const;
  void log_losses();
  void keep_counters();
  void break_down(const char* why);

  const Settings settings_;
  const std::int64_t epoch_ns_;
  Time read_ = 0;
  std::mutex lock_;
  Rnic rnic_;
  PortShare share_;
  std::atomic<bool> link_is_up_{true};
  std::unique_ptr<XskPort> port_;
  std::unique_ptr<PortPace> pace_;  // with the port
  bool orphan_ = false;
  bool broken_ = false;                               // the port failed: it is not opened again
  std::deque<std::vector<std::uint8_t>> own_frames_;  // to this very RNIC
  std::unique_ptr<StatisticsFile> statistics_;
  PortCounts counts_;
  std::unique_ptr<StatisticsFile> kept_;  // stays; where something asks for it
  std::vector<std::uint64_t> gone_;       // words of queue pairs that were destroyed
  std::size_t qps_gone_ = 0;
  Time publish_at_ = 0;
  std::shared_ptr<LossLog> losses_;  // where something asks for it

  pthread_t helper_{};
  bool helps_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<Time> polled_at_{kLongAgo};
  Time busy_at_ = 0;  // when the helper last had something to do
  std::atomic<std::int64_t> doze_ns_{0};
  int wake_fd_ = -1;
  std::atomic<int> port_fd_{-1}, share_fd_{-1};  // for the helper, which sleeps without the lock
  std::atomic<bool> asleep_{false};
};

}  // namespace softroce::verbs
