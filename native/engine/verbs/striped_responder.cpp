// SPDX-License-Identifier: GPL-2.0-or-later
// The responder of a striped connection: which requests it takes (IBA 9.7.4), and what they do, one
// after the other. Statuses are those that an RC responder's NAKs lead to (IBA 9.9.3).
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "../codec/bytes.hpp"
#include "../mutant.hpp"
#include "striped_qp.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kAtomicBytes = 8;
std::uint8_t no_bytes;  // where messages without bytes are

}  // namespace

void StripedQp::reset_responder() {
  next_ = first_taken_ = 0;
  arrivals_.clear();
  results_.clear();
  fault_.reset();
  received_ = false;
}

// Receives that operations have taken are flushed in order, before those of the queue. Those of a
// shared queue are for others.
void StripedQp::give_back_taken(Time now) {
  give_back_shared();
  if (state_ == QpState::err)
    for (const ReceiveRequest& each : taken_) fail_receive(each, WcStatus::wr_flush_err, now);
  taken_.clear();
}

void StripedQp::give_back_shared() {
  if (!config_.srq) return;
  for (; !taken_.empty(); taken_.pop_back()) put_back(std::move(taken_.back()));
}

// Tells the peer that nothing comes of what it still waits for. READs and atomics that have arrived
// were acknowledged: their results fail.
void StripedQp::part(Time now) {
  const WcStatus status = std::exchange(parting_status_, WcStatus::retry_exc_err);
  for (const auto& [number, arrival] : arrivals_)
    if (arrival.state == Arrival::State::whole && arrival.header.has_result())
      fail_result(number, arrival.header, status, now);
  for (const Result& result : results_)
    if (!result.begun) fail_result(result.number, result.header, status, now);
  carrier_.withdraw_all(*this, status, now);
}

// False: not now.
bool StripedQp::fail_result(std::int64_t number, const OperationHeader& header, WcStatus status,
                            Time now) {
  const MessageKey key =
      operation_key(LAB_CLASS_RESULT, attr_.dest_qp, static_cast<std::uint32_t>(number));
  const OutgoingMessage message{
      .key = key, .header = header, .base = &no_bytes, .patience = patience()};
  if (carrier_.send(*this, message, now) != MessageCarrier::Begun::begun) return false;
  carrier_.withdraw(*this, key, status, now);
  return true;
}

StripedQp::Arrival* StripedQp::find_arrival(std::uint32_t number) {
  const auto found = arrivals_.find(full_number(number));
  return found == arrivals_.end() ? nullptr : &found->second;
}

// ---------------------------------------------------------------- places

Place StripedQp::place_for(const Packet& packet, Time now) {
  if (!is_connected()) {
    drop(Counter::rx_qp_not_ready, packet, now);
    return {.kind = Place::Kind::not_ready};
  }
  if (!is_from_peer(packet)) {
    drop(Counter::rx_unknown_peer, packet, now);
    return {};
  }
  const std::int64_t number = full_number(packet.lab.message);
  const std::int64_t last = next_ + kMostAhead;
  const bool is_new = number >= next_ && number < last && (!fault_ || number < fault_->number);
  const bool is_stale =
      packet.lab.connection != attr_.rq_psn && !mutated(Mutant::stale_connection_taken);
  const auto known = arrivals_.find(number);
  if (!is_new || is_stale ||
      (known != arrivals_.end() && known->second.state != Arrival::State::awaits_receive)) {
    drop(Counter::rx_stale_operation, packet, now);
    return {};
  }
  if (state_ == QpState::rtr && !std::exchange(received_, true)) tell(AsyncEventType::comm_est);
  const OperationHeader header = operation_of(packet);
  if (const auto status = why_refused(packet, number)) {
    const bool invalid = *status == WcStatus::rem_inv_req_err;
    const bool took = header.is_send() && !invalid && take_receives(header);
    return refuse(number, *status, took ? WcStatus::rem_inv_req_err : WcStatus::success,
                  invalid ? AsyncEventType::qp_req_err : AsyncEventType::qp_access_err);
  }
  Arrival& arrival = arrivals_[number];
  arrival.header = header;
  arrival.message_id = packet.lab.message_id;
  arrival.length = packet.lab.length;
  return open(arrival, number);
}

// The status in which the request ends at its sender; nothing: it may come.
std::optional<WcStatus> StripedQp::why_refused(const Packet& packet, std::int64_t number) {
  const OperationHeader header = operation_of(packet);
  const std::uint32_t length = packet.lab.length;
  const bool reads = header.is(LAB_VERB_READ) || header.is_atomic();
  const std::uint32_t reading = header.is_atomic() ? 2 * kAtomicBytes : 0;
  if (reads && (length != reading || header.receive > attr_.max_dest_rd_atomic))
    return WcStatus::rem_inv_req_err;
  // IBA 9.7.4.1.4: what the queue pair does not do at all is an invalid request.
  if ((header.is_write() && !qp_grants(Family::write)) ||
      (header.is(LAB_VERB_READ) && !qp_grants(Family::read)) ||
      (header.is_atomic() && !qp_grants(Family::atomic)))
    return WcStatus::rem_inv_req_err;
  // All of it at once (IBA 9.7.4.1.5), and nothing of a message of no bytes (C9-88).
  if (header.is_write() && length != 0 && home_.carries_payload &&
      home_.memory.resolve(header.rkey, header.remote_address, length, kRemoteWrite,
                           config_.protection_domain, number_) == nullptr)
    return WcStatus::rem_access_err;
  if (header.takes_receive()) {
    const std::int64_t receive = receive_number(header);
    if (receive < first_taken_ || receive - first_taken_ > number - next_)
      return WcStatus::rem_inv_req_err;
  }
  // Class J of IBA 9.9.3.1: an RC responder does not answer, so that its requester gives up.
  if (header.is(LAB_VERB_SEND_WITH_INVALIDATE) && home_.carries_payload &&
      !home_.memory.may_invalidate(header.argument, config_.protection_domain, number_))
    return WcStatus::retry_exc_err;
  return std::nullopt;
}

// What the operation with this number asks for is refused, and ends the connection in its turn.
// Those behind it stay, for the engine still puts packets of theirs where they go.
Place StripedQp::refuse(std::int64_t number, WcStatus status, WcStatus receive_status,
                        AsyncEventType event) {
  count_refusal(status);
  fault_ = {.number = number, .receive_status = receive_status, .event = event};
  arrivals_.erase(number);
  return {.kind = Place::Kind::refused, .status = status};
}

// As an RC responder counts its NAKs.
void StripedQp::count_refusal(WcStatus status) {
  if (status == WcStatus::rem_inv_req_err) count(Counter::tx_nak_invalid);
  if (status == WcStatus::rem_access_err) count(Counter::tx_nak_access);
  if (status == WcStatus::rem_op_err) count(Counter::tx_nak_operation);
}

// The number of the receive that an operation takes, which is close to those that wait.
std::int64_t StripedQp::receive_number(const OperationHeader& header) const {
  const auto ahead =
      static_cast<std::int32_t>((header.receive - static_cast<std::uint32_t>(first_taken_)) << 8) >>
      8;
  return first_taken_ + ahead;
}

// Receives up to the one that the operation takes. False: so many are not posted.
bool StripedQp::take_receives(const OperationHeader& header) {
  const std::int64_t number = receive_number(header);
  while (first_taken_ + static_cast<std::int64_t>(taken_.size()) <= number) {
    auto receive = take_receive();
    if (!receive) return false;
    taken_.push_back(std::move(*receive));
  }
  return true;
}

// The place of a message that may come: its receive is there, and long enough.
Place StripedQp::open(Arrival& arrival, std::int64_t number) {
  const OperationHeader& header = arrival.header;
  if (header.takes_receive() && !take_receives(header)) {
    arrival.state = Arrival::State::awaits_receive;
    if (config_.srq) carrier_.starves(*this);
    return {.kind = Place::Kind::not_ready};
  }
  arrival.state = Arrival::State::comes;
  if (header.is_send()) {
    const ReceiveRequest& receive =
        taken_[static_cast<std::size_t>(receive_number(header) - first_taken_)];
    if (arrival.length > receive.bytes())
      return refuse(number, WcStatus::rem_inv_req_err, WcStatus::loc_len_err,
                    AsyncEventType::qp_req_err);
  }
  const std::uint32_t length = arrival.length;
  if (carrier_.keeps_apart() && is_too_much(number, length)) {  // its sender tries again
    arrivals_.erase(number);
    return {};
  }
  std::uint8_t* base = target_of(arrival);
  const bool holds_last = header.is_write() && length != 0 && arrival.staging == nullptr;
  if (base == nullptr)
    return refuse(number, WcStatus::rem_op_err, WcStatus::loc_prot_err, AsyncEventType::qp_fatal);
  return {.kind = Place::Kind::memory, .base = base, .capacity = length, .holds_last = holds_last};
}

// To be kept apart together with those that are here. The next one is never too much: the others
// wait for it.
bool StripedQp::is_too_much(std::int64_t number, std::uint32_t length) const {
  std::uint64_t apart = length;
  for (const auto& [other, arrival] : arrivals_)
    if (arrival.staging != nullptr) apart += arrival.length;
  return number != next_ && apart > 2 * kMostApart;
}

// Null: the memory may not be written.
std::uint8_t* StripedQp::target_of(Arrival& arrival) {
  const OperationHeader& header = arrival.header;
  const std::uint32_t length = arrival.length;
  if (length == 0 || (!home_.carries_payload && !header.is_atomic())) return &no_bytes;
  if (arrival.staging != nullptr) return arrival.staging.get();
  const bool apart = carrier_.keeps_apart();
  if (header.is_write() && !apart) return written_memory(arrival);
  if (header.is_send()) {
    const ReceiveRequest& receive =
        taken_[static_cast<std::size_t>(receive_number(header) - first_taken_)];
    const auto has_bytes = [](const ScatterGather& target) { return target.length != 0; };
    const auto first = std::ranges::find_if(receive.targets, has_bytes);
    if (first->length >= length && !apart) return place_in(*first, length);
    if (!may_fill(receive, length)) return nullptr;
  }
  arrival.staging = std::make_unique_for_overwrite<std::uint8_t[]>(length);
  return arrival.staging.get();
}

// Of the receive's queue. Null: it may not be written.
std::uint8_t* StripedQp::place_in(const ScatterGather& target, std::uint32_t length) {
  const std::uint32_t domain =
      config_.srq ? config_.srq->protection_domain : config_.protection_domain;
  return home_.memory.resolve(target.lkey, target.address, length, kLocalWrite, domain);
}

// Whether a message of that length may be put there.
bool StripedQp::may_fill(const ReceiveRequest& receive, std::uint32_t length) {
  for (const ScatterGather& target : receive.targets) {
    const std::uint32_t piece = std::min(target.length, length);
    if (piece != 0 && place_in(target, piece) == nullptr) return false;
    length -= piece;
  }
  return true;
}

// Of a WRITE. Null: it may not be written.
std::uint8_t* StripedQp::written_memory(const Arrival& arrival) {
  return home_.memory.resolve(arrival.header.rkey, arrival.header.remote_address, arrival.length,
                              kRemoteWrite, config_.protection_domain, number_);
}

// After regions have changed.
std::uint8_t* StripedQp::request_target(std::uint32_t number, WcStatus& why_not) {
  Arrival* arrival = find_arrival(number);
  if (arrival == nullptr) return nullptr;
  std::uint8_t* target = target_of(*arrival);
  if (target != nullptr) return target;
  const bool is_write = arrival->header.is_write();
  const Place refused = is_write ? refuse(full_number(number), WcStatus::rem_access_err,
                                          WcStatus::success, AsyncEventType::qp_access_err)
                                 : refuse(full_number(number), WcStatus::rem_op_err,
                                          WcStatus::loc_prot_err, AsyncEventType::qp_fatal);
  why_not = refused.status;
  return nullptr;
}

const std::uint8_t* StripedQp::result_source(std::uint32_t number) {
  const auto result = std::ranges::find_if(results_, [number](const Result& each) {
    return static_cast<std::uint32_t>(each.number) == number;
  });
  if (result == results_.end()) return nullptr;
  const std::uint8_t* source = source_of(*result);
  if (source == nullptr) result->status = WcStatus::rem_access_err;
  return source;
}

// What a READ returns is read from its memory while it leaves, as an RC responder does. Null: it
// may not be read.
const std::uint8_t* StripedQp::source_of(Result& result) {
  if (result.bytes != nullptr) return result.bytes.get();
  if (result.length == 0 || !home_.carries_payload) return &no_bytes;
  const std::uint8_t* source =
      home_.memory.resolve(result.header.rkey, result.header.remote_address, result.length,
                           kRemoteRead, config_.protection_domain, number_);
  if (source == nullptr || !carrier_.keeps_apart()) return source;
  result.bytes = std::make_unique_for_overwrite<std::uint8_t[]>(result.length);
  std::copy_n(source, result.length, result.bytes.get());
  return result.bytes.get();
}

std::uint8_t StripedQp::why_unready(const MessageKey& key) {
  if (!is_connected()) return static_cast<std::uint8_t>(Unready::no_queue_pair);
  const auto known = arrivals_.find(full_number(key.message));
  if (known == arrivals_.end()) return static_cast<std::uint8_t>(Unready::come_again);
  count(Counter::tx_rnr_nak);
  return attr_.min_rnr_timer;
}

bool StripedQp::is_next(const MessageKey& key) const {
  return is_result(key) || full_number(key.message) == next_;
}

// ---------------------------------------------------------------- between

// Receives were posted since operations came that found none.
void StripedQp::give_receives(Time now) {
  for (auto each = arrivals_.begin(); each != arrivals_.end();) {
    auto& [number, arrival] = *each++;
    if (fault_ && number > fault_->number) return;
    if (arrival.state != Arrival::State::awaits_receive) continue;
    if (!has_receive()) {
      if (config_.srq) carrier_.starves(*this);
      return;
    }
    const MessageKey key =
        operation_key(LAB_CLASS_REQUEST, number_, static_cast<std::uint32_t>(number));
    const OperationHeader header = arrival.header;
    const std::uint32_t message_id = arrival.message_id;
    const Place place = open(arrival, number);
    if (place.kind == Place::Kind::memory) carrier_.receive(*this, key, header, place, now);
    if (place.kind != Place::Kind::refused) continue;
    return carrier_.refuse(*this, key, message_id, place.status, now);
  }
}

void StripedQp::request_arrived(MessageEnd&& end) {
  Arrival* arrival = find_arrival(end.key.message);
  // What its sender gives up may be here already: acknowledgements are lost, too.
  if (arrival == nullptr || arrival->state == Arrival::State::whole) return;
  if (end.unopened_id && *end.unopened_id != arrival->message_id) return;
  arrival->state =
      end.status == WcStatus::success ? Arrival::State::whole : Arrival::State::abandoned;
  arrival->packets = end.packets;
  arrival->first_at = end.first_at;
  arrival->held = std::move(end.held);
}

// ---------------------------------------------------------------- effects

// False: none.
bool StripedQp::take_effects(Time now) {
  bool any = false;
  while (is_connected()) {
    // What was read for operations before it arrives first, as RC's responses leave before the NAK.
    if (fault_ && fault_->number == next_) {
      if (!results_.empty()) return any;
      return take_fault(now), true;
    }
    const auto first = mutated(Mutant::effects_out_of_order)
                           ? std::ranges::find(arrivals_, Arrival::State::whole,
                                               [](const auto& each) { return each.second.state; })
                           : arrivals_.find(next_);
    if (first == arrivals_.end() || first->second.state != Arrival::State::whole) return any;
    // Behind a READ or an atomic that failed nothing more happens.
    if (!results_.empty() && results_.back().status != WcStatus::success) return any;
    Arrival arrival = std::move(first->second);
    arrivals_.erase(first);
    any = true;
    if (!take_effect(arrival, now)) return true;
    ++next_;
  }
  return any;
}

void StripedQp::take_fault(Time now) {
  const PlannedFault fault = *fault_;
  if (fault.receive_status != WcStatus::success && !taken_.empty()) {
    const ReceiveRequest receive = std::move(taken_.front());
    taken_.pop_front();
    fail_receive(receive, fault.receive_status, now);
  }
  fail(fault.event, now);
}

// False: it ends the connection.
bool StripedQp::take_effect(Arrival& arrival, Time now) {
  const OperationHeader& header = arrival.header;
  if (header.is(LAB_VERB_READ)) return execute_read(arrival), true;
  if (header.is_atomic()) return execute_atomic(arrival), true;
  if (header.is_write()) count(Counter::rx_write_requests);
  if (!put_in_place(arrival)) {  // its memory has gone since it arrived, as the peer was told
    fault_ = {.number = next_,
              .receive_status = header.is_send() ? WcStatus::loc_prot_err : WcStatus::success,
              .event = header.is_send() ? AsyncEventType::qp_fatal : AsyncEventType::qp_access_err};
    return false;
  }
  return !header.takes_receive() || finish_receive(arrival, now);
}

bool StripedQp::put_in_place(Arrival& arrival) {
  if (!home_.carries_payload) return true;
  if (arrival.staging != nullptr && arrival.header.is_send())
    return fill(taken_.front(), 0, arrival.staging.get(), arrival.length);
  if (arrival.staging == nullptr && arrival.held.empty()) return true;
  std::uint8_t* base = written_memory(arrival);
  if (base == nullptr) return false;
  if (arrival.staging != nullptr) {
    std::memcpy(base, arrival.staging.get(), arrival.length);
    return true;
  }
  std::uint8_t* last = base + arrival.length - arrival.held.size();
  std::ranges::copy(arrival.held, last);
  carrier_.overwrites(last, arrival.held.size());
  return true;
}

// False: it ends the connection.
bool StripedQp::finish_receive(Arrival& arrival, Time now) {
  const OperationHeader& header = arrival.header;
  if (receive_number(header) != first_taken_ || taken_.empty()) {  // two operations took one
    fail_peer(WcStatus::rem_inv_req_err, AsyncEventType::qp_req_err, now);
    return false;
  }
  const ReceiveRequest receive = std::move(taken_.front());
  taken_.pop_front();
  ++first_taken_;
  WorkCompletion completion{
      .opcode = header.is_send() ? WcOpcode::recv : WcOpcode::recv_rdma_with_immediate,
      .byte_len = arrival.length,
      .src_qp = attr_.dest_qp,
      .solicited = (header.verb & LAB_VERB_SOLICITED) != 0,
      .packets = arrival.packets,
      .first_at = arrival.first_at};
  if (header.is(LAB_VERB_SEND_WITH_INVALIDATE)) {
    completion.flags |= kWithInvalidate;
    completion.immediate = header.argument;
    if (!home_.memory.invalidate(header.argument, config_.protection_domain, number_)) {
      fail_receive(receive, WcStatus::rem_inv_req_err, now);
      fail(AsyncEventType::qp_access_err, now);
      return false;
    }
  } else if (!header.is(LAB_VERB_SEND)) {
    completion.flags |= kWithImmediate;
    completion.immediate = header.argument;
  }
  complete_receive(receive, completion, now);
  return true;
}

void StripedQp::execute_read(const Arrival& arrival) {
  Result result{.number = next_, .header = arrival.header, .length = arrival.header.argument};
  if (source_of(result) == nullptr)
    result.status = WcStatus::rem_access_err;
  else
    count(Counter::rx_read_requests);
  results_.push_back(std::move(result));
}

void StripedQp::execute_atomic(Arrival& arrival) {
  const OperationHeader& header = arrival.header;
  Result result{.number = next_, .header = header, .length = kAtomicBytes};
  std::uint8_t* at = home_.memory.resolve(header.rkey, header.remote_address, kAtomicBytes,
                                          kRemoteAtomic, config_.protection_domain, number_);
  if (header.remote_address % kAtomicBytes != 0) result.status = WcStatus::rem_inv_req_err;
  // The address that a region begins at may be aligned where its memory is not.
  else if (at == nullptr || reinterpret_cast<std::uintptr_t>(at) % kAtomicBytes != 0)
    result.status = WcStatus::rem_access_err;
  if (result.status == WcStatus::success) {
    count(Counter::rx_atomic_requests);
    carrier_.overwrites(at, kAtomicBytes);
    const std::atomic_ref<std::uint64_t> value(*reinterpret_cast<std::uint64_t*>(at));
    std::uint64_t original = load64(arrival.staging.get());
    const std::uint64_t operand = load64(arrival.staging.get() + kAtomicBytes);
    if (header.is(LAB_VERB_FETCH_ADD))
      original = value.fetch_add(operand);
    else
      value.compare_exchange_strong(original, operand);
    result.bytes = std::make_unique<std::uint8_t[]>(kAtomicBytes);
    store64(result.bytes.get(), original);
  }
  results_.push_back(std::move(result));
}

// In the order of their requests. One that failed ends the connection.
void StripedQp::send_results(Time now) {
  for (Result& result : results_) {
    if (result.begun && result.status == WcStatus::success) continue;
    const std::uint8_t* source = result.status == WcStatus::success ? source_of(result) : nullptr;
    if (source != nullptr) {
      const OutgoingMessage message{.key = operation_key(LAB_CLASS_RESULT, attr_.dest_qp,
                                                         static_cast<std::uint32_t>(result.number)),
                                    .header = result.header,
                                    .base = source,
                                    .length = result.length,
                                    .patience = patience()};
      if (carrier_.send(*this, message, now) != MessageCarrier::Begun::begun) return;
      result.begun = true;
      continue;
    }
    const WcStatus status =
        result.status == WcStatus::success ? WcStatus::rem_access_err : result.status;
    if (&result != &results_.front()) return;  // those before it arrive first
    // One that has begun is withdrawn with all else.
    if (!result.begun && !fail_result(result.number, result.header, status, now)) return;
    result.begun = true;
    count_refusal(status);
    return fail_peer(status,
                     status == WcStatus::rem_inv_req_err ? AsyncEventType::qp_req_err
                                                         : AsyncEventType::qp_access_err,
                     now);
  }
}

}  // namespace softroce
