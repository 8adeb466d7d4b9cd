// SPDX-License-Identifier: GPL-2.0-or-later
// An RNIC with an RC queue pair and four regions, each between guards: what a harness checks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>

#include "../engine/rnic/rnic.hpp"
#include "forger.hpp"

namespace softroce::fuzz {

inline constexpr std::uint32_t kDomain = 7;
inline constexpr std::uint8_t kGuard = 0xA5;
inline constexpr std::size_t kGuardBytes = 4096;

// Memory between guards, registered with some rights.
struct Region {
  Region(Rnic& rnic_, std::uint32_t access_)
      : rnic(rnic_), access(access_), bytes(kGuardBytes + kRegionBytes + kGuardBytes, kGuard) {
    key = rnic.memory().add(data(), kRegionBytes, access, kDomain);
  }
  // The key may have been invalidated.
  void renew() {
    rnic.memory().remove(key);
    key = rnic.memory().add(data(), kRegionBytes, access, kDomain);
  }
  std::uint8_t* data() { return bytes.data() + kGuardBytes; }
  std::uint64_t address() { return reinterpret_cast<std::uintptr_t>(data()); }
  Memory memory() { return {address(), key}; }
  bool guards_stand() const {
    for (std::size_t i = 0; i < kGuardBytes; ++i)
      if (bytes[i] != kGuard || bytes[bytes.size() - 1 - i] != kGuard) return false;
    return true;
  }
  bool is_untouched() const {
    for (const std::uint8_t byte : bytes)
      if (byte != kGuard) return false;
    return true;
  }
  Rnic& rnic;
  std::uint32_t access;
  Frame bytes;
  std::uint32_t key;
};

struct Side {
  Side(std::uint32_t ip, Random& random_) : rnic(config(ip)), random(random_) {
    cq = rnic.create_cq();
    QpConfig qp_config{.type = QpType::rc,
                       .protection_domain = kDomain,
                       .cap = {64, 64, 3, 3, 128},
                       .send_cq = cq,
                       .receive_cq = cq};
    if (rnic.create_qp(qp_config, qp) != 0) throw std::runtime_error("no QP");
  }
  static MessageConfig config(std::uint32_t ip) {
    MessageConfig config;
    config.gid = Gid::of_ipv4(ip);
    config.path_mtu = kPathMtu;
    return config;
  }

  void connect(const Gid& peer_gid, std::uint32_t peer_qp, std::uint32_t peer_psn, Time now) {
    for (Region* region : {&open, &readable, &closed, &scratch}) region->renew();
    QpAttr attr{.path_mtu = kPathMtu,
                .rq_psn = peer_psn,
                .sq_psn = psn,
                .dest_qp = peer_qp,
                .access = kRemoteWrite | kRemoteRead | kRemoteAtomic,
                .max_rd_atomic = 4,
                .max_dest_rd_atomic = 4,
                .min_rnr_timer = 1,
                .timeout = 6,
                .retry_count = 7,
                .rnr_retry = 7};
    attr.address.destination = peer_gid;
    to(QpState::reset, attr, 0, now);
    to(QpState::init, attr, kAttrPkeyIndex | kAttrPort | kAttrAccess, now);
    to(QpState::rtr, attr,
       kAttrAddress | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestReads |
           kAttrMinRnrTimer,
       now);
    to(QpState::rts, attr,
       kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrSqPsn | kAttrMaxReads, now);
  }
  void to(QpState state, QpAttr& attr, std::uint32_t mask, Time now) {
    attr.state = state;
    if (rnic.modify_qp(qp, attr, mask | kAttrState, now) != 0)
      throw std::runtime_error("the QP cannot be modified");
  }
  bool broken() const { return rnic.find_qp(qp)->state() != QpState::rts; }

  ScatterGather local(std::uint32_t most) {
    const std::uint32_t length = below(random, most + 1);
    return {scratch.address() + below(random, kRegionBytes - length), length, scratch.key};
  }
  void post_receive(Time now) {
    ReceiveRequest request{.wr_id = 1, .targets = {local(4000), local(4000)}};
    rnic.post_receive(qp, std::move(request), now);
  }
  // To memory of the peer's.
  void post_send(const Memory& there, Time now) {
    static constexpr std::array kOpcodes = {WrOpcode::send,
                                            WrOpcode::send_with_immediate,
                                            WrOpcode::send_with_invalidate,
                                            WrOpcode::rdma_read,
                                            WrOpcode::rdma_write_with_immediate,
                                            WrOpcode::rdma_write,
                                            WrOpcode::fetch_add,
                                            WrOpcode::compare_swap};
    SendRequest request{.wr_id = 2, .opcode = kOpcodes[below(random, kOpcodes.size())]};
    request.flags = below(random, 8);
    request.sources = {local(3000), local(3000)};
    request.remote_address = there.address + 8 * below(random, 64);
    request.rkey = there.key;
    request.invalidate_rkey = below(random, 1 << 20);
    if (request.opcode == WrOpcode::fetch_add || request.opcode == WrOpcode::compare_swap)
      request.sources = {{scratch.address(), 8, scratch.key}};
    rnic.post_send(qp, std::move(request), now);
  }

  // What a peer can know of it.
  void describe(Target& target) {
    target.gid = rnic.gid();
    target.qp = qp;
    target.regions = {open.memory(), readable.memory(), closed.memory(), scratch.memory()};
  }

  void check() const {
    if (!open.guards_stand() || !scratch.guards_stand())
      throw std::runtime_error("memory outside a region was written");
    if (!readable.is_untouched()) throw std::runtime_error("a region without write was written");
    if (!closed.is_untouched()) throw std::runtime_error("a region without access was written");
  }

  Rnic rnic;
  Random& random;
  std::shared_ptr<CompletionQueue> cq;
  std::uint32_t qp = 0, psn = 0xFFFFF0;
  Region open{rnic, kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic};
  Region readable{rnic, kRemoteRead};
  Region closed{rnic, kLocalWrite};
  Region scratch{rnic, kLocalWrite};  // where sends and receives are
};

}  // namespace softroce::fuzz
