// SPDX-License-Identifier: GPL-2.0-or-later
// What a program holds of an RNIC, whatever drives it: a thread and a port, a test's hand, or a
// pair on an imagined cable. Work requests and actions are submitted, events, or hooks to run, are
// taken.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "../engine/rnic/rnic.hpp"
#include "statistics.hpp"

namespace softroce {

struct HookCall;
class PythonPolicy;

PythonPolicy& policy_of(Rnic& rnic);  // std::invalid_argument: the transport is another one

class Endpoint {
 public:
  using Action = std::function<void(Rnic&, Time)>;

  virtual ~Endpoint() = default;
  virtual void submit(Action action) = 0;  // runs where the engine runs, in order, soon
  virtual void call(Action action) = 0;    // the same, and waits until it has run
  // Hooks of a user's policy that are to run now. `begins`: a turn of the policy begins, which ends
  // with the first answer that is empty.
  virtual std::vector<HookCall> take_calls(bool begins) = 0;
  virtual Rnic& rnic() = 0;  // for what may be read from any thread
  virtual Time now() const = 0;
  virtual void set_event_sink(std::shared_ptr<QpEventSink> sink) {
    rnic().set_event_sink(std::move(sink));
  }  // the engine's turn; null: none
  virtual std::int64_t epoch_ns() const {
    return 0;
  }                                                // CLOCK_MONOTONIC at time 0, on the real clock
  virtual PortCounts port_counts() { return {}; }  // the engine's turn
};

// An RNIC whose frames and clock are in the caller's hand.
class DirectEndpoint : public Endpoint {
 public:
  void submit(Action action) override { action(rnic(), now()); }
  void call(Action action) override { action(rnic(), now()); }
  std::vector<HookCall> take_calls(bool begins) override;
  // Of an endpoint whose recovery is in the caller's hand, too.
  std::vector<Event> take_events() {
    auto& queue = rnic().messages().events();
    std::vector<Event> events(std::make_move_iterator(queue.begin()),
                              std::make_move_iterator(queue.end()));
    queue.clear();
    return events;
  }
};

}  // namespace softroce
