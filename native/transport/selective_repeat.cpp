// SPDX-License-Identifier: GPL-2.0-or-later
#include "selective_repeat.hpp"

#include "../engine/mutant.hpp"

namespace softroce {

// ---------------------------------------------------------------- sending

void SelectiveRepeat::posted(SendMessage& message) {
  const std::uint32_t index = index_of(message.handle);
  if (index >= sends_.size()) sends_.resize(index + 1);
  SendFlow& flow = sends_[index];
  Bitmap acked = std::move(flow.acked);
  acked.reset(message.count);
  flow = {.acked = std::move(acked)};
  engine().allow(message, std::min(message.count, most_out()));
}

void SelectiveRepeat::packet_sent(SendMessage& message, std::uint32_t packet, Time now) {
  SendFlow& flow = flow_of(message);
  flow.sent_since_timeout = true;
  if (packet == flow.cumulative) flow.timer_start = now;  // it is the oldest in flight
  if (message.timer_at == kNever) {
    flow.timer_start = now;
    arm(message, now + timer(message, flow));
  }
}

void SelectiveRepeat::arm(SendMessage& message, Time at) {
  if (!mutated(Mutant::timeout_not_armed)) engine().set_timer(message.handle, at);
}

bool SelectiveRepeat::retransmit(SendMessage& message, SendFlow& flow, std::uint32_t packet) {
  flow.retransmitted_below = std::max(flow.retransmitted_below, packet + 1);
  return Session::retransmit(message, packet, why_);
}

// A packet is retransmitted at most once between two timeouts.
bool SelectiveRepeat::retransmit_lost(SendMessage& message, SendFlow& flow) {
  std::uint32_t packet = std::max(flow.retransmitted_below, flow.cumulative);
  for (; packet < flow.lost_below; ++packet)
    if (!flow.acked.test(packet) && !Session::retransmit(message, packet, why_)) return false;
  flow.retransmitted_below = std::max(flow.retransmitted_below, packet);
  return true;
}

Time SelectiveRepeat::timer(const SendMessage& message, const SendFlow& flow) const {
  if (!config().timeout_measured) return timeout(message, flow);
  const RttEstimate& rtt = peer(message.peer).rtt;
  return rtt.srtt != 0 ? rtt.rto(timing().clock_granularity_ns * kNanosecond) : rto_high();
}

Time SelectiveRepeat::backed_off(Time interval, std::uint32_t timeouts_without_progress) const {
  const std::int64_t doublings = std::int64_t{timeouts_without_progress} - timing().eager_rounds;
  if (doublings <= 0) return interval;
  const Time longest = std::max(rto_high(), std::min(rto_high() << kMostDoublings, kLongestWait));
  const Time first = std::max(interval, rto_high());
  const Time doubled =
      std::min(first << std::min<std::int64_t>(doublings, kMostDoublings), longest);
  const Time whole = std::max(doubled, 2 * first);
  const Time least = std::max(whole / 2, first);
  return least + static_cast<Time>(lab_mix64(timeouts_without_progress) %
                                   static_cast<std::uint64_t>(whole - least + 1));
}

// ---------------------------------------------------------------- feedback

void SelectiveRepeat::feedback_known(SendMessage& message, const Feedback& feedback) {
  SendFlow& flow = flow_of(message);
  why_ = RetransmitReason::nak;
  if (message.paused) resume(message, flow);
  const bool advanced = note_feedback(message, flow, feedback);
  const bool early = mutated(Mutant::ends_before_last) && message.count > 1;
  if (flow.cumulative == message.count - early)
    finish_send(message);
  else
    react(message, flow, advanced);
}

// Notes which packets have arrived. Returns whether `cumulative` advanced.
bool SelectiveRepeat::note_feedback(SendMessage& message, SendFlow& flow,
                                    const Feedback& feedback) {
  if (feedback.type == BodyType::packet_nack) note_packet(message, flow, feedback.packet);
  if (feedback.type == BodyType::packet_sack) {
    std::uint64_t new_bits = feedback.bits & ~flow.acked.word(feedback.packet / 64);
    for (; new_bits != 0; new_bits &= new_bits - 1)
      note_packet(message, flow,
                  feedback.packet + static_cast<std::uint32_t>(__builtin_ctzll(new_bits)));
  }
  if (feedback.cumulative <= flow.cumulative) return false;
  advance(message, flow, feedback.cumulative);
  return true;
}

void SelectiveRepeat::note_packet(SendMessage& message, SendFlow& flow, std::uint32_t packet) {
  if (packet < flow.cumulative || !flow.acked.set(packet)) return;
  flow.timeouts_without_progress = 0;
  flow.lost_below = std::max(flow.lost_below, packet);
  if (message.retransmit_pending != 0) engine().forget_retransmit(message, packet);
}

void SelectiveRepeat::advance(SendMessage& message, SendFlow& flow, std::uint32_t cumulative) {
  for (std::uint32_t p = flow.cumulative; p < cumulative && message.retransmit_pending != 0; ++p)
    engine().forget_retransmit(message, p);
  flow.cumulative = cumulative;
  flow.timer_start = now();
  flow.timeouts_without_progress = 0;
  const std::uint32_t room = std::min(most_out(), message.count - cumulative);
  engine().allow(message, cumulative + room);
  const Time due = now() + timer(message, flow);
  if (message.next != cumulative && due < message.timer_at) arm(message, due);
}

// ---------------------------------------------------------------- receiver not ready

void SelectiveRepeat::receiver_ready(SendMessage& message) {
  SendFlow& flow = flow_of(message);
  why_ = RetransmitReason::rnr_nak;
  resume(message, flow);
  if (!retransmit_lost(message, flow)) return;
  flow.timer_start = now();
  arm(message, now() + timer(message, flow));
}

// The receiver refused all packets that were sent before the pause: they count as lost.
void SelectiveRepeat::resume(SendMessage& message, SendFlow& flow) {
  flow.lost_below = message.next;
  flow.retransmitted_below = flow.cumulative;
  flow.timeouts_without_progress = 0;
  pause(message, false);
}

// ---------------------------------------------------------------- time

void SelectiveRepeat::check_send(SendMessage& message) {
  SendFlow& flow = flow_of(message);
  if (message.paused) {  // the receiver was not ready
    probe_receiver(message);
    return set_timer(message, now_ns() + timing().t_max_ns);
  }
  if (flow.cumulative == message.next) return;  // nothing in flight: the next packet arms it
  const Time interval = timer(message, flow);
  const Time due = flow.timer_start + backed_off(interval, flow.timeouts_without_progress);
  if (now() < due) return arm(message, due);
  engine().write_off(message.peer, now() - interval);
  flow.timer_start = now();
  const bool waits_for_window = message.retransmit_pending != 0;
  if (flow.sent_since_timeout || !waits_for_window) ++flow.timeouts_without_progress;
  flow.sent_since_timeout = false;
  const Handle handle = message.handle;
  why_ = RetransmitReason::timeout;
  if (!waits_for_window) timed_out(message, flow);
  if (engine().find_send(handle) == nullptr) return;  // given up
  arm(message, now() + backed_off(timer(message, flow), flow.timeouts_without_progress));
}

}  // namespace softroce
