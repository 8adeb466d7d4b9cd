// SPDX-License-Identifier: GPL-2.0-or-later
// A machine that asks a `Way` for the order of its steps when it moves, and for what is done and
// what is posted again. For the learning lab about SHIFT: each step takes time, as modifying a
// queue pair of a NIC does, so a wrong order has consequences. It never goes back to the default
// NIC.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "machine.hpp"

namespace softroce::shift {

// Who decides, and the world around. Whoever cannot answer answers nothing: the failure surfaces.
class Way {
 public:
  virtual ~Way() = default;
  virtual std::optional<std::vector<std::string>> order_steps() = 0;  // of kSteps
  struct Answer {
    std::vector<std::size_t> done;                  // places among the unfinished requests
    std::optional<std::vector<std::size_t>> again;  // nothing: the failure surfaces
  };
  virtual std::optional<Answer> divide(const std::vector<UnfinishedSend>& unfinished,
                                       std::int64_t executed, std::int64_t now_ns) = 0;
  virtual std::uint64_t notifications_taken() = 0;  // by the application
  virtual void step_done() = 0;                     // what the network held back may arrive now
  virtual void write_down(const std::string& text, std::int64_t now_ns) = 0;
};

constexpr const char* kSteps[] = {"stop", "receives", "move"};
constexpr std::int64_t kStepNs = 20'000;

class SteppedMachine final : public Machine {
 public:
  SteppedMachine(Actions& actions, std::uint32_t qp_num, const Settings& settings, bool signal_all,
                 std::unique_ptr<Way> way)
      : Machine(actions, qp_num, settings, signal_all), way_(std::move(way)) {}

  std::optional<std::int64_t> next_time_ns() const override;
  void advance(std::int64_t now_ns) override;

 protected:
  void move(const std::string& why, std::int64_t now_ns) override;
  void handle_move(const Message& message, std::int64_t now_ns) override;
  void end_in_failure(const Message& message, std::int64_t now_ns) override;
  void surface(const std::string& why, std::int64_t now_ns, WcStatus status, Sends more) override;
  Classes classify_by(const Message& message) override;

 private:
  void step(std::int64_t now_ns);
  void stop();
  void end_steps();
  void resolve_if_ready(std::int64_t now_ns);
  Classes carry_out(const Way::Answer& answer);

  const std::unique_ptr<Way> way_;
  std::deque<std::string> todo_;
  std::optional<std::int64_t> step_at_ns_;
  bool stopped_ = true;
  std::optional<Message> answer_;  // of the peer
  Receives receives_;
  std::optional<Classes> chosen_;
};

}  // namespace softroce::shift
