// SPDX-License-Identifier: GPL-2.0-or-later
// Unreliable connection (IBA 9.8.2): SEND and WRITE, in order, whole or not at all, no recovery.
#include <utility>

#include "connected_qp.hpp"

namespace softroce {
namespace {

class UcQp final : public ConnectedQp {
 public:
  using ConnectedQp::ConnectedQp;

  bool has_packet(Time now) const override { return cnp_queued_ || has_data(now); }
  bool is_draining() const override { return !sends_.empty() && sends_.front().begun; }
  void handle_packet(const Packet& packet, Time now) override;
  bool poll_packet(Packet& packet, Time now) override;
  void packet_done(Time now) override;
  Time next_timeout() const override { return paced_until_; }
  void handle_timeout(Time now) override {
    if (now >= paced_until_) paced_until_ = kNever;
  }

 private:
  bool has_data(Time now) const {
    if (sends_.empty() || is_paced(now)) return false;
    return state_ == QpState::rts || (state_ == QpState::sqd && is_draining());
  }
  void entered(QpState from, Time now) override;
  void drained();
  void drop_message(const Packet& packet, Time now);

  std::uint32_t psn_ = 0;       // of the next packet out
  std::uint32_t next_ = 0;      // which packet of the oldest send it is
  std::uint32_t expected_ = 0;  // PSN of the next packet in
  bool dropping_ = false;       // until a message begins
};

void UcQp::entered(QpState from, Time) {
  if (from == QpState::init) expected_ = attr_.rq_psn;
  if (from == QpState::rtr) psn_ = attr_.sq_psn;
  if (state_ == QpState::sqd && !is_draining()) drained();
  if (state_ == QpState::reset || state_ == QpState::err) {
    next_ = 0;
    dropping_ = false;
    reset_congestion();
    if (inbound_.receive && state_ == QpState::err) put_back(*std::exchange(inbound_.receive, {}));
    give_back_receive();
  }
}

void UcQp::drained() {
  if (attr_.sqd_notify) tell(AsyncEventType::sq_drained);
}

// A lost packet costs its message, and no more (IBA 9.8.2.2.1): the receive stays for the next.
void UcQp::drop_message(const Packet& packet, Time now) {
  if (inbound_.receive) put_back(std::move(*inbound_.receive));
  inbound_.reset();
  dropping_ = true;
  drop(Counter::rx_uc_dropped, packet, now);
}

void UcQp::handle_packet(const Packet& packet, Time now) {
  const OpcodeTraits& traits = traits_of(packet.opcode);
  if (service_of(packet.opcode) != Service::uc || !traits.known())
    return drop(Counter::rx_bad_opcode, packet, now);
  if (state_ < QpState::rtr || state_ == QpState::err)
    return drop(Counter::rx_qp_not_ready, packet, now);
  if (!is_from_peer(packet)) return drop(Counter::rx_unknown_peer, packet, now);
  const bool in_order = packet.psn == expected_;
  expected_ = psn_add(packet.psn, 1);
  if (inbound_.under_way() && (!in_order || !inbound_.expects(traits))) drop_message(packet, now);
  if (traits.begins) dropping_ = false;  // and continues with the next one
  if (dropping_ || !inbound_.expects(traits)) return drop(Counter::rx_uc_dropped, packet, now);

  Fault fault = Fault::none;
  if (!qp_grants(traits.family)) fault = Fault::access;
  if (!fits_place(traits, packet.payload_bytes, attr_.path_mtu)) fault = Fault::length;
  if (fault == Fault::none) fault = take(packet, traits, now);
  count_packet(Counter::rx_connected, packet);
  if (fault == Fault::none) return;
  if (fault == Fault::local) {  // class A: local error, IBA 9.9.3
    fail_receive(*inbound_.receive, WcStatus::loc_prot_err, now);
    inbound_.reset();
    return fail(AsyncEventType::qp_fatal, now);
  }
  drop_message(packet, now);  // class D
}

bool UcQp::poll_packet(Packet& packet, Time now) {
  if (poll_cnp(packet)) return true;
  if (!has_data(now)) return false;
  Send& send = sends_.front();
  if (!send.begun) {
    send.begun = true;
    send.first_at = now;
    send.first_psn = psn_;
    send.packets = packets_of(send);
  }
  const bool fine = send.status == WcStatus::success && cut(send, next_, Service::uc, packet);
  if (!fine) {  // IBA 10.3.1.6: only the send queue stops
    const WcStatus status = send.status == WcStatus::success ? WcStatus::loc_prot_err : send.status;
    next_ = 0;
    stop_sending(status, now);
    return false;
  }
  psn_ = psn_add(psn_, 1);
  ++next_;
  count_packet(Counter::tx_connected, packet);
  sent_data(packet, now);
  return true;
}

// A message is complete when its last packet has left, IBA 9.8.2.1.
void UcQp::packet_done(Time now) {
  if (sends_.empty() || next_ < sends_.front().packets || !sends_.front().begun) return;
  const Send send = std::move(sends_.front());
  sends_.pop_front();
  next_ = 0;
  note_sent(send, now);
  complete_send(send, WcStatus::success, now);
  if (state_ == QpState::sqd) drained();
}

}  // namespace

std::unique_ptr<QueuePair> make_uc_qp(std::uint32_t number, QpConfig config, QpHome& home) {
  return std::make_unique<UcQp>(number, std::move(config), home);
}

}  // namespace softroce
