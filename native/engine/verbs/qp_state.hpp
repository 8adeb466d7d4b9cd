// SPDX-License-Identifier: GPL-2.0-or-later
// The states of a queue pair, and what each transition requires and accepts (IBA 10.3.1, table 91;
// as Linux's ib_modify_qp_is_ok has it, drivers/infiniband/core/verbs.c).
#pragma once

#include <cstdint>

#include "work_request.hpp"

namespace softroce {

enum class QpState : std::uint8_t { reset, init, rtr, rts, sqd, sqe, err };  // enum ibv_qp_state
enum class QpType : std::uint8_t { rc = 2, uc = 3, ud = 4 };                 // enum ibv_qp_type

enum QpAttrMask : std::uint32_t {  // values of enum ibv_qp_attr_mask
  kAttrState = 1 << 0,
  kAttrCurState = 1 << 1,
  kAttrSqdNotify = 1 << 2,
  kAttrAccess = 1 << 3,
  kAttrPkeyIndex = 1 << 4,
  kAttrPort = 1 << 5,
  kAttrQkey = 1 << 6,
  kAttrAddress = 1 << 7,
  kAttrPathMtu = 1 << 8,
  kAttrTimeout = 1 << 9,
  kAttrRetryCount = 1 << 10,
  kAttrRnrRetry = 1 << 11,
  kAttrRqPsn = 1 << 12,
  kAttrMaxReads = 1 << 13,
  kAttrAlternatePath = 1 << 14,
  kAttrMinRnrTimer = 1 << 15,
  kAttrSqPsn = 1 << 16,
  kAttrMaxDestReads = 1 << 17,
  kAttrMigration = 1 << 18,
  kAttrCap = 1 << 19,
  kAttrDestQpn = 1 << 20,
};

struct QpAttr {  // struct ibv_qp_attr
  QpState state = QpState::reset;
  QpState current_state = QpState::reset;
  std::uint32_t path_mtu = 1024;  // bytes
  std::uint32_t qkey = 0;
  std::uint32_t rq_psn = 0, sq_psn = 0;
  std::uint32_t dest_qp = 0;
  std::uint32_t access = 0;
  std::uint16_t pkey_index = 0;
  std::uint8_t port = 1;
  std::uint8_t max_rd_atomic = 0, max_dest_rd_atomic = 0;
  std::uint8_t min_rnr_timer = 0;  // code of table 45, IBA 9.7.5.2.8
  std::uint8_t timeout = 0;        // 4.096 us * 2^timeout; 0: for ever
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry = 0;  // 7: for ever
  bool sqd_notify = false;
  AddressVector address{};
};

// Whether a QP may go from one state to another with these attributes.
bool transition_is_ok(QpType type, QpState from, QpState to, std::uint32_t mask);

}  // namespace softroce
