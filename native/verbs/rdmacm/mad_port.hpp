// SPDX-License-Identifier: GPL-2.0-or-later
// Queue pair 1 of the program's RNIC: what the connection manager's process sends and receives.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "../../endpoint/cm_wire.hpp"

namespace softroce::cm {

class MadPort {
 public:
  // std::system_error: EBUSY if another process has the port.
  MadPort(ibv_context* context, ibv_pd* pd, const std::vector<ibv_gid>& gids);
  MadPort(const MadPort&) = delete;
  MadPort& operator=(const MadPort&) = delete;
  // Lives as long as the process.

  int fd() const { return channel_->fd; }  // readable when `receive` has something to do
  // Some of the MADs that came. True: there may be more, of which `fd` does not tell.
  bool receive(const std::function<void(const Mad&)>& take);
  // A MAD that cannot leave is lost: its sender repeats it.
  void send(const Mad& mad);

 private:
  int drain(const std::function<void(const Mad&)>& take);
  void make_queue_pair();
  void post(std::uint64_t slot);
  ibv_ah* route(const std::uint8_t* gid);

  ibv_pd* const pd_;
  const std::vector<ibv_gid> gids_;
  std::vector<std::uint8_t> memory_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* received_ = nullptr;
  ibv_cq* sent_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

}  // namespace softroce::cm
