// SPDX-License-Identifier: GPL-2.0-or-later
#include "rnic.hpp"

#include <cstring>
#include <stdexcept>

namespace softroce {

Rnic::Rnic(const MessageConfig& config) : config_(config) {
  qps_.push_back({.number = data_qp(), .qkey = 0, .striped = true});
  qps_.push_back({.number = recovery_qp(), .qkey = 0, .striped = true});
  engine_ = std::make_unique<MessageEngine>(config, memory_, completions_, counters_, data_qp(),
                                            recovery_qp());
}

void Rnic::set_qkey(std::uint32_t qkey) {
  for (UdQp& qp : qps_)
    if (qp.striped) qp.qkey = qkey;
}

std::uint32_t Rnic::create_ud_qp(std::uint32_t qkey) {
  const auto number = kFirstQp + static_cast<std::uint32_t>(qps_.size());
  qps_.push_back({.number = number, .qkey = qkey, .striped = false});
  return number;
}

Rnic::UdQp* Rnic::find_qp(std::uint32_t number) {
  const std::uint32_t index = number - kFirstQp;
  return index < qps_.size() ? &qps_[index] : nullptr;
}

bool Rnic::post_ud_send(std::uint32_t number, const UdSend& request) {
  UdQp* qp = find_qp(number);
  if (qp == nullptr || qp->striped) throw std::invalid_argument("not an ordinary UD queue pair");
  if (request.length > config_.path_mtu)  // UD messages are one packet, IBA 9.8.2
    throw std::invalid_argument("a UD message is limited to the path MTU");
  if (qp->sends.size() >= kMostQueued) return false;
  qp->sends.push_back(request);
  ud_ready_.push_back(number);
  return true;
}

bool Rnic::post_ud_receive(std::uint32_t number, const UdReceive& request) {
  UdQp* qp = find_qp(number);
  if (qp == nullptr || qp->striped) throw std::invalid_argument("not an ordinary UD queue pair");
  if (qp->receives.size() >= kMostQueued) return false;
  qp->receives.push_back(request);
  return true;
}

// The checks in the order of IBA 9.6.1 (packet header validation).
void Rnic::handle_packet(Packet& packet, Time now) {
  if (packet.destination_ip != config_.address) return counters_.add(Counter::rx_not_ours);
  if (packet.opcode != LAB_BTH_OPCODE_UD_SEND_ONLY) return counters_.add(Counter::rx_bad_opcode);
  UdQp* qp = find_qp(packet.destination_qp);
  if (qp == nullptr) return counters_.add(Counter::rx_unknown_qp);
  // The low 15 bits are the partition; the top bit tells full members, who talk to all.
  if ((packet.pkey & 0x7FFF) != (kDefaultPkey & 0x7FFF))
    return counters_.add(Counter::rx_wrong_pkey);
  if (packet.qkey != qp->qkey) return counters_.add(Counter::rx_wrong_qkey);
  if (qp->striped) return engine_->handle_packet(packet, now);
  deliver_ud(*qp, packet, now);
}

void Rnic::deliver_ud(UdQp& qp, const Packet& packet, Time now) {
  if (qp.receives.empty()) return counters_.add(Counter::rx_ud_no_recv);
  const UdReceive receive = qp.receives.front();
  if (receive.length < kGrhBytes + packet.payload_bytes)
    return counters_.add(Counter::rx_ud_too_long);
  qp.receives.pop_front();
  // RoCEv2 has no GRH: for IPv4 the first 20 bytes are undefined, the IPv4 header follows; what
  // a receiver reads of it are the addresses (annex A17.4.5.2).
  std::memset(receive.base, 0, kGrhBytes);
  const std::uint32_t addresses[2] = {__builtin_bswap32(packet.source_ip),
                                      __builtin_bswap32(packet.destination_ip)};
  std::memcpy(receive.base + kGrhBytes - sizeof addresses, addresses, sizeof addresses);
  std::memcpy(receive.base + kGrhBytes, packet.payload, packet.payload_bytes);
  memory_.unpin(receive.memory_key);
  counters_.add(Counter::rx_ud);
  completions_.push({.wr_id = receive.wr_id,
                     .opcode = WcOpcode::recv,
                     .byte_len = kGrhBytes + packet.payload_bytes,
                     .qp_num = qp.number,
                     .src_qp = packet.source_qp,
                     .completed_at = now});
}

bool Rnic::poll_packet(Packet& packet, Time now) {
  return poll_ud(packet, now) || engine_->poll_packet(packet, now);
}

bool Rnic::poll_ud(Packet& packet, Time now) {
  if (ud_ready_.empty()) return false;
  UdQp& qp = *find_qp(ud_ready_.front());
  ud_ready_.pop_front();
  const UdSend request = qp.sends.front();
  qp.sends.pop_front();
  packet = {};
  packet.destination_mac = request.to.mac;
  packet.source_ip = config_.address;
  packet.destination_ip = request.to.ip;
  packet.source_port = LAB_UDP_SPORT_BASE;
  packet.solicited = request.solicited;
  packet.destination_qp = request.to.data_qp;
  packet.psn = qp.psn++;
  packet.qkey = request.to.qkey;
  packet.source_qp = qp.number;
  packet.payload = request.base;
  packet.payload_bytes = request.length;
  counters_.add(Counter::tx_ud);
  // UD completes when the packet has left (IBA 9.8.2); the payload is copied before the next poll.
  memory_.unpin(request.memory_key);
  completions_.push({.wr_id = request.wr_id,
                     .opcode = WcOpcode::send,
                     .byte_len = request.length,
                     .qp_num = qp.number,
                     .completed_at = now});
  return true;
}

}  // namespace softroce
