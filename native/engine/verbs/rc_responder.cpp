// SPDX-License-Identifier: GPL-2.0-or-later
// The responder of a reliable connection: IBA 9.7.4 (requests), 9.7.5 (responses), 9.9.3 (errors).
#include <algorithm>
#include <atomic>
#include <utility>

#include "../mutant.hpp"
#include "rc_qp.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kAtomicBytes = 8;

}  // namespace

void RcQp::reset_responder(Time now) {
  if (inbound_.receive && state_ == QpState::err)
    fail_receive(*std::exchange(inbound_.receive, std::nullopt), WcStatus::wr_flush_err, now);
  give_back_receive();
  nak_sent_ = received_ = false;
  left_to_result_.reset();
  if (state_ == QpState::reset) msn_ = 0;
  if (parting_) return;
  responses_.clear();
  resources_.clear();
  next_resource_ = 0;
}

void RcQp::handle_packet(const Packet& packet, Time now) {
  const OpcodeTraits& traits = traits_of(packet.opcode);
  if (service_of(packet.opcode) != Service::rc || !traits.known())
    return drop(Counter::rx_bad_opcode, packet, now);
  if (state_ < QpState::rtr || state_ == QpState::err)
    return drop(Counter::rx_qp_not_ready, packet, now);
  if (!is_from_peer(packet)) return drop(Counter::rx_unknown_peer, packet, now);
  const bool response =
      traits.family == Family::read_response || traits.family == Family::acknowledge;
  if (response) return handle_response(packet, traits, now);
  handle_request(packet, traits, now);
}

// The checks in the order of IBA 9.7.4.1 (and of rxe_resp.c): PSN, opcode sequence, rights, then
// what the operation itself demands.
void RcQp::handle_request(const Packet& packet, const OpcodeTraits& traits, Time now) {
  if (state_ == QpState::rtr && !std::exchange(received_, true)) tell(AsyncEventType::comm_est);
  const std::int32_t ahead = psn_distance(packet.psn, expected_psn_);
  if (ahead < 0 && !mutated(Mutant::rc_duplicate_executed))
    return handle_duplicate(packet, traits, now);
  if (ahead > 0 &&
      !mutated(Mutant::rc_gap_accepted)) {  // once, until what is missed comes (IBA 9.7.5.2.2)
    count(Counter::out_of_sequence);
    note_psns(QpEventKind::out_of_sequence, 0, packet.psn, expected_psn_, now);
    if (!std::exchange(nak_sent_, true)) nak(kNakSequence, expected_psn_);
    return;
  }
  nak_sent_ = false;
  count_packet(Counter::rx_connected, packet);
  if (!inbound_.expects(traits)) return answer_fault(Fault::sequence, packet.psn, now);
  // IBA 9.7.4.1.4: what the QP does not do at all is an invalid request, as in rxe.
  if (!qp_grants(traits.family)) return answer_fault(Fault::sequence, packet.psn, now);
  if (!fits_place(traits, packet.payload_bytes, attr_.path_mtu))
    return answer_fault(Fault::length, packet.psn, now);
  if (traits.family == Family::read) return execute_read(packet, now);
  if (traits.family == Family::atomic) return execute_atomic(packet, now);
  execute(packet, traits, now);
}

void RcQp::execute(const Packet& packet, const OpcodeTraits& traits, Time now) {
  const Fault fault = take(packet, traits, now);
  if (fault != Fault::none) return answer_fault(fault, packet.psn, now);
  if (traits.family == Family::write && traits.begins) count(Counter::rx_write_requests);
  expected_psn_ = psn_add(expected_psn_, 1);
  executed_psn_ = packet.psn;
  if (traits.ends) msn_ = psn_add(msn_, 1);
  if (packet.ack_request) acknowledge(packet.psn);
}

// ---------------------------------------------------------------- READ and atomics

bool RcQp::is_answering(std::size_t resource) const {
  return std::ranges::any_of(responses_, [resource](const Response& response) {
    return response.is_result() && response.resource == resource;
  });
}

bool RcQp::has_result_behind(std::uint32_t psn) const {
  return std::ranges::any_of(responses_, [psn](const Response& response) {
    return response.is_result() && psn_distance(response.psn, psn) > 0;
  });
}

// The oldest, as the peer has no more outstanding than there are (IBA 9.7.4.1.3): so it has got
// the response in progress, and no requester waits for it.
RcQp::Resource* RcQp::take_resource(std::size_t& index) {
  if (resources_.empty()) return nullptr;
  index = next_resource_;
  std::erase_if(responses_, [this](const Response& response) {
    return response.is_result() && response.again && response.resource == next_resource_;
  });
  if (is_answering(index)) return nullptr;
  next_resource_ = (next_resource_ + 1) % resources_.size();
  left_to_result_.reset();
  return &resources_[index];
}

void RcQp::execute_read(const Packet& packet, Time now) {
  const bool allowed =
      packet.dma_length == 0 || !home_.carries_payload ||
      home_.memory.resolve(packet.rkey, packet.remote_address, packet.dma_length, kRemoteRead,
                           config_.protection_domain, number_) != nullptr;
  if (packet.dma_length / attr_.path_mtu >= kMostPackets)
    return answer_fault(Fault::length, packet.psn, now);
  if (!allowed) return answer_fault(Fault::access, packet.psn, now);
  std::size_t index = 0;
  Resource* resource = take_resource(index);
  if (resource == nullptr) return answer_fault(Fault::sequence, packet.psn, now);
  count(Counter::rx_read_requests);
  const std::uint32_t packets = softroce::packets_of(packet.dma_length, attr_.path_mtu);
  msn_ = psn_add(msn_, 1);
  *resource = {.used = true,
               .first_psn = packet.psn,
               .packets = packets,
               .remote_address = packet.remote_address,
               .rkey = packet.rkey,
               .length = packet.dma_length};
  expected_psn_ = psn_add(expected_psn_, packets);
  respond({.kind = Response::Kind::read,
           .psn = packet.psn,
           .msn = msn_,
           .resource = index,
           .remote_address = packet.remote_address,
           .left = packet.dma_length});
}

void RcQp::execute_atomic(const Packet& packet, Time now) {
  if (packet.remote_address % kAtomicBytes != 0)
    return answer_fault(Fault::sequence, packet.psn, now);
  std::uint8_t* at = home_.memory.resolve(packet.rkey, packet.remote_address, kAtomicBytes,
                                          kRemoteAtomic, config_.protection_domain, number_);
  // The address that a region begins at may be aligned where its memory is not.
  const bool aligned = reinterpret_cast<std::uintptr_t>(at) % kAtomicBytes == 0;
  if (at == nullptr || !aligned) return answer_fault(Fault::access, packet.psn, now);
  std::size_t index = 0;
  Resource* resource = take_resource(index);
  if (resource == nullptr) return answer_fault(Fault::sequence, packet.psn, now);
  count(Counter::rx_atomic_requests);
  const std::atomic_ref<std::uint64_t> value(*reinterpret_cast<std::uint64_t*>(at));
  std::uint64_t original = packet.compare;
  if (operation_of(packet.opcode) == Operation::fetch_add)
    original = value.fetch_add(packet.swap_or_add);
  else
    value.compare_exchange_strong(original, packet.swap_or_add);
  msn_ = psn_add(msn_, 1);
  *resource = {
      .used = true, .atomic = true, .first_psn = packet.psn, .packets = 1, .original = original};
  expected_psn_ = psn_add(expected_psn_, 1);
  respond({.kind = Response::Kind::atomic, .psn = packet.psn, .msn = msn_, .resource = index});
}

// ---------------------------------------------------------------- duplicates, IBA 9.7.5.1.3

// The newest with this PSN: PSNs wrap around.
std::optional<std::size_t> RcQp::resource_of(std::uint32_t psn) const {
  for (std::size_t age = 1; age <= resources_.size(); ++age) {
    const std::size_t index = (next_resource_ + resources_.size() - age) % resources_.size();
    const Resource& resource = resources_[index];
    const std::int32_t into = psn_distance(psn, resource.first_psn);
    if (resource.used && into >= 0 && into < static_cast<std::int32_t>(resource.packets))
      return index;
  }
  return std::nullopt;
}

// C9-105, but never by the PSN of a READ or an atomic: the response to those is their results
// alone, and rdma_rxe takes such an acknowledgement for one (rxe_comp.c, check_ack). If the last
// executed request is a READ or an atomic, its result acknowledges the duplicate (IBA 9.7.5.1.2,
// coalescing), because the requester retransmits it, too. An acknowledgement behind the First of
// that result makes rdma_rxe forget the response in progress: it takes the Middle or Last for an
// error, and flushes. A requester that returns without having reached the READ cannot, for example
// because its window is smaller now; it gets an acknowledgement.
void RcQp::acknowledge_duplicate(std::uint32_t psn) {
  if (psn_add(executed_psn_, 1) == expected_psn_) return acknowledge(executed_psn_);
  const bool returned = left_to_result_ && psn_distance(psn, *left_to_result_) <= 0;
  left_to_result_ = psn;
  if (returned && !has_result_behind(executed_psn_)) acknowledge(executed_psn_);
}

void RcQp::handle_duplicate(const Packet& packet, const OpcodeTraits& traits, Time now) {
  count(Counter::duplicate_request);
  note_psns(QpEventKind::duplicate, 0, packet.psn, expected_psn_, now);
  if (traits.family == Family::send || traits.family == Family::write)
    return acknowledge_duplicate(packet.psn);
  const auto index = resource_of(packet.psn);
  if (!index) return;
  left_to_result_.reset();
  const Resource* kept = &resources_[*index];
  if (kept->atomic != (traits.family == Family::atomic)) return;
  if (kept->atomic) {  // never executed again (C9-106)
    if (is_answering(*index)) return;
    return respond({.kind = Response::Kind::atomic,
                    .psn = packet.psn,
                    .msn = msn_,
                    .resource = *index,
                    .again = true});
  }
  // A part of the earlier request, from a packet's beginning.
  const std::uint64_t offset =
      std::uint64_t{(packet.psn - kept->first_psn) & kPsnMask} * attr_.path_mtu;
  if (packet.rkey != kept->rkey || packet.remote_address != kept->remote_address + offset ||
      packet.dma_length > kept->length - offset)
    return;
  std::erase_if(responses_, [&index](const Response& response) {
    return response.kind == Response::Kind::read && response.resource == *index;
  });
  // One that continues in the middle begins with a Middle or Last: so does rxe's, and its requester
  // takes a First there for an error.
  respond({.kind = Response::Kind::read,
           .psn = packet.psn,
           .msn = msn_,
           .resource = *index,
           .again = true,
           .begun = offset != 0,
           .remote_address = packet.remote_address,
           .left = packet.dma_length});
}

// ---------------------------------------------------------------- errors, IBA 9.9.3

void RcQp::answer_fault(Fault fault, std::uint32_t psn, Time now) {
  switch (fault) {
    case Fault::none:
      return;
    case Fault::no_receive:  // class B: the requester will come again
      nak_sent_ = true;      // packets that follow meanwhile are dropped silently (IBA 9.7.5.2.8)
      count(Counter::tx_rnr_nak);
      return nak(static_cast<std::uint8_t>(kRnrNak | attr_.min_rnr_timer), psn);
    case Fault::sequence:  // class C
    case Fault::length:
      return nak_and_fail(kNakInvalid, Counter::tx_nak_invalid, WcStatus::rem_inv_req_err,
                          AsyncEventType::qp_req_err, psn, now);
    case Fault::overrun:
      return nak_and_fail(kNakInvalid, Counter::tx_nak_invalid, WcStatus::loc_len_err,
                          AsyncEventType::qp_req_err, psn, now);
    case Fault::access:
      return nak_and_fail(kNakAccess, Counter::tx_nak_access, WcStatus::rem_access_err,
                          AsyncEventType::qp_access_err, psn, now);
    case Fault::local:  // class A
      return nak_and_fail(kNakOperation, Counter::tx_nak_operation, WcStatus::loc_prot_err,
                          AsyncEventType::qp_fatal, psn, now);
    case Fault::invalidate:  // class J: no NAK, IBA 9.9.3.1
      if (inbound_.receive)
        fail_receive(*std::exchange(inbound_.receive, std::nullopt), WcStatus::rem_inv_req_err,
                     now);
      return fail(AsyncEventType::qp_access_err, now);
  }
}

void RcQp::nak_and_fail(std::uint8_t syndrome, Counter counter, WcStatus receive_status,
                        AsyncEventType event, std::uint32_t psn, Time now) {
  count(counter);
  nak(syndrome, psn);
  if (inbound_.receive)
    fail_receive(*std::exchange(inbound_.receive, std::nullopt), receive_status, now);
  parting_ = true;
  fail(event, now);
  parting_ = false;
}

// ---------------------------------------------------------------- responses

// A newer acknowledgement or NAK supersedes one that has not left yet (IBA
// 9.7.5.1.2, coalescing; a NAK acknowledges all that was before it). So there is one at most, and
// one result a resource at most.
void RcQp::respond(const Response& response) {
  if (!response.is_result()) {
    const auto other = std::ranges::find_if_not(responses_, &Response::is_result);
    if (other != responses_.end()) {
      const bool older = psn_distance(response.psn, other->psn) < 0;
      if (older && other->kind == Response::Kind::nak) return;
      responses_.erase(other);
    }
  }
  responses_.push_back(response);
  responses_.back().first_psn = response.psn;
}

void RcQp::acknowledge(std::uint32_t psn) {
  const std::uint32_t covered = psn_add(psn, mutated(Mutant::rc_ack_one_too_many));
  respond({.kind = Response::Kind::acknowledge, .psn = covered, .msn = msn_});
}

void RcQp::nak(std::uint8_t syndrome, std::uint32_t psn) {
  if (syndrome == kNakSequence) count(Counter::tx_nak_sequence);
  respond({.kind = Response::Kind::nak, .psn = psn, .msn = msn_, .syndrome = syndrome});
}

bool RcQp::poll_response(Packet& packet, Time now) {
  if (responses_.empty()) return false;
  Response& response = responses_.front();
  if (!response_is_ready(now)) return false;
  if (response.kind == Response::Kind::read) return write_read_response(response, packet, now);
  const bool atomic = response.kind == Response::Kind::atomic;
  address_peer(packet);
  packet.opcode =
      opcode_of(Service::rc, atomic ? Operation::atomic_acknowledge : Operation::acknowledge);
  packet.psn = response.psn;
  packet.msn = response.msn;
  packet.syndrome = response.syndrome;
  if (atomic) packet.original = resources_[response.resource].original;
  if (response.kind == Response::Kind::acknowledge) count(Counter::tx_ack);
  note_response(response, now);
  responses_.pop_front();
  count_packet(Counter::tx_connected, packet);
  return true;
}

void RcQp::note_response(const Response& response, Time now) {
  const std::uint32_t psn = response.psn;
  if (response.kind == Response::Kind::atomic)
    note_psns(QpEventKind::response_sent, 0, psn, psn, now);
  else if (response.kind == Response::Kind::acknowledge)
    note_psns(QpEventKind::ack_sent, response.syndrome, psn, psn, now);
  else if (response.syndrome >= kNakSequence)
    note_psns(QpEventKind::nak_sent, response.syndrome, psn, psn, now);
  else
    note_psns(QpEventKind::rnr_sent, response.syndrome & 31, psn, psn, now);
}

bool RcQp::write_read_response(Response& response, Packet& packet, Time now) {
  static constexpr std::uint8_t kNothing = 0;
  const std::uint32_t bytes = std::min(response.left, attr_.path_mtu);
  const std::uint8_t* at =
      bytes == 0 || !home_.carries_payload
          ? &kNothing
          : home_.memory.resolve(resources_[response.resource].rkey, response.remote_address, bytes,
                                 kRemoteRead, config_.protection_domain, number_);
  if (at == nullptr) {  // the region is gone meanwhile
    const std::uint32_t psn = response.psn;
    responses_.clear();
    nak_and_fail(kNakAccess, Counter::tx_nak_access, WcStatus::rem_access_err,
                 AsyncEventType::qp_access_err, psn, now);
    return poll_response(packet, now);
  }
  using enum Operation;
  const bool begins = !std::exchange(response.begun, true), ends = bytes == response.left;
  packet.opcode =
      opcode_of(Service::rc, begins ? (ends ? read_response_only : read_response_first)
                                    : (ends ? read_response_last : read_response_middle));
  address_peer(packet);
  packet.psn = response.psn;
  packet.msn = response.msn;
  packet.syndrome = kAckUnlimited;
  packet.payload = home_.carries_payload ? at : nullptr;
  packet.payload_bytes = bytes;
  response.psn = psn_add(response.psn, 1);
  response.remote_address += bytes;
  response.left -= bytes;
  count_packet(Counter::tx_connected, packet);
  sent_data(packet, now);
  if (ends) {
    note_psns(QpEventKind::response_sent, 0, response.first_psn, packet.psn, now);
    responses_.pop_front();
  }
  return true;
}

std::unique_ptr<QueuePair> make_rc_qp(std::uint32_t number, QpConfig config, QpHome& home) {
  return std::make_unique<RcQp>(number, std::move(config), home);
}

}  // namespace softroce
