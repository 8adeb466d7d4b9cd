// SPDX-License-Identifier: GPL-2.0-or-later
#include "selective_repeat.hpp"

#include <algorithm>

#include "../../xdp/lab_hash.h"
#include "../engine/mutant.hpp"
#include "refusal.hpp"

namespace softroce {

SelectiveRepeat::SelectiveRepeat(const TransportConfig& config, TransportHost& host)
    : config_(config), host_(host), outstanding_(host, config.message_slots) {
  // Where nothing is known of the buffers: Mittal et al., SIGCOMM 2018, section 4.1, has 100 and
  // 320 us where the base RTT is 24 us.
  const Time base = std::max<Time>(config_.base_rtt, kNanosecond);
  if (config_.timeout != 0) config_.rto_low = config_.rto_high = config_.timeout;
  if (config_.rto_low == 0) config_.rto_low = base / 24 * 100;
  if (config_.rto_high == 0) config_.rto_high = base / 24 * 320;
  config_.rto_high = std::max(config_.rto_high, config_.rto_low);
}

// ---------------------------------------------------------------- sending

void SelectiveRepeat::send_posted(SendMessage& message) {
  const auto index = static_cast<std::uint32_t>(message.handle);
  if (index >= sends_.size()) sends_.resize(index + 1);
  SendFlow& flow = sends_[index];
  Bitmap acked = std::move(flow.acked);
  acked.reset(message.count);
  flow = {.acked = std::move(acked)};
  outstanding_.add(message);
  host_.allow(message, std::min(message.count, most_out()));
}

void SelectiveRepeat::packet_sent(SendMessage& message, std::uint32_t packet, Time now) {
  SendFlow& flow = flow_of(message);
  flow.tried = true;
  if (packet == flow.cumulative) flow.since = now;  // nothing older is out
  if (flow.armed_for == kNever) {
    flow.since = now;
    arm(flow, message.handle, now + timer(message, flow));
  }
}

void SelectiveRepeat::arm(SendFlow& flow, Handle handle, Time at) {
  flow.armed_for = at;
  if (!mutated(Mutant::timeout_not_armed)) host_.wake_at(at, handle);
}

void SelectiveRepeat::retransmit(SendMessage& message, SendFlow& flow, std::uint32_t packet,
                                 Time now) {
  flow.retransmitted_below = std::max(flow.retransmitted_below, packet + 1);
  host_.retransmit(message, packet, why_, now);
}

// Each packet is checked once between two timeouts.
void SelectiveRepeat::retransmit_lost(SendMessage& message, SendFlow& flow, Time now) {
  std::uint32_t packet = std::max(flow.retransmitted_below, flow.cumulative);
  for (; packet < flow.lost_below; ++packet)
    if (!flow.acked.test(packet)) host_.retransmit(message, packet, why_, now);
  flow.retransmitted_below = std::max(flow.retransmitted_below, packet);
}

Time SelectiveRepeat::timer(const SendMessage& message, const SendFlow& flow) const {
  const Time own = timeout(message, flow);
  if (!config_.timeout_measured) return own;
  const Time measured = host_.measured_rto(message.peer);
  return std::max(own, measured != 0 ? measured : config_.rto_high);
}

Time SelectiveRepeat::backed_off(Time interval, std::uint32_t rounds, Time most) const {
  if (rounds <= kEager) return interval;
  const Time first = std::max(interval, config_.rto_high);
  const Time doubled = std::min(first << std::min(rounds - kEager, kLargestShift), most);
  const Time whole = std::max(doubled, 2 * first);
  const Time least = std::max(whole / 2, first);
  const auto room = static_cast<std::uint64_t>(whole - least + 1);
  return least + static_cast<Time>(lab_mix64(rounds) % room);
}

// ---------------------------------------------------------------- receiving

void SelectiveRepeat::receive_posted(ReceiveMessage& message, Time now) {
  const auto index = static_cast<std::uint32_t>(message.handle);
  if (index >= receives_.size()) receives_.resize(index + 1);
  ReceiveFlow& flow = receives_[index];
  flow = {.armed_for = now + longest()};
  host_.wake_at(flow.armed_for, message.handle);
}

void SelectiveRepeat::packet_arrived(ReceiveMessage& message, const LabHeader& lab, Time) {
  ReceiveFlow& flow = flow_of(message);
  if (lab.index == flow.cumulative)
    flow.cumulative = std::min(message.bitmap.next_clear(flow.cumulative), message.count);
  Feedback feedback;
  if (lab.index > flow.cumulative) feedback = out_of_order(message, lab.index);
  feedback.id = message.id;
  feedback.cumulative = flow.cumulative + mutated(Mutant::ack_one_too_many);
  feedback.echo_stamp_ns = lab.stamp_ns;
  send_control(message.peer, write(feedback), lab.path);
}

void SelectiveRepeat::packet_refused(PeerIndex peer, const LabHeader& lab, Refusal why) {
  const Naming naming = refused_message(lab, why);
  if (why == Refusal::complete)
    return send_control(
        peer, write({.id = naming.id, .cumulative = lab.count, .echo_stamp_ns = lab.stamp_ns}),
        lab.path);
  const BodyType type = why == Refusal::no_receive ? BodyType::rnr : BodyType::refuse;
  send_control(peer, write(type, naming), lab.path);
}

// ---------------------------------------------------------------- control messages

bool SelectiveRepeat::control_arrived(PeerIndex peer, std::span<const std::uint8_t> body,
                                      Time now) {
  if (body.empty()) return false;
  const auto type = static_cast<BodyType>(body[0]);
  switch (type) {
    case BodyType::packet_ack:
    case BodyType::packet_nack:
    case BodyType::packet_sack:
      return fed_back(peer, body, now);
    case BodyType::ack:
      return acknowledged(peer, body);
    case BodyType::rnr:
    case BodyType::refuse:
    case BodyType::ask:
      break;
    default:
      return false;
  }
  const auto naming = read_naming(body);
  if (!naming) return false;
  if (type == BodyType::refuse) return refused(peer, *naming, now);
  if (type == BodyType::ask) return asked(peer, *naming), true;
  SendMessage* message = find(peer, naming->id);
  if (message != nullptr && message->key == naming->key) not_ready(*message, now);
  return true;
}

bool SelectiveRepeat::fed_back(PeerIndex peer, std::span<const std::uint8_t> body, Time now) {
  const auto feedback = read_feedback(body);
  if (!feedback || !host_.echoed(peer, feedback->echo_stamp_ns, now)) return false;
  SendMessage* message = find(peer, feedback->id);
  if (message == nullptr) return true;  // over: a spurious retransmission
  if (feedback->cumulative > message->next) return false;
  if (feedback->type != BodyType::packet_ack && feedback->highest() >= message->next) return false;
  SendFlow& flow = flow_of(*message);
  flow.answered = true;
  why_ = RetransmitReason::nak;
  if (message->paused) go_on(*message, flow);
  const bool advanced = note(*message, flow, *feedback, now);
  const bool early = mutated(Mutant::ends_before_last) && message->count > 1;
  if (flow.cumulative == message->count - early)
    return host_.end(*message, WcStatus::success, now), true;
  react(*message, flow, *feedback, advanced, now);
  return true;
}

// What is here by it; whether `cumulative` advanced.
bool SelectiveRepeat::note(SendMessage& message, SendFlow& flow, const Feedback& feedback,
                           Time now) {
  if (feedback.type == BodyType::packet_nack) note_packet(message, flow, feedback.packet);
  if (feedback.type == BodyType::packet_sack) {
    std::uint64_t fresh = feedback.bits & ~flow.acked.word(feedback.packet / 64);
    for (; fresh != 0; fresh &= fresh - 1)
      note_packet(message, flow,
                  feedback.packet + static_cast<std::uint32_t>(__builtin_ctzll(fresh)));
  }
  if (feedback.cumulative <= flow.cumulative) return false;
  advance(message, flow, feedback.cumulative, now);
  return true;
}

void SelectiveRepeat::note_packet(SendMessage& message, SendFlow& flow, std::uint32_t packet) {
  if (packet < flow.cumulative || !flow.acked.set(packet)) return;
  flow.timeouts_without_progress = 0;
  flow.lost_below = std::max(flow.lost_below, packet);
  if (message.retransmit_pending != 0) host_.forget_retransmit(message, packet);
}

void SelectiveRepeat::advance(SendMessage& message, SendFlow& flow, std::uint32_t cumulative,
                              Time now) {
  for (std::uint32_t p = flow.cumulative; p < cumulative && message.retransmit_pending != 0; ++p)
    host_.forget_retransmit(message, p);
  flow.cumulative = cumulative;
  flow.since = now;
  flow.timeouts_without_progress = 0;
  const std::uint32_t room = std::min(most_out(), message.count - cumulative);
  host_.allow(message, cumulative + room);
  const Time due = now + timer(message, flow);
  if (message.next != cumulative && due < flow.armed_for) arm(flow, message.handle, due);
}

// No ids: a keepalive. One: the receiver acknowledges that the message was given up.
bool SelectiveRepeat::acknowledged(PeerIndex peer, std::span<const std::uint8_t> body) {
  if (body.size() == 1) return true;
  if (body.size() != 5) return false;
  const auto id = BodyReader(body.subspan(1)).take<std::uint32_t>();
  std::erase_if(given_up_,
                [=](const GivenUp& each) { return each.peer == peer && each.naming.id == id; });
  return true;
}

// ---------------------------------------------------------------- receiver not ready

void SelectiveRepeat::not_ready(SendMessage& message, Time now) {
  SendFlow& flow = flow_of(message);
  if (flow.waiting || flow.answered) return;  // of a packet that was sent before
  if (config_.rnr_retry < 7 && flow.not_ready >= config_.rnr_retry)
    return host_.end(message, WcStatus::rnr_retry_exc_err, now);
  const Time most = std::max(config_.rto_high, kLongestWait);
  const Time pause = backed_off(config_.rto_high, kEager + flow.not_ready++, most);
  flow.waiting = true;
  flow.timeouts_without_progress = 0;
  host_.pause(message, true);
  host_.forget_retransmissions(message);
  arm(flow, message.handle, now + pause);
}

// The first response after a pause: what was sent before was refused.
void SelectiveRepeat::go_on(SendMessage& message, SendFlow& flow) {
  flow.waiting = false;
  flow.lost_below = message.next;
  flow.retransmitted_below = flow.cumulative;
  host_.pause(message, false);
}

// ---------------------------------------------------------------- time

void SelectiveRepeat::woken(Handle subject, Time asked_for, Time now) {
  if (subject == kNoHandle) return refuse_again(now);
  if (subject & kReceiveTag) {
    ReceiveMessage* message = host_.find_receive(subject);
    if (message == nullptr || flow_of(*message).armed_for != asked_for) return;
    return timer_fired(*message, flow_of(*message), now);
  }
  SendMessage* message = host_.find_send(subject);
  if (message == nullptr || flow_of(*message).armed_for != asked_for) return;
  timer_fired(*message, flow_of(*message), now);
}

void SelectiveRepeat::timer_fired(SendMessage& message, SendFlow& flow, Time now) {
  flow.armed_for = kNever;
  why_ = flow.waiting ? RetransmitReason::rnr_nak : RetransmitReason::timeout;
  if (flow.waiting) {  // long enough: is the receiver ready by now?
    flow.waiting = false;
    host_.retransmit(message, flow.cumulative, why_, now);
    flow.since = now;
    return arm(flow, message.handle, now + timer(message, flow));
  }
  if (flow.cumulative == message.next) return;  // nothing is out: the next packet arms it
  const Time interval = timer(message, flow);
  const Time due = flow.since + backed_off(interval, flow.timeouts_without_progress);
  if (now < due) return arm(flow, message.handle, due);
  host_.write_off(message.peer, now - interval);
  flow.since = now;
  const bool stuck = message.retransmit_pending != 0;  // it waits for the window still
  if ((flow.tried || !stuck) && ++flow.timeouts_without_progress > config_.retry_limit)
    return give_up(message, now);
  flow.tried = false;
  if (!stuck) {
    if (message.paused)
      host_.retransmit(message, flow.cumulative, why_, now);
    else
      timed_out(message, flow, now);
  }
  arm(flow, message.handle, now + backed_off(timer(message, flow), flow.timeouts_without_progress));
}

void SelectiveRepeat::give_up(SendMessage& message, Time now) {
  const Naming naming{.id = message.id,
                      .key = message.key,
                      .status = static_cast<std::uint8_t>(WcStatus::retry_exc_err)};
  send_control(message.peer, write(BodyType::refuse, naming));
  if (given_up_.size() < kMostGivenUp) given_up_.push_back({message.peer, naming, 1});
  if (!refusing_) host_.wake_at(now + longest(), kNoHandle);
  refusing_ = true;
  host_.end(message, WcStatus::retry_exc_err, now);
}

void SelectiveRepeat::refuse_again(Time now) {
  std::erase_if(given_up_,
                [this](GivenUp& each) { return each.reported++ >= config_.retry_limit; });
  for (const GivenUp& each : given_up_)
    send_control(each.peer, write(BodyType::refuse, each.naming));
  refusing_ = !given_up_.empty();
  if (!refusing_) return;
  const std::uint32_t reported = given_up_.front().reported;
  host_.wake_at(now + backed_off(config_.rto_high, kEager + reported), kNoHandle);
}

// Any packet of its sender counts as a sign of activity for a receive that has not begun.
void SelectiveRepeat::timer_fired(ReceiveMessage& message, ReceiveFlow& flow, Time now) {
  const Time received = host_.last_received_at(message.peer);
  if (received > flow.asked_at) flow.timeouts_without_progress = 0;
  const Time newest = std::max(message.open ? message.last_at : received, message.posted_at);
  Time next = newest + longest();
  if (now >= next) {
    if (flow.timeouts_without_progress >= config_.retry_limit)
      return host_.end(message, WcStatus::retry_exc_err, now);
    const bool alive =
        flow.timeouts_without_progress == 0 && flow.asked_at > newest;  // but what it sends is lost
    next = now + (alive ? longest() : backed_off(config_.rto_high, flow.timeouts_without_progress));
    ++flow.timeouts_without_progress;
    flow.asked_at = now;
    send_control(message.peer, write(BodyType::ask,
                                     {.id = message.id, .key = message.key, .flag = message.open}));
  }
  flow.armed_for = next;
  host_.wake_at(next, message.handle);
}

// ---------------------------------------------------------------- messages that cannot succeed

bool SelectiveRepeat::refused(PeerIndex peer, const Naming& naming, Time now) {
  switch (static_cast<WcStatus>(naming.status)) {
    case WcStatus::rem_inv_req_err:
    case WcStatus::retry_exc_err:
      break;
    default:
      return false;
  }
  const auto status = static_cast<WcStatus>(naming.status);
  if (naming.flag) {  // by the receiver
    SendMessage* message = find(peer, naming.id);
    if (message != nullptr && message->key == naming.key) host_.end(*message, status, now);
    return true;
  }
  host_.sender_gave_up(peer, naming.id, naming.key, status, now);
  SmallBody taken(BodyType::ack);
  send_control(peer, taken.put(naming.id));
  return true;
}

void SelectiveRepeat::asked(PeerIndex peer, const Naming& naming) {
  const SendMessage* message = naming.flag ? find(peer, naming.id) : nullptr;
  if (!naming.flag || (message != nullptr && message->key == naming.key))
    return send_control(peer, SmallBody(BodyType::ack));
  send_control(peer, write(BodyType::refuse,
                           {.id = naming.id,
                            .key = naming.key,
                            .status = static_cast<std::uint8_t>(WcStatus::retry_exc_err)}));
}

}  // namespace softroce
