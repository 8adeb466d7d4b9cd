// SPDX-License-Identifier: GPL-2.0-or-later
// Transports by name.
#include <array>
#include <stdexcept>

#include "transports.hpp"

namespace softroce {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<MessageSession> (*make)(MessageEngine&);
};
constexpr std::array kTransports = {
    Entry{"csa_ud", make_csa_ud},     Entry{"irn", make_irn},
    Entry{"oracle", make_oracle},     Entry{"python_policy", make_python_policy},
    Entry{"sdr_auto", make_sdr_auto}, Entry{"sdr_ec", make_sdr_ec},
    Entry{"sdr_sr", make_sdr_sr},     Entry{"sdr_sr_nack", make_sdr_sr_nack},
    Entry{"srnic", make_srnic},       Entry{"ud_rto", make_ud_rto}};

}  // namespace

std::unique_ptr<MessageSession> make_session(std::string_view name, MessageEngine& engine) {
  if (name == kPolicyTransport) return nullptr;
  std::string known(kPolicyTransport);
  for (const Entry& each : kTransports) {
    if (each.name == name) return each.make(engine);
    known += ", " + std::string(each.name);
  }
  throw std::invalid_argument("unknown transport '" + std::string(name) + "'; known: " + known);
}

std::vector<std::string> session_names() {
  std::vector<std::string> names;
  for (const Entry& each : kTransports) names.emplace_back(each.name);
  return names;
}

}  // namespace softroce
