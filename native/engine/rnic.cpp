// SPDX-License-Identifier: GPL-2.0-or-later
#include "rnic.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

namespace softroce {

Rnic::Rnic(const MessageConfig& config)
    : config_(config),
      engine_(config, memory_, completions_, counters_, data_qp(), recovery_qp()) {}

// ---------------------------------------------------------------- ordinary UD queue pairs

std::shared_ptr<CompletionQueue> Rnic::create_cq() {
  return std::make_shared<CompletionQueue>(completions_pushed_);
}

// Numbers are not used again, so that what is still on its way to a QP that is gone finds nobody.
std::uint32_t Rnic::create_ud_qp(const UdQpConfig& config) {
  if (next_qp_ > kLastQp)
    throw std::system_error(ENOMEM, std::generic_category(), "no queue pair number is left");
  const std::uint32_t number = next_qp_++;
  ud_qps_.try_emplace(number, number, config, config_.path_mtu, memory_, counters_);
  return number;
}

UdQp* Rnic::find_ud_qp(std::uint32_t number) {
  const auto found = ud_qps_.find(number);
  return found == ud_qps_.end() ? nullptr : &found->second;
}

int Rnic::modify_ud_qp(std::uint32_t number, QpState state, std::uint32_t qkey,
                       std::uint32_t first_psn, Time now) {
  UdQp* qp = find_ud_qp(number);
  return qp == nullptr ? EINVAL : qp->modify(state, qkey, first_psn, now);
}

int Rnic::destroy_ud_qp(std::uint32_t number) {
  UdQp* qp = find_ud_qp(number);
  if (qp == nullptr) return EINVAL;
  qp->drop_requests();
  ud_qps_.erase(number);
  return 0;
}

int Rnic::post_ud_send(std::uint32_t number, const UdSend& request, Time now) {
  UdQp* qp = find_ud_qp(number);
  if (qp == nullptr || request.gid.is_ipv4() != config_.gid.is_ipv4()) return EINVAL;
  const int error = qp->post_send(request, now);
  give_turn(*qp);
  return error;
}

void Rnic::give_turn(UdQp& qp) {
  if (qp.has_turn || !qp.has_packet()) return;
  qp.has_turn = true;
  ud_ready_.push_back(qp.number());
}

int Rnic::post_ud_receive(std::uint32_t number, const UdReceive& request, Time now) {
  UdQp* qp = find_ud_qp(number);
  return qp == nullptr ? EINVAL : qp->post_receive(request, now);
}

QpState Rnic::ud_qp_state(std::uint32_t number) {
  const UdQp* qp = find_ud_qp(number);
  return qp == nullptr ? QpState::reset : qp->state();
}

// ---------------------------------------------------------------- packets

// The checks in the order of IBA 9.6.1 (packet header validation).
void Rnic::handle_packet(Packet& packet, Time now) {
  if (packet.destination != config_.gid) return counters_.add(Counter::rx_not_ours);
  if (packet.congestion_experienced) counters_.add(Counter::rx_ce);
  if (packet.opcode != LAB_BTH_OPCODE_UD_SEND_ONLY) return counters_.add(Counter::rx_bad_opcode);
  const bool striped = packet.destination_qp == kDataQp || packet.destination_qp == kRecoveryQp;
  UdQp* qp = striped ? nullptr : find_ud_qp(packet.destination_qp);
  if (!striped && qp == nullptr) return counters_.add(Counter::rx_unknown_qp);
  // The low 15 bits are the partition; the top bit tells full members, who talk to all.
  if ((packet.pkey & 0x7FFF) != (kDefaultPkey & 0x7FFF))
    return counters_.add(Counter::rx_wrong_pkey);
  if (qp != nullptr) return qp->handle_packet(packet, now);
  if (packet.qkey != qkey_) return counters_.add(Counter::rx_wrong_qkey);
  engine_.handle_packet(packet, now);
}

bool Rnic::poll_packet(Packet& packet, Time now) {
  return poll_ud(packet, now) || engine_.poll_packet(packet, now);
}

bool Rnic::poll_ud(Packet& packet, Time now) {
  while (!ud_ready_.empty()) {
    UdQp* qp = find_ud_qp(ud_ready_.front());
    ud_ready_.pop_front();
    if (qp == nullptr) continue;
    qp->has_turn = false;
    if (qp->poll_packet(packet, config_.gid, now)) {
      leaving_ = qp;
      return true;
    }
  }
  return false;
}

void Rnic::packet_done(Time now) {
  UdQp* qp = std::exchange(leaving_, nullptr);
  if (qp == nullptr) return;
  qp->packet_done(now);
  give_turn(*qp);
}

}  // namespace softroce
