// SPDX-License-Identifier: GPL-2.0-or-later
#include "queue_pair.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace softroce {
namespace {

constexpr std::uint32_t kMostReads = 128;                          // what max_rd_atomic may be
constexpr std::uint64_t kLongestMessage = std::uint64_t{1} << 31;  // IBA 9.7.1

bool is_path_mtu(std::uint32_t bytes) {
  return bytes == 256 || bytes == 512 || bytes == 1024 || bytes == 2048 || bytes == 4096;
}

// In addition to those of all that end in error.
std::optional<Counter> counted_error(WcStatus status, bool receive) {
  if (status == WcStatus::wr_flush_err)
    return receive ? Counter::resp_cqe_flush_error : Counter::req_cqe_flush_error;
  if (receive) {
    if (status == WcStatus::loc_len_err) return Counter::resp_local_length_error;
    return std::nullopt;
  }
  switch (status) {
    case WcStatus::rem_inv_req_err:
      return Counter::req_remote_invalid_request;
    case WcStatus::rem_access_err:
      return Counter::req_remote_access_errors;
    case WcStatus::rem_op_err:
      return Counter::req_remote_operation_errors;
    case WcStatus::retry_exc_err:
      return Counter::req_transport_retries_exceeded;
    case WcStatus::rnr_retry_exc_err:
      return Counter::req_rnr_retries_exceeded;
    default:
      return std::nullopt;
  }
}

}  // namespace

WcOpcode completed_opcode(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::rdma_write:
    case WrOpcode::rdma_write_with_immediate:
      return WcOpcode::rdma_write;
    case WrOpcode::rdma_read:
      return WcOpcode::rdma_read;
    case WrOpcode::compare_swap:
      return WcOpcode::compare_swap;
    case WrOpcode::fetch_add:
      return WcOpcode::fetch_add;
    case WrOpcode::bind_window:
      return WcOpcode::bind_window;
    case WrOpcode::local_invalidate:
      return WcOpcode::local_invalidate;
    default:
      return WcOpcode::send;
  }
}

QueuePair::QueuePair(std::uint32_t number, QpConfig config, QpHome& home)
    : number_(number),
      config_(std::move(config)),
      home_(home),
      receives_(config_.cap.max_recv_wr, config_.cap.max_recv_sge) {}

// ---------------------------------------------------------------- states and attributes

int QueuePair::modify(const QpAttr& attr, std::uint32_t mask, Time now) {
  const QpState from = mask & kAttrCurState ? attr.current_state : state_;
  const QpState to = mask & kAttrState ? attr.state : from;
  if (from != state_ || !transition_is_ok(config_.type, from, to, mask)) return EINVAL;
  if (!acceptable(attr, mask)) return EINVAL;
  take(attr, mask);
  if (to != state_ || to == QpState::reset) enter(to, now);
  return 0;
}

// As Linux's rxe_qp_chk_attr (drivers/infiniband/sw/rxe/rxe_qp.c).
bool QueuePair::acceptable(const QpAttr& attr, std::uint32_t mask) const {
  if ((mask & kAttrPort) && attr.port != 1) return false;
  if ((mask & kAttrPkeyIndex) && attr.pkey_index != 0) return false;
  if ((mask & kAttrPathMtu) && (!is_path_mtu(attr.path_mtu) || attr.path_mtu > home_.port_mtu))
    return false;
  if ((mask & kAttrMaxReads) && attr.max_rd_atomic > kMostReads) return false;
  if ((mask & kAttrMaxDestReads) && attr.max_dest_rd_atomic > kMostReads) return false;
  if ((mask & kAttrTimeout) && attr.timeout > 31) return false;
  if ((mask & kAttrRetryCount) && attr.retry_count > 7) return false;
  if ((mask & kAttrRnrRetry) && attr.rnr_retry > 7) return false;
  if ((mask & kAttrMinRnrTimer) && attr.min_rnr_timer > 31) return false;
  if (mask & kAttrAddress) {
    const auto index = attr.address.sgid_index;
    if (index >= home_.gids.size()) return false;
    if (home_.gids[index].is_ipv4() != attr.address.destination.is_ipv4()) return false;
  }
  return true;
}

void QueuePair::take(const QpAttr& attr, std::uint32_t mask) {
  if (mask & kAttrAccess) attr_.access = attr.access;
  if (mask & kAttrPkeyIndex) attr_.pkey_index = attr.pkey_index;
  if (mask & kAttrPort) attr_.port = attr.port;
  if (mask & kAttrQkey) attr_.qkey = attr.qkey;
  if (mask & kAttrAddress) attr_.address = attr.address;
  if (mask & kAttrPathMtu) attr_.path_mtu = attr.path_mtu;
  if (mask & kAttrTimeout) attr_.timeout = attr.timeout;
  if (mask & kAttrRetryCount) attr_.retry_count = attr.retry_count;
  if (mask & kAttrRnrRetry) attr_.rnr_retry = attr.rnr_retry;
  if (mask & kAttrRqPsn) attr_.rq_psn = attr.rq_psn & kPsnMask;
  if (mask & kAttrSqPsn) attr_.sq_psn = attr.sq_psn & kPsnMask;
  if (mask & kAttrMaxReads) attr_.max_rd_atomic = attr.max_rd_atomic;
  if (mask & kAttrMaxDestReads) attr_.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if (mask & kAttrMinRnrTimer) attr_.min_rnr_timer = attr.min_rnr_timer;
  if (mask & kAttrDestQpn) attr_.dest_qp = attr.dest_qp & 0xFFFFFF;
  if (mask & kAttrSqdNotify) attr_.sqd_notify = attr.sqd_notify;
}

void QueuePair::enter(QpState state, Time now) {
  const QpState from = std::exchange(state_, state);
  note_state(from, now);
  entered(from, now);
  if (state == QpState::reset) {  // requests go without completions, IBA 10.3.1.1
    sends_.clear();
    behind_ = 0;
    while (receives_.take()) continue;
    attr_ = {};
    doomed_ = false;
  } else if (state == QpState::err) {
    flush_sends(now);
    flush_receives(now);
  }
}

void QueuePair::fail(Time now) {
  if (state_ != QpState::err) enter(QpState::err, now);
}

void QueuePair::fail(AsyncEventType event, Time now) {
  if (state_ == QpState::err) return;
  fail(now);
  tell(event);
}

// ---------------------------------------------------------------- what is counted and logged

void QueuePair::note(QpEvent event, Time now) {
  event.qp = number_;
  event.at = now;
  home_.events->note(event);
}

void QueuePair::note_state(QpState from, Time now) {
  if (!logged() || from == state_) [[likely]]
    return;
  note({.kind = QpEventKind::state,
        .code = static_cast<std::uint8_t>(state_),
        .from = static_cast<std::uint8_t>(from)},
       now);
}

void QueuePair::drop(Counter why, const Packet& packet, Time now) {
  count(why);
  note_psns(QpEventKind::dropped, static_cast<std::uint8_t>(why), packet.psn, packet.psn, now);
}

// ---------------------------------------------------------------- posting

int QueuePair::why_refused(const SendRequest& request, std::size_t before) const {
  if (state_ < QpState::rts) return EINVAL;
  if (outstanding_sends() + before >= config_.cap.max_send_wr) return ENOMEM;
  return what_is_wrong(request);
}

int QueuePair::what_is_wrong(const SendRequest& request) const {
  if (request.sources.size() > config_.cap.max_send_sge) return EINVAL;
  if ((request.flags & kInline) &&
      (request.reads_remote() || request.bytes() > config_.cap.max_inline_data))
    return EINVAL;
  if (const int error = check_send(request)) return error;
  if (keeper_) [[unlikely]] {  // the peer's key is of one RNIC alone; inline bytes are a copy
    if (request.opcode >= WrOpcode::local_invalidate) return EOPNOTSUPP;
    if ((request.flags & kOnce) && (request.flags & kInline)) return EINVAL;
  }
  return 0;
}

void QueuePair::take_send(SendRequest&& request, Time now) {
  if (request.is_local()) [[unlikely]]
    return carry_out(request, now);
  Send send;
  send.bytes = request.bytes();
  send.posted_at = now;
  if (send.bytes > kLongestMessage) send.status = WcStatus::loc_len_err;
  if (logged()) [[unlikely]]
    note({.kind = QpEventKind::post_send,
          .code = static_cast<std::uint8_t>(request.opcode),
          .wr_id = request.wr_id,
          .bytes = send.bytes},
         now);
  send.request = std::move(request);
  sends_.push_back(std::move(send));
  if (state_ >= QpState::sqe) flush_sends(now);
}

// At once: requests that were posted before use no window of this RNIC. Its completion keeps the
// order (IBA 10.8.3.3). What fails brings the queue pair down.
void QueuePair::carry_out(const SendRequest& request, Time now) {
  LocalEnd end;
  end.signaled = config_.signal_all || (request.flags & kSignaled);
  end.completion.wr_id = request.wr_id;
  end.completion.opcode = completed_opcode(request.opcode);
  end.completion.qp_num = number_;
  if (state_ >= QpState::sqe) return complete_local(end, WcStatus::wr_flush_err, now);
  if (request.opcode == WrOpcode::bind_window) {
    if (!home_.memory.bind(request.rkey, *request.binding))
      end.completion.status = WcStatus::mw_bind_err;
  } else if (!home_.memory.invalidate(request.invalidate_rkey, config_.protection_domain,
                                      number_)) {
    end.completion.status = WcStatus::loc_qp_op_err;
  }
  if (sends_.empty()) return complete_local(end, WcStatus::success, now);
  auto& behind = sends_.back().behind;
  if (!behind) behind = std::make_unique<std::deque<LocalEnd>>();
  behind->push_back(end);
  ++behind_;
}

// `before`: how what was posted before it ended.
void QueuePair::complete_local(const LocalEnd& end, WcStatus before, Time now) {
  WorkCompletion completion = end.completion;
  completion.completed_at = now;
  if (before != WcStatus::success || doomed_)
    completion.status = WcStatus::wr_flush_err;
  else if (completion.status != WcStatus::success)
    doomed_ = true;
  count_end(completion);
  if (end.signaled || completion.status != WcStatus::success) push(*config_.send_cq, completion);
}

int QueuePair::post_send(SendRequest&& request, Time now) {
  if (const int error = why_refused(request, 0)) return error;
  take_send(std::move(request), now);
  return 0;
}

int QueuePair::post_sends(std::span<SendRequest> requests, Time now) {
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (const int error = why_refused(requests[i], i)) return error;
  for (auto& request : requests) take_send(std::move(request), now);
  return 0;
}

int QueuePair::post_receive(ReceiveRequest&& request, Time now) {
  if (state_ == QpState::reset || config_.srq) return EINVAL;
  QpEvent posted;
  if (logged()) [[unlikely]]
    posted = {.kind = QpEventKind::post_recv, .wr_id = request.wr_id, .bytes = request.bytes()};
  const int error = receives_.post(std::move(request));
  if (error == 0 && logged()) [[unlikely]]
    note(posted, now);
  if (error == 0 && state_ == QpState::err) flush_receives(now);
  return error;
}

// ---------------------------------------------------------------- what may go on elsewhere

int QueuePair::keep_unfinished(std::shared_ptr<CompletionQueue> failures) {
  if (config_.type != QpType::rc) return EOPNOTSUPP;
  keeper_ = std::make_unique<Keeper>();
  keeper_->failures = std::move(failures);
  return 0;
}

Unfinished QueuePair::leave(Time now) {
  if (!keeper_) return {};
  fail(now);
  keeper_->unfinished.next_psn = next_psn().value_or(0);
  keeper_->unfinished.expected_psn = expected_psn().value_or(0);
  return std::exchange(keeper_->unfinished, {});
}

// ---------------------------------------------------------------- packets

StoppedFlow QueuePair::flow() const {
  return {static_cast<std::uint32_t>(attr_.address.destination.low), source_port(), true};
}

void QueuePair::address(Packet& packet, const AddressVector& to) const {
  packet.destination_mac = to.mac;
  packet.source = home_.gids[to.sgid_index];
  packet.destination = to.destination;
  // A port per QP spreads connections over paths, and keeps each on one.
  packet.source_port = source_port();
  packet.traffic_class = to.traffic_class;
  packet.hop_limit = to.hop_limit;
  packet.flow_label = to.flow_label;
}

bool QueuePair::load(const SendRequest& request, std::uint64_t offset, std::uint32_t bytes,
                     Packet& packet) {
  const std::uint8_t* payload = home_.carries_payload ? gather(request, offset, bytes) : nullptr;
  if (payload == nullptr && home_.carries_payload) return false;
  packet.payload = payload;
  packet.payload_bytes = bytes;
  return true;
}

// In place where one element holds them, else copied together. Null: they may not be read.
const std::uint8_t* QueuePair::gather(const SendRequest& request, std::uint64_t offset,
                                      std::uint32_t bytes) {
  static constexpr std::uint8_t kNothing = 0;
  if (bytes == 0) return &kNothing;
  if (!request.inline_bytes.empty()) return request.inline_bytes.data() + offset;
  std::uint32_t copied = 0;
  for (const auto& source : request.sources) {
    if (offset >= source.length) {
      offset -= source.length;
      continue;
    }
    const auto piece =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(source.length - offset, bytes - copied));
    const std::uint8_t* at = home_.memory.resolve(source.lkey, source.address + offset, piece, 0,
                                                  config_.protection_domain);
    if (at == nullptr) return nullptr;
    if (piece == bytes) return at;
    scratch_.resize(home_.port_mtu);
    std::memcpy(scratch_.data() + copied, at, piece);
    copied += piece;
    offset = 0;
    if (copied == bytes) return scratch_.data();
  }
  return nullptr;
}

bool QueuePair::may_scatter(std::span<const ScatterGather> targets) const {
  if (!home_.carries_payload) return true;
  return std::ranges::all_of(targets, [this](const ScatterGather& target) {
    return target.length == 0 || home_.memory.resolve(target.lkey, target.address, target.length,
                                                      kLocalWrite, config_.protection_domain);
  });
}

bool QueuePair::scatter(std::span<const ScatterGather> targets, std::uint64_t offset,
                        const std::uint8_t* bytes, std::uint32_t count,
                        std::uint32_t protection_domain) {
  if (!home_.carries_payload) return true;
  for (const auto& target : targets) {
    if (count == 0) return true;
    if (offset >= target.length) {
      offset -= target.length;
      continue;
    }
    const auto piece =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(target.length - offset, count));
    std::uint8_t* at = home_.memory.resolve(target.lkey, target.address + offset, piece,
                                            kLocalWrite, protection_domain);
    if (at == nullptr) return false;
    if (bytes != nullptr) {  // else the simulated fabric moves none
      std::memcpy(at, bytes, piece);
      bytes += piece;
    }
    count -= piece;
    offset = 0;
  }
  return count == 0;
}

// ---------------------------------------------------------------- receives

bool QueuePair::has_receive() const {
  return config_.srq ? !config_.srq->queue.empty() : !receives_.empty();
}

std::optional<ReceiveRequest> QueuePair::take_receive() {
  return config_.srq ? config_.srq->queue.take() : receives_.take();
}

bool QueuePair::fill(const ReceiveRequest& receive, std::uint64_t offset, const std::uint8_t* bytes,
                     std::uint32_t count) {
  const std::uint32_t domain =
      config_.srq ? config_.srq->protection_domain : config_.protection_domain;
  return scatter(receive.targets, offset, bytes, count, domain);
}

void QueuePair::put_back(ReceiveRequest&& receive) {
  (config_.srq ? config_.srq->queue : receives_).put_back(std::move(receive));
}

void QueuePair::complete_receive(const ReceiveRequest& receive, WorkCompletion completion,
                                 Time now) {
  completion.wr_id = receive.wr_id;
  completion.qp_num = number_;
  completion.completed_at = now;
  if (keeper_) [[unlikely]] {
    if (completion.status == WcStatus::wr_flush_err) {
      if (config_.srq) return put_back(ReceiveRequest(receive));
      return keeper_->unfinished.receives.push_back(receive);
    }
    keeper_->unfinished.received += completion.status == WcStatus::success;
  }
  count_end(completion);
  note_end(completion, true, now);
  push(*config_.receive_cq, completion);
  if (config_.srq && config_.srq->is_short())
    home_.tell({AsyncEventType::srq_limit_reached, config_.srq->number});
}

void QueuePair::fail_receive(const ReceiveRequest& receive, WcStatus status, Time now) {
  complete_receive(receive, {.status = status, .opcode = WcOpcode::recv}, now);
}

// ---------------------------------------------------------------- ends

void QueuePair::complete_send(const Send& send, WcStatus status, Time now) {
  if (keeper_ && status == WcStatus::wr_flush_err) [[unlikely]]
    return keeper_->unfinished.sends.push_back({send.request, send.begun});
  const bool asked = config_.signal_all || (send.request.flags & kSignaled);
  const bool signaled = asked || status != WcStatus::success;
  const bool atomic =
      send.request.opcode == WrOpcode::compare_swap || send.request.opcode == WrOpcode::fetch_add;
  const WorkCompletion completion{.wr_id = send.request.wr_id,
                                  .status = status,
                                  .opcode = completed_opcode(send.request.completes_as()),
                                  .byte_len = atomic ? 8 : static_cast<std::uint32_t>(send.bytes),
                                  .qp_num = number_,
                                  .packets = send.packets,
                                  .retransmitted = send.retransmitted,
                                  .posted_at = send.posted_at,
                                  .first_at = send.first_at,
                                  .completed_at = now};
  count_end(completion);
  note_end(completion, signaled, now);
  if (keeper_) [[unlikely]] {
    if (status != WcStatus::success) {
      keeper_->unfinished.sends.push_back({send.request, send.begun});
      return push(*keeper_->failures, completion);
    }
    keeper_->unfinished.notified += send.request.consumes_receive();
  }
  if (signaled) push(*config_.send_cq, completion);
  if (send.behind) [[unlikely]]
    for (const LocalEnd& end : *send.behind) {
      --behind_;
      complete_local(end, status, now);
    }
}

void QueuePair::count_end(const WorkCompletion& completion) {
  const bool receive = completion.opcode >= WcOpcode::recv;
  if (completion.status == WcStatus::success) {
    if (receive) count(Counter::receives_completed);
    if (completion.opcode == WcOpcode::send) count(Counter::sends_completed);
    return;
  }
  count(receive ? Counter::resp_cqe_error : Counter::req_cqe_error);
  if (const auto which = counted_error(completion.status, receive)) count(*which);
}

void QueuePair::note_end(const WorkCompletion& completion, bool signaled, Time now) {
  if (!logged()) [[likely]]
    return;
  note({.kind = QpEventKind::completion,
        .code = static_cast<std::uint8_t>(completion.status),
        .from = static_cast<std::uint8_t>(completion.opcode),
        .signaled = signaled,
        .wr_id = completion.wr_id,
        .bytes = completion.byte_len},
       now);
}

void QueuePair::stop_sending(WcStatus status, Time now) {
  note_state(std::exchange(state_, QpState::sqe), now);
  fail_sends(status, now);
}

void QueuePair::fail_sends(WcStatus status, Time now) {
  if (sends_.empty()) return;
  const Send oldest = std::move(sends_.front());
  sends_.pop_front();
  complete_send(oldest, status, now);
  flush_sends(now);
}

void QueuePair::flush_sends(Time now) {
  while (!sends_.empty()) {
    const Send send = std::move(sends_.front());
    sends_.pop_front();
    complete_send(send, WcStatus::wr_flush_err, now);
  }
}

// Receives of a shared queue stay there: the last one that this QP took was reported before. Who
// keeps what is unfinished says when the queue pair is over.
void QueuePair::flush_receives(Time now) {
  if (config_.srq && keeper_) return;
  if (config_.srq) return tell(AsyncEventType::qp_last_wqe_reached);
  while (auto receive = receives_.take()) fail_receive(*receive, WcStatus::wr_flush_err, now);
}

void QueuePair::push(CompletionQueue& queue, const WorkCompletion& completion) {
  const CompletionQueue::Push pushed = queue.push(completion);
  if (pushed == CompletionQueue::Push::taken) return;
  doomed_ = true;
  if (pushed == CompletionQueue::Push::overran) tell(AsyncEventType::cq_err);  // IBA 11.6.3.1
}

}  // namespace softroce
