// SPDX-License-Identifier: GPL-2.0-or-later
// Memory windows, of type 1 and of type 2B (IBA 10.6.6).
#include <cerrno>

#include "objects.hpp"

namespace softroce::verbs {
namespace {

constexpr std::uint32_t kTag = 0xFF;  // of a key: the program's to choose, for type 2

int fill(const ibv_qp& qp, const Mw& window, std::uint32_t key, const ibv_mw_bind_info& info,
         SendRequest& request) {
  const std::uint32_t domain = static_cast<Pd*>(window.pd)->number;
  if (domain != static_cast<Pd*>(qp.pd)->number) return EINVAL;
  if ((key & ~kTag) != (window.first_key & ~kTag)) return EINVAL;
  if (info.mr == nullptr && info.length != 0) return EINVAL;
  Binding binding;
  binding.region = info.mr != nullptr ? info.mr->lkey : 0;
  binding.address = info.addr;
  binding.length = info.length;
  binding.iova = info.mw_access_flags & IBV_ACCESS_ZERO_BASED ? 0 : info.addr;
  binding.access = info.mw_access_flags;
  binding.protection_domain = domain;
  binding.qp = window.type == IBV_MW_TYPE_2 ? qp.qp_num : 0;
  request.opcode = WrOpcode::bind_window;
  request.rkey = key;
  request.binding = std::make_shared<const Binding>(binding);
  return 0;
}

}  // namespace

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  return made<Mw>([&](Mw*& window) {
    const unsigned number = number_of(type);
    if (number != IBV_MW_TYPE_1 && number != IBV_MW_TYPE_2) return EINVAL;
    auto fresh = std::make_unique<Mw>();
    fresh->context = pd->context;
    fresh->pd = pd;
    fresh->type = type;
    fresh->first_key = fresh->rkey = engine_of(pd->context).rnic().memory().add_window();
    fresh->handle = fresh->rkey;
    ++static_cast<Pd*>(pd)->users;
    window = fresh.release();
    return 0;
  });
}

int dealloc_mw(ibv_mw* base) {
  Mw* window = static_cast<Mw*>(base);
  // Held: the engine is not in the midst of a packet that comes through it.
  const auto held = engine_of(window->context).hold();
  engine_of(window->context).rnic().memory().remove_window(window->first_key);
  --static_cast<Pd*>(window->pd)->users;
  delete window;
  return 0;
}

int take_binding(const ibv_qp& qp, const ibv_mw* mw, std::uint32_t key,
                 const ibv_mw_bind_info& info, SendRequest& request) {
  if (mw == nullptr || mw->type != IBV_MW_TYPE_2) return EINVAL;
  return fill(qp, *static_cast<const Mw*>(mw), key, info, request);
}

// Of type 1: each binding has another key.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  return guarded([&] {
    SendRequest request;
    request.wr_id = bind->wr_id;
    request.flags = bind->send_flags;
    const std::uint32_t key = ibv_inc_rkey(mw->rkey);
    if (const int error = fill(*qp, *static_cast<Mw*>(mw), key, bind->bind_info, request))
      return error;
    Engine& engine = engine_of(qp->context);
    const auto held = engine.hold();
    const Time at = engine.now();
    const int error = engine.rnic().post_send(qp->qp_num, std::move(request), at);
    if (error == 0) mw->rkey = key;
    engine.posted(at);
    return error;
  });
}

}  // namespace softroce::verbs
