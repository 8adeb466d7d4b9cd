// SPDX-License-Identifier: GPL-2.0-or-later
// The soft RNIC: one per host port. Queue pairs, memory, completions, and the message engine.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "completion.hpp"
#include "counters.hpp"
#include "memory.hpp"
#include "message_engine.hpp"
#include "packet.hpp"

namespace softroce {

inline constexpr std::uint32_t kGrhBytes = 40;  // head of every UD receive buffer, IBA 11.4.1.2

struct UdSend {
  std::uint64_t wr_id;
  PeerAddress to;  // ip, mac; data_qp is the destination, qkey its Q_Key
  std::uint8_t* base;
  std::uint32_t length;
  std::uint32_t memory_key;
  bool solicited;
};

struct UdReceive {
  std::uint64_t wr_id;
  std::uint8_t* base;
  std::uint32_t length;
  std::uint32_t memory_key;
};

class Rnic {
 public:
  explicit Rnic(const MessageConfig& config);

  MemoryTable& memory() { return memory_; }
  CompletionQueue& completions() { return completions_; }
  MessageEngine& messages() { return *engine_; }
  const Counters& counters() const { return counters_; }
  Counters& counters() { return counters_; }
  std::uint32_t address() const { return config_.address; }
  std::uint32_t data_qp() const { return kFirstQp; }
  std::uint32_t recovery_qp() const { return kFirstQp + 1; }

  // Q_Key that the endpoint's two QPs demand (IBA 10.2.5).
  void set_qkey(std::uint32_t qkey);

  // Ordinary UD queue pairs beside the endpoint's.
  std::uint32_t create_ud_qp(std::uint32_t qkey);
  bool post_ud_send(std::uint32_t qp, const UdSend& request);
  bool post_ud_receive(std::uint32_t qp, const UdReceive& request);

  void handle_packet(Packet& packet, Time now);
  bool poll_packet(Packet& packet, Time now);
  bool has_packet() const { return !ud_ready_.empty() || engine_->has_packet(); }
  void handle_timeout(Time now) { engine_->handle_timeout(now); }
  Time next_timeout() const { return engine_->next_timeout(); }

 private:
  static constexpr std::uint32_t kFirstQp = 0x11;  // 0 and 1 are management's, IBA 3.5.3.3
  static constexpr std::size_t kMostQueued = 4096;

  struct UdQp {
    std::uint32_t number;
    std::uint32_t qkey;
    bool striped;  // one of the endpoint's: its packets are the message engine's
    std::uint32_t psn = 0;
    std::deque<UdSend> sends{};
    std::deque<UdReceive> receives{};
  };

  UdQp* find_qp(std::uint32_t number);
  void deliver_ud(UdQp& qp, const Packet& packet, Time now);
  bool poll_ud(Packet& packet, Time now);

  MessageConfig config_;
  MemoryTable memory_;
  CompletionQueue completions_;
  Counters counters_;
  std::vector<UdQp> qps_;
  std::deque<std::uint32_t> ud_ready_;  // QP numbers, one entry a queued send
  std::unique_ptr<MessageEngine> engine_;
};

}  // namespace softroce
