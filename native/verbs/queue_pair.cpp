// SPDX-License-Identifier: GPL-2.0-or-later
// Queue pairs: made, brought through their states, asked and destroyed. The first one opens the
// port.
#include <algorithm>
#include <bit>
#include <cerrno>

#include "backup.hpp"
#include "objects.hpp"

namespace softroce::verbs {
namespace {

constexpr int kWithoutEffect = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_CAP;

QpConfig config_of(const ibv_pd* pd, const ibv_qp_init_attr& attr) {
  QpConfig config;
  config.type = static_cast<QpType>(attr.qp_type);
  config.protection_domain = static_cast<const Pd*>(pd)->number;
  config.cap = {attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_send_sge,
                attr.cap.max_recv_sge, attr.cap.max_inline_data};
  config.send_cq = static_cast<Cq*>(attr.send_cq)->queue;
  config.receive_cq = static_cast<Cq*>(attr.recv_cq)->queue;
  config.signal_all = attr.sq_sig_all != 0;
  return config;
}

bool is_supported(unsigned type) {
  return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD;
}

// Who begins anew finds nothing of before, as with rdma-core's drivers of mlx4 and mlx5.
void forget_completions(const ibv_qp& qp) {
  static_cast<Cq*>(qp.send_cq)->queue->forget(qp.qp_num);
  static_cast<Cq*>(qp.recv_cq)->queue->forget(qp.qp_num);
}

void forget_those_of_both(const ibv_qp& qp) {
  for (ibv_cq* each : {qp.send_cq, qp.recv_cq})
    static_cast<Cq*>(each)->both->completions.forget(qp.qp_num);
}

int attributes_of(Engine& engine, const ibv_qp_attr& from, int mask, QpAttr& to) {
  const unsigned state = number_of(from.qp_state), current = number_of(from.cur_qp_state);
  if ((mask & IBV_QP_STATE) && state > IBV_QPS_ERR) return EINVAL;
  if ((mask & IBV_QP_CUR_STATE) && current > IBV_QPS_ERR) return EINVAL;
  to.state = static_cast<QpState>(state);
  to.current_state = static_cast<QpState>(current);
  if (mask & IBV_QP_PATH_MTU) {
    const unsigned code = number_of(from.path_mtu);
    if (code < IBV_MTU_256 || code > IBV_MTU_4096) return EINVAL;
    to.path_mtu = 128U << code;
  }
  to.qkey = from.qkey;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.dest_qp = from.dest_qp_num;
  to.access = static_cast<std::uint32_t>(from.qp_access_flags);
  to.pkey_index = from.pkey_index;
  to.port = from.port_num;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer & 31;  // 5 bits; some programs set more
  to.timeout = from.timeout;
  to.retry_count = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
  to.sqd_notify = from.en_sqd_async_notify != 0;
  return mask & IBV_QP_AV ? address_of(engine, from.ah_attr, to.address) : 0;
}

void fill(const QpAttr& from, ibv_qp_attr& to) {
  to.path_mtu = static_cast<ibv_mtu>(std::bit_width(from.path_mtu) - 8);
  to.path_mig_state = IBV_MIG_MIGRATED;
  to.qkey = from.qkey;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.dest_qp_num = from.dest_qp;
  to.qp_access_flags = from.access;
  fill_address(from.address, to.ah_attr);
  to.pkey_index = from.pkey_index;
  to.port_num = from.port;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_count;
  to.rnr_retry = from.rnr_retry;
}

ibv_qp_cap cap_of(const QpCapacities& cap) {
  return {cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge,
          cap.max_inline_data};
}

int create_own_qp(ibv_pd* pd, ibv_qp_init_attr& attr, QpConfig& config, Qp*& created) {
  if (!is_supported(number_of(attr.qp_type))) return EOPNOTSUPP;
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr) return EINVAL;
  Engine& engine = engine_of(pd->context);
  auto qp = std::make_unique<Qp>();
  config = config_of(pd, attr);
  const auto held = engine.hold();
  if (const int error = engine.open_port()) return error;
  if (attr.srq != nullptr) {
    config.srq = engine.rnic().find_srq(static_cast<Srq*>(attr.srq)->number);
    config.cap.max_recv_wr = config.cap.max_recv_sge = 0;
  }
  std::uint32_t number = 0;
  if (const int error = engine.rnic().create_qp(config, number)) return error;
  qp->context = pd->context;
  qp->qp_context = attr.qp_context;
  qp->pd = pd;
  qp->send_cq = attr.send_cq;
  qp->recv_cq = attr.recv_cq;
  qp->srq = attr.srq;
  qp->handle = qp->qp_num = number;
  qp->state = IBV_QPS_RESET;
  qp->qp_type = attr.qp_type;
  qp->signal_all = config.signal_all;
  qp->max_inline = config.cap.max_inline_data;
  pthread_mutex_init(&qp->mutex, nullptr);
  pthread_cond_init(&qp->cond, nullptr);
  ++static_cast<Cq*>(qp->send_cq)->users;
  ++static_cast<Cq*>(qp->recv_cq)->users;
  ++static_cast<Pd*>(pd)->users;
  engine.qps[number] = qp.get();
  created = qp.release();
  return 0;
}

// Null also for a queue pair that goes on nowhere else.
DeviceBackup* backup_of(const ibv_qp& qp) {
  if (qp.qp_type != IBV_QPT_RC) return nullptr;
  return backup_for(*of(qp.context).home);
}

// Of the queue pair that carries the requests; ERR, once an error has surfaced.
ibv_qp_state state_with_backup(const shift::ShiftQp& qp, ibv_qp_state own) {
  if (qp.machine().sender() == shift::Sender::failed) return IBV_QPS_ERR;
  return qp.machine().plain() ? own : IBV_QPS_RTS;
}

int modify(Qp& qp, const ibv_qp_attr& attr, int mask) {
  Engine& engine = engine_of(qp.context);
  const auto held = engine.hold();
  QpAttr wanted;
  if (const int error = attributes_of(engine, attr, mask, wanted)) return error;
  const auto kept = static_cast<std::uint32_t>(mask & ~kWithoutEffect);
  if (const int error = engine.rnic().modify_qp(qp.qp_num, wanted, kept, engine.now()))
    return error;
  if (mask & IBV_QP_STATE) qp.state = attr.qp_state;
  if ((mask & IBV_QP_STATE) && attr.qp_state == IBV_QPS_RESET) forget_completions(qp);
  hand_out_async_events(engine);
  return 0;
}

QpConfig config_of(const Qp& qp) {
  Engine& engine = engine_of(qp.context);
  const auto held = engine.hold();
  return engine.rnic().find_qp(qp.qp_num)->config();
}

// A child of fork(2) waits for no thread of its parent.
std::unique_lock<std::mutex> hold_changes(Qp& qp) {
  if (engine_of(qp.context).orphan()) return {};
  return std::unique_lock(qp.changes);
}

// To ERR.
void end(Qp& qp) {
  qp.shift->abandon();
  qp.state = IBV_QPS_ERR;
  if (qp.srq != nullptr) hand_out_last_wqe(qp);
}

// To RESET: what comes has another backup.
int begin_anew(Qp& qp, const ibv_qp_attr& attr, int mask) {
  DeviceBackup& backup = *backup_of(qp);
  backup.remove(qp);
  forget_those_of_both(qp);
  const int error = modify(qp, attr, mask);
  backup.add(qp, config_of(qp));
  qp.has_peer = false;
  return error;
}

}  // namespace

int create_qp(ibv_pd* pd, ibv_qp_init_attr& attr, Qp*& created) {
  QpConfig config;
  if (const int error = create_own_qp(pd, attr, config, created)) return error;
  if (DeviceBackup* backup = backup_of(*created)) backup->add(*created, config);
  return 0;
}

}  // namespace softroce::verbs

using namespace softroce::verbs;  // NOLINT: the C functions are outside of it

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return made<Qp>([&](Qp*& qp) { return create_qp(pd, *attr, qp); });
}

int ibv_modify_qp(ibv_qp* base, ibv_qp_attr* attr, int mask) {
  return guarded([&] {
    Qp& qp = *static_cast<Qp*>(base);
    const auto changes = hold_changes(qp);
    const bool to_state = mask & IBV_QP_STATE;
    if (!qp.shift || !to_state || engine_of(qp.context).orphan()) return modify(qp, *attr, mask);
    if (attr->qp_state == IBV_QPS_ERR) return end(qp), 0;
    // Peers of programs that reset each new queue pair have looked for its backup already.
    if (attr->qp_state == IBV_QPS_RESET && (qp.has_peer || !qp.shift->machine().plain()))
      return begin_anew(qp, *attr, mask);
    const bool connects = attr->qp_state == IBV_QPS_RTR || attr->qp_state == IBV_QPS_RTS;
    if (connects && qp.shift->machine().epoch() != 0) return 0;  // it has moved from RTR
    if (const int error = modify(qp, *attr, mask)) return error;
    if (connects) qp.shift->connect();
    qp.has_peer |= connects;
    return 0;
  });
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init_attr) {
  return guarded([&] {
    Engine& engine = engine_of(qp->context);
    const auto changes = hold_changes(*static_cast<Qp*>(qp));
    const auto held = engine.hold();
    const softroce::QueuePair* found = engine.rnic().find_qp(qp->qp_num);
    if (found == nullptr) return EINVAL;
    *attr = {};
    fill(found->attributes(), *attr);
    attr->qp_state = attr->cur_qp_state = static_cast<ibv_qp_state>(found->state());
    attr->sq_draining = found->state() == softroce::QpState::sqd && found->is_draining();
    attr->cap = cap_of(found->config().cap);
    if (const auto& shift = static_cast<Qp*>(qp)->shift)
      attr->qp_state = attr->cur_qp_state = state_with_backup(*shift, attr->qp_state);
    qp->state = attr->qp_state;
    *init_attr = {};
    init_attr->qp_context = qp->qp_context;
    init_attr->send_cq = qp->send_cq;
    init_attr->recv_cq = qp->recv_cq;
    init_attr->srq = qp->srq;
    init_attr->cap = attr->cap;
    init_attr->qp_type = qp->qp_type;
    init_attr->sq_sig_all = static_cast<Qp*>(qp)->signal_all;
    return 0;
  });
}

int ibv_destroy_qp(ibv_qp* base) {
  return guarded([&] {
    Qp* qp = static_cast<Qp*>(base);
    Engine& engine = engine_of(qp->context);
    if (qp->shift && engine.orphan())
      new auto(std::move(qp->shift));  // a thread that is not here may have its backup's lock
    else if (qp->shift)
      backup_of(*qp)->remove(*qp);
    {
      const auto held = engine.hold();
      engine.turn();  // an acknowledgement that is due leaves
      engine.forget_qp(qp->qp_num);
      if (const int error = engine.rnic().destroy_qp(qp->qp_num)) return error;
      engine.qps.erase(qp->qp_num);
      if (engine.qps.empty()) engine.publish();  // the process may end by _exit(2)
    }
    forget(qp);
    --static_cast<Cq*>(qp->send_cq)->users;
    --static_cast<Cq*>(qp->recv_cq)->users;
    --static_cast<Pd*>(qp->pd)->users;
    pthread_cond_destroy(&qp->cond);
    pthread_mutex_destroy(&qp->mutex);
    delete qp;
    return 0;
  });
}

int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) { return 0; }

}  // extern "C"
