// SPDX-License-Identifier: GPL-2.0-or-later
#include "link.hpp"

#include <algorithm>

#include "jitter.hpp"

namespace softroce::wire {
namespace {

constexpr std::uint64_t kBytePicoseconds = 8'000'000'000'000;  // of a byte, at one bit a second

// The last of the parts whose windows act.
template <typename Part>
const Part* acting(const Part* parts, std::uint32_t count, std::uint64_t now_ns) {
  while (count-- > 0)
    if (lab_window_acts(&parts[count].window, now_ns)) return &parts[count];
  return nullptr;
}

std::uint64_t on_timeline(Time now, Time epoch) {
  return static_cast<std::uint64_t>((now - epoch) / kNanosecond);
}

}  // namespace

void ShapedLink::shape(const lab_shape& shape) {
  shape_ = shape;
  figures_.most_waiting_packets = waiting_packets();
  figures_.most_waiting_bytes = waiting_bytes();
}

const lab_queue* ShapedLink::queue_at(Time now) const {
  return acting(shape_.queue, shape_.queues, on_timeline(now, epoch_));
}

const lab_delay* ShapedLink::delay_at(Time now) const {
  return acting(shape_.delay, shape_.delays, on_timeline(now, epoch_));
}

Offered ShapedLink::offer(Frame& frame, const lab_leg& leg, Time now, std::vector<Departure>& out) {
  advance(now, out);
  ++(frame.copy ? figures_.duplicated : figures_.arrived);
  (frame.copy ? figures_.duplicated_roce : figures_.arrived_roce) += frame.roce;
  const lab_queue* queue = queue_at(now);
  Waiting waiting = prepare(frame, leg, queue, now);
  if (busy_until_ <= now) {
    transmit(waiting, now, out);
  } else if (!enqueue(waiting, queue)) {
    ++figures_.dropped_limit;
    figures_.dropped_limit_roce += frame.roce;
    return Offered::dropped;
  }
  frame = waiting.frame;
  return Offered::taken;
}

ShapedLink::Waiting ShapedLink::prepare(const Frame& frame, const lab_leg& leg,
                                        const lab_queue* queue, Time now) const {
  Waiting waiting{frame, queue != nullptr ? queue->rate_bps : 0, 0, true};
  waiting.frame.arrival = now;
  waiting.frame.chosen = (leg.effects & LAB_EFFECT_REORDER) != 0;
  if (const lab_delay* delay = delay_at(now); delay != nullptr) {
    waiting.delay = delay_of(*delay, leg.jitter) * kNanosecond;
    waiting.preserve = delay->preserve != 0;
  }
  if (!waiting.frame.chosen) return waiting;
  const Time extra = static_cast<Time>(shape_.reorder_extra_ns) * kNanosecond;
  waiting.delay = extra == 0 ? 0 : waiting.delay + extra;
  waiting.preserve = false;
  return waiting;
}

bool ShapedLink::enqueue(Waiting& waiting, const lab_queue* queue) {
  if (queue != nullptr) {
    const std::uint64_t bytes = data_.bytes + waiting.frame.length;
    const std::uint64_t packets = data_.frames.size() + 1;
    if (bytes > queue->limit_bytes || packets > queue->limit_packets) return trim(waiting, *queue);
    if (waiting.frame.ecn_capable && (bytes > queue->ecn_bytes || packets > queue->ecn_packets)) {
      waiting.frame.marked = true;
      ++figures_.marked;
    }
  }
  data_.push(waiting);
  figures_.most_waiting_packets = std::max(figures_.most_waiting_packets, waiting_packets());
  figures_.most_waiting_bytes = std::max(figures_.most_waiting_bytes, waiting_bytes());
  return true;
}

bool ShapedLink::trim(Waiting& waiting, const lab_queue& queue) {
  Frame& frame = waiting.frame;
  const std::uint64_t packets = std::min<std::uint64_t>(queue.limit_packets, kTrimmedPackets);
  if (!queue.trim || frame.trimmed_length == 0 || frame.trimmed_length >= frame.length)
    return false;
  if (trimmed_.bytes + frame.trimmed_length > queue.limit_bytes) return false;
  if (trimmed_.frames.size() >= packets) return false;
  frame.length = frame.trimmed_length;
  frame.trimmed = true;
  trimmed_.push(waiting);
  ++figures_.trimmed;
  return true;
}

void ShapedLink::advance(Time now, std::vector<Departure>& out) {
  while (waiting_packets() != 0 && busy_until_ <= now)
    transmit((trimmed_.frames.empty() ? data_ : trimmed_).pop(), busy_until_, out);
}

void ShapedLink::transmit(const Waiting& waiting, Time at, std::vector<Departure>& out) {
  Departure departure{0, waiting.frame};
  busy_until_ = at + transmission(waiting.frame.length, waiting.rate_bps, at == busy_until_);
  departure.at = busy_until_ + waiting.delay;
  if (waiting.preserve) departure.at = last_due_ = std::max(last_due_, departure.at);
  departure.frame.turn = turns_++;
  out.push_back(departure);
}

// What a division leaves over is added to the next frame's time, while one follows the other.
Time ShapedLink::transmission(std::uint32_t bytes, std::uint64_t rate_bps, bool goes_on) {
  if (rate_bps == 0) return 0;
  if (!goes_on || carried_rate_ != rate_bps) carry_ = 0;
  const std::uint64_t work = bytes * kBytePicoseconds + carry_;  // frames are below 2 MB
  carried_rate_ = rate_bps;
  carry_ = work % rate_bps;
  return static_cast<Time>(work / rate_bps);
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
