// SPDX-License-Identifier: GPL-2.0-or-later
// What a receiver names in its REFUSE or RNR: the message of a packet that it did not take.
#pragma once

#include "../engine/striped/packet_transport.hpp"
#include "bodies.hpp"

namespace softroce {

// The status is that in which the send is to end; 0: it is not to end.
inline Naming refused_message(const LabHeader& lab, Refusal why) {
  Naming naming{.id = lab.message_id, .key = {lab.operation, lab.step, lab.message}, .flag = true};
  if (why == Refusal::too_long)
    naming.status = static_cast<std::uint8_t>(WcStatus::rem_inv_req_err);
  if (why == Refusal::failed) naming.status = static_cast<std::uint8_t>(WcStatus::retry_exc_err);
  return naming;
}

}  // namespace softroce
