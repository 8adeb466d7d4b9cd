// SPDX-License-Identifier: GPL-2.0-or-later
// Work requests of queue pairs, as ibv_post_send and ibv_post_recv take them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "../codec/gid.hpp"
#include "memory.hpp"

namespace softroce {

enum class WrOpcode : std::uint8_t {  // values of enum ibv_wr_opcode
  rdma_write = 0,
  rdma_write_with_immediate = 1,
  send = 2,
  send_with_immediate = 3,
  rdma_read = 4,
  compare_swap = 5,
  fetch_add = 6,
  local_invalidate = 7,
  bind_window = 8,
  send_with_invalidate = 9,
};

enum SendFlags : std::uint32_t {  // values of enum ibv_send_flags
  kFence = 1,
  kSignaled = 2,
  kSolicited = 4,
  kInline = 8,
  // The lab's own, of a queue pair with a keeper: never to be executed twice.
  kOnce = 1U << 31,
};

struct ScatterGather {  // struct ibv_sge
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

// Where packets go: struct ibv_ah_attr, as far as RoCEv2 has it, and the next hop's MAC address.
struct AddressVector {
  Gid destination{};
  std::uint64_t mac = 0;
  std::uint8_t sgid_index = 0;
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 2;  // ECN-capable, RFC 3168
  std::uint32_t flow_label = 0;
};

// Of `local_invalidate` the key is `invalidate_rkey`. Of `bind_window` the new key is `rkey`, and
// `binding` has the rest.
struct SendRequest {
  std::uint64_t wr_id = 0;
  WrOpcode opcode = WrOpcode::send;
  std::uint32_t flags = 0;
  std::vector<ScatterGather> sources{};      // of a READ or an atomic: where its result goes
  std::vector<std::uint8_t> inline_bytes{};  // the message itself, in place of `sources`
  std::uint32_t immediate = 0;
  std::uint32_t invalidate_rkey = 0;

  std::uint64_t remote_address = 0;  // WRITE, READ and atomics
  std::uint32_t rkey = 0;
  std::uint64_t compare_add = 0;  // what to compare with, or to add
  std::uint64_t swap = 0;

  AddressVector address{};  // UD
  std::uint32_t remote_qp = 0;
  std::uint32_t remote_qkey = 0;

  std::shared_ptr<const Binding> binding{};
  // The lab's own: it completes as one of this operation, which was executed before.
  std::optional<WrOpcode> stands_for{};

  WrOpcode completes_as() const { return stands_for.value_or(opcode); }
  // Carried out without a packet.
  bool is_local() const {
    return opcode == WrOpcode::local_invalidate || opcode == WrOpcode::bind_window;
  }
  bool reads_remote() const {
    return opcode == WrOpcode::rdma_read || opcode == WrOpcode::compare_swap ||
           opcode == WrOpcode::fetch_add;
  }
  bool consumes_receive() const {  // at the peer
    return opcode != WrOpcode::rdma_write && !reads_remote();
  }
  std::uint64_t bytes() const {
    std::uint64_t total = inline_bytes.size();
    for (const auto& source : sources) total += source.length;
    return total;
  }
};

struct ReceiveRequest {
  std::uint64_t wr_id = 0;
  std::vector<ScatterGather> targets{};

  std::uint64_t bytes() const {
    std::uint64_t total = 0;
    for (const auto& target : targets) total += target.length;
    return total;
  }
};

}  // namespace softroce
