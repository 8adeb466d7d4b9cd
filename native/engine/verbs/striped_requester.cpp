// SPDX-License-Identifier: GPL-2.0-or-later
// The requester of a striped connection: which operations may begin (IBA 9.7.3, 10.8.3.3), and how
// they end.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "../codec/bytes.hpp"
#include "../mutant.hpp"
#include "striped_qp.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kAtomicBytes = 8;
constexpr Time kTimeoutUnit = 4'096 * kNanosecond;  // IBA 9.7.6.1.3
std::uint8_t no_bytes;                              // where messages without bytes are

lab_verb verb_of(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::rdma_write:
      return LAB_VERB_WRITE;
    case WrOpcode::rdma_write_with_immediate:
      return LAB_VERB_WRITE_WITH_IMMEDIATE;
    case WrOpcode::send_with_immediate:
      return LAB_VERB_SEND_WITH_IMMEDIATE;
    case WrOpcode::send_with_invalidate:
      return LAB_VERB_SEND_WITH_INVALIDATE;
    case WrOpcode::rdma_read:
      return LAB_VERB_READ;
    case WrOpcode::compare_swap:
      return LAB_VERB_COMPARE_SWAP;
    case WrOpcode::fetch_add:
      return LAB_VERB_FETCH_ADD;
    default:
      return LAB_VERB_SEND;
  }
}

bool is_atomic(const SendRequest& request) {
  return request.opcode == WrOpcode::compare_swap || request.opcode == WrOpcode::fetch_add;
}

// The one element that has bytes; null: there are several.
const ScatterGather* single(const std::vector<ScatterGather>& elements) {
  const ScatterGather* found = nullptr;
  for (const ScatterGather& each : elements) {
    if (each.length == 0) continue;
    if (found != nullptr) return nullptr;
    found = &each;
  }
  return found;
}

}  // namespace

void StripedQp::entered(QpState from, Time now) {
  if (from == QpState::init && state_ == QpState::rtr) {
    reset_responder();
    carrier_.connected(*this, now);
  }
  if (from == QpState::rtr && state_ == QpState::rts) reset_requester();
  if (state_ == QpState::sqd && attr_.sqd_notify && !is_draining())
    tell(AsyncEventType::sq_drained);
  if (state_ != QpState::reset && state_ != QpState::err) return;
  part(now);
  reset_requester();
  give_back_taken(now);
  reset_responder();
}

void StripedQp::fail_peer(WcStatus status, AsyncEventType event, Time now) {
  parting_status_ = status;
  fail(event, now);
}

void StripedQp::reset_requester() {
  progress_.clear();
  next_number_ = next_receive_ = 0;
  unanswered_ = 0;
}

int StripedQp::check_send(const SendRequest& request) const {
  if (const int error = ConnectedQp::check_send(request)) return error;
  return request.reads_remote() && attr_.max_rd_atomic == 0 ? EINVAL : 0;
}

void StripedQp::ended(MessageEnd&& end) {
  if (is_result(end.key) == end.sent) {  // the responder's
    if (end.sent)
      std::erase_if(results_, [&end](const Result& each) {
        return each.begun && static_cast<std::uint32_t>(each.number) == end.key.message;
      });
    else
      request_arrived(std::move(end));
  } else if (end.sent) {
    request_ended(end);
  } else {
    result_ended(end);
  }
}

void StripedQp::advance(Time now) {
  give_receives(now);
  do {
    begin_sends(now);
  } while (take_effects(now) || end_sends(now));
  send_results(now);
}

// ---------------------------------------------------------------- beginning

void StripedQp::begin_sends(Time now) {
  while (state_ == QpState::rts && progress_.size() < sends_.size()) {
    Send& send = sends_[progress_.size()];
    if (send.status != WcStatus::success || !may_begin(send) || !begin(send, now)) return;
  }
}

bool StripedQp::may_begin(const Send& send) const {
  const bool fenced = (send.request.flags & kFence) && !mutated(Mutant::fence_ignored);
  if (unanswered_ != 0 && fenced) return false;  // IBA 10.8.3.3
  if (carrier_.keeps_apart() && is_too_much(send)) return false;
  return !send.request.reads_remote() || unanswered_ < attr_.max_rd_atomic;
}

// To be kept apart together with those that have begun.
bool StripedQp::is_too_much(const Send& send) const {
  std::uint64_t apart = 0;
  for (std::size_t i = 0; i < progress_.size(); ++i) apart += sends_[i].bytes;
  return apart != 0 && apart + send.bytes > kMostApart;
}

// False: it may not begin now, or it failed.
bool StripedQp::begin(Send& send, Time now) {
  const SendRequest& request = send.request;
  Progress progress;
  const std::uint8_t* source = source_of(request, send.bytes, progress);
  // Before the request: an atomic whose result has no place would still be executed.
  std::uint8_t* target =
      request.reads_remote() ? result_target(request, send.bytes, progress) : &no_bytes;
  if (source == nullptr || target == nullptr) {
    send.status = WcStatus::loc_prot_err;
    return false;
  }
  const auto bytes = static_cast<std::uint32_t>(send.bytes);
  const OperationHeader header = header_of(send);
  const OutgoingMessage message{
      .key = operation_key(LAB_CLASS_REQUEST, attr_.dest_qp, next_number_),
      .header = header,
      .base = source,
      .length = is_atomic(request) ? 2 * kAtomicBytes : request.reads_remote() ? 0 : bytes,
      .patience = patience()};
  const MessageCarrier::Begun begun = carrier_.send(*this, message, now);
  if (begun == MessageCarrier::Begun::never) send.status = WcStatus::retry_exc_err;
  if (begun != MessageCarrier::Begun::begun) return false;
  if (request.reads_remote())
    carrier_.receive(*this, operation_key(LAB_CLASS_RESULT, number_, next_number_), header,
                     {.kind = Place::Kind::memory, .base = target, .capacity = bytes}, now);
  send.begun = true;
  send.first_psn = next_number_++;
  send.packets = 1;  // until it is known
  next_receive_ += request.consumes_receive();
  unanswered_ += request.reads_remote();
  progress_.push_back(std::move(progress));
  note_sent(send, now);
  return true;
}

OperationHeader StripedQp::header_of(const Send& send) const {
  const SendRequest& request = send.request;
  OperationHeader header{.verb = static_cast<std::uint8_t>(verb_of(request.opcode)),
                         .connection = attr_.sq_psn,
                         .argument = request.immediate};
  // Of a WRITE only an immediate completes at the other end (IBA 9.2.3).
  if (request.consumes_receive() && (request.flags & kSolicited)) header.verb |= LAB_VERB_SOLICITED;
  if (request.consumes_receive()) header.receive = next_receive_ & kPsnMask;
  if (request.reads_remote()) header.receive = unanswered_ + 1;
  if (request.reads_remote() || header.is_write()) {
    header.remote_address = request.remote_address;
    header.rkey = request.rkey;
  }
  if (request.opcode == WrOpcode::send_with_invalidate) header.argument = request.invalidate_rkey;
  if (request.opcode == WrOpcode::rdma_read)
    header.argument = static_cast<std::uint32_t>(send.bytes);
  return header;
}

Patience StripedQp::patience() const {
  return {.rnr_retry = attr_.rnr_retry, .without_qp = retry_time()};
}

Time StripedQp::retry_time() const {
  if (attr_.timeout == 0) return kNever;
  return (attr_.retry_count + 1) * (kTimeoutUnit << attr_.timeout);
}

// The bytes that its request carries, together. Null: they may not be read.
const std::uint8_t* StripedQp::source_of(const SendRequest& request, std::uint64_t bytes,
                                         Progress& progress) {
  if (progress.request != nullptr) return progress.request.get();
  if (is_atomic(request)) {
    const bool swap = request.opcode == WrOpcode::compare_swap;
    progress.request = std::make_unique<std::uint8_t[]>(2 * kAtomicBytes);
    store64(progress.request.get(), swap ? request.compare_add : 0);
    store64(progress.request.get() + kAtomicBytes, swap ? request.swap : request.compare_add);
    return progress.request.get();
  }
  if (bytes == 0 || request.reads_remote() || !home_.carries_payload) return &no_bytes;
  if (!request.inline_bytes.empty()) return request.inline_bytes.data();
  const auto resolve = [this](const ScatterGather& source) {
    return home_.memory.resolve(source.lkey, source.address, source.length, 0,
                                config_.protection_domain);
  };
  const ScatterGather* source = carrier_.keeps_apart() ? nullptr : single(request.sources);
  if (source != nullptr) return resolve(*source);
  auto gathered = std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
  std::uint8_t* at = gathered.get();
  for (const ScatterGather& each : request.sources) {
    if (each.length == 0) continue;
    const std::uint8_t* piece = resolve(each);
    if (piece == nullptr) return nullptr;
    std::memcpy(at, piece, each.length);
    at += each.length;
  }
  progress.request = std::move(gathered);
  return progress.request.get();
}

// Where its result arrives; it is scattered when all of it is there, unless that is one place. Null:
// it may not be written.
std::uint8_t* StripedQp::result_target(const SendRequest& request, std::uint64_t bytes,
                                       Progress& progress) {
  if (bytes == 0 || !home_.carries_payload) return &no_bytes;
  if (!may_scatter(request.sources)) return nullptr;
  const bool apart = is_atomic(request) || carrier_.keeps_apart();
  const ScatterGather* target = apart ? nullptr : single(request.sources);
  if (target != nullptr)
    return home_.memory.resolve(target->lkey, target->address, target->length, kLocalWrite,
                                config_.protection_domain);
  if (progress.result == nullptr)
    progress.result = std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
  return progress.result.get();
}

// ---------------------------------------------------------------- ending

// Its place in sends_; nothing: it is over, or never was.
std::optional<std::size_t> StripedQp::find_send(std::uint32_t number) const {
  if (progress_.empty()) return std::nullopt;
  const std::uint32_t place = number - sends_.front().first_psn;
  return place < progress_.size() ? std::optional<std::size_t>(place) : std::nullopt;
}

// After regions have changed: what a message that is on its way sends.
const std::uint8_t* StripedQp::source_of(const MessageKey& key) {
  if (is_result(key)) return result_source(key.message);
  const auto place = find_send(key.message);
  if (!place) return nullptr;
  Send& send = sends_[*place];
  const std::uint8_t* source = source_of(send.request, send.bytes, progress_[*place]);
  if (source == nullptr) send.status = WcStatus::loc_prot_err;
  return source;
}

// The same of what comes, and how its sender's request ends if it has no place any more.
std::uint8_t* StripedQp::target_of(const MessageKey& key, WcStatus& why_not) {
  if (!is_result(key)) return request_target(key.message, why_not);
  const auto place = find_send(key.message);
  if (!place) return nullptr;
  Send& send = sends_[*place];
  std::uint8_t* target = result_target(send.request, send.bytes, progress_[*place]);
  if (target == nullptr) send.status = why_not = WcStatus::loc_prot_err;
  return target;
}

void StripedQp::request_ended(const MessageEnd& end) {
  const auto place = find_send(end.key.message);
  if (!place) return;
  Send& send = sends_[*place];
  progress_[*place].arrived = end.status == WcStatus::success;
  if (send.status == WcStatus::success) send.status = end.status;
  send.retransmitted = end.retransmitted;
  send.first_at = end.first_at;
  if (!send.request.reads_remote()) send.packets = end.packets;
}

void StripedQp::result_ended(const MessageEnd& end) {
  const auto place = find_send(end.key.message);
  if (!place) return;
  Send& send = sends_[*place];
  --unanswered_;
  if (send.status == WcStatus::success) send.status = end.status;
  if (send.status == WcStatus::success && end.length != send.bytes)
    send.status = WcStatus::bad_resp_err;
  if (send.status != WcStatus::success) return;
  send.packets = send.answered = end.packets;
  const std::uint8_t* staged = progress_[*place].result.get();
  if (staged == nullptr) return;
  std::uint64_t original;
  if (is_atomic(send.request)) {
    original = load64(staged);
    staged = reinterpret_cast<const std::uint8_t*>(&original);
  }
  if (!scatter(send.request.sources, 0, staged, static_cast<std::uint32_t>(send.bytes)))
    send.status = WcStatus::loc_prot_err;
}

// Sends end in the order of posting. False: none did.
bool StripedQp::end_sends(Time now) {
  bool any = false;
  while (!sends_.empty() && (state_ == QpState::rts || state_ == QpState::sqd)) {
    const Send& oldest = sends_.front();
    if (oldest.status != WcStatus::success) {
      if (!oldest.begun && state_ == QpState::sqd) break;
      const WcStatus status = oldest.status;
      carrier_.withdraw_all(*this, WcStatus::retry_exc_err, now);
      progress_.clear();
      fail_sends(status, now);
      fail(now);
      return true;
    }
    if (progress_.empty() || !progress_.front().arrived || !oldest.is_answered()) break;
    const Send over = std::move(sends_.front());
    sends_.pop_front();
    progress_.pop_front();
    complete_send(over, WcStatus::success, now);
    any = true;
  }
  if (any && state_ == QpState::sqd && attr_.sqd_notify && !is_draining())
    tell(AsyncEventType::sq_drained);
  return any;
}

}  // namespace softroce
