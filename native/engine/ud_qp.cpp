// SPDX-License-Identifier: GPL-2.0-or-later
#include "ud_qp.hpp"

#include <cerrno>
#include <cstring>
#include <system_error>

#include "codec.hpp"

namespace softroce {
namespace {

bool may_go(QpState from, QpState to) {
  using enum QpState;
  if (to == reset || to == err) return true;
  if (to == init) return from == reset || from == init;
  if (to == rtr) return from == init;
  return to == rts && (from == rtr || from == rts || from == sqe);
}

// What RoCEv2 has in place of a GRH: the IPv6 header, or 20 undefined bytes and the IPv4 header,
// as it was sent (annex A17.4.5.2). Receivers read version and addresses.
void put_ip_header(const Packet& packet, std::uint8_t* at) {
  std::memset(at, 0, kGrhBytes);
  if (packet.source.is_ipv4())
    Ipv4::put(packet, udp_bytes(packet), at + kGrhBytes - Ipv4::kBytes);
  else
    Ipv6::put(packet, udp_bytes(packet), at);
}

}  // namespace

UdQp::UdQp(std::uint32_t number, const UdQpConfig& config, std::uint32_t path_mtu,
           MemoryTable& memory, Counters& counters)
    : number_(number), config_(config), path_mtu_(path_mtu), memory_(memory), counters_(counters) {}

int UdQp::modify(QpState state, std::uint32_t qkey, std::uint32_t first_psn, Time now) {
  if (!may_go(state_, state)) return EINVAL;
  if (state == QpState::init) qkey_ = qkey;
  if (state == QpState::rts && state_ == QpState::rtr) psn_ = first_psn;
  state_ = state;
  if (state == QpState::reset) drop_requests();
  if (state == QpState::err) {
    flush_sends(now);
    flush_receives(now);
  }
  return 0;
}

std::uint8_t* UdQp::pin(const ScatterGather& range, std::uint32_t access) {
  try {
    return memory_.pin_address(range.lkey, range.address, range.length, access,
                               config_.protection_domain);
  } catch (const std::system_error&) {
    return nullptr;
  }
}

int UdQp::post_send(const UdSend& request, Time now) {
  if (state_ < QpState::rts) return EINVAL;
  if (sends_.size() >= config_.max_send_wr) return ENOMEM;
  Posted<UdSend> posted{request, nullptr, WcStatus::success};
  if (request.source.length > path_mtu_)  // UD messages are one packet, IBA 9.8.2
    posted.status = WcStatus::loc_len_err;
  else if ((posted.base = pin(request.source, 0)) == nullptr)
    posted.status = WcStatus::loc_prot_err;
  sends_.push_back(posted);
  if (state_ >= QpState::sqe) flush_sends(now);
  return 0;
}

int UdQp::post_receive(const UdReceive& request, Time now) {
  if (state_ == QpState::reset) return EINVAL;
  if (receives_.size() >= config_.max_recv_wr) return ENOMEM;
  std::uint8_t* base = pin(request.target, kLocalWrite);
  receives_.push_back(
      {request, base, base == nullptr ? WcStatus::loc_prot_err : WcStatus::success});
  if (state_ == QpState::err) flush_receives(now);
  return 0;
}

void UdQp::handle_packet(const Packet& packet, Time now) {
  if (state_ < QpState::rtr || state_ == QpState::err)
    return counters_.add(Counter::rx_qp_not_ready);
  if (packet.qkey != qkey_) return counters_.add(Counter::rx_wrong_qkey);
  if (receives_.empty()) return counters_.add(Counter::rx_ud_no_recv);
  const Posted<UdReceive> receive = receives_.front();
  if (receive.status != WcStatus::success) {
    receives_.pop_front();
    complete_receive(receive, receive.status, 0, 0, now);
    modify(QpState::err, 0, 0, now);
    return counters_.add(Counter::rx_ud_bad_recv);
  }
  const std::uint32_t bytes = kGrhBytes + packet.payload_bytes;
  if (receive.request.target.length < bytes) return counters_.add(Counter::rx_ud_too_long);
  receives_.pop_front();
  put_ip_header(packet, receive.base);
  if (packet.payload_bytes != 0)
    std::memcpy(receive.base + kGrhBytes, packet.payload, packet.payload_bytes);
  counters_.add(Counter::rx_ud);
  complete_receive(receive, WcStatus::success, bytes, packet.source_qp, now);
}

bool UdQp::poll_packet(Packet& packet, const Gid& source, Time now) {
  if (sends_.empty()) return false;
  const Posted<UdSend>& send = sends_.front();
  if (send.status != WcStatus::success) {  // IBA 10.3.1.6: only the send queue stops
    complete_send(send, send.status, now);
    sends_.pop_front();
    state_ = QpState::sqe;
    flush_sends(now);
    return false;
  }
  packet = {};
  packet.destination_mac = send.request.mac;
  packet.source = source;
  packet.destination = send.request.gid;
  packet.source_port = LAB_UDP_SPORT_BASE;
  packet.solicited = send.request.solicited;
  packet.destination_qp = send.request.remote_qp;
  packet.psn = psn_++;
  packet.qkey = send.request.remote_qkey;
  packet.source_qp = number_;
  packet.payload = send.base;
  packet.payload_bytes = send.request.source.length;
  counters_.add(Counter::tx_ud);
  return true;
}

void UdQp::packet_done(Time now) {
  complete_send(sends_.front(), WcStatus::success, now);
  sends_.pop_front();
}

void UdQp::complete_send(const Posted<UdSend>& send, WcStatus status, Time now) {
  if (send.base != nullptr) memory_.unpin(send.request.source.lkey);
  if (!send.request.signaled && status == WcStatus::success) return;
  config_.send_cq->push({.wr_id = send.request.wr_id,
                         .status = status,
                         .opcode = WcOpcode::send,
                         .byte_len = send.request.source.length,
                         .qp_num = number_,
                         .completed_at = now});
}

void UdQp::complete_receive(const Posted<UdReceive>& receive, WcStatus status, std::uint32_t bytes,
                            std::uint32_t source_qp, Time now) {
  if (receive.base != nullptr) memory_.unpin(receive.request.target.lkey);
  config_.receive_cq->push({.wr_id = receive.request.wr_id,
                            .status = status,
                            .opcode = WcOpcode::recv,
                            .byte_len = bytes,
                            .qp_num = number_,
                            .src_qp = source_qp,
                            .completed_at = now});
}

void UdQp::flush_sends(Time now) {
  for (const auto& send : sends_) complete_send(send, WcStatus::wr_flush_err, now);
  sends_.clear();
}

void UdQp::flush_receives(Time now) {
  for (const auto& receive : receives_)
    complete_receive(receive, WcStatus::wr_flush_err, 0, 0, now);
  receives_.clear();
}

void UdQp::drop_requests() {
  for (const auto& send : sends_)
    if (send.base != nullptr) memory_.unpin(send.request.source.lkey);
  for (const auto& receive : receives_)
    if (receive.base != nullptr) memory_.unpin(receive.request.target.lkey);
  sends_.clear();
  receives_.clear();
}

}  // namespace softroce
