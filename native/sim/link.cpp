// SPDX-License-Identifier: GPL-2.0-or-later
#include "link.hpp"

#include <algorithm>
#include <utility>

namespace softroce::sim {
namespace {

constexpr std::uint32_t kLeastTurns = 16;

bool is_always(const lab_window& window) {
  return window.begin_ns == 0 && window.length_ns == 0 && window.period_ns == 0;
}

// One queue that always acts, or none.
bool is_always(const lab_queue* queues, std::uint32_t count) {
  return count == 0 || (count == 1 && is_always(queues[0].window));
}

bool is_always(const lab_delay* delays, std::uint32_t count) {
  return count == 0 || (count == 1 && is_always(delays[0].window) && delays[0].jitter_ns == 0 &&
                        delays[0].preserve != 0);
}

}  // namespace

void Turns::grow() {
  const std::uint32_t turns = ring_ == nullptr ? kLeastTurns : 2 * (mask_ + 1);
  auto larger = std::make_unique<Turn[]>(turns);
  for (std::uint32_t each = first_; each != next_; ++each)
    larger[each & (turns - 1)] = ring_[each & mask_];
  ring_ = std::move(larger);
  mask_ = turns - 1;
}

Time Link::pass(std::uint32_t length, bool ecn_capable, const lab_leg& leg, Time now,
                bool& marked) {
  const lab_queue* queue = wire::acting(shape_.queue, shape_.queues, in_ns(now));
  Time begins = now;
  if (transmitter_.busy_until() > now) {
    begins = transmitter_.busy_until();
    turns_.forget_begun(now);
    if (queue != nullptr) {
      const wire::Admission fate =
          wire::admit(*queue, {turns_.bytes(), turns_.packets()}, length, ecn_capable);
      if (fate == wire::Admission::full) return kNever;
      marked = fate == wire::Admission::marked;
    }
    wait(begins, length);
  }
  take(length);
  transmitter_.set_rate(queue != nullptr ? queue->rate_bps : 0);
  const Time sent = transmitter_.transmit(length, begins);
  const wire::Passage passage = wire::passage_of(shape_, leg, in_ns(now));
  const Time due = sent + passage.delay + lag_;
  return passage.preserve ? last_due_ = std::max(last_due_, due) : due;
}

Time Link::time_of(std::uint32_t length, Time now) const {
  const lab_queue* queue = wire::acting(shape_.queue, shape_.queues, in_ns(now));
  if (queue == nullptr || queue->rate_bps == 0) return 0;
  return static_cast<Time>(length * 8'000'000'000'000ULL / queue->rate_bps);
}

Time Link::propagation(Time now) const {
  if (is_straight()) return delay_;
  const lab_delay* delay = wire::acting(shape_.delay, shape_.delays, in_ns(now));
  return lag_ + (delay != nullptr ? static_cast<Time>(delay->delay_ns) * kNanosecond : 0);
}

Time Link::ghost_arrival(Time now) const {
  Time sent = std::max(now, busy_until());
  if (stepwise) sent += time_of(static_cast<std::uint32_t>(stepwise->waiting_bytes()), now);
  return std::max(sent + propagation(now), last_due_);
}

void Link::shape(const lab_shape& shape) {
  shape_ = shape;
  const bool trims =
      std::any_of(shape.queue, shape.queue + shape.queues, [](const auto& q) { return q.trim; });
  if (trims) {
    stepwise = std::make_unique<wire::ShapedLink>();
    stepwise->shape(shape);
  }
  look_whether_straight();
}

void Link::set_rules(std::unique_ptr<Rules> rules_) {
  rules = std::move(rules_);
  look_whether_straight();
}

void Link::watch() {
  watched_ = true;
  look_whether_straight();
}

void Link::lag(Time by) {
  lag_ = by;
  look_whether_straight();
}

void Link::look_whether_straight() {
  const bool straight = !watched_ && rules == nullptr && stepwise == nullptr &&
                        is_always(shape_.queue, shape_.queues) &&
                        is_always(shape_.delay, shape_.delays);
  if (!straight) {
    delay_ = -1;
    return;
  }
  delay_ = lag_;
  if (shape_.delays != 0) delay_ += static_cast<Time>(shape_.delay[0].delay_ns) * kNanosecond;
  const lab_queue& queue = shape_.queue[0];
  const bool queues = shape_.queues != 0;
  transmitter_.set_rate(queues ? queue.rate_bps : 0);
  calm_bytes_ = queues ? std::min(queue.limit_bytes, queue.ecn_bytes) : UINT64_MAX;
  calm_packets_ = queues ? std::min(queue.limit_packets, queue.ecn_packets) : UINT64_MAX;
}

std::uint64_t Link::waiting_bytes(Time now) {
  if (stepwise) return stepwise->waiting_bytes();
  turns_.forget_begun(now);
  return turns_.bytes();
}

LinkTotals Link::totals() const {
  LinkTotals all = rare;
  all.entered = entered_;
  all.taken = taken_;
  all.taken_bytes = taken_bytes_;
  all.most_waiting_packets = std::max(all.most_waiting_packets, most_waiting_packets_);
  all.most_waiting_bytes = std::max(all.most_waiting_bytes, most_waiting_bytes_);
  return all;
}

}  // namespace softroce::sim
