// SPDX-License-Identifier: GPL-2.0-or-later
// Connections: requested, listened for, agreed to, refused and ended.
#include <algorithm>
#include <cstring>

#include "manager.hpp"

namespace softroce::cm {
namespace {

constexpr std::uint8_t kRetries = 7;

int most_reads(const Id& id, const rdma_conn_param* given) {
  if (id.ps != RDMA_PS_TCP) return 0;
  if (given == nullptr) return id.qp == nullptr ? EINVAL : 0;
  const std::uint8_t most = id.device->most_reads;
  const auto fits = [&](std::uint8_t wanted, std::uint8_t all) {
    return wanted == all || wanted <= most;
  };
  return fits(given->responder_resources, RDMA_MAX_RESP_RES) &&
                 fits(given->initiator_depth, RDMA_MAX_INIT_DEPTH)
             ? 0
             : EINVAL;
}

Parameters parameters_of(const Id& id, const rdma_conn_param* given) {
  Parameters to;
  to.responder_resources = id.responder_resources;
  to.initiator_depth = id.initiator_depth;
  to.retry_count = given != nullptr ? given->retry_count : kRetries;
  to.rnr_retry_count = given != nullptr ? given->rnr_retry_count : kRetries;
  to.qkey = RDMA_UDP_QKEY;
  if (given != nullptr) {
    to.flow_control = given->flow_control;
    to.srq = given->srq;
    to.qp_num = given->qp_num;
    if (given->private_data != nullptr) {
      to.private_bytes = given->private_data_len;
      std::memcpy(to.private_data, given->private_data, given->private_data_len);
    }
  }
  if (id.qp != nullptr) {
    to.qp_num = id.qp->qp_num;
    to.srq = id.qp->srq != nullptr;
  }
  return to;
}

int connect(Id& id, const rdma_conn_param* given) {
  if (id.number == 0 || id.device == nullptr) return EINVAL;
  if (const int error = most_reads(id, given)) return error;
  const std::uint8_t most = id.device->most_reads;
  id.responder_resources = given != nullptr ? std::min(given->responder_resources, most) : most;
  id.initiator_depth = given != nullptr ? std::min(given->initiator_depth, most) : most;
  if (const int error = call(id, Verb::connect, parameters_of(id, given))) return error;
  return complete(id);
}

// What the peer asks for is the most that it gets.
int accept(Id& id, const rdma_conn_param* given) {
  if ((given == nullptr && id.qp == nullptr) || id.device == nullptr) return EINVAL;
  if (const int error = most_reads(id, given)) return error;
  const std::uint8_t most = id.device->most_reads;
  const auto grant = [&](std::uint8_t& own, const std::uint8_t* wanted, std::uint8_t all) {
    own = wanted == nullptr || *wanted == all ? std::min(own, most) : *wanted;
  };
  grant(id.responder_resources, given != nullptr ? &given->responder_resources : nullptr,
        RDMA_MAX_RESP_RES);
  grant(id.initiator_depth, given != nullptr ? &given->initiator_depth : nullptr,
        RDMA_MAX_INIT_DEPTH);
  const bool datagram = id.qp_type == IBV_QPT_UD;
  if (!datagram)
    if (const int error = to_ready(id, id.responder_resources, id.initiator_depth)) return error;
  if (const int error = call(id, Verb::accept, parameters_of(id, given)))
    return to_error(id), error;
  if (!datagram) return complete(id);
  give_back_event(id);
  return 0;
}

int listen(Id& id, int backlog) {
  if (const int error = enroll(id)) return error;
  sockaddr* address = &id.route.addr.src_addr;
  Call wanted{.verb = Verb::listen,
              .id = id.number,
              .port_space = static_cast<std::uint32_t>(id.ps),
              .transport = id.qp_type == IBV_QPT_UC,
              .backlog = static_cast<std::uint32_t>(std::max(backlog, 0)),
              .port = port_of(address)};
  if (!is_any(address)) put_gid(address, wanted.source);
  return Manager::get().call(wanted);
}

int reject(Id& id, const void* data, std::uint8_t bytes) {
  Parameters parameters;
  if (data != nullptr) {
    parameters.private_bytes = bytes;
    std::memcpy(parameters.private_data, data, bytes);
  }
  return call(id, Verb::reject, parameters);
}

int disconnect(Id& id) {
  if (const int error = to_error(id)) return error;
  if (const int error = call(id, Verb::disconnect)) return error;
  return complete(id);
}

}  // namespace
}  // namespace softroce::cm

using namespace softroce::cm;  // NOLINT: the C functions are outside of it

extern "C" {

int rdma_connect(rdma_cm_id* id, rdma_conn_param* given) {
  return guarded([&] { return connect(of(id), given); });
}

int rdma_listen(rdma_cm_id* id, int backlog) {
  return guarded([&] { return softroce::cm::listen(of(id), backlog); });
}

int rdma_accept(rdma_cm_id* id, rdma_conn_param* given) {
  return guarded([&] { return softroce::cm::accept(of(id), given); });
}

// For a queue pair that the program brought to RTS by itself.
int rdma_establish(rdma_cm_id* id) {
  if (id->qp != nullptr) return done(EINVAL);
  return guarded([&] { return call(of(id), Verb::establish); });
}

int rdma_reject(rdma_cm_id* id, const void* data, uint8_t bytes) {
  return guarded([&] { return reject(of(id), data, bytes); });
}

int rdma_disconnect(rdma_cm_id* id) {
  return guarded([&] { return disconnect(of(id)); });
}

// A passive side is established by the RTU, not by the first message: nothing is to be done.
int rdma_notify(rdma_cm_id*, ibv_event_type event) {
  return done(event == IBV_EVENT_COMM_EST ? 0 : EINVAL);
}

}  // extern "C"
