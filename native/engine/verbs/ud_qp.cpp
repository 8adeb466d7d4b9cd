// SPDX-License-Identifier: GPL-2.0-or-later
// Unreliable datagram (IBA 9.8.3): messages of one packet, in the order posted, no recovery.
#include <cerrno>
#include <cstring>
#include <utility>

#include "../codec/codec.hpp"
#include "../codec/ip.hpp"
#include "queue_pair.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kGrhBytes = 40;  // head of every UD receive buffer, IBA 11.4.1.2

// What RoCEv2 has in place of a GRH: the IPv6 header, or 20 undefined bytes and the IPv4 header,
// as it was sent (annex A17.4.5.2). Receivers read version and addresses.
void put_ip_header(const Packet& packet, std::uint8_t* at) {
  std::memset(at, 0, kGrhBytes);
  if (packet.source.is_ipv4())
    Ipv4::put(packet, udp_bytes(packet), at + kGrhBytes - Ipv4::kBytes);
  else
    Ipv6::put(packet, udp_bytes(packet), at);
}

class UdQp final : public QueuePair {
 public:
  using QueuePair::QueuePair;

  bool has_packet(Time) const override { return state_ == QpState::rts && !sends_.empty(); }
  void handle_packet(const Packet& packet, Time now) override;
  bool poll_packet(Packet& packet, Time now) override;
  void packet_done(Time now) override;

 private:
  void entered(QpState from, Time now) override;
  int check_send(const SendRequest& request) const override;
  std::uint32_t psn_ = 0;
};

void UdQp::entered(QpState from, Time) {
  if (from == QpState::rtr) psn_ = attr_.sq_psn;
  if (state_ == QpState::sqd && attr_.sqd_notify)
    tell(AsyncEventType::sq_drained);  // nothing of UD is ever under way
}

int UdQp::check_send(const SendRequest& request) const {
  if (request.opcode != WrOpcode::send && request.opcode != WrOpcode::send_with_immediate)
    return EOPNOTSUPP;
  const auto index = request.address.sgid_index;
  if (index >= home_.gids.size()) return EINVAL;
  return home_.gids[index].is_ipv4() == request.address.destination.is_ipv4() ? 0 : EINVAL;
}

void UdQp::handle_packet(const Packet& packet, Time now) {
  if (service_of(packet.opcode) != Service::ud) return drop(Counter::rx_bad_opcode, packet, now);
  if (state_ < QpState::rtr || state_ == QpState::err)
    return drop(Counter::rx_qp_not_ready, packet, now);
  if (packet.qkey != attr_.qkey) return drop(Counter::rx_wrong_qkey, packet, now);
  if (packet.payload_bytes > home_.port_mtu) return drop(Counter::rx_bad_length, packet, now);
  auto receive = take_receive();
  if (!receive) return drop(Counter::rx_ud_no_recv, packet, now);  // silently, IBA 9.8.3.2.2

  const std::uint32_t bytes = kGrhBytes + packet.payload_bytes;
  std::uint8_t grh[kGrhBytes];
  put_ip_header(packet, grh);
  if (receive->bytes() < bytes) {  // class D: dropped, and the receive stays, as rxe has it
    put_back(std::move(*receive));
    return drop(Counter::rx_ud_too_long, packet, now);
  }
  if (!fill(*receive, 0, grh, kGrhBytes) ||
      !fill(*receive, kGrhBytes, packet.payload, packet.payload_bytes)) {
    drop(Counter::rx_ud_bad_recv, packet, now);
    fail_receive(*receive, WcStatus::loc_prot_err, now);
    return fail(AsyncEventType::qp_fatal, now);
  }
  count_packet(Counter::rx_ud, packet);
  const bool immediate = traits_of(packet.opcode).headers & kImmediate;
  complete_receive(*receive,
                   {.opcode = WcOpcode::recv,
                    .flags = static_cast<std::uint8_t>(kWithGrh | (immediate ? kWithImmediate : 0)),
                    .byte_len = bytes,
                    .immediate = packet.immediate,
                    .src_qp = packet.source_qp,
                    .over_ipv4 = packet.source.is_ipv4(),
                    .solicited = packet.solicited},
                   now);
}

bool UdQp::poll_packet(Packet& packet, Time now) {
  if (!has_packet(now)) return false;
  Send& send = sends_.front();
  const SendRequest& request = send.request;
  if (send.bytes > home_.port_mtu) send.status = WcStatus::loc_len_err;  // one packet, IBA 9.8.3.1
  const auto bytes = static_cast<std::uint32_t>(send.bytes);
  if (send.status != WcStatus::success || !load(request, 0, bytes, packet)) {
    stop_sending(send.status == WcStatus::success ? WcStatus::loc_prot_err : send.status, now);
    return false;
  }
  const bool immediate = request.opcode == WrOpcode::send_with_immediate;
  address(packet, request.address);
  packet.opcode =
      opcode_of(Service::ud, immediate ? Operation::send_only_immediate : Operation::send_only);
  packet.immediate = request.immediate;
  packet.solicited = (request.flags & kSolicited) != 0;
  packet.destination_qp = request.remote_qp;
  packet.psn = psn_;
  psn_ = (psn_ + 1) & kPsnMask;
  // A Q_Key whose top bit is set stands for the QP's own (IBA 10.2.5), so that an ordinary program
  // cannot name a privileged one.
  packet.qkey = request.remote_qkey & 0x80000000 ? attr_.qkey : request.remote_qkey;
  packet.source_qp = number_;
  count_packet(Counter::tx_ud, packet);
  return true;
}

// The packet has left: so UD completes, IBA 9.8.3.1.
void UdQp::packet_done(Time now) {
  if (sends_.empty()) return;
  const Send send = std::move(sends_.front());
  sends_.pop_front();
  const std::uint32_t psn = (psn_ - 1) & kPsnMask;
  note_psns(QpEventKind::sent, 0, psn, psn, now);
  complete_send(send, WcStatus::success, now);
}

}  // namespace

std::unique_ptr<QueuePair> make_ud_qp(std::uint32_t number, QpConfig config, QpHome& home) {
  return std::make_unique<UdQp>(number, std::move(config), home);
}

}  // namespace softroce
