// SPDX-License-Identifier: GPL-2.0-or-later
#include "connected_qp.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "../codec/codec.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kAtomicBytes = 8;

struct Operations {
  Operation first, middle, last, only;
};

Operations operations_of(WrOpcode opcode) {
  using enum Operation;
  switch (opcode) {
    case WrOpcode::rdma_write:
      return {write_first, write_middle, write_last, write_only};
    case WrOpcode::rdma_write_with_immediate:
      return {write_first, write_middle, write_last_immediate, write_only_immediate};
    case WrOpcode::send_with_immediate:
      return {send_first, send_middle, send_last_immediate, send_only_immediate};
    case WrOpcode::send_with_invalidate:
      return {send_first, send_middle, send_last_invalidate, send_only_invalidate};
    default:
      return {send_first, send_middle, send_last, send_only};
  }
}

}  // namespace

ConnectedQp::ConnectedQp(std::uint32_t number, QpConfig config, QpHome& home)
    : QueuePair(number, std::move(config), home) {
  reset_congestion();
}

// As Linux's rxe validate_send_wr (rxe_verbs.c).
int ConnectedQp::check_send(const SendRequest& request) const {
  const bool atomic =
      request.opcode == WrOpcode::compare_swap || request.opcode == WrOpcode::fetch_add;
  if (request.opcode > WrOpcode::send_with_invalidate) return EOPNOTSUPP;
  if (request.is_local()) {
    const bool whole = request.opcode == WrOpcode::local_invalidate || request.binding;
    return home_.carries_payload && whole ? 0 : EOPNOTSUPP;
  }
  if (config_.type == QpType::uc &&
      (request.reads_remote() || request.opcode == WrOpcode::send_with_invalidate))
    return EOPNOTSUPP;
  // Both are of memory, of which there is none.
  if (!home_.carries_payload && (atomic || request.opcode == WrOpcode::send_with_invalidate))
    return EOPNOTSUPP;
  if (atomic && (request.bytes() != kAtomicBytes || request.remote_address % kAtomicBytes != 0))
    return EINVAL;
  return 0;
}

// ---------------------------------------------------------------- out

void ConnectedQp::address_peer(Packet& packet) const {
  address(packet, attr_.address);
  packet.destination_qp = attr_.dest_qp;
  packet.source_qp = number_;  // not on the wire
}

bool ConnectedQp::cut(const Send& send, std::uint32_t index, Service service, Packet& packet) {
  const SendRequest& request = send.request;
  const Operations operations = operations_of(request.opcode);
  const bool begins = index == 0, ends = index + 1 == send.packets;
  const Operation operation = begins ? (ends ? operations.only : operations.first)
                                     : (ends ? operations.last : operations.middle);
  const std::uint64_t offset = std::uint64_t{index} * attr_.path_mtu;
  const auto bytes =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(send.bytes - offset, attr_.path_mtu));
  if (!load(request, offset, bytes, packet)) return false;  // another QP may use the packet
  packet.opcode = opcode_of(service, operation);
  address_peer(packet);
  packet.psn = psn_add(send.first_psn, index);
  packet.remote_address = request.remote_address;
  packet.rkey = request.rkey;
  packet.dma_length = static_cast<std::uint32_t>(send.bytes);
  packet.immediate = request.immediate;
  packet.invalidate_rkey = request.invalidate_rkey;
  // Of a WRITE only an immediate completes at the other end (IBA 9.2.3).
  const bool wakes = request.opcode != WrOpcode::rdma_write;
  packet.solicited = ends && wakes && (request.flags & kSolicited);
  return true;
}

void ConnectedQp::note_sent(const Send& send, Time now) {
  if (!logged()) [[likely]]
    return;
  note({.kind = QpEventKind::sent,
        .code = static_cast<std::uint8_t>(send.request.opcode),
        .psn = send.first_psn,
        .last_psn = send.last_psn(),
        .wr_id = send.request.wr_id,
        .bytes = send.bytes},
       now);
}

// ---------------------------------------------------------------- congestion control

void ConnectedQp::reset_congestion() {
  if (home_.congestion.name != "bdp") congestion_ = make_congestion_control(home_.congestion);
  paced_until_ = kNever;
  cnp_queued_ = false;
}

void ConnectedQp::set_pace(Time now) {
  const Time next = congestion_->next_send();
  paced_until_ = next > now ? next : kNever;
}

void ConnectedQp::sent_data(const Packet& packet, Time now) {
  if (!congestion_) [[likely]]
    return;
  if (congestion_->is_paced()) congestion_->on_sent(frame_bytes(packet), now);
  set_pace(now);
}

bool ConnectedQp::handle_cnp(const Packet& packet, Time now) {
  const bool mine = state_ == QpState::rts || state_ == QpState::sqd || state_ == QpState::rtr;
  if (!congestion_ || !mine || !is_from_peer(packet)) return false;
  if (!sends_cnps(home_.congestion.name)) return false;
  congestion_->on_cnp(now);
  return true;
}

void ConnectedQp::note_mark(const Packet& packet, Time now) {
  const bool connected = state_ >= QpState::rtr && state_ != QpState::err;
  if (!connected || !is_from_peer(packet)) return;
  if (notification_.marked(now, home_.congestion.cnp_interval)) cnp_queued_ = true;
}

bool ConnectedQp::poll_cnp(Packet& packet) {
  if (!std::exchange(cnp_queued_, false)) return false;
  address_peer(packet);
  make_cnp(packet, attr_.dest_qp);
  home_.counters.add(Counter::tx_cnp);
  return true;
}

// ---------------------------------------------------------------- in

void ConnectedQp::give_back_receive() {
  if (inbound_.receive && config_.srq) put_back(std::move(*inbound_.receive));
  inbound_.reset();
}

// What the QP itself permits its peer (IBA 11.2.4.2; SEND needs no right).
bool ConnectedQp::qp_grants(Family family) const {
  if (family == Family::write) return attr_.access & kRemoteWrite;
  if (family == Family::read) return attr_.access & kRemoteRead;
  if (family == Family::atomic) return attr_.access & kRemoteAtomic;
  return true;
}

bool ConnectedQp::is_from_peer(const Packet& packet) const {
  return packet.source == attr_.address.destination &&
         packet.destination == home_.gids[attr_.address.sgid_index];
}

ConnectedQp::Fault ConnectedQp::take(const Packet& packet, const OpcodeTraits& traits, Time now) {
  if (traits.begins)
    if (const Fault fault = begin(packet, traits, now); fault != Fault::none) return fault;
  if (const Fault fault = place(packet, traits); fault != Fault::none) return fault;
  return traits.ends ? finish(packet, traits, now) : Fault::none;
}

ConnectedQp::Fault ConnectedQp::begin(const Packet& packet, const OpcodeTraits& traits, Time now) {
  Inbound message;
  message.first_at = now;
  message.family = traits.family;
  if (traits.family == Family::send) {
    message.receive = take_receive();
    if (!message.receive) return Fault::no_receive;
  } else {
    message.remote_address = packet.remote_address;
    message.rkey = packet.rkey;
    message.length = packet.dma_length;
    // All of it at once, so that nothing is written of what may not be (IBA 9.7.4.1.5). Nothing is
    // checked of a message of no bytes (C9-88).
    if (message.length != 0 && home_.carries_payload &&
        home_.memory.resolve(message.rkey, message.remote_address, message.length, kRemoteWrite,
                             config_.protection_domain, number_) == nullptr)
      return Fault::access;
    if (traits.ends && traits.headers & kImmediate && !has_receive()) return Fault::no_receive;
  }
  inbound_ = std::move(message);
  return Fault::none;
}

ConnectedQp::Fault ConnectedQp::place(const Packet& packet, const OpcodeTraits& traits) {
  const std::uint32_t bytes = packet.payload_bytes;
  if (inbound_.family == Family::send) {
    if (inbound_.offset + bytes > inbound_.receive->bytes()) return Fault::overrun;
    if (!fill(*inbound_.receive, inbound_.offset, packet.payload, bytes)) return Fault::local;
    inbound_.offset += bytes;
    return Fault::none;
  }
  // IBA 9.7.4.1.6: the payloads add up to the length in the RETH.
  const std::uint64_t end = inbound_.offset + bytes;
  if (end > inbound_.length || (traits.ends && end != inbound_.length)) return Fault::length;
  if (traits.ends && traits.headers & kImmediate && !has_receive()) return Fault::no_receive;
  if (bytes != 0 && home_.carries_payload) {
    std::uint8_t* at =
        home_.memory.resolve(inbound_.rkey, inbound_.remote_address + inbound_.offset, bytes,
                             kRemoteWrite, config_.protection_domain, number_);
    if (at == nullptr) return Fault::access;
    if (packet.payload != nullptr) std::memcpy(at, packet.payload, bytes);
  }
  inbound_.offset = end;
  return Fault::none;
}

ConnectedQp::Fault ConnectedQp::finish(const Packet& packet, const OpcodeTraits& traits, Time now) {
  const bool immediate = traits.headers & kImmediate;
  if (traits.headers & kIeth &&
      !home_.memory.invalidate(packet.invalidate_rkey, config_.protection_domain, number_))
    return Fault::invalidate;
  Inbound message = std::exchange(inbound_, {});
  if (message.family == Family::write && !immediate) return Fault::none;
  if (message.family == Family::write) message.receive = take_receive();
  WorkCompletion completion{.opcode = message.family == Family::send
                                          ? WcOpcode::recv
                                          : WcOpcode::recv_rdma_with_immediate,
                            .byte_len = static_cast<std::uint32_t>(message.offset),
                            .src_qp = attr_.dest_qp,
                            .solicited = packet.solicited,
                            .packets = softroce::packets_of(message.offset, attr_.path_mtu),
                            .first_at = message.first_at};
  if (immediate) {
    completion.flags |= kWithImmediate;
    completion.immediate = packet.immediate;
  }
  if (traits.headers & kIeth) {
    completion.flags |= kWithInvalidate;
    completion.immediate = packet.invalidate_rkey;
  }
  complete_receive(*message.receive, completion, now);
  return Fault::none;
}

}  // namespace softroce
