// SPDX-License-Identifier: GPL-2.0-or-later
// The sessions that there are; registry.cpp names them.
#pragma once

#include <memory>

#include "../engine/striped/message_session.hpp"

namespace softroce {

std::unique_ptr<MessageSession> make_irn(MessageEngine& engine);
std::unique_ptr<MessageSession> make_srnic(MessageEngine& engine);
std::unique_ptr<MessageSession> make_oracle(MessageEngine& engine);
std::unique_ptr<MessageSession> make_csa_ud(MessageEngine& engine);
std::unique_ptr<MessageSession> make_ud_rto(MessageEngine& engine);
std::unique_ptr<MessageSession> make_sdr_sr(MessageEngine& engine);
std::unique_ptr<MessageSession> make_sdr_sr_nack(MessageEngine& engine);
std::unique_ptr<MessageSession> make_sdr_ec(MessageEngine& engine);
std::unique_ptr<MessageSession> make_sdr_auto(MessageEngine& engine);
std::unique_ptr<MessageSession> make_python_policy(MessageEngine& engine);

}  // namespace softroce
