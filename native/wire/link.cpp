// SPDX-License-Identifier: GPL-2.0-or-later
#include "link.hpp"

#include <algorithm>

namespace softroce::wire {

void ShapedLink::shape(const lab_shape& shape) {
  shape_ = shape;
  figures_.most_waiting_packets = waiting_packets();
  figures_.most_waiting_bytes = waiting_bytes();
}

Offered ShapedLink::offer(Frame& frame, const lab_leg& leg, Time now, std::vector<Departure>& out) {
  advance(now, out);
  ++(frame.copy ? figures_.duplicated : figures_.arrived);
  (frame.copy ? figures_.duplicated_roce : figures_.arrived_roce) += frame.roce;
  const lab_queue* queue = acting(shape_.queue, shape_.queues, on_timeline(now));
  Held held = prepare(frame, leg, queue, now);
  if (transmitter_.busy_until() <= now) {
    transmit(held, now, out);
  } else if (!enqueue(held, queue)) {
    ++figures_.dropped_limit;
    figures_.dropped_limit_roce += frame.roce;
    return Offered::dropped;
  }
  frame = held.frame;
  return Offered::taken;
}

ShapedLink::Held ShapedLink::prepare(const Frame& frame, const lab_leg& leg, const lab_queue* queue,
                                     Time now) const {
  Held held{frame, queue != nullptr ? queue->rate_bps : 0,
            passage_of(shape_, leg, on_timeline(now)), queue != nullptr ? queue->trim_share : 0};
  held.frame.arrival = now;
  held.frame.chosen = (leg.effects & LAB_EFFECT_REORDER) != 0;
  return held;
}

bool ShapedLink::enqueue(Held& held, const lab_queue* queue) {
  if (queue != nullptr) {
    const Frame& frame = held.frame;
    if (trims(*queue, data_.waiting(), frame.length) && trim(held, *queue)) return true;
    const Admission fate = admit(*queue, data_.waiting(), frame.length, frame.ecn_capable);
    if (fate == Admission::full) return false;
    if (fate == Admission::marked) {
      held.frame.marked = true;
      ++figures_.marked;
    }
  }
  data_.push(held);
  figures_.most_waiting_packets = std::max(figures_.most_waiting_packets, waiting_packets());
  figures_.most_waiting_bytes = std::max(figures_.most_waiting_bytes, waiting_bytes());
  return true;
}

bool ShapedLink::trim(Held& held, const lab_queue& queue) {
  Frame& frame = held.frame;
  if (!admit_trimmed(queue, trimmed_.waiting(), frame.length, frame.trimmed_length)) return false;
  frame.length = frame.trimmed_length;
  frame.trimmed = true;
  trimmed_.push(held);
  ++figures_.trimmed;
  return true;
}

void ShapedLink::advance(Time now, std::vector<Departure>& out) {
  while (waiting_packets() != 0 && transmitter_.busy_until() <= now)
    transmit(next_in_turn(), transmitter_.busy_until(), out);
}

ShapedLink::Held ShapedLink::next_in_turn() {
  if (trimmed_.frames.empty()) return data_.pop();
  if (data_.frames.empty()) return trimmed_.pop();
  const bool trimmed = share_.allows();
  const Held next = (trimmed ? trimmed_ : data_).pop();
  trimmed ? share_.sent_trimmed(next.trim_share, next.frame.length)
          : share_.sent_other(next.trim_share, next.frame.length);
  return next;
}

void ShapedLink::transmit(const Held& held, Time at, std::vector<Departure>& out) {
  transmitter_.set_rate(held.rate_bps);
  const Time sent = transmitter_.transmit(held.frame.length, at);
  Departure departure{sent + held.passage.delay, held.frame};
  if (held.passage.preserve) departure.at = last_due_ = std::max(last_due_, departure.at);
  departure.frame.turn = turns_++;
  out.push_back(departure);
}

void ShapedLink::leave(const Frame& frame) {
  const bool overtaken = frame.turn < left_up_to_;
  // All that left before went before it in turn: if they are fewer than their turns, one is held.
  const bool overtook = !overtaken && left_ < frame.turn;
  figures_.overtaken += overtaken;
  figures_.reordered += frame.chosen && (overtaken || overtook);
  left_up_to_ = std::max(left_up_to_, frame.turn + 1);
  ++left_;
}

void ShapedLink::released(const Frame& frame, Time due, Time at) {
  leave(frame);
  const auto late_ns = static_cast<std::uint64_t>(std::max<Time>(0, at - due) / kNanosecond);
  const auto at_ns = static_cast<std::uint64_t>(at / kNanosecond);
  if (figures_.released++ == 0) {
    figures_.first_ns = at_ns;
    figures_.first_bytes = frame.length;
  }
  figures_.released_roce += frame.roce;
  figures_.released_bytes += frame.length;
  figures_.last_ns = at_ns;
  figures_.late_most_ns = std::max(figures_.late_most_ns, late_ns);
  figures_.late.add(late_ns);
  figures_.residence.add(
      static_cast<std::uint64_t>(std::max<Time>(0, at - frame.arrival) / kNanosecond));
}

void ShapedLink::lost(const Frame& frame, Loss why) {
  leave(frame);
  const bool down = why == Loss::port_down;
  ++(down ? figures_.lost_port_down : figures_.tx_failed);
  (down ? figures_.lost_port_down_roce : figures_.tx_failed_roce) += frame.roce;
}

void ShapedLink::gone(const Frame& frame) {
  ++figures_.arrived;
  figures_.arrived_roce += frame.roce;
  ++figures_.gone;
  figures_.gone_roce += frame.roce;
}

LinkFigures ShapedLink::figures() const {
  LinkFigures now = figures_;
  now.held = turns_ - left_;
  now.waiting_packets = waiting_packets();
  now.waiting_bytes = waiting_bytes();
  return now;
}

}  // namespace softroce::wire
