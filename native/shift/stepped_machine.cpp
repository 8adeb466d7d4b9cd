// SPDX-License-Identifier: GPL-2.0-or-later
#include "stepped_machine.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace softroce::shift {

// ---------------------------------------------------------------- steps

void SteppedMachine::move(const std::string& why, std::int64_t now_ns) {
  plain_ = false;
  left_ = path();
  ++epoch_;
  waiting_ = true;
  stopped_ = false;
  receives_.clear();
  answer_.reset();
  own_psn_ = kPsnGap;
  probe_at_ns_.reset();
  deadline_ns_ = now_ns + settings_.handshake_timeout_ns;
  enter(Receiver::fallback, why, now_ns, 0);
  enter(Sender::fallback, why, now_ns);
  way_->write_down(why, now_ns);
  const auto steps = way_->order_steps();
  if (!steps) return surface("the policy failed", now_ns, WcStatus::retry_exc_err, {});
  todo_.assign(steps->begin(), steps->end());
  step(now_ns);
}

void SteppedMachine::step(std::int64_t now_ns) {
  step_at_ns_.reset();
  if (todo_.empty()) return resolve_if_ready(now_ns);
  const std::string name = std::move(todo_.front());
  todo_.pop_front();
  way_->write_down("step '" + name + "'", now_ns);
  if (name == "stop") {
    stop();
  } else if (name == "receives") {
    actions_.post_receives(path(), std::exchange(receives_, {}));
  } else {
    const std::uint64_t counted = stopped_ ? received_ : way_->notifications_taken();
    actions_.tell({Kind::move, epoch_, counted, own_psn_});
  }
  way_->step_done();
  step_at_ns_ = now_ns + kStepNs;
}

void SteppedMachine::stop() {
  if (std::exchange(stopped_, true)) return;
  Unfinished left = actions_.leave(left_);
  received_ += left.received;
  executed_ += left.notified;
  unresolved_ = std::move(left.sends);
  receives_ = std::move(left.receives);
  own_psn_ = (left.next_psn + kPsnGap) & 0xFFFFFF;
}

void SteppedMachine::end_steps() {
  if (waiting_) stop();
  todo_.clear();
  step_at_ns_.reset();
}

// ---------------------------------------------------------------- the peer, and time

void SteppedMachine::handle_move(const Message& message, std::int64_t now_ns) {
  if (message.epoch == epoch_ + 1 && !waiting_) move("the peer has moved", now_ns);
  if (sender_ == Sender::failed) return;
  if (message.epoch != epoch_ || !waiting_)
    return surface("the peer moved to epoch " + std::to_string(message.epoch), now_ns,
                   WcStatus::retry_exc_err, {});
  answer_ = message;
  resolve_if_ready(now_ns);
}

void SteppedMachine::end_in_failure(const Message& message, std::int64_t now_ns) {
  end_steps();
  Machine::end_in_failure(message, now_ns);
}

void SteppedMachine::surface(const std::string& why, std::int64_t now_ns, WcStatus status,
                             Sends more) {
  end_steps();
  way_->write_down("an error surfaces: " + why, now_ns);
  Machine::surface(why, now_ns, status, std::move(more));
}

std::optional<std::int64_t> SteppedMachine::next_time_ns() const {
  const auto next = Machine::next_time_ns();
  if (!next || !step_at_ns_) return next ? next : step_at_ns_;
  return std::min(*next, *step_at_ns_);
}

void SteppedMachine::advance(std::int64_t now_ns) {
  if (step_at_ns_ && now_ns >= *step_at_ns_) step(now_ns);
  Machine::advance(now_ns);
}

// ---------------------------------------------------------------- decisions

void SteppedMachine::resolve_if_ready(std::int64_t now_ns) {
  if (!answer_ || !todo_.empty() || step_at_ns_) return;
  stop();
  const Message answer = *std::exchange(answer_, std::nullopt);
  way_->write_down("the peer counts " + std::to_string(answer.received) + " notifications", now_ns);
  const auto executed = static_cast<std::int64_t>(answer.received - executed_);
  try {
    classify(unresolved_, executed);
  } catch (const ProtocolError& error) {
    return surface(error.what(), now_ns, WcStatus::retry_exc_err, {});
  }
  const auto given = way_->divide(unresolved_, executed, now_ns);
  if (!given) return surface("the policy failed", now_ns, WcStatus::retry_exc_err, {});
  chosen_ = carry_out(*given);
  resolve(answer, now_ns);
}

Classes SteppedMachine::carry_out(const Way::Answer& answer) {
  if (answer.again) return {answer.done, *answer.again};
  // What is done comes first: the oldest of the others is the one that surfaces.
  std::vector<std::size_t> order = answer.done;
  for (std::size_t i = 0; i < unresolved_.size(); ++i)
    if (std::ranges::find(answer.done, i) == answer.done.end()) order.push_back(i);
  std::vector<UnfinishedSend> ordered;
  for (const std::size_t place : order) ordered.push_back(unresolved_[place]);
  unresolved_ = std::move(ordered);
  Classes classes{std::vector<std::size_t>(answer.done.size()), {}};
  std::iota(classes.done.begin(), classes.done.end(), std::size_t{0});
  for (std::size_t i = classes.done.size(); i < unresolved_.size(); ++i) classes.again.push_back(i);
  if (!classes.again.empty()) classes.culprit = classes.again.front();
  return classes;
}

Classes SteppedMachine::classify_by(const Message& message) {
  // The peer surfaced an error: nobody is asked.
  if (message.kind != Kind::move || !chosen_) return Machine::classify_by(message);
  return *chosen_;
}

}  // namespace softroce::shift
