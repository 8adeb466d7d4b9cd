// SPDX-License-Identifier: GPL-2.0-or-later
#include "mad_port.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "gids.hpp"

namespace softroce::cm {
namespace {

constexpr std::uint32_t kReceives = 256, kSends = 64;
constexpr std::size_t kHeaderBytes = sizeof(ibv_grh);
constexpr std::size_t kSlotBytes = kHeaderBytes + kMadBytes;
constexpr std::uint32_t kGsiQp = 1, kGsiQkey = 0x80010000;
constexpr auto kGsiType = static_cast<ibv_qp_type>(1);  // the kernel's IB_QPT_GSI
constexpr int kBatch = 16, kTurn = 64;

template <typename T>
T* need(T* made, const char* what) {
  if (made == nullptr) throw std::system_error(errno, std::generic_category(), what);
  return made;
}

void need(int error, const char* what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

void store_source(const std::uint8_t* header, std::uint8_t* gid) {
  if (header[0] >> 4 == 6) {
    std::memcpy(gid, header + 8, 16);
    return;
  }
  // An IPv4 header is the second half of the area (annex A17.4.5.2).
  put_ipv4(header + 32, gid);
}

}  // namespace

MadPort::MadPort(ibv_context* context, ibv_pd* pd, const std::vector<ibv_gid>& gids)
    : pd_(pd), gids_(gids), memory_(kReceives * kSlotBytes) {
  channel_ = need(ibv_create_comp_channel(context), "create a completion channel");
  fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  received_ = need(ibv_create_cq(context, kReceives, nullptr, channel_, 0), "create a CQ");
  sent_ = need(ibv_create_cq(context, kSends, nullptr, nullptr, 0), "create a CQ");
  region_ = need(ibv_reg_mr(pd_, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE),
                 "register memory");
  make_queue_pair();
  for (std::uint64_t slot = 0; slot < kReceives; ++slot) post(slot);
  ibv_req_notify_cq(received_, 0);
}

void MadPort::make_queue_pair() {
  ibv_qp_init_attr init{};
  init.send_cq = sent_;
  init.recv_cq = received_;
  init.cap = {kSends, kReceives, 1, 1, kMadBytes};
  init.qp_type = kGsiType;
  init.sq_sig_all = 1;
  qp_ = need(ibv_create_qp(pd_, &init), "create queue pair 1");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.qkey = kGsiQkey;
  attr.port_num = kPort;
  need(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
       "initialize queue pair 1");
  attr.qp_state = IBV_QPS_RTR;
  need(ibv_modify_qp(qp_, &attr, IBV_QP_STATE), "queue pair 1 to RTR");
  attr.qp_state = IBV_QPS_RTS;
  need(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "queue pair 1 to RTS");
}

void MadPort::post(std::uint64_t slot) {
  ibv_sge element{reinterpret_cast<std::uintptr_t>(memory_.data() + slot * kSlotBytes), kSlotBytes,
                  region_->lkey};
  ibv_recv_wr request{}, *bad = nullptr;
  request.wr_id = slot;
  request.sg_list = &element;
  request.num_sge = 1;
  ibv_post_recv(qp_, &request, &bad);
}

bool MadPort::receive(const std::function<void(const Mad&)>& take) {
  ibv_cq* cq;
  void* ignored;
  while (ibv_get_cq_event(channel_, &cq, &ignored) == 0) ibv_ack_cq_events(cq, 1);
  if (drain(take) >= kTurn) return true;
  ibv_req_notify_cq(received_, 0);
  return drain(take) > 0;  // what came in between rings nobody
}

// How many completions it took: less than `kTurn` if none is left.
int MadPort::drain(const std::function<void(const Mad&)>& take) {
  ibv_wc completions[kBatch];
  int taken = 0;
  for (int n; taken < kTurn && (n = ibv_poll_cq(received_, kBatch, completions)) > 0; taken += n)
    for (int i = 0; i < n; ++i) {
      const ibv_wc& done = completions[i];
      const std::uint8_t* area = memory_.data() + done.wr_id * kSlotBytes;
      if (done.status == IBV_WC_SUCCESS && done.byte_len == kSlotBytes) {
        Mad mad;
        store_source(area, mad.gid);
        std::memcpy(mad.octets, area + kHeaderBytes, kMadBytes);
        take(mad);
      }
      post(done.wr_id);
    }
  return taken;
}

ibv_ah* MadPort::route(const std::uint8_t* gid) {
  ibv_ah_attr way = way_to(gid, gids_);
  return ibv_create_ah(pd_, &way);
}

void MadPort::send(const Mad& mad) {
  ibv_wc completions[kBatch];
  while (ibv_poll_cq(sent_, kBatch, completions) > 0) continue;
  ibv_ah* ah = route(mad.gid);
  if (ah == nullptr) return;
  ibv_sge element{reinterpret_cast<std::uintptr_t>(mad.octets), kMadBytes, 0};
  ibv_send_wr request{}, *bad = nullptr;
  request.sg_list = &element;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE;
  request.wr.ud.ah = ah;
  request.wr.ud.remote_qpn = kGsiQp;
  request.wr.ud.remote_qkey = kGsiQkey;
  ibv_post_send(qp_, &request, &bad);
  ibv_destroy_ah(ah);  // the request has the address
  // Now, not with the program's next poll: it may be about to end, or to wait for the answer.
  ibv_req_notify_cq(received_, 0);
}

}  // namespace softroce::cm
