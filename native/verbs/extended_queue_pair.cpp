// SPDX-License-Identifier: GPL-2.0-or-later
// Extended queue pairs: requests that ibv_wr_start, ibv_wr_send and the like build, and
// ibv_wr_complete posts. The first error of these calls is what ibv_wr_complete returns; then it
// posts nothing.
#include <algorithm>
#include <cerrno>

#include "objects.hpp"

namespace softroce::verbs {
namespace {

constexpr std::uint32_t kAttributes =
    IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
constexpr std::uint64_t kUdOperations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t kUcOperations = kUdOperations | IBV_QP_EX_WITH_RDMA_WRITE |
                                        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                        IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
constexpr std::uint64_t kRcOperations =
    kUcOperations | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;
constexpr unsigned kFlags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

std::uint64_t operations_of(unsigned type) {
  switch (type) {
    case IBV_QPT_RC:
      return kRcOperations;
    case IBV_QPT_UC:
      return kUcOperations;
    case IBV_QPT_UD:
      return kUdOperations;
    default:
      return 0;
  }
}

ibv_qp_ex* extended(Qp* qp) { return reinterpret_cast<ibv_qp_ex*>(static_cast<ibv_qp*>(qp)); }
Qp& of(ibv_qp_ex* qp) { return *static_cast<Qp*>(&qp->qp_base); }

// Nothing, once a call since ibv_wr_start has failed.
template <typename F>
void build(ibv_qp_ex* qp, F&& body) noexcept {
  Builder& builder = *of(qp).builder;
  if (builder.error == 0) builder.error = guarded([&] { return body(builder); });
}

// Begins a request; `fill` does the rest.
template <typename F>
void begin(ibv_qp_ex* qp, std::uint64_t operation, WrOpcode opcode, F&& fill) noexcept {
  build(qp, [&](Builder& builder) {
    if (!(builder.operations & operation)) return EOPNOTSUPP;
    SendRequest& request = builder.requests.emplace_back();
    request.wr_id = qp->wr_id;
    request.opcode = opcode;
    request.flags = qp->wr_flags & kFlags;
    fill(request);
    return 0;
  });
}

void begin_remote(ibv_qp_ex* qp, std::uint64_t operation, WrOpcode opcode, std::uint32_t rkey,
                  std::uint64_t address, __be32 immediate = 0) {
  begin(qp, operation, opcode, [&](SendRequest& request) {
    request.rkey = rkey;
    request.remote_address = address;
    request.immediate = __builtin_bswap32(immediate);
  });
}

// Changes the request that was begun last.
template <typename F>
void set(ibv_qp_ex* qp, F&& body) noexcept {
  build(qp, [&](Builder& builder) {
    return builder.requests.empty() ? EINVAL : body(builder.requests.back());
  });
}

void set_elements(ibv_qp_ex* qp, std::size_t count, const ibv_sge* list) {
  set(qp, [&](SendRequest& request) {
    if (count > kMostElements) return EINVAL;
    request.inline_bytes.clear();
    request.flags &= ~kInline;
    request.sources.clear();
    take_elements(list, count, request.sources);
    return 0;
  });
}

// The message is copied now: its memory needs no region.
void set_inline(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* list) {
  set(qp, [&](SendRequest& request) {
    const std::uint64_t most = of(qp).max_inline;
    request.sources.clear();
    request.flags |= kInline;
    request.inline_bytes.clear();
    for (std::size_t i = 0; i < count; ++i) {
      if (list[i].length > most - request.inline_bytes.size()) return EINVAL;
      const auto* from = static_cast<const std::uint8_t*>(list[i].addr);
      request.inline_bytes.insert(request.inline_bytes.end(), from, from + list[i].length);
    }
    return 0;
  });
}

void set_address(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_qp, std::uint32_t qkey) {
  set(qp, [&](SendRequest& request) {
    if (ah == nullptr) return EINVAL;
    request.address = static_cast<const Ah*>(ah)->vector;
    request.remote_qp = remote_qp;
    request.remote_qkey = qkey;
    return 0;
  });
}

void start(ibv_qp_ex* qp) {
  Builder& builder = *of(qp).builder;
  builder.lock.lock();
  builder.requests.clear();
  builder.error = 0;
}

int post_own_requests(const Qp& qp, std::vector<SendRequest>& requests) {
  Engine& engine = engine_of(qp.context);
  const auto held = engine.hold();
  const Time at = engine.now();
  const int error = engine.rnic().post_sends(qp.qp_num, requests, at);
  engine.posted(at);
  return error;
}

int post_requests(const Qp& qp, std::vector<SendRequest>& requests) {
  const auto own = [&] { return post_own_requests(qp, requests); };
  return post_where_it_is(
      qp, own, [&](shift::ShiftQp& moved) { return moved.post_all_sends(std::move(requests)); });
}

int complete(ibv_qp_ex* base) {
  Qp& qp = of(base);
  Builder& builder = *qp.builder;
  const std::unique_lock held(builder.lock, std::adopt_lock);
  if (builder.error != 0) return builder.error;
  const auto& requests = builder.requests;
  if (qp.qp_type == IBV_QPT_UD && std::ranges::any_of(requests, [](const SendRequest& each) {
        return each.address.destination == Gid{};
      }))
    return EINVAL;
  return guarded([&] { return post_requests(qp, builder.requests); });
}

void abort_all(ibv_qp_ex* qp) { of(qp).builder->lock.unlock(); }

void fill_functions(ibv_qp_ex& qp) {
  using Qpx = ibv_qp_ex*;
  qp.wr_start = start;
  qp.wr_complete = complete;
  qp.wr_abort = abort_all;
  qp.wr_send = [](Qpx to) { begin(to, IBV_QP_EX_WITH_SEND, WrOpcode::send, [](SendRequest&) {}); };
  qp.wr_send_imm = [](Qpx to, __be32 immediate) {
    begin_remote(to, IBV_QP_EX_WITH_SEND_WITH_IMM, WrOpcode::send_with_immediate, 0, 0, immediate);
  };
  qp.wr_send_inv = [](Qpx to, std::uint32_t rkey) {
    begin(to, IBV_QP_EX_WITH_SEND_WITH_INV, WrOpcode::send_with_invalidate,
          [&](SendRequest& request) { request.invalidate_rkey = rkey; });
  };
  qp.wr_rdma_write = [](Qpx to, std::uint32_t rkey, std::uint64_t address) {
    begin_remote(to, IBV_QP_EX_WITH_RDMA_WRITE, WrOpcode::rdma_write, rkey, address);
  };
  qp.wr_rdma_write_imm = [](Qpx to, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
    begin_remote(to, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, WrOpcode::rdma_write_with_immediate, rkey,
                 address, immediate);
  };
  qp.wr_rdma_read = [](Qpx to, std::uint32_t rkey, std::uint64_t address) {
    begin_remote(to, IBV_QP_EX_WITH_RDMA_READ, WrOpcode::rdma_read, rkey, address);
  };
  qp.wr_atomic_cmp_swp = [](Qpx to, std::uint32_t rkey, std::uint64_t address,
                            std::uint64_t compare, std::uint64_t swap) {
    begin(to, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, WrOpcode::compare_swap, [&](SendRequest& request) {
      request.rkey = rkey;
      request.remote_address = address;
      request.compare_add = compare;
      request.swap = swap;
    });
  };
  qp.wr_atomic_fetch_add = [](Qpx to, std::uint32_t rkey, std::uint64_t address,
                              std::uint64_t add) {
    begin(to, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, WrOpcode::fetch_add, [&](SendRequest& request) {
      request.rkey = rkey;
      request.remote_address = address;
      request.compare_add = add;
    });
  };
  qp.wr_local_inv = [](Qpx to, std::uint32_t rkey) {
    begin(to, IBV_QP_EX_WITH_LOCAL_INV, WrOpcode::local_invalidate,
          [&](SendRequest& request) { request.invalidate_rkey = rkey; });
  };
  qp.wr_bind_mw = [](Qpx to, ibv_mw* mw, std::uint32_t key, const ibv_mw_bind_info* info) {
    begin(to, IBV_QP_EX_WITH_BIND_MW, WrOpcode::bind_window, [](SendRequest&) {});
    set(to,
        [&](SendRequest& request) { return take_binding(to->qp_base, mw, key, *info, request); });
  };
  qp.wr_set_ud_addr = set_address;
  qp.wr_set_sge = [](Qpx to, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
    const ibv_sge element{address, length, lkey};
    set_elements(to, 1, &element);
  };
  qp.wr_set_sge_list = set_elements;
  qp.wr_set_inline_data = [](Qpx to, void* address, std::size_t length) {
    const ibv_data_buf whole{address, length};
    set_inline(to, 1, &whole);
  };
  qp.wr_set_inline_data_list = set_inline;
}

int create(ibv_context* context, ibv_qp_init_attr_ex& attr, Qp*& created) {
  if (attr.comp_mask & ~kAttributes) return EOPNOTSUPP;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0) return EOPNOTSUPP;
  if (!(attr.comp_mask & IBV_QP_INIT_ATTR_PD) || attr.pd == nullptr) return EINVAL;
  if (attr.pd->context != context) return EINVAL;
  const bool builds = attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (builds && (attr.send_ops_flags & ~operations_of(number_of(attr.qp_type)))) return EOPNOTSUPP;
  auto builder = builds ? std::make_unique<Builder>() : nullptr;
  // It begins as its predecessor does.
  if (const int error = create_qp(attr.pd, reinterpret_cast<ibv_qp_init_attr&>(attr), created))
    return error;
  if (!builds) return 0;
  builder->operations = attr.send_ops_flags;
  created->builder = std::move(builder);
  fill_functions(*extended(created));
  return 0;
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  return made<Qp>([&](Qp*& qp) { return create(context, *attr, qp); });
}

}  // namespace softroce::verbs

using namespace softroce::verbs;  // NOLINT: the C functions are outside of it

extern "C" {

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* base) {
  Qp* qp = static_cast<Qp*>(base);
  return qp->builder ? extended(qp) : nullptr;
}

}  // extern "C"
