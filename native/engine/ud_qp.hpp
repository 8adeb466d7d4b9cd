// SPDX-License-Identifier: GPL-2.0-or-later
// An ordinary UD queue pair: datagrams of one packet each, in the order posted, no recovery.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "completion.hpp"
#include "counters.hpp"
#include "memory.hpp"
#include "packet.hpp"
#include "units.hpp"

namespace softroce {

inline constexpr std::uint32_t kGrhBytes = 40;  // head of every UD receive buffer, IBA 11.4.1.2

enum class QpState : std::uint8_t { reset, init, rtr, rts, sqd, sqe, err };  // enum ibv_qp_state

struct UdQpConfig {
  std::uint32_t protection_domain = 0;
  std::uint32_t max_send_wr = 1;
  std::uint32_t max_recv_wr = 1;
  std::shared_ptr<CompletionQueue> send_cq;
  std::shared_ptr<CompletionQueue> receive_cq;
};

struct ScatterGather {  // struct ibv_sge
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

struct UdSend {
  std::uint64_t wr_id = 0;
  ScatterGather source;
  Gid gid;
  std::uint64_t mac = 0;  // of the next hop
  std::uint32_t remote_qp = 0;
  std::uint32_t remote_qkey = 0;
  bool signaled = true;
  bool solicited = false;
};

struct UdReceive {
  std::uint64_t wr_id = 0;
  ScatterGather target;
};

class UdQp {
 public:
  UdQp(std::uint32_t number, const UdQpConfig& config, std::uint32_t path_mtu, MemoryTable& memory,
       Counters& counters);

  std::uint32_t number() const { return number_; }
  QpState state() const { return state_; }
  bool has_packet() const { return !sends_.empty(); }
  bool has_turn = false;  // stands in the RNIC's queue of QPs with packets

  // The state machine of IBA 10.3.1. Moving to `init` sets the Q_Key, to `rts` the first PSN.
  // EINVAL for a transition that there is not.
  int modify(QpState state, std::uint32_t qkey, std::uint32_t first_psn, Time now);

  // As ibv_post_send and ibv_post_recv: 0, EINVAL (not in this state) or ENOMEM (queue full). What
  // is wrong with the request itself is told by its completion.
  int post_send(const UdSend& request, Time now);
  int post_receive(const UdReceive& request, Time now);

  void handle_packet(const Packet& packet, Time now);
  // The packet's payload is that of the work request, which stays the oldest until packet_done().
  bool poll_packet(Packet& packet, const Gid& source, Time now);
  void packet_done(Time now);  // the packet has left: so UD completes, IBA 9.8.2

  // Forgets all work requests, without completions, as the destruction of a QP does.
  void drop_requests();

 private:
  template <typename Request>
  struct Posted {
    Request request;
    std::uint8_t* base;  // pinned; null if `status` says why not
    WcStatus status;
  };
  std::uint8_t* pin(const ScatterGather& range, std::uint32_t access);
  void complete_send(const Posted<UdSend>& send, WcStatus status, Time now);
  void complete_receive(const Posted<UdReceive>& receive, WcStatus status, std::uint32_t bytes,
                        std::uint32_t source_qp, Time now);
  void flush_sends(Time now);
  void flush_receives(Time now);

  std::uint32_t number_;
  UdQpConfig config_;
  std::uint32_t path_mtu_;
  MemoryTable& memory_;
  Counters& counters_;
  QpState state_ = QpState::reset;
  std::uint32_t qkey_ = 0;
  std::uint32_t psn_ = 0;
  std::deque<Posted<UdSend>> sends_;
  std::deque<Posted<UdReceive>> receives_;
};

}  // namespace softroce
