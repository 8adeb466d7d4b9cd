// SPDX-License-Identifier: GPL-2.0-or-later
// Synchronous ids with all that belongs to them, from rdma_getaddrinfo's result.
#include "manager.hpp"

namespace softroce::cm {
namespace {

int resolve(Id& id, const rdma_addrinfo& info) {
  if (info.ai_flags & RAI_PASSIVE) return rdma_bind_addr(&id, info.ai_src_addr) != 0 ? errno : 0;
  if (rdma_resolve_addr(&id, info.ai_src_addr, info.ai_dst_addr, 2000) != 0) return errno;
  return rdma_resolve_route(&id, 2000) != 0 ? errno : 0;
}

int create(const rdma_addrinfo& info, ibv_pd* pd, ibv_qp_init_attr* attr, rdma_cm_id*& made) {
  rdma_cm_id* base = nullptr;
  const auto space = static_cast<rdma_port_space>(info.ai_port_space);
  if (rdma_create_id(nullptr, &base, nullptr, space) != 0) return errno;
  Id& id = of(base);
  const bool passive = info.ai_flags & RAI_PASSIVE;
  if (space == RDMA_PS_IB && info.ai_qp_type != 0)
    id.qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
  int error = resolve(id, info);
  if (attr != nullptr) attr->qp_type = id.qp_type;
  if (error == 0 && attr != nullptr && passive)
    id.endpoint = std::make_unique<ibv_qp_init_attr>(*attr);
  if (error == 0 && pd != nullptr) id.pd = pd;
  if (error == 0 && attr != nullptr && !passive)
    error = rdma_create_qp(&id, pd, attr) != 0 ? errno : 0;
  if (error == 0) return made = base, 0;
  rdma_destroy_ep(base);
  return error;
}

int get_request(Id& listener, rdma_cm_id*& made) {
  if (!listener.synchronous) return EINVAL;
  give_back_event(listener);
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(listener.channel, &event) != 0) return errno;
  listener.event = event;
  if (event->status != 0 || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) return EINVAL;
  if (listener.endpoint) {
    ibv_qp_init_attr attr = *listener.endpoint;
    if (rdma_create_qp(event->id, listener.pd, &attr) != 0) {
      const int error = errno;
      rdma_destroy_id(event->id);
      return error;
    }
  }
  listener.event = nullptr;
  made = event->id;
  made->event = event;
  return 0;
}

}  // namespace
}  // namespace softroce::cm

using namespace softroce::cm;  // NOLINT: the C functions are outside of it

extern "C" {

int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* info, ibv_pd* pd, ibv_qp_init_attr* attr) {
  return guarded([&] { return create(*info, pd, attr, *id); });
}

void rdma_destroy_ep(rdma_cm_id* id) {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  if (id->srq != nullptr) rdma_destroy_srq(id);
  rdma_destroy_id(id);
}

int rdma_get_request(rdma_cm_id* listener, rdma_cm_id** id) {
  return guarded([&] { return get_request(of(listener), *id); });
}

// The names of rdma_cma.h.
const char* rdma_event_str(rdma_cm_event_type event) {
  constexpr const char* kNames[] = {
      "RDMA_CM_EVENT_ADDR_RESOLVED",   "RDMA_CM_EVENT_ADDR_ERROR",
      "RDMA_CM_EVENT_ROUTE_RESOLVED",  "RDMA_CM_EVENT_ROUTE_ERROR",
      "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
      "RDMA_CM_EVENT_CONNECT_ERROR",   "RDMA_CM_EVENT_UNREACHABLE",
      "RDMA_CM_EVENT_REJECTED",        "RDMA_CM_EVENT_ESTABLISHED",
      "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
      "RDMA_CM_EVENT_MULTICAST_JOIN",  "RDMA_CM_EVENT_MULTICAST_ERROR",
      "RDMA_CM_EVENT_ADDR_CHANGE",     "RDMA_CM_EVENT_TIMEWAIT_EXIT"};
  const auto number = static_cast<std::size_t>(event);
  return number < std::size(kNames) ? kNames[number] : "UNKNOWN EVENT";
}

}  // extern "C"
