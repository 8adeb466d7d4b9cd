// SPDX-License-Identifier: GPL-2.0-or-later
// The requester of a reliable connection: IBA 9.7.2 (PSNs), 9.7.3 (requests), 9.7.6 (responses).
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "../mutant.hpp"
#include "operation.hpp"
#include "rc_qp.hpp"

namespace softroce {
namespace {

constexpr Time kTimeoutUnit = 4'096 * kNanosecond;  // IBA 9.7.6.1.3
constexpr std::uint8_t kForEver = 7;                // rnr_retry

// Credits by code, IBA 9.7.7.2.1 (table 47).
constexpr std::array<std::uint32_t, 31> kCredits = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

}  // namespace

RcQp::RcQp(std::uint32_t number, QpConfig config, QpHome& home)
    : ConnectedQp(number, std::move(config), home) {
  reset_requester();
}

void RcQp::entered(QpState from, Time now) {
  if (from == QpState::init && state_ == QpState::rtr) {
    expected_psn_ = attr_.rq_psn;
    executed_psn_ = psn_add(attr_.rq_psn, kPsnMask);
    resources_.assign(attr_.max_dest_rd_atomic, {});
  }
  if (from == QpState::rtr && state_ == QpState::rts)
    next_psn_ = unacked_psn_ = sent_psn_ = attr_.sq_psn;
  if (state_ == QpState::rts) {
    retries_left_ = attr_.retry_count;
    rnr_left_ = attr_.rnr_retry;
  }
  if (state_ == QpState::sqd) check_drained();
  if (state_ == QpState::reset || state_ == QpState::err) {
    reset_requester();
    reset_responder(now);
  }
}

void RcQp::reset_requester() {
  reset_congestion();
  cursor_ = 0;
  cursor_packet_ = 0;
  unanswered_ = 0;
  since_ack_request_ = 0;
  window_ = static_cast<std::int32_t>(capped(home_.congestion.window_packets));
  const bool measures = congestion_ && congestion_->measures_rtt();
  // A quarter of the window; of a window that changes, each packet.
  const auto quarter = static_cast<std::uint32_t>(window_) / 4;
  ack_request_every_ = measures ? 1 : std::clamp(quarter, 1U, kAckRequestEvery);
  stamps_.assign(measures ? std::bit_ceil(static_cast<std::uint32_t>(window_)) : 0, {});
  sequence_ = credit_limit_ = 0;
  credited_ = went_back_ = false;
  nak_is_news_ = true;
  retransmit_at_ = rnr_until_ = kNever;
  probe_.at = kNever;
}

void RcQp::check_drained() {
  if (state_ == QpState::sqd && attr_.sqd_notify && !is_draining())
    tell(AsyncEventType::sq_drained);
}

// A READ or atomic that no responder resource stands for could never be sent (IBA 11.2.4.2).
int RcQp::check_send(const SendRequest& request) const {
  if (const int error = ConnectedQp::check_send(request)) return error;
  return request.reads_remote() && attr_.max_rd_atomic == 0 ? EINVAL : 0;
}

// ---------------------------------------------------------------- sending

std::uint32_t RcQp::cursor_psn() const {
  const Send& send = sends_[cursor_];
  return send.begun ? psn_add(send.first_psn, cursor_packet_) : next_psn_;
}

bool RcQp::may_begin(const Send& send) const {
  if (state_ == QpState::sqd) return false;                             // IBA 10.3.1.5
  if (unanswered_ != 0 && (send.request.flags & kFence)) return false;  // IBA 10.8.3.3
  if (send.request.reads_remote()) return unanswered_ < attr_.max_rd_atomic;
  // One message beyond the credits may go, if it is the only one (IBA 9.7.7.2.4).
  const bool takes_receive = send.request.opcode != WrOpcode::rdma_write;
  return !credited_ || !takes_receive || psn_distance(sequence_ + 1, credit_limit_) <= 0 ||
         unacked_psn_ == sent_psn_;
}

bool RcQp::sendable(Time now) const {
  if (state_ != QpState::rts && state_ != QpState::sqd) return false;
  if (cursor_ >= sends_.size()) return false;
  if (rnr_until_ != kNever && now < rnr_until_) return false;
  if (is_paced(now)) return false;
  const Send& send = sends_[cursor_];
  if (send.status != WcStatus::success)
    return cursor_ == 0 && (send.begun || state_ == QpState::rts);
  if (!send.begun && !may_begin(send)) return false;
  return psn_distance(cursor_psn(), unacked_psn_) < window_;
}

std::optional<Stop> RcQp::why_stopped(Time now) const {
  if (state_ != QpState::rts || cursor_ >= sends_.size()) return std::nullopt;
  if ((rnr_until_ != kNever && now < rnr_until_) || went_back_) return Stop::recovery;
  if (is_paced(now)) return Stop::congestion_control;
  const Send& send = sends_[cursor_];
  if (send.status != WcStatus::success) return std::nullopt;
  if (!send.begun && !may_begin(send)) {
    if (credited_ && !send.request.reads_remote()) return Stop::credit;
    return std::nullopt;  // a fence, or READs that are outstanding
  }
  const std::uint32_t widest = capped(home_.congestion.window_packets);
  if (window_ < static_cast<std::int32_t>(widest)) return Stop::congestion_control;
  const Time empty = std::min(least_rtt_, home_.congestion.base_rtt);
  return waits_in_queues(rtt_, empty) ? Stop::queue : Stop::in_order_cap;
}

void RcQp::begin(Send& send, Time now) {
  send.begun = true;
  send.first_at = now;
  send.first_psn = next_psn_;
  send.packets = packets_of(send);
  send.sequence = ++sequence_;
  next_psn_ = psn_add(next_psn_, send.packets);
  if (send.request.reads_remote()) ++unanswered_;
}

// Alternately, and a request first: a message in response to another one is waited for, the
// acknowledgement of that one is not.
bool RcQp::poll_packet(Packet& packet, Time now) {
  if (poll_cnp(packet)) return true;
  if (std::exchange(response_next_, false) && poll_response(packet, now)) return true;
  response_next_ = poll_request(packet, now);
  return response_next_ || poll_response(packet, now);
}

bool RcQp::poll_request(Packet& packet, Time now) {
  if (!sendable(now)) return false;
  Send& send = sends_[cursor_];
  if (!send.begun && packets_of(send) >= kMostPackets) send.status = WcStatus::loc_len_err;
  if (send.status == WcStatus::success && !send.begun) begin(send, now);
  if (send.status != WcStatus::success || !write_request(send, packet)) {
    refuse(send, now);
    return false;
  }
  if (!stamps_.empty()) stamp(packet, now);
  if (psn_distance(packet.psn, sent_psn_) < 0) {
    ++send.retransmitted;
    count(Counter::tx_connected_retransmitted);
    packet.sent_before = true;
  }
  advance(send, now);
  packet.ack_request = cursor_packet_ == 0 || wants_acknowledge(now);
  if (packet.ack_request) {
    since_ack_request_ = 0;
    ack_requested_at_ = now;
    if (probe_.at == kNever && sent_psn_ == psn_add(packet.psn, 1)) probe_ = {packet.psn, now};
  }
  count_packet(Counter::tx_connected, packet);
  sent_data(packet, now);
  return true;
}

// In time for the timer, too, when congestion control has made the QP slow.
bool RcQp::wants_acknowledge(Time now) const {
  if (since_ack_request_ >= ack_request_every_) return true;
  return congestion_ && attr_.timeout != 0 &&
         now - ack_requested_at_ >= (kTimeoutUnit << attr_.timeout) / 4;
}

bool RcQp::write_request(const Send& send, Packet& packet) {
  const SendRequest& request = send.request;
  if (!request.reads_remote()) return cut(send, cursor_packet_, Service::rc, packet);
  // Before the request: an atomic whose result has no place would still be executed.
  if (!may_scatter(request.sources)) return false;
  address_peer(packet);
  packet.psn = psn_add(send.first_psn, cursor_packet_);
  packet.rkey = request.rkey;
  if (request.opcode == WrOpcode::rdma_read) {
    // After the part received already, when requested again (IBA 9.7.3.2, C9-71).
    const std::uint64_t offset = std::uint64_t{cursor_packet_} * attr_.path_mtu;
    packet.opcode = opcode_of(Service::rc, Operation::read_request);
    packet.remote_address = request.remote_address + offset;
    packet.dma_length = static_cast<std::uint32_t>(send.bytes - offset);
    return true;
  }
  const bool swap = request.opcode == WrOpcode::compare_swap;
  packet.opcode = opcode_of(Service::rc, swap ? Operation::compare_swap : Operation::fetch_add);
  packet.remote_address = request.remote_address;
  packet.swap_or_add = swap ? request.swap : request.compare_add;
  packet.compare = swap ? request.compare_add : 0;
  return true;
}

void RcQp::advance(const Send& send, Time now) {
  ++since_ack_request_;
  cursor_packet_ = send.request.reads_remote() ? send.packets : cursor_packet_ + 1;
  const std::uint32_t behind = psn_add(send.first_psn, cursor_packet_);
  if (psn_distance(behind, sent_psn_) > 0) {
    sent_psn_ = behind;
    if (cursor_packet_ == send.packets) note_sent(send, now);
  }
  if (cursor_packet_ == send.packets) {
    ++cursor_;
    cursor_packet_ = 0;
  }
  if (retransmit_at_ == kNever) set_timer(now);
}

void RcQp::refuse(Send& send, Time now) {
  if (send.status == WcStatus::success) send.status = WcStatus::loc_prot_err;
  if (cursor_ != 0) return;
  fail_sends(send.status, now);
  fail(now);
}

void RcQp::set_timer(Time now) {
  const bool waits = unacked_psn_ != sent_psn_ && attr_.timeout != 0 && rnr_until_ == kNever &&
                     !mutated(Mutant::rc_timer_not_armed);
  retransmit_at_ = waits ? now + (kTimeoutUnit << attr_.timeout) : kNever;
}

// ---------------------------------------------------------------- time

Time RcQp::next_timeout() const { return std::min({retransmit_at_, rnr_until_, paced_until_}); }

void RcQp::handle_timeout(Time now) {
  if (now >= paced_until_) paced_until_ = kNever;
  if (now >= rnr_until_) {
    rnr_until_ = kNever;
    set_timer(now);
  }
  if (now < retransmit_at_ || postpone_timer(now)) return;
  count(Counter::local_ack_timeout_err);
  note_psns(QpEventKind::timeout, 0, unacked_psn_, unacked_psn_, now);
  retry(RetransmitReason::timeout, now);
  nak_is_news_ = true;  // of what is sent now
}

// What congestion control still holds back has not been lost again.
bool RcQp::postpone_timer(Time now) {
  if (!is_paced(now) || cursor_ >= sends_.size() || cursor_psn() != unacked_psn_) return false;
  retransmit_at_ = paced_until_ + (kTimeoutUnit << attr_.timeout);
  return true;
}

// From the oldest that is not acknowledged, so often (IBA 9.7.6.1.3, 9.9.2.4.1).
void RcQp::retry(RetransmitReason reason, Time now) {
  if (mutated(Mutant::rc_retries_unlimited)) ++retries_left_;
  if (retries_left_ == 0) return fail_request(unacked_psn_, WcStatus::retry_exc_err, now);
  --retries_left_;
  if (congestion_) {
    if (reason == RetransmitReason::timeout) congestion_->on_timeout(now);
    if (reason == RetransmitReason::nak)
      congestion_->on_loss(now);  // not of a response: the other way
    set_window(now);
  }
  went_back_ = true;
  nak_is_news_ = false;
  ahead_psn_ = unacked_psn_;
  count(Counter::req_went_back);
  go_back(unacked_psn_, reason, now);
  set_timer(now);
}

void RcQp::go_back(std::uint32_t psn, RetransmitReason reason, Time now) {
  const std::uint32_t last = psn_add(sent_psn_, kPsnMask);
  note_psns(QpEventKind::retransmit, static_cast<std::uint8_t>(reason), psn, last, now);
  probe_.at = kNever;  // Karn's algorithm, as in `stamp`
  seek(psn_add(psn, mutated(Mutant::rc_goes_back_too_little)));
}

// Sets the cursor on a PSN in [unacked, next].
void RcQp::seek(std::uint32_t psn) {
  for (cursor_ = 0; cursor_ < sends_.size() && sends_[cursor_].begun; ++cursor_) {
    const Send& send = sends_[cursor_];
    if (psn_distance(psn, send.last_psn()) > 0) continue;
    cursor_packet_ = (psn - send.first_psn) & kPsnMask;
    return;
  }
  cursor_packet_ = 0;
}

// ---------------------------------------------------------------- responses

bool RcQp::is_outstanding(std::uint32_t psn) const {
  return psn_distance(psn, unacked_psn_) >= 0 && psn_distance(psn, sent_psn_) < 0;
}

void RcQp::handle_response(const Packet& packet, const OpcodeTraits& traits, Time now) {
  if (state_ != QpState::rts && state_ != QpState::sqd)
    return drop(Counter::rx_qp_not_ready, packet, now);
  if (traits.headers & kAeth) take_credits(packet);
  hops_ = packet.hops();
  if (!is_outstanding(packet.psn)) return drop(Counter::rx_ghost, packet, now);
  count_packet(Counter::rx_connected, packet);
  if (traits.family == Family::read_response || (traits.headers & kAtomicAckEth))
    handle_result(packet, traits, now);
  else
    handle_acknowledge(packet, now);
  check_drained();
}

// Also of an acknowledgement that carries nothing else (IBA 9.7.7.2.3, unsolicited).
void RcQp::take_credits(const Packet& packet) {
  if (packet.syndrome > kAckUnlimited) return;
  const bool counts = packet.syndrome != kAckUnlimited;
  const std::uint32_t limit = counts ? (packet.msn + kCredits[packet.syndrome]) & kPsnMask : 0;
  // An old one that comes late does not take back what a newer one gave.
  if (counts && credited_ && psn_distance(limit, credit_limit_) < 0) return;
  credited_ = counts;
  credit_limit_ = limit;
}

void RcQp::handle_acknowledge(const Packet& packet, Time now) {
  switch (packet.syndrome >> 5) {
    case 0:
      count(Counter::rx_ack);
      note_psns(QpEventKind::ack_received, packet.syndrome, packet.psn, packet.psn, now);
      return acknowledged(packet.psn, now);
    case kRnrNak >> 5:
      return handle_rnr(packet, now);
    case kNakSequence >> 5:
      return handle_nak(packet, now);
    default:  // reserved, IBA table 43
      return drop(Counter::rx_bad_response, packet, now);
  }
}

// A NAK acknowledges what was before it (IBA 9.7.5.2.2). If a READ's response is missing there,
// that is requested first.
void RcQp::handle_nak(const Packet& packet, Time now) {
  note_psns(QpEventKind::nak_received, packet.syndrome, packet.psn, packet.psn, now);
  switch (packet.syndrome) {
    case kNakSequence:
      count(Counter::packet_seq_err);
      if (acknowledged_before(packet.psn, now) && nak_is_news_) retry(RetransmitReason::nak, now);
      return;
    case kNakInvalid:
      return fail_request(packet.psn, WcStatus::rem_inv_req_err, now);
    case kNakAccess:
      return fail_request(packet.psn, WcStatus::rem_access_err, now);
    case kNakOperation:
      return fail_request(packet.psn, WcStatus::rem_op_err, now);
    default:
      return drop(Counter::rx_bad_response, packet, now);
  }
}

// IBA 9.7.5.2.8 and 9.9.2.4.2.
void RcQp::handle_rnr(const Packet& packet, Time now) {
  count(Counter::rnr_nak_retry_err);
  note_psns(QpEventKind::rnr_received, packet.syndrome & 31, packet.psn, packet.psn, now);
  if (!acknowledged_before(packet.psn, now) || rnr_until_ != kNever) return;
  if (attr_.rnr_retry != kForEver) {
    if (rnr_left_ == 0) return fail_request(packet.psn, WcStatus::rnr_retry_exc_err, now);
    --rnr_left_;
  }
  go_back(packet.psn, RetransmitReason::rnr_nak, now);
  rnr_until_ = now + rnr_time(packet.syndrome & 31);
  set_timer(now);
}

// False: a request before this PSN has no response.
bool RcQp::acknowledged_before(std::uint32_t psn, Time now) {
  const std::uint32_t before = psn_add(psn, kPsnMask);
  if (is_outstanding(before)) acknowledged(before, now);
  return is_outstanding(psn) && unacked_psn_ == psn;
}

// Up to and with this PSN, which is outstanding. Requests end in their order; a READ or an atomic
// ends with its response, so that an acknowledgement of what came later shows that the response is
// lost (IBA 9.7.5.1.4 and 9.7.6.1.2, implied NAK).
void RcQp::acknowledged(std::uint32_t psn, Time now) {
  std::uint32_t unacked = psn_add(psn, 1);
  bool missing = false;
  while (!sends_.empty() && sends_.front().begun) {
    const Send& oldest = sends_.front();
    if (!oldest.is_answered()) {
      const std::uint32_t awaited = psn_add(oldest.first_psn, oldest.answered);
      missing = psn_distance(psn, awaited) >= 0;
      if (missing) unacked = awaited;
      break;
    }
    if (psn_distance(psn, oldest.last_psn()) < 0) break;
    const Send ended = std::move(sends_.front());
    sends_.pop_front();
    if (cursor_ != 0)
      --cursor_;
    else
      cursor_packet_ = 0;
    complete_send(ended, WcStatus::success, now);
  }
  if (unacked != unacked_psn_) progressed(unacked, now);
  if (missing && !went_back_) {
    count(Counter::implied_nak_seq_err);
    retry(RetransmitReason::implied_nak, now);
  }
}

// ---------------------------------------------------------------- congestion control

std::uint32_t RcQp::capped(std::uint32_t window_packets) const {
  return std::min({window_packets, home_.congestion.most_unacked, kMostUnacked});
}

void RcQp::set_window(Time now) {
  window_ = static_cast<std::int32_t>(capped(congestion_->window_packets()));
  set_pace(now);
}

// Only the first transmission: after a retransmission the acknowledged one is ambiguous (Karn's
// algorithm, RFC 6298 section 3).
void RcQp::stamp(const Packet& packet, Time now) {
  const bool first = psn_distance(packet.psn, sent_psn_) >= 0;
  stamps_[packet.psn & (stamps_.size() - 1)] = first ? Stamp{packet.psn, now} : Stamp{};
}

void RcQp::probe_ended(std::uint32_t unacked, Time now) {
  if (probe_.at == kNever || psn_distance(unacked, probe_.psn) <= 0) return;
  rtt_ = now - std::exchange(probe_.at, kNever);
  least_rtt_ = std::min(least_rtt_, rtt_);
}

void RcQp::sample(std::uint32_t unacked, Time now) {
  const std::uint32_t newest = psn_add(unacked, kPsnMask);
  const Stamp& stamp = stamps_[newest & (stamps_.size() - 1)];
  const auto packets = static_cast<std::uint32_t>(psn_distance(unacked, unacked_psn_));
  congestion_->on_report({.rtt = stamp.psn == newest ? now - stamp.at : 0,
                          .delivered_packets = packets,
                          .ce_packets = 0,
                          .hops = hops_},
                         now);
  set_window(now);
}

void RcQp::progressed(std::uint32_t unacked, Time now) {
  if (!stamps_.empty()) sample(unacked, now);
  probe_ended(unacked, now);
  unacked_psn_ = unacked;
  retries_left_ = attr_.retry_count;
  rnr_left_ = attr_.rnr_retry;
  went_back_ = false;
  nak_is_news_ = true;
  rnr_until_ = kNever;
  set_timer(now);
  // What was to be sent again has arrived meanwhile.
  if (cursor_ < sends_.size() && psn_distance(cursor_psn(), unacked) < 0) seek(unacked);
}

// ---------------------------------------------------------------- results of READs and atomics

RcQp::Send* RcQp::oldest_unanswered() {
  const auto found = std::ranges::find_if(
      sends_, [](const Send& send) { return send.begun && !send.is_answered(); });
  return found == sends_.end() ? nullptr : &*found;
}

void RcQp::handle_result(const Packet& packet, const OpcodeTraits& traits, Time now) {
  Send* send = oldest_unanswered();
  if (send == nullptr) return drop(Counter::rx_ghost, packet, now);
  const std::uint32_t awaited = psn_add(send->first_psn, send->answered);
  const std::int32_t ahead = psn_distance(packet.psn, awaited);
  if (ahead < 0) return drop(Counter::rx_ghost, packet, now);  // it was here before
  if (ahead > 0) {                                             // what lies between is lost
    // While the responder works on earlier requests, it has not reached the new
    // request.
    if (went_back_ && psn_distance(packet.psn, ahead_psn_) > 0) {
      ahead_psn_ = packet.psn;
      set_timer(now);
    }
    return acknowledged(packet.psn, now);
  }
  if (!result_fits(*send, packet, traits)) {
    drop(Counter::rx_bad_response, packet, now);
    return fail_request(packet.psn, WcStatus::bad_resp_err, now);
  }
  if (!store_result(*send, packet)) return fail_request(packet.psn, WcStatus::loc_prot_err, now);
  if (++send->answered == send->packets) --unanswered_;
  acknowledged(packet.psn, now);
}

// IBA 9.7.6.1.4: the opcode and the length that the place in the response calls for.
bool RcQp::result_fits(const Send& send, const Packet& packet, const OpcodeTraits& traits) const {
  if (send.request.opcode != WrOpcode::rdma_read)
    return (traits.headers & kAtomicAckEth) && packet.payload_bytes == 0;
  if ((traits.headers & kAeth) && packet.syndrome > kAckUnlimited) return false;
  const std::uint64_t left = send.bytes - std::uint64_t{send.answered} * attr_.path_mtu;
  const bool last = send.answered + 1 == send.packets;
  return traits.family == Family::read_response && traits.ends == last &&
         packet.payload_bytes == std::min<std::uint64_t>(left, attr_.path_mtu);
}

bool RcQp::store_result(const Send& send, const Packet& packet) {
  if (send.request.opcode == WrOpcode::rdma_read)
    return scatter(send.request.sources, std::uint64_t{send.answered} * attr_.path_mtu,
                   packet.payload, packet.payload_bytes);
  std::uint8_t original[sizeof packet.original];
  std::memcpy(original, &packet.original, sizeof original);
  return scatter(send.request.sources, 0, original, sizeof original);
}

// ---------------------------------------------------------------- ends

// The request with this PSN, or an older one whose response is missing, ends in `status`, what was
// before it in success, and the QP is in error (IBA 9.9.2.3).
void RcQp::fail_request(std::uint32_t psn, WcStatus status, Time now) {
  while (!sends_.empty() && sends_.front().begun && sends_.front().is_answered() &&
         psn_distance(psn, sends_.front().last_psn()) > 0) {
    const Send before = std::move(sends_.front());
    sends_.pop_front();
    complete_send(before, WcStatus::success, now);
  }
  fail_sends(status, now);
  fail(now);
}

}  // namespace softroce
