// SPDX-License-Identifier: GPL-2.0-or-later
// The soft RNIC: one per host port. Queue pairs, memory, completions, and the message engine.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>

#include "completion.hpp"
#include "counters.hpp"
#include "memory.hpp"
#include "message_engine.hpp"
#include "packet.hpp"
#include "ud_qp.hpp"

namespace softroce {

class Rnic {
 public:
  explicit Rnic(const MessageConfig& config);

  MemoryTable& memory() { return memory_; }
  CompletionQueue& completions() { return completions_; }  // of striped messages
  MessageEngine& messages() { return engine_; }
  const Counters& counters() const { return counters_; }
  Counters& counters() { return counters_; }
  const Gid& gid() const { return config_.gid; }
  std::uint32_t data_qp() const { return kDataQp; }
  std::uint32_t recovery_qp() const { return kRecoveryQp; }

  // Q_Key that the endpoint's two QPs demand (IBA 10.2.5).
  void set_qkey(std::uint32_t qkey) { qkey_ = qkey; }

  // Ordinary UD queue pairs beside the endpoint's; they take the errno values of UdQp, and EINVAL
  // where there is no such QP, or a packet would be of another IP version than the port.
  std::shared_ptr<CompletionQueue> create_cq();
  std::uint32_t create_ud_qp(const UdQpConfig& config);
  int modify_ud_qp(std::uint32_t qp, QpState state, std::uint32_t qkey, std::uint32_t first_psn,
                   Time now);
  int destroy_ud_qp(std::uint32_t qp);
  int post_ud_send(std::uint32_t qp, const UdSend& request, Time now);
  int post_ud_receive(std::uint32_t qp, const UdReceive& request, Time now);
  QpState ud_qp_state(std::uint32_t qp);  // reset, where there is no such QP

  // Completions pushed to all queues since the beginning; the engine's thread only.
  std::size_t completions_pushed() const { return completions_pushed_; }

  void handle_packet(Packet& packet, Time now);
  // To be followed by packet_done(), when the payload has been read and may change.
  bool poll_packet(Packet& packet, Time now);
  void packet_done(Time now);
  bool has_packet() const { return !ud_ready_.empty() || engine_.has_packet(); }
  void handle_timeout(Time now) { engine_.handle_timeout(now); }
  Time next_timeout() const { return engine_.next_timeout(); }

 private:
  static constexpr std::uint32_t kDataQp = 0x11;  // 0 and 1 are management's, IBA 3.5.3.3
  static constexpr std::uint32_t kRecoveryQp = kDataQp + 1;
  static constexpr std::uint32_t kLastQp = 0xFFFFFE;  // 24 bits; all ones means multicast

  UdQp* find_ud_qp(std::uint32_t number);
  void give_turn(UdQp& qp);
  bool poll_ud(Packet& packet, Time now);

  MessageConfig config_;
  MemoryTable memory_;
  std::size_t completions_pushed_ = 0;
  CompletionQueue completions_{completions_pushed_};
  Counters counters_;
  std::uint32_t qkey_ = 0;
  std::uint32_t next_qp_ = kRecoveryQp + 1;
  std::unordered_map<std::uint32_t, UdQp> ud_qps_;
  std::deque<std::uint32_t> ud_ready_;  // QPs with sends, which take turns; may hold stale ones
  UdQp* leaving_ = nullptr;             // whose packet was polled and is not done
  MessageEngine engine_;
};

}  // namespace softroce
