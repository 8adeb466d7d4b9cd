// SPDX-License-Identifier: GPL-2.0-or-later
// Shared receive queues.
#include <cerrno>
#include <optional>

#include "objects.hpp"

namespace softroce::verbs {
namespace {

int create(ibv_pd* pd, const ibv_srq_init_attr& attr, Srq*& created) {
  Engine& engine = engine_of(pd->context);
  auto srq = std::make_unique<Srq>();
  const auto held = engine.hold();
  if (const int error = engine.rnic().create_srq(static_cast<Pd*>(pd)->number, attr.attr.max_wr,
                                                 attr.attr.max_sge, srq->number))
    return error;
  srq->context = pd->context;
  srq->srq_context = attr.srq_context;
  srq->pd = pd;
  srq->handle = srq->number;
  srq->max_sge = attr.attr.max_sge;
  pthread_mutex_init(&srq->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
  ++static_cast<Pd*>(pd)->users;
  engine.srqs[srq->number] = srq.get();
  created = srq.release();
  return 0;
}

}  // namespace

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
  *number = static_cast<Srq*>(srq)->number;
  return 0;
}

}  // namespace softroce::verbs

using namespace softroce::verbs;  // NOLINT: the C functions are outside of it

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return made<Srq>([&](Srq*& srq) { return create(pd, *attr, srq); });
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return guarded([&] {
    Engine& engine = engine_of(srq->context);
    const auto held = engine.hold();
    std::optional<std::uint32_t> max_wr, limit;
    if (mask & IBV_SRQ_MAX_WR) max_wr = attr->max_wr;
    if (mask & IBV_SRQ_LIMIT) limit = attr->srq_limit;
    return engine.rnic().modify_srq(static_cast<Srq*>(srq)->number, max_wr, limit);
  });
}

int ibv_query_srq(ibv_srq* base, ibv_srq_attr* attr) {
  return guarded([&] {
    const Srq& srq = *static_cast<Srq*>(base);
    Engine& engine = engine_of(srq.context);
    const auto held = engine.hold();
    const auto found = engine.rnic().find_srq(srq.number);
    if (!found) return EINVAL;
    *attr = {found->queue.max_requests(), srq.max_sge, found->limit};
    return 0;
  });
}

int ibv_destroy_srq(ibv_srq* base) {
  return guarded([&] {
    Srq* srq = static_cast<Srq*>(base);
    Engine& engine = engine_of(srq->context);
    {
      const auto held = engine.hold();
      if (const int error = engine.rnic().destroy_srq(srq->number)) return error;
      engine.srqs.erase(srq->number);
    }
    forget(srq);
    --static_cast<Pd*>(srq->pd)->users;
    pthread_cond_destroy(&srq->cond);
    pthread_mutex_destroy(&srq->mutex);
    delete srq;
    return 0;
  });
}

}  // extern "C"
