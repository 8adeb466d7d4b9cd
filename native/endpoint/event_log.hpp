// SPDX-License-Identifier: GPL-2.0-or-later
// Writes what an RNIC's queue pairs do into a file, a JSON object a line. The
// engine puts records into a ring and waits for nothing; a thread of its own formats and writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "../engine/verbs/qp_event.hpp"
#include "spsc_ring.hpp"

namespace softroce {

struct EventLogConfig {
  std::string path;           // appended to, whole lines at a time: several may share it
  std::string head;           // JSON members that begin each line, "" or `"host":"h1",`
  std::int64_t epoch_ns = 0;  // CLOCK_MONOTONIC at the engine's time 0
  std::int64_t now_ns = 0;    // on that clock
  std::uint64_t most_bytes = std::uint64_t{2} << 30;  // what comes later is counted as lost
};

class EventLog final : public QpEventSink {
 public:
  // Throws std::system_error.
  explicit EventLog(const EventLogConfig& config);
  ~EventLog() override;
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  void note(const QpEvent& event) override;

  // Writes what is left and a last line. No event may follow.
  void close();
  std::uint64_t written() const { return written_.load(std::memory_order_relaxed); }
  std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }
  int error() const { return error_.load(std::memory_order_relaxed); }  // errno; 0: none

 private:
  void run();
  void drain();
  void say_lost();
  void begin_line(std::int64_t at_ns, const char* event);
  void flush();

  EventLogConfig config_;
  int fd_ = -1;
  SpscRing<QpEvent> ring_;
  std::string text_;           // lines that are not written
  std::int64_t latest_ns_;     // of the latest record
  std::uint64_t in_text_ = 0;  // records among them
  std::uint64_t bytes_ = 0, reported_lost_ = 0;
  std::atomic<std::uint64_t> written_{0}, lost_{0};
  std::atomic<int> error_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace softroce
