// SPDX-License-Identifier: GPL-2.0-or-later
// The list of the lab's transports. The function NAME_transport() is in the transport's file in
// this folder.
#include <string>

#include "transports.hpp"

#define SOFTROCE_EACH_TRANSPORT(T) \
  T(csa_ud)                        \
  T(dcp)                           \
  T(falcon)                        \
  T(irn)                           \
  T(mrc)                           \
  T(ndp)                           \
  T(oracle)                        \
  T(rack_tlp)                      \
  T(sdr_auto)                      \
  T(sdr_ec)                        \
  T(sdr_sr)                        \
  T(sdr_sr_nack)                   \
  T(srnic)                         \
  T(uccl)                          \
  T(ud_rto)                        \
  T(uet_rod)                       \
  T(uet_rud)

namespace softroce {

#define SOFTROCE_DECLARE(name) Transport name##_transport();
SOFTROCE_EACH_TRANSPORT(SOFTROCE_DECLARE)

const std::vector<Transport>& transports() {
#define SOFTROCE_LIST(name) name##_transport(),
  static const std::vector<Transport> all{SOFTROCE_EACH_TRANSPORT(SOFTROCE_LIST)};
  return all;
}

std::unique_ptr<MessageSession> make_session(std::string_view name, MessageEngine& engine) {
  if (name == kPolicyTransport) return nullptr;
  if (name == kPythonPolicy) return make_python_policy(engine);
  std::string known(kPolicyTransport);
  for (const Transport& each : transports()) {
    if (each.name == name) return each.make(engine);
    known += ", " + std::string(each.name);
  }
  throw std::invalid_argument("unknown transport '" + std::string(name) + "'; known: " + known);
}

}  // namespace softroce
