// SPDX-License-Identifier: GPL-2.0-or-later
// The queue pair of an id: made, and brought through its states as the connection manager demands.
#include <infiniband/verbs.h>

#include <cstring>

#include "gids.hpp"
#include "manager.hpp"

namespace softroce::cm {
namespace {

constexpr int kReads = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kToInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kToRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kReliableToRtr = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kToRts = IBV_QP_STATE | IBV_QP_SQ_PSN;
constexpr int kReliableToRts =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

std::uint8_t octet(std::uint32_t number) { return static_cast<std::uint8_t>(number); }

int datagram_attributes(ibv_qp_attr& attr, int& mask) {
  attr.port_num = kPort;
  attr.qkey = RDMA_UDP_QKEY;
  if (attr.qp_state == IBV_QPS_INIT) return mask = kToInit | IBV_QP_QKEY, 0;
  if (attr.qp_state == IBV_QPS_RTR) return mask = IBV_QP_STATE, 0;
  if (attr.qp_state == IBV_QPS_RTS) return mask = kToRts, 0;
  return EINVAL;
}

ibv_ah_attr way_of(const Id& id, const Reply& known) {
  ibv_ah_attr way = way_to(known.gid, id.device->gids);
  way.grh.flow_label = known.flow_label;
  way.grh.traffic_class = octet(known.traffic_class);
  way.grh.hop_limit = octet(known.hop_limit);
  return way;
}

int connected_attributes(const Id& id, const Reply& known, ibv_qp_attr& attr, int& mask) {
  if (attr.qp_state == IBV_QPS_RTR) {
    attr.ah_attr = way_of(id, known);
    attr.path_mtu = static_cast<ibv_mtu>(known.path_mtu);
    attr.dest_qp_num = known.dest_qp_num;
    attr.rq_psn = known.rq_psn;
    attr.max_dest_rd_atomic = octet(known.max_dest_rd_atomic);
    attr.min_rnr_timer = octet(known.min_rnr_timer);
    return mask = known.reliable ? kToRtr | kReliableToRtr : kToRtr, 0;
  }
  attr.sq_psn = known.sq_psn;
  attr.timeout = octet(known.timeout);
  attr.retry_cnt = octet(known.retry_cnt);
  attr.rnr_retry = octet(known.rnr_retry);
  attr.max_rd_atomic = octet(known.max_rd_atomic);
  return mask = known.reliable ? kToRts | kReliableToRts : kToRts, 0;
}

// The peer's READs and its own, as they were agreed; negative: as the manager has them.
int move(Id& id, ibv_qp_state state, int responder_resources = -1, int initiator_depth = -1) {
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = state;
  if (const int error = attributes(id, attr, mask)) return error;
  if (responder_resources > 0) attr.qp_access_flags |= kReads;
  if (responder_resources >= 0) attr.max_dest_rd_atomic = octet(responder_resources);
  if (initiator_depth >= 0) attr.max_rd_atomic = octet(initiator_depth);
  return ibv_modify_qp(id.qp, &attr, mask);
}

int start(Id& id, ibv_qp& qp) {
  id.qp = &qp;
  const bool datagram = id.qp_type == IBV_QPT_UD;
  const int error = datagram ? to_ready(id, 0, 0) : move(id, IBV_QPS_INIT);
  if (error != 0) id.qp = nullptr;
  return error;
}

void destroy_queue(ibv_cq*& cq, ibv_comp_channel*& channel) {
  if (cq != nullptr) ibv_destroy_cq(cq);
  if (channel != nullptr) ibv_destroy_comp_channel(channel);
  cq = nullptr;
  channel = nullptr;
}

void destroy_queues(Id& id) {
  destroy_queue(id.recv_cq, id.recv_cq_channel);
  destroy_queue(id.send_cq, id.send_cq_channel);
}

int make_queue(Id& id, std::uint32_t entries, ibv_cq*& cq, ibv_comp_channel*& channel) {
  if (cq != nullptr || entries == 0) return 0;
  channel = ibv_create_comp_channel(id.verbs);
  if (channel == nullptr) return errno;
  cq = ibv_create_cq(id.verbs, static_cast<int>(entries), &id, channel, 0);
  return cq == nullptr ? errno : 0;
}

int make(Id& id, ibv_qp_init_attr_ex& attr) {
  if (id.qp != nullptr || id.verbs == nullptr) return EINVAL;
  if (!(attr.comp_mask & IBV_QP_INIT_ATTR_PD) || attr.pd == nullptr) attr.pd = id.pd;
  attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
  if (attr.pd == nullptr || attr.pd->context != id.verbs) return EINVAL;
  int error = 0;
  if (attr.recv_cq == nullptr)
    error = make_queue(id, attr.cap.max_recv_wr, id.recv_cq, id.recv_cq_channel);
  if (error == 0 && attr.send_cq == nullptr)
    error = make_queue(id, attr.cap.max_send_wr, id.send_cq, id.send_cq_channel);
  if (attr.recv_cq == nullptr) attr.recv_cq = id.recv_cq != nullptr ? id.recv_cq : id.send_cq;
  if (attr.send_cq == nullptr) attr.send_cq = id.send_cq != nullptr ? id.send_cq : id.recv_cq;
  if (attr.srq == nullptr) attr.srq = id.srq;
  ibv_qp* qp = error == 0 ? ibv_create_qp_ex(id.verbs, &attr) : nullptr;
  if (error == 0) error = qp == nullptr ? errno : start(id, *qp);
  if (error == 0) return id.pd = attr.pd, 0;
  if (qp != nullptr) ibv_destroy_qp(qp);
  destroy_queues(id);
  return error;
}

}  // namespace

// Before the peer is known, a queue pair may be written to; RTR needs the rest.
int attributes(Id& id, ibv_qp_attr& attr, int& mask) {
  const ibv_qp_state state = attr.qp_state;
  attr = {};
  attr.qp_state = state;
  if (id.qp_type == IBV_QPT_UD) return datagram_attributes(attr, mask);
  if (state != IBV_QPS_INIT && state != IBV_QPS_RTR && state != IBV_QPS_RTS) return EINVAL;
  Reply known;
  const Call ask{.verb = Verb::attributes, .id = id.number};
  const int error = id.number == 0 ? EINVAL : Manager::get().call(ask, known);
  if (state != IBV_QPS_INIT)
    return error != 0 ? error : connected_attributes(id, known, attr, mask);
  attr.port_num = kPort;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (error == 0 && known.max_dest_rd_atomic != 0) attr.qp_access_flags |= kReads;
  return mask = kToInit | IBV_QP_ACCESS_FLAGS, 0;
}

// INIT again: the access that the peer needs is known by now. Of each state, `move` sets what
// counts.
int to_ready(Id& id, std::uint8_t responder_resources, std::uint8_t initiator_depth) {
  if (id.qp == nullptr) return 0;
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
    if (const int error = move(id, state, responder_resources, initiator_depth)) return error;
  return 0;
}

int to_error(Id& id) {
  if (id.qp == nullptr) return 0;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(id.qp, &attr, IBV_QP_STATE);
}

}  // namespace softroce::cm

using namespace softroce::cm;  // NOLINT: the C functions are outside of it

extern "C" {

int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) {
  return guarded([&] { return make(of(id), *attr); });
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  return guarded([&] {
    ibv_qp_init_attr_ex wanted{};
    std::memcpy(&wanted, attr, sizeof *attr);  // it begins with the same
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
    wanted.pd = pd;
    const int error = make(of(id), wanted);
    std::memcpy(attr, &wanted, sizeof *attr);
    return error;
  });
}

void rdma_destroy_qp(rdma_cm_id* id) {
  if (id->qp == nullptr) return;
  ibv_destroy_qp(id->qp);
  id->qp = nullptr;
  destroy_queues(of(id));
}

int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
  if (id->srq != nullptr || id->verbs == nullptr) return done(EINVAL);
  ibv_srq* srq = ibv_create_srq(pd != nullptr ? pd : id->pd, attr);
  if (srq == nullptr) return -1;
  if (id->pd == nullptr) id->pd = pd;
  id->srq = srq;
  return 0;
}

int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
  if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE)) return done(EINVAL);
  if (attr->srq_type != IBV_SRQT_BASIC) return done(EOPNOTSUPP);
  ibv_srq_init_attr basic{attr->srq_context, attr->attr};
  ibv_pd* pd = attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : nullptr;
  const int failed = rdma_create_srq(id, pd, &basic);
  attr->attr = basic.attr;
  return failed;
}

void rdma_destroy_srq(rdma_cm_id* id) {
  if (id->srq == nullptr) return;
  ibv_destroy_srq(id->srq);
  id->srq = nullptr;
  if (id->qp == nullptr) destroy_queues(of(id));
}

int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) {
  return guarded([&] { return attributes(of(id), *attr, *mask); });
}

}  // extern "C"
