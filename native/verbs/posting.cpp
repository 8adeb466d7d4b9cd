// SPDX-License-Identifier: GPL-2.0-or-later
// Work requests: chains of them, as programs post them, into the engine's.
#include <cerrno>
#include <cstring>

#include "objects.hpp"

namespace softroce::verbs {
namespace {

bool is_known(unsigned opcode) {
  return opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_SEND_WITH_INV;
}

// The message of an inline request, taken when it is posted: its memory needs no region. Its
// elements stay, empty, to be counted.
void take_inline(SendRequest& request) {
  request.inline_bytes.resize(request.bytes());
  std::uint8_t* to = request.inline_bytes.data();
  for (auto& source : request.sources) {
    if (source.length == 0) continue;  // it may have no address
    std::memcpy(to, reinterpret_cast<const void*>(source.address), source.length);
    to += source.length;
    source.length = 0;
  }
}

int take_remote(const ibv_send_wr& from, const ibv_qp& qp, SendRequest& to) {
  if (qp.qp_type == IBV_QPT_UD) {
    if (from.wr.ud.ah == nullptr) return EINVAL;
    to.address = static_cast<const Ah*>(from.wr.ud.ah)->vector;
    to.remote_qp = from.wr.ud.remote_qpn;
    to.remote_qkey = from.wr.ud.remote_qkey;
    return 0;
  }
  if (from.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || from.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    to.remote_address = from.wr.atomic.remote_addr;
    to.rkey = from.wr.atomic.rkey;
    to.compare_add = from.wr.atomic.compare_add;
    to.swap = from.wr.atomic.swap;
  } else {
    to.remote_address = from.wr.rdma.remote_addr;
    to.rkey = from.wr.rdma.rkey;
  }
  return 0;
}

// A request that sends nothing.
int take_local(const ibv_send_wr& from, const Qp& qp, SendRequest& to) {
  to.wr_id = from.wr_id;
  to.flags = from.send_flags;
  const unsigned opcode = number_of(from.opcode);
  if (opcode == IBV_WR_BIND_MW)
    return take_binding(qp, from.bind_mw.mw, from.bind_mw.rkey, from.bind_mw.bind_info, to);
  if (opcode != IBV_WR_LOCAL_INV) return EOPNOTSUPP;
  to.opcode = WrOpcode::local_invalidate;
  to.invalidate_rkey = from.invalidate_rkey;
  return 0;
}

int take(const ibv_send_wr& from, const Qp& qp, SendRequest& to) {
  if (!is_known(number_of(from.opcode))) return take_local(from, qp, to);
  if (from.num_sge < 0 || from.num_sge > kMostElements) return EINVAL;
  to.wr_id = from.wr_id;
  to.opcode = static_cast<WrOpcode>(from.opcode);
  to.flags = from.send_flags;
  take_elements(from.sg_list, static_cast<std::size_t>(from.num_sge), to.sources);
  if (from.opcode == IBV_WR_SEND_WITH_INV)
    to.invalidate_rkey = from.invalidate_rkey;
  else
    to.immediate = __builtin_bswap32(from.imm_data);
  if (from.send_flags & IBV_SEND_INLINE) {
    if (to.bytes() > qp.max_inline) return EINVAL;
    if (!to.reads_remote()) take_inline(to);
  }
  return take_remote(from, qp, to);
}

int take(const ibv_recv_wr& from, ReceiveRequest& to) {
  if (from.num_sge < 0 || from.num_sge > kMostElements) return EINVAL;
  to.wr_id = from.wr_id;
  take_elements(from.sg_list, static_cast<std::size_t>(from.num_sge), to.targets);
  return 0;
}

// Posts each of a chain until one is refused, which `bad` names then.
template <typename Wr, typename Post>
int post_chain(Wr* wr, Wr** bad, Post&& post) {
  for (; wr != nullptr; wr = wr->next) {
    const int error = guarded([&] { return post(*wr); });
    if (error == 0) continue;
    *bad = wr;
    return error;
  }
  return 0;
}

int post_own_sends(const Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  Engine& engine = engine_of(qp.context);
  const auto held = engine.hold();
  const Time at = engine.now();
  const int error = post_chain(wr, bad, [&](const ibv_send_wr& each) {
    SendRequest request;
    if (const int refused = take(each, qp, request)) return refused;
    return engine.rnic().post_send(qp.qp_num, std::move(request), at);
  });
  engine.posted(at);
  return error;
}

int post_own_receives(const Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Engine& engine = engine_of(qp.context);
  const auto held = engine.hold();
  return post_chain(wr, bad, [&](const ibv_recv_wr& each) {
    ReceiveRequest request;
    if (const int refused = take(each, request)) return refused;
    return engine.rnic().post_receive(qp.qp_num, std::move(request), engine.last_read());
  });
}

}  // namespace

int post_send(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad) {
  const Qp& qp = *static_cast<Qp*>(base);
  const auto own = [&] { return post_own_sends(qp, wr, bad); };
  return post_where_it_is(qp, own, [&](shift::ShiftQp& moved) {
    return post_chain(wr, bad, [&](const ibv_send_wr& each) {
      shift::Sends request(1);
      if (const int refused = take(each, qp, request.front())) return refused;
      return moved.post_sends(std::move(request)).first;
    });
  });
}

int post_recv(ibv_qp* base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const Qp& qp = *static_cast<Qp*>(base);
  const auto own = [&] { return post_own_receives(qp, wr, bad); };
  return post_where_it_is(qp, own, [&](shift::ShiftQp& moved) {
    return post_chain(wr, bad, [&](const ibv_recv_wr& each) {
      shift::Receives request(1);
      if (const int refused = take(each, request.front())) return refused;
      return moved.post_receives(std::move(request)).first;
    });
  });
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Engine& engine = engine_of(srq->context);
  const auto held = engine.hold();
  return post_chain(wr, bad, [&](const ibv_recv_wr& each) {
    ReceiveRequest request;
    if (const int refused = take(each, request)) return refused;
    return engine.rnic().post_srq_receive(static_cast<Srq*>(srq)->number, std::move(request));
  });
}

}  // namespace softroce::verbs
