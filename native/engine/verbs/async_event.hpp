// SPDX-License-Identifier: GPL-2.0-or-later
// Asynchronous events (IBA 11.6.3): events of a resource outside any call.
#pragma once

#include <cstdint>

namespace softroce {

enum class AsyncEventType : std::uint8_t {  // values of enum ibv_event_type
  cq_err = 0,
  qp_fatal = 1,
  qp_req_err = 2,
  qp_access_err = 3,
  comm_est = 4,
  sq_drained = 5,
  srq_limit_reached = 15,
  qp_last_wqe_reached = 16,
};

struct AsyncEvent {
  AsyncEventType type{};
  std::uint32_t number = 0;  // of the QP, the shared receive queue or the completion queue
};

}  // namespace softroce
